// Package settings is what the owner of a queue decides: the rules, the limits,
// grace periods, idleness, overuse and parking. The parts of the engine read it.
//
// It holds values and knows no job that exists. Start with Settings.
package settings

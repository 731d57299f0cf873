//go:build race

package testkit

// Race: the race detector is on, and allocates for itself.
const Race = true

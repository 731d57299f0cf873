// Package tests is the folder of tests of the whole: soak kills the real programs,
// siege attacks them as hostile users, browser uses the page. testkit helps the
// tests of every package, and fakenvml is a driver library that breaks on demand.
//
// No program may import any of it. Start with soak.
package tests

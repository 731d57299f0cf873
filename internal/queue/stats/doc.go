// Package stats sums up what jobs used of a machine: by user, by day, and in all.
//
// It reads no store and knows no clock: it is given every job of the period.
//
// Read sum.go first, then row.go and cards.go.
package stats

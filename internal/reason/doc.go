// Package reason knows why a job waits, for how long it may, and what stands
// between it and each card: as values, as JSON and as sentences for people. The
// scheduler fills the values in; everything that shows them prints the same
// words. It decides nothing, and knows no clock, no chance and no file.
package reason

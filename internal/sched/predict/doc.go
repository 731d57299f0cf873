// Package predict estimates how long a job will run and how much memory it will
// use, from earlier jobs. It is pure: no clock, no file, no randomness. Callers
// must cope with estimates that turn out wrong.
package predict

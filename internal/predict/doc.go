// Package predict guesses how long a job will run and how much memory it will
// use, from what ran before. It is pure: no clock, no file, no randomness.
// Whoever uses a guess has to bear its being wrong.
package predict

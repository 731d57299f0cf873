// Package sched decides which queued jobs start, and on which cards. Decide
// is a function of a State and nothing else: give it the same snapshot and it
// gives the same Plan, on a live machine and in a replay alike.
//
// It may not look at a clock, draw a random number, open a file, log, or talk
// to a card. Time and measurements are in the State; what it has to say is in
// the Plan and in Reasons. It imports the standard library and the job room.
package sched

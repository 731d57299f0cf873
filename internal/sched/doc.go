// Package sched decides which waiting jobs start, and on which cards. Decide is a
// function of a State and nothing else: the same snapshot gives the same Plan, on a
// live machine and in a replay alike.
//
// It may not look at a clock, draw a random number, open a file, log, or talk to a
// card. Time and measurements are in the State; the results are the Plan and
// reasons. It imports the standard library, job and reason.
//
// Its files are in groups. Each group uses only those above it, and a test checks
// that. Read them in this order, or start with decide.go:
//
//	rules: rules tuning estimate pace term
//	what fits where: card request budget machine fit candidates choose possible
//	who goes next: list tally shape state queue userqueue service turn limit overdue walk
//	what is decided: closed decision limits borrow contend outrank reservation departure reserve preempt again assert decide
//	why: explain tell
//	when: timeline step forecast
//	what is told: feasible story snapshot
package sched

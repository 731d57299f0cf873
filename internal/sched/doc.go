// Package sched decides which queued jobs start, and on which cards. Decide
// is a function of a State and nothing else: give it the same snapshot and it
// gives the same Plan, on a live machine and in a replay alike.
//
// It may not look at a clock, draw a random number, open a file, log, or talk
// to a card. Time and measurements are in the State; what it has to say is in
// the Plan and in Reasons. It imports the standard library, job and reason.
//
// Its files are in rooms. Each uses only those above it, which a test holds; read
// them in this order, or begin with decide.go:
//
//	rules: rules tuning estimate term
//	what fits where: card request budget machine fit candidates choose possible
//	who goes next: list tally requestclass state queue line service turn limit overdue walk
//	what is decided: decision limited outrank reservation departure reserve preempt again assert decide
//	why: explain tell
//	when: ask lane layout front forecast
//	what is told: feasible story snapshot
package sched

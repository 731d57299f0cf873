// Package notify knows what berth tells a user who asked to be told: which
// events, which targets, what a message says, when it is sent and when berth
// gives up on it. All of it is values: package send delivers a message, the
// daemon feeds events in and keeps the outbox on disk.
//
// The package uses no clock, file or network, and knows of a job only what a
// message says.
//
// # How a user is told
//
// The daemon reads the committed events from a cursor, and commits the cursor
// together with the outbox entries made from them. So a kill at any moment loses no
// message and makes none twice. A kill between delivery and removal repeats that
// message, with the same id.
//
// An entry gathers facts for one target of one user, for seconds to minutes; the
// ends of an array or a jobs file gather until the last one. Then it is sealed: its
// text no longer changes, and berth tries to send it for a day at most. Targets may
// contain secrets: everybody but their owner sees Target.Shown.
package notify

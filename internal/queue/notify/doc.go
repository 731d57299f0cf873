// Package notify knows what berth tells a user who asked to be told: which
// events, which targets, what a message says, when it is sent and when berth
// gives up on it. All of it is values: package send delivers a message, the
// daemon feeds events in and keeps the outbox on disk.
//
// The package uses no clock, file or network, and knows of a job only what a
// message says.
package notify

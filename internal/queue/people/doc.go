// Package people knows the users of the machine: their names and homes, as whom
// each job and each helper of berth runs, and with which environment and limits.
// It caches what a start needs, so that the engine never waits for a directory
// service.
//
// It admits nobody and knows no request: who may do what is decided above it. A
// shared daemon is root, so what a user controls is opened only by a process that
// has become that user.
//
// Read people.go first, then owner.go, environ.go and log.go.
package people

// Package front is the small program that users call as berth. It answers the
// shortest commands itself and executes berth-main, the whole program beside it, for
// anything else: a program of its size takes several times as long to start.
//
// It may not decide, explain or refuse anything: whatever is not usual is left to
// the whole program, with the request that has been sent if there is one.
//
// Read main.go, then submit.go.
package front

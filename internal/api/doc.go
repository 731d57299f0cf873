// Package api is both ends of one contract: the types that travel between
// berth's daemon and whoever talks to it, the client, and the server that
// turns requests into calls of a Backend.
//
// It decides nothing about jobs: it does not schedule, store, or start
// anything. What a caller may do is the Backend's to say; who the caller is,
// the kernel's (peer credentials) or a token's, never the message's.
package api

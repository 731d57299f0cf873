// Package api is both ends of one contract: the types that travel between
// berth's daemon and its clients, the client, and the server that turns requests
// into calls of a Backend.
//
// It decides nothing about jobs: it does not schedule, store or start anything.
// The Backend decides what a caller may do. The kernel (peer credentials) or a
// token identifies the caller, never the message.
//
// Below it are the other faces of a queue: metrics for Prometheus, mcp for agents,
// and web, the files of the page. They are clients or are told; none knows more than
// the api says.
package api

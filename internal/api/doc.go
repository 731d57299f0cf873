// Package api is both ends of one contract: the table of endpoints (table.go), the
// types that travel between berth's daemon and its clients, the client (Call), and the
// server that hands requests to the handlers of a daemon (Handle).
//
// It decides nothing about jobs: it does not schedule, store or start anything.
// The handlers decide what a caller may do. The kernel (peer credentials) or a
// token identifies the caller, never the message.
//
// Below it are the other faces of a queue: metrics for Prometheus, mcp for agents,
// and web, the files of the page. They are clients or are told; none knows more than
// the api says.
package api

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
//
// Files, in reading order; each uses only those of its own group and of those above
// it (a test holds that):
//
//	what travels: problem limits key caller types sweeps whytypes grouptypes spec gputypes samples replay adopt strays logins notify exit loggap
//	the table: endpoint table
//	how JSON is read: url strict viewread decode
//	sockets: socket listen
//	the server: reply server conn proof identity exchange stream handle jobs viewjson session
//	streams: logs attach events metrics openapi
//	listening: routes serve
//	the client: client silence call client_jobs client_log client_stream sent page inside
package api

// Package send delivers one message to one target, in a process of its own that
// has the rights of the user who asked for it. The daemon starts that process
// (berth __notify) and hands it a request on its standard input, because
// everybody can read arguments; the answer is one line of JSON.
//
// A target may refuse, hang, lie or answer without end: every try has a deadline,
// what is read of an answer is bounded, and no redirect is followed. The package
// knows no outbox and retries nothing.
package send

package api

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"time"

	"berth/internal/text/problem"
)

const attachReply = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: " + attachProtocol + "\r\n\r\n"

func sendTerminal(x *exchange) error {
	var q JobID
	if err := x.read(&q); err != nil {
		return err
	}
	if !wantsUpgrade(x.r, attachProtocol) {
		return problem.Newf(problem.Invalid, "send Connection: Upgrade and Upgrade: "+attachProtocol, "attach needs an upgraded connection")
	}
	ctx, done, err := x.stream()
	if err != nil {
		return err
	}
	defer done()
	terminal, err := x.options.Streams.Attach(ctx, x.caller, q.ID)
	if err != nil {
		return err
	}
	defer terminal.Close()
	x.taken.Add(1)
	defer x.taken.Done()
	client, buffered, err := x.w.control.Hijack()
	if err != nil {
		return err
	}
	defer client.Close()
	x.w.started, x.w.status = true, http.StatusSwitchingProtocols
	client.SetDeadline(time.Time{}) //nolint:errcheck // a dead connection says so when used
	// If either end or the server closes, both end.
	defer context.AfterFunc(ctx, func() { terminal.Close(); client.Close() })()
	relay(x, client, buffered.Reader, terminal)
	return nil
}

// relay copies both ways until either side is done.
func relay(x *exchange, client net.Conn, fromClient *bufio.Reader, terminal io.ReadWriteCloser) {
	toClient := &patientWriter{to: client, patience: x.limits.StallTimeout}
	if _, err := io.WriteString(toClient, attachReply); err != nil {
		return
	}
	typed := make(chan struct{})
	go func() {
		defer close(typed)
		defer terminal.Close() // the caller went away: detached
		defer surviveCopy(x)
		_, _ = io.Copy(terminal, fromClient) // either way the connection ends
	}()
	_, _ = io.Copy(toClient, terminal)
	client.Close()
	<-typed
}

// surviveCopy keeps a bug in another goroutine of the request from ending the
// daemon.
func surviveCopy(x *exchange) {
	if cause := recover(); cause != nil {
		x.log.Error("bug while copying to a terminal", "path", quoted(x.r.URL.Path), "panic", cause)
	}
}

// patientWriter gives each write a deadline.
type patientWriter struct {
	to       net.Conn
	patience time.Duration
}

func (w *patientWriter) Write(data []byte) (int, error) {
	w.to.SetWriteDeadline(time.Now().Add(w.patience)) //nolint:errcheck // a dead connection says so when written to
	return w.to.Write(data)
}

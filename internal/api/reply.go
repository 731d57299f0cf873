package api

import (
	"net/http"
	"time"
)

// replyPiece is how much is written under one deadline.
const replyPiece = 64 << 10

// replyWriter writes a reply in pieces, each of which must get through within
// the stall time: a slow reader is served, one that has stopped is not.
type replyWriter struct {
	http.ResponseWriter
	control  *http.ResponseController
	patience time.Duration
	started  bool // the header is out: the status cannot change any more
}

func newReplyWriter(w http.ResponseWriter, patience time.Duration) *replyWriter {
	return &replyWriter{ResponseWriter: w, control: http.NewResponseController(w), patience: patience}
}

// Unwrap lets net/http find what it gave us.
func (w *replyWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// WriteHeader notes that the reply has begun.
func (w *replyWriter) WriteHeader(status int) {
	w.started = true
	w.ResponseWriter.WriteHeader(status)
}

func (w *replyWriter) Write(data []byte) (int, error) {
	w.started = true
	written := 0
	for {
		piece := data[written:min(len(data), written+replyPiece)]
		w.writeBy(time.Now().Add(w.patience))
		n, err := w.ResponseWriter.Write(piece)
		written += n
		if err != nil || written >= len(data) {
			return written, err
		}
	}
}

// flush sends what was written.
func (w *replyWriter) flush() error {
	w.writeBy(time.Now().Add(w.patience))
	return w.control.Flush()
}

// readBy and writeBy set deadlines. A connection that has none (a test's
// recorder) is not worth an error.
func (w *replyWriter) readBy(t time.Time)  { _ = w.control.SetReadDeadline(t) }
func (w *replyWriter) writeBy(t time.Time) { _ = w.control.SetWriteDeadline(t) }

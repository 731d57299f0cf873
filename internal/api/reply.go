package api

import (
	"net/http"
	"time"
)

// replyPiece is how much is written under one deadline.
const replyPiece = 64 << 10

// replyWriter writes a reply in blocks, each within the stall timeout: a slow
// reader is served, one that has stopped is not.
type replyWriter struct {
	http.ResponseWriter
	control  *http.ResponseController
	patience time.Duration
	started  bool // the header was sent, so the status can no longer change
	status   int
}

func newReplyWriter(w http.ResponseWriter, patience time.Duration) *replyWriter {
	return &replyWriter{ResponseWriter: w, control: http.NewResponseController(w), patience: patience, status: http.StatusOK}
}

// Unwrap gives net/http access to its own writer.
func (w *replyWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// WriteHeader notes that the reply has begun.
func (w *replyWriter) WriteHeader(status int) {
	w.started, w.status = true, status
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

func (w *replyWriter) flush() error {
	w.writeBy(time.Now().Add(w.patience))
	return w.control.Flush()
}

// readBy and writeBy set deadlines. A connection without deadlines (a test's
// recorder) is not an error.
func (w *replyWriter) readBy(t time.Time)  { _ = w.control.SetReadDeadline(t) }
func (w *replyWriter) writeBy(t time.Time) { _ = w.control.SetWriteDeadline(t) }

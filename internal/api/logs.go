package api

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"
)

// The headers of a log. The last one is a trailer: a log that a daemon went
// down under has none, and one that it had to leave says stopping.
const (
	headerLogAttempt = "Berth-Log-Attempt"
	headerLogOffset  = "Berth-Log-Offset"
	headerLogEnd     = "Berth-Log-End"

	logEndComplete = "complete"
	logEndStopping = "stopping"
	logEndFailed   = "failed"
)

func (x *exchange) getLog() error {
	id, err := x.id()
	if err != nil {
		return err
	}
	p, err := x.params()
	if err != nil {
		return err
	}
	q := readLogQuery(p)
	q.ID = id
	if err := p.done(); err != nil {
		return err
	}
	if q.Lines > 0 && q.Offset != 0 {
		return Problemf(Invalid, "", "lines and offset exclude one another")
	}
	ctx, done, err := x.stream()
	if err != nil {
		return err
	}
	defer done()
	log, err := x.backend.Log(ctx, x.caller, q)
	if err != nil {
		return err
	}
	defer log.Close()
	// A reader that waits for more may not look at its context.
	defer context.AfterFunc(ctx, func() { log.Close() })()

	header := x.w.Header()
	header.Set("Content-Type", "application/octet-stream")
	header.Set(headerLogAttempt, strconv.Itoa(log.Attempt))
	header.Set(headerLogOffset, strconv.FormatInt(log.Offset, 10))
	header.Set("Trailer", headerLogEnd)
	x.w.WriteHeader(http.StatusOK)
	if err := x.w.flush(); err != nil {
		return nil // the caller is gone
	}
	header.Set(headerLogEnd, x.copyLog(ctx, log))
	return nil
}

// copyLog sends the log as it comes and says how it ended.
func (x *exchange) copyLog(ctx context.Context, log io.Reader) string {
	buffer := make([]byte, 32<<10)
	for {
		n, err := log.Read(buffer)
		if n > 0 {
			_, writeErr := x.w.Write(buffer[:n])
			if writeErr == nil {
				writeErr = x.w.flush()
			}
			if writeErr != nil {
				panic(http.ErrAbortHandler) // it stopped reading; what it has is not whole
			}
		}
		switch {
		case err == nil:
		case x.stopping.Err() != nil:
			return logEndStopping
		case errors.Is(err, io.EOF) && ctx.Err() == nil:
			return logEndComplete
		case ctx.Err() != nil:
			panic(http.ErrAbortHandler)
		default:
			x.log.Error("log cannot be read", "user", x.caller.Name, "path", quoted(x.r.URL.Path), "error", err)
			return logEndFailed
		}
	}
}

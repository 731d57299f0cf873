package api

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"

	"berth/internal/text/problem"
)

// The headers of a log. The last two are trailers: a log cut off by a crash of
// the daemon has none, one that the daemon had to leave says stopping, and one
// sent piece by piece says where the next piece begins.
const (
	headerLogAttempt = "Berth-Log-Attempt"
	headerLogOffset  = "Berth-Log-Offset"
	headerLogEnd     = "Berth-Log-End"
	headerLogNext    = "Berth-Log-Next"

	logEndComplete = "complete"
	logEndGap      = "gap"
	logEndStopping = "stopping"
	logEndFailed   = "failed"
)

func (q *LogQuery) check(*Limits) error {
	if q.Lines > 0 && q.Offset != 0 {
		return problem.Newf(problem.Invalid, "", "expected lines or offset, found both")
	}
	return nil
}

func sendLog(x *exchange) error {
	var q LogQuery
	if err := x.read(&q); err != nil {
		return err
	}
	ctx, done, err := x.stream()
	if err != nil {
		return err
	}
	defer done()
	log, err := x.options.Streams.Log(ctx, x.caller, q)
	if err != nil {
		return err
	}
	defer log.Close()
	// A reader that waits for more may not watch its context.
	defer context.AfterFunc(ctx, func() { log.Close() })()

	header := x.w.Header()
	header.Set("Content-Type", "application/octet-stream")
	header.Set(headerLogAttempt, strconv.Itoa(log.Attempt))
	header.Set(headerLogOffset, strconv.FormatInt(log.Offset, 10))
	header.Set("Trailer", headerLogEnd+", "+headerLogNext)
	x.w.WriteHeader(http.StatusOK)
	if err := x.w.flush(); err != nil {
		return nil // the caller is gone
	}
	end, next := copyLog(ctx, x, log, q.Pieces)
	header.Set(headerLogEnd, end)
	header.Set(headerLogNext, next)
	return nil
}

// copyLog sends the log as it grows and says how it ended. With pieces it ends
// at a gap and says where to continue, so that byte counts include only the
// log's own; otherwise a line marks the gap.
func copyLog(ctx context.Context, x *exchange, log io.Reader, pieces bool) (end, next string) {
	buffer := make([]byte, 32<<10)
	inLine := false
	for {
		n, err := log.Read(buffer)
		if n > 0 {
			sendPart(x, buffer[:n])
			inLine = buffer[n-1] != '\n'
		}
		var gap *LogGap
		switch {
		case err == nil:
		case errors.As(err, &gap) && pieces:
			return logEndGap, strconv.FormatInt(gap.Next, 10)
		case errors.As(err, &gap):
			sendPart(x, []byte(gap.mark(inLine)))
			inLine = false
		case x.stopping.Err() != nil, errors.Is(err, context.Canceled) && ctx.Err() == nil:
			return logEndStopping, "" // the backend may stop a moment before the server
		case errors.Is(err, io.EOF) && ctx.Err() == nil:
			return logEndComplete, ""
		case ctx.Err() != nil:
			panic(http.ErrAbortHandler)
		default:
			x.log.Error("cannot read a log", "user", x.caller.Name, "path", quoted(x.r.URL.Path), "error", err)
			return logEndFailed, ""
		}
	}
}

func sendPart(x *exchange, part []byte) {
	_, err := x.w.Write(part)
	if err == nil {
		err = x.w.flush()
	}
	if err != nil {
		panic(http.ErrAbortHandler) // the caller stopped reading; its copy is incomplete
	}
}

package daemon

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"berth/internal/api"
	"berth/internal/job"
	"berth/internal/queue/engine/launch"
	"berth/internal/text"
	"berth/internal/text/problem"
)

const (
	followEvery  = 100 * time.Millisecond // how often a growing log is read
	followIdle   = time.Second            // and one that does not grow
	followQueued = 10 * time.Second       // and the log of a queued job: its start arrives as an event
	followBegins = 10 * time.Millisecond  // and of a job that is just starting
	logAppears   = 20 * time.Second       // how long a started job may still have no log
	tailBlock    = 64 << 10
	tailMost     = 64 << 20 // how far back the last lines are searched
)

// logs reads what jobs printed.
type logs struct {
	svc  *service
	find *finder
}

// Log reads a job's output.
func (h *logs) Log(ctx context.Context, c api.Caller, q api.LogQuery) (api.LogStream, error) {
	j, err := h.find.Find(ctx, c, q.ID)
	if err != nil {
		return api.LogStream{}, err
	}
	if !mayTouch(c, &j) {
		h.svc.Note(c, "logs", []string{j.ID}, "", notYours(c, &j))
		return api.LogStream{}, notYours(c, &j)
	}
	if q.Attempt < 0 || q.Attempt > j.Attempt.Number {
		return api.LogStream{}, problem.Newf(problem.NotFound, "", "job %s has only %s", j.ID, text.Count(j.Attempt.Number, "attempt"))
	}
	r := &logReader{h: h, caller: c, id: j.ID, follow: q.Follow}
	r.ctx, r.cancel = context.WithCancel(ctx)
	r.listenAgain() // before the job is read again, so that its end is not missed
	if err := r.begin(q); err != nil {
		_ = r.Close() // err says more
		return api.LogStream{}, err
	}
	return api.LogStream{ReadCloser: r, Attempt: r.attempt, Offset: r.offset}, nil
}

// logReader reads a log to its end, or while it grows until the job has ended.
type logReader struct {
	h        *logs
	caller   api.Caller
	ctx      context.Context
	cancel   context.CancelFunc
	mu       sync.Mutex // guards listener: Read and Close may run concurrently
	listener *listener
	id       string
	follow   bool

	file    *os.File
	attempt int
	offset  int64
	over    bool // the attempt has ended, so the log is complete
	idle    time.Duration
}

// begin opens the log once it exists.
func (r *logReader) begin(q api.LogQuery) error {
	for {
		current, err := r.h.find.Find(r.ctx, r.caller, r.id)
		if err != nil {
			return err
		}
		r.attempt = q.Attempt
		r.attempt = cmp.Or(r.attempt, current.Attempt.Number)
		r.heard(&current)
		if r.attempt > 0 {
			return r.open(&current, q)
		}
		if current.State.Terminal() {
			return problem.Newf(problem.Refused, "berth why "+r.id+" says how it ended", "job %s never started, so it has no log", r.id)
		}
		if !r.follow {
			return problem.Newf(problem.Refused, "berth why "+r.id+" says what it waits for", "job %s has not started and has no log yet", r.id)
		}
		if !r.await(followQueued) {
			return r.ctx.Err()
		}
	}
}

func (r *logReader) open(j *job.Job, q api.LogQuery) error {
	attempt := j.Clone()
	attempt.Attempt.Number = r.attempt
	path := j.Log
	if r.attempt != j.Attempt.Number || path == "" {
		path = r.h.svc.people.LogPath(attempt)
	}
	r.awaitOwnLog(j)
	var err error
	for {
		r.file, err = r.h.svc.people.OpenAsOwner(r.ctx, j, path)
		// A job that has just been placed creates its log in a moment. One that
		// has been running for some time has lost it.
		if err == nil || !errors.Is(err, os.ErrNotExist) || r.over || time.Since(j.StartedAt) > logAppears || !r.await(followEvery) {
			break
		}
		if r.refresh(); r.over {
			continue
		}
	}
	if err != nil {
		return noLog(r.ctx, r.id, path, err)
	}
	switch {
	case q.Lines > 0:
		r.offset, err = tailOffset(r.file, q.Lines)
	case q.Offset < 0:
		var end int64
		end, err = r.file.Seek(0, io.SeekEnd)
		r.offset = max(0, end+q.Offset)
	default:
		r.offset = q.Offset
	}
	return err
}

// noLog is why a log could not be opened. If the daemon is stopping or a file
// server is slow, the caller should retry.
func noLog(ctx context.Context, id, path string, err error) error {
	switch {
	case ctx.Err() != nil:
		return stopping()
	case errors.Is(err, os.ErrDeadlineExceeded):
		return problem.Newf(problem.Unable, "try again in a moment", "the log of job %s cannot be read now: %v", id, err)
	case errors.Is(err, os.ErrNotExist):
		return problem.Newf(problem.NotFound, "it may have been removed, or the job never started", "job %s has no log %s", id, path)
	}
	return problem.Newf(problem.Refused, "", "the log of job %s cannot be read: %v", id, err)
}

// awaitOwnLog waits until a log named after the job id alone is this job's:
// before the job starts, it may be another queue's.
func (r *logReader) awaitOwnLog(j *job.Job) {
	if !launch.LogAlone(&j.Spec) || r.h.svc.still != nil {
		return
	}
	for !r.over && !r.h.svc.queue.Runner.Begun(j.Keep, j.ID, r.attempt) && time.Since(j.StartedAt) < logAppears && r.await(followBegins) {
		r.refresh()
	}
}

// Read returns the data so far and waits for more while the job writes. Where a
// part is missing it returns an *api.LogGap, and continues after it.
func (r *logReader) Read(p []byte) (int, error) {
	for {
		n, err := r.readData(p)
		if n > 0 {
			r.idle = 0
			return n, nil
		}
		if !errors.Is(err, io.EOF) {
			return 0, err
		}
		if r.over || !r.follow {
			return 0, io.EOF
		}
		r.idle = min(r.idle+followEvery, followIdle)
		if !r.await(r.idle) {
			return 0, r.ctx.Err()
		}
	}
}

// readData reads at the offset. A hole, where the middle of an oversized log was
// dropped, would read as zeros: it is a gap. The log may be cut while it is
// read, so data counts only if there is no hole afterwards; dropped data never
// comes back.
func (r *logReader) readData(p []byte) (int, error) {
	for {
		end, err := r.file.Seek(0, io.SeekEnd)
		if err != nil {
			return 0, err
		}
		data, err := r.file.Seek(r.offset, unix.SEEK_DATA)
		switch {
		case errors.Is(err, unix.ENXIO) && end <= r.offset:
			return 0, io.EOF
		case errors.Is(err, unix.ENXIO):
			return 0, r.pass(end) // only a hole up to the end
		case err == nil && data > r.offset:
			return 0, r.pass(data)
		}
		n, err := r.file.ReadAt(p, r.offset)
		whole := int64(n)
		if hole, err := r.file.Seek(r.offset, unix.SEEK_HOLE); err == nil {
			whole = min(whole, hole-r.offset)
		}
		if n > 0 && whole <= 0 {
			continue // cut just now: the next read shows how far
		}
		r.offset += whole
		return int(whole), err
	}
}

// pass continues after a gap.
func (r *logReader) pass(next int64) error {
	gap := &api.LogGap{From: r.offset, Next: next}
	r.offset = next
	return gap
}

// await waits for this time, or until there is an event of the job. It returns
// false if the caller is gone or the daemon stops.
func (r *logReader) await(most time.Duration) bool {
	timer := time.NewTimer(most)
	defer timer.Stop()
	select {
	case <-r.ctx.Done():
		return false
	case <-r.h.svc.ended:
		r.cancel()
		return false
	case <-timer.C:
	case ev, ok := <-r.hears():
		if ok {
			r.heard(ev.Job)
		} else {
			r.listenAgain()
			r.refresh()
		}
	}
	return true
}

func (r *logReader) heard(j *job.Job) {
	r.over = r.attempt > 0 && (j.State != job.Running && j.State != job.Parked || j.Attempt.Number > r.attempt)
}

// refresh reads the job again.
func (r *logReader) refresh() {
	if j, err := r.h.find.Find(r.ctx, r.caller, r.id); err == nil {
		r.heard(&j)
	}
}

func (r *logReader) hears() <-chan *told {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.listener == nil {
		return nil
	}
	return r.listener.events
}

// listenAgain subscribes, or subscribes again after falling behind, unless the
// reader is closed.
func (r *logReader) listenAgain() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ctx.Err() == nil {
		r.listener = r.h.svc.hub.listenTo(1, func(id string) bool { return id == r.id })
	}
}

// Close may be called twice, and while a read waits.
func (r *logReader) Close() error {
	r.cancel()
	r.mu.Lock()
	r.h.svc.hub.remove(r.listener)
	r.mu.Unlock()
	if r.file != nil {
		return r.file.Close()
	}
	return nil
}

// tailOffset is where the last lines of a file begin.
func tailOffset(file *os.File, lines int) (int64, error) {
	end, err := file.Seek(0, io.SeekEnd)
	if err != nil {
		return 0, err
	}
	block := make([]byte, tailBlock)
	last := true
	for at := end; at > 0 && end-at < tailMost; {
		size := min(int64(len(block)), at)
		at -= size
		n, err := file.ReadAt(block[:size], at)
		if err != nil && !errors.Is(err, io.EOF) {
			return 0, err
		}
		chunk := block[:n]
		if last && n > 0 && chunk[n-1] == '\n' {
			chunk = chunk[:n-1] // the final newline does not begin another line
		}
		last = false
		for {
			i := bytes.LastIndexByte(chunk, '\n')
			if i < 0 {
				break
			}
			if lines--; lines == 0 {
				return at + int64(i) + 1, nil
			}
			chunk = chunk[:i]
		}
	}
	at := max(0, end-tailMost)
	// Lines further back than that are not searched.
	if data, err := file.Seek(at, unix.SEEK_DATA); err == nil && at > 0 {
		at = data
	}
	return at, nil
}

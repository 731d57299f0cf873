package batch

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"berth/internal/text"
)

// Bounds on the lines that wait to be written. A reader that stalls, such as a
// pager, must not stop the scheduling: beyond these, lines are dropped and
// counted.
const (
	maxWaitingLines = 4096
	maxWaitingBytes = 1 << 20
	// writeBytes bounds one write, so that progress of a slow reader is noticed.
	writeBytes = 16 << 10
	// flushPatience is how long berth waits at the end for a reader that reads
	// nothing, flushLimit for one that reads slowly.
	flushPatience = 2 * time.Second
	flushLimit    = 10 * time.Second
)

// screen writes the lines. On a terminal it keeps a block of live status below
// them and redraws it in place. A goroutine of its own writes, in order.
type screen struct {
	out      io.Writer
	live     bool
	colour   bool
	width    func() int
	height   func() int
	patience time.Duration           // how long a line waits for room
	notice   func(missed int) string // the line that replaces dropped ones

	starting sync.Once
	work     chan struct{} // there is something to write
	room     chan struct{} // something was written
	block    int           // lines of the block now on the screen; used by the writer only

	mu      sync.Mutex
	waiting []string
	bytes   int // of those
	missed  int // dropped lines; all are dropped until the rest is written
	shown   *snapshot
	redraw  bool
	writing bool
	written time.Time // when the last write ended
	ending  bool
	dead    bool // the output is closed; berth goes on without it
}

func (s *screen) start() {
	s.starting.Do(func() {
		s.work, s.room = make(chan struct{}, 1), make(chan struct{}, 1)
		if s.notice == nil {
			s.notice = func(missed int) string { return fmt.Sprintf("… %s not shown", text.Count(missed, "line")) }
		}
		go s.serve()
	})
}

// print adds lines above the block.
func (s *screen) print(lines ...string) {
	s.start()
	for _, line := range lines {
		s.add(line)
	}
	nudge(s.work)
}

// show replaces the block. One that was not drawn yet is skipped.
func (s *screen) show(snap *snapshot) {
	if !s.live {
		return
	}
	s.start()
	s.mu.Lock()
	s.shown, s.redraw = snap, true
	s.mu.Unlock()
	nudge(s.work)
}

// finish removes the block, adds the last lines, and waits until all is written
// or the reader has stalled. Nothing is shown after that.
func (s *screen) finish(lines ...string) {
	s.start()
	s.mu.Lock()
	s.shown, s.redraw, s.ending = nil, s.live, true
	if s.missed > 0 {
		s.waiting = append(s.waiting, s.notice(s.missed))
		s.missed = 0
	}
	s.waiting = append(s.waiting, lines...)
	s.mu.Unlock()
	s.flush()
	s.mu.Lock()
	s.dead = true
	s.mu.Unlock()
	nudge(s.work) // so that the writer ends too
}

// flush waits until everything is written, as long as there is progress.
func (s *screen) flush() {
	s.start()
	nudge(s.work)
	began := time.Now()
	for {
		s.mu.Lock()
		idle := s.dead || !s.writing && !s.pending()
		until := s.written.Add(flushPatience)
		s.mu.Unlock()
		if floor := began.Add(flushPatience); until.Before(floor) {
			until = floor
		}
		if limit := began.Add(flushLimit); until.After(limit) {
			until = limit
		}
		wait := time.Until(until)
		if idle || wait <= 0 {
			return
		}
		timer := time.NewTimer(wait)
		select {
		case <-s.room:
		case <-timer.C:
		}
		timer.Stop()
	}
}

// add queues a line. It waits a little for room, so that a slow reader misses
// nothing, but not for a stalled one.
func (s *screen) add(line string) {
	if s.accept(line, s.patience <= 0) {
		return
	}
	timer := time.NewTimer(s.patience)
	defer timer.Stop()
	for {
		nudge(s.work)
		select {
		case <-s.room:
			if s.accept(line, false) {
				return
			}
		case <-timer.C:
			s.accept(line, true)
			return
		}
	}
}

// accept queues the line if there is room, or drops it if this is the last try.
// It returns false if waiting may help.
func (s *screen) accept(line string, lastTry bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	fits := len(s.waiting) < maxWaitingLines && s.bytes+len(line) <= maxWaitingBytes
	switch {
	case s.dead:
	case s.missed > 0:
		s.missed++
	case fits || len(s.waiting) == 0:
		s.waiting = append(s.waiting, line)
		s.bytes += len(line)
	case lastTry:
		s.missed++
	default:
		return false
	}
	return true
}

// pending reports whether something is not written yet. The lock is held.
func (s *screen) pending() bool { return len(s.waiting) > 0 || s.missed > 0 || s.redraw }

// serve writes, in a goroutine of its own.
func (s *screen) serve() {
	for range s.work {
		for {
			lines, below, more := s.next()
			if !more {
				break
			}
			_, err := io.WriteString(s.out, s.compose(lines, below))
			s.wrote(err)
		}
		s.mu.Lock()
		ended := s.dead && s.ending
		s.mu.Unlock()
		if ended {
			return
		}
	}
}

// next takes the lines for one write, and the block to draw below them.
func (s *screen) next() (lines []string, below *snapshot, more bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.dead || !s.pending() {
		return nil, nil, false
	}
	size, n := 0, 0
	for n < len(s.waiting) && (n == 0 || size+len(s.waiting[n]) <= writeBytes) {
		size += len(s.waiting[n])
		n++
	}
	lines = append(lines, s.waiting[:n]...)
	s.waiting = append(s.waiting[:0], s.waiting[n:]...)
	s.bytes -= size
	if len(s.waiting) == 0 {
		if s.missed > 0 {
			lines = append(lines, s.notice(s.missed))
			s.missed = 0
		}
		s.bytes, s.redraw, below = 0, false, s.shown
	}
	s.writing = true
	return lines, below, true
}

func (s *screen) wrote(err error) {
	s.mu.Lock()
	s.writing, s.written = false, time.Now()
	if err != nil {
		// A closed terminal or pipe ends the output, not the jobs.
		s.dead = true
		s.waiting, s.bytes, s.missed, s.redraw = nil, 0, 0, false
	}
	s.mu.Unlock()
	nudge(s.room)
}

// compose is the text of one write.
func (s *screen) compose(lines []string, below *snapshot) string {
	var b strings.Builder
	if s.block > 0 {
		fmt.Fprintf(&b, "\x1b[%dA\r\x1b[J", s.block)
		s.block = 0
	}
	for _, line := range lines {
		b.WriteString(line)
		b.WriteByte('\n')
	}
	if !s.live || below == nil {
		return b.String()
	}
	snap := *below
	snap.at = time.Now()
	for _, line := range renderView(snap, s.width(), s.height(), s.colour) {
		b.WriteString(line)
		b.WriteByte('\n')
		s.block++
	}
	return b.String()
}

// nudge wakes the receiver, unless a wake-up is already pending.
func nudge(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

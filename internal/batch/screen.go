package batch

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"berth/internal/text"
)

// Bounds on what waits to be shown. A reader that stalls, as a pager does,
// must not stop the scheduling: beyond these, lines are counted instead.
const (
	maxWaitingLines = 4096
	maxWaitingBytes = 1 << 20
	// writeBytes is one write: small, so that a slow reader is seen to read.
	writeBytes = 16 << 10
	// flushPatience is how long the end waits for a reader that reads nothing,
	// and flushLimit how long for one that reads slowly.
	flushPatience = 2 * time.Second
	flushLimit    = 10 * time.Second
)

// screen is where lines go. On a terminal a block of live status stays below
// them and is redrawn in place; elsewhere it is just the lines. A goroutine of
// its own writes them, in order.
type screen struct {
	out      io.Writer
	live     bool
	colour   bool
	width    func() int
	height   func() int
	patience time.Duration           // how long a line waits for room
	notice   func(missed int) string // says how many lines found none

	starting sync.Once
	work     chan struct{} // there is something to write
	room     chan struct{} // something was written
	block    int           // lines of the block on the screen now; the writer's own

	mu      sync.Mutex
	waiting []string
	bytes   int // of those
	missed  int // lines that found no room; none does until all is written
	shown   *snapshot
	redraw  bool
	writing bool
	written time.Time // when a write was last over
	ending  bool
	dead    bool // nobody reads any more: berth goes on without
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

// print leaves lines behind, above the block.
func (s *screen) print(lines ...string) {
	s.start()
	for _, line := range lines {
		s.add(line)
	}
	nudge(s.work)
}

// show replaces the block. If the last one was not drawn yet, it never is.
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

// finish takes the block away, leaves the last lines behind, and waits until
// all is written or nobody reads it. Nothing is shown after that.
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
	nudge(s.work) // the writer leaves too
}

// flush waits until everything is written, as long as something is.
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
// nothing, but not for one that has stalled.
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

// accept queues the line if there is room, counts it as missed if there is no
// hope for any, and is false if waiting might help.
func (s *screen) accept(line string, hopeless bool) bool {
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
	case hopeless:
		s.missed++
	default:
		return false
	}
	return true
}

// pending is true while something is not written. The lock is held.
func (s *screen) pending() bool { return len(s.waiting) > 0 || s.missed > 0 || s.redraw }

// serve is the writer.
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
		over := s.dead && s.ending
		s.mu.Unlock()
		if over {
			return
		}
	}
}

// next takes what one write can hold, with the block to draw below it.
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
		// A closed terminal or pipe ends the showing, not the jobs.
		s.dead = true
		s.waiting, s.bytes, s.missed, s.redraw = nil, 0, 0, false
	}
	s.mu.Unlock()
	nudge(s.room)
}

// compose is what a write consists of.
func (s *screen) compose(lines []string, below *snapshot) string {
	var b strings.Builder
	if s.block > 0 {
		fmt.Fprintf(&b, "\x1b[%dA\r\x1b[J", s.block)
		s.block = 0
	}
	for _, line := range lines {
		b.WriteString(s.paint(line))
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

// nudge leaves word for whoever waits, unless it is there already.
func nudge(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

package run

import (
	"bufio"
	"net"
	"os"
	"slices"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"

	"berth/internal/keep"
)

// phase is what berth expects of a supervisor.
type phase int

const (
	idle    phase = iota // in the pool
	leased               // given to a caller, who has not said "go"
	running              // "go" was sent, or was meant to be
	ended                // its job's end was told; waits for Ack
	over                 // let go: its directory is removed when it is gone
)

// supervisor is one of them, as berth sees it. The Runner's mutex guards it.
type supervisor struct {
	token   string
	dir     string
	adopted bool        // an earlier berth started it
	process *os.Process // nil where this one did not
	link    *link       // nil while there is no connection
	dead    bool        // its lock was found free

	greeted  chan struct{} // closed once it has said what it knows
	protocol int           // what that was
	outdated bool          // not enough for an order it was to be given

	phase    phase
	empty    bool // what it was given never ran
	job      string
	attempt  int
	log      string
	pty      bool   // the job has a terminal
	stop     []byte // the last request to end the job, for a new connection
	identity Identity
	walls    string // what the filter on its directory lets through; empty: not known
}

// link is a live connection. Frames to a supervisor that does not read queue
// here, so that it never holds berth up.
type link struct {
	conn   *net.UnixConn
	raw    syscall.RawConn
	out    chan []byte
	queued atomic.Int32  // frames in out, or taken from it and not written yet
	done   chan struct{} // closed when the connection is given up
}

const (
	linkQueue    = 16
	writeTimeout = 10 * time.Second
)

// connect makes a connection the supervisor's. The mutex is held.
func (r *Runner) connect(s *supervisor, conn *net.UnixConn) *link {
	l := &link{conn: conn, out: make(chan []byte, linkQueue), done: make(chan struct{})}
	l.raw, _ = conn.SyscallConn() // fails on a closed one only, and that is noticed soon
	s.link = l
	r.group.Go(l.write)
	return l
}

func (l *link) write() {
	for {
		select {
		case frame := <-l.out:
			l.conn.SetWriteDeadline(time.Now().Add(writeTimeout))
			if _, err := l.conn.Write(frame); err != nil {
				l.conn.Close() // the reader notices
				return
			}
			l.queued.Add(-1)
		case <-l.done:
			return
		}
	}
}

// send queues a frame. Without a connection, or with one that takes nothing
// any more, the frame is dropped: the supervisor's goroutine is then about to
// find out how things stand.
func (s *supervisor) send(frame []byte) {
	if s.link == nil {
		return
	}
	rest := s.link.now(frame)
	if len(rest) == 0 {
		return
	}
	s.link.queued.Add(1)
	select {
	case s.link.out <- rest:
	default:
		s.link.conn.Close()
	}
}

// now writes what the socket takes at once and returns the rest. Most frames
// go whole, without waking a goroutine for each. The Runner's mutex, which
// every sender holds, keeps frames in order.
func (l *link) now(frame []byte) (rest []byte) {
	if l.raw == nil || l.queued.Load() > 0 {
		return frame
	}
	_ = l.raw.Write(func(fd uintptr) bool {
		if n, err := syscall.Write(int(fd), frame); err == nil {
			frame = frame[n:]
		}
		return true // whatever happened: the queue deals with what is left
	})
	return frame
}

// hangUp ends the connection. A supervisor without a job exits.
func (s *supervisor) hangUp() {
	if s.link != nil {
		s.link.conn.Close()
	}
}

// attend is the supervisor's goroutine for all its life: hear it out, and when
// the connection ends, find it again or bury it.
func (r *Runner) attend(s *supervisor, l *link) {
	for {
		if l != nil {
			r.listen(s, l)
		}
		var gone bool
		if l, gone = r.rejoin(s); gone {
			r.bury(s)
			return
		}
		if l == nil {
			return // berth is closing, and the job goes on
		}
	}
}

// listen takes in frames until the connection ends.
func (r *Runner) listen(s *supervisor, l *link) {
	buffer := bufio.NewReader(l.conn)
	for {
		frame, err := keep.ReadFrame(buffer)
		if err != nil {
			break
		}
		switch frame.Kind {
		case keep.FrameHello:
			r.mu.Lock()
			s.greet(frame)
			r.mu.Unlock()
		case keep.FrameStarted, keep.FrameEnded:
			record, err := keep.DecodeRecord([]byte(frame.Get("record")))
			if err != nil {
				r.log.Warn("supervisor sent a damaged record", "token", s.token, "error", err)
				l.conn.Close() // what it meant is in its file
				continue
			}
			r.heard(s, record)
		}
	}
	l.conn.Close()
	close(l.done)
	r.mu.Lock()
	s.link = nil
	r.mu.Unlock()
}

// heard takes in what a record says about the job the supervisor was given.
func (r *Runner) heard(s *supervisor, record keep.Record) {
	r.mu.Lock()
	if s.phase != running || record.Job != s.job || record.Attempt != s.attempt {
		r.mu.Unlock()
		return
	}
	known := s.identity.PID != 0 // a new connection says "started" again
	s.identify(record)
	over := record.State == keep.Ended
	if over {
		s.phase = ended
	}
	log := s.log
	r.mu.Unlock()
	switch {
	case over:
		r.emit(endedEvent(record, log))
	case !known:
		r.emit(Event{Kind: Started, Token: s.token, Job: record.Job, Attempt: record.Attempt, Record: record})
	}
}

// identify takes over what a record says about processes.
func (s *supervisor) identify(record keep.Record) {
	s.pty = record.Pty
	s.identity = Identity{
		Token: s.token, KeepPID: record.KeepPID, KeepStart: record.KeepStart,
		PID: record.PID, Session: record.Session, Cgroup: record.Cgroup,
	}
}

// greet takes in what the supervisor says it knows. The mutex is held.
func (s *supervisor) greet(hello keep.Frame) {
	s.protocol, _ = strconv.Atoi(hello.Get("protocol")) // the first says nothing
	s.settle()
}

// settle says that there is nothing more to be learnt about what it knows.
func (s *supervisor) settle() {
	select {
	case <-s.greeted:
	default:
		close(s.greeted)
	}
}

// endedEvent tells of an end. A supervisor of the first protocol did not look
// into the log; its jobs are always of berth's own user.
func endedEvent(record keep.Record, log string) Event {
	e := Event{Kind: Ended, Token: record.Token, Job: record.Job, Attempt: record.Attempt, Record: record, OOM: record.OOM}
	if record.Log != "" {
		log = record.Log
	}
	if record.Protocol == 0 && record.Launch == "" && (record.ExitCode != 0 || record.Signal != 0) && log != "" {
		e.OOM = keep.OOMText(log, record.LogFrom)
	}
	return e
}

// forget removes a supervisor that is no more, and its directory. The mutex is
// held.
func (r *Runner) forget(s *supervisor) {
	delete(r.all, s.token)
	r.unpool(s)
	r.dropWalls(s)
	if err := os.RemoveAll(s.dir); err != nil {
		r.log.Warn("cannot remove supervisor's directory", "dir", s.dir, "error", err)
	}
}

func (r *Runner) unpool(s *supervisor) {
	r.pool = slices.DeleteFunc(r.pool, func(p *supervisor) bool { return p == s })
}

// helloRecord is the part of a record that a greeting carries.
func helloRecord(hello keep.Frame) keep.Record {
	attempt, _ := strconv.Atoi(hello.Get("attempt"))
	return keep.Record{State: keep.State(hello.Get("state")), Job: hello.Get("job"), Attempt: attempt, BootID: hello.Get("boot_id")}
}

package run

import (
	"bufio"
	"net"
	"os"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"

	"berth/internal/machine/keep"
)

// phase is what berth expects of a supervisor.
type phase int

const (
	idle    phase = iota // in the pool
	leased               // taken by a caller who has not called Go
	running              // the order was sent, or was meant to be
	ended                // its job's end was reported; waits for Ack
	over                 // dismissed: its directory is removed when it is gone
)

// supervisor is one of them, as berth sees it. The mutex of its set guards it.
type supervisor struct {
	set     *supervisors
	token   string
	dir     directory
	adopted bool        // an earlier berth started it
	process *os.Process // nil if this berth did not start it
	link    *link       // nil without a connection
	dead    bool        // its lock was found free, or it was let go without a job

	greeted  chan struct{} // closed once it has reported its protocol
	protocol int           // the version it reported
	outdated bool          // too old for an order it was to get

	phase    phase
	empty    bool // its order never ran
	job      string
	attempt  int
	log      string
	pty      bool      // the job has a terminal
	stop     []byte    // the last stop request, for a new connection
	stopBy   time.Time // when the job should have ended by it; zero: no request
	breath   breath
	identity Identity
	walls    string // what the filter on its directory allows; "": unknown
}

// link is a live connection. Frames to a supervisor that does not read are
// queued here, so that it never blocks berth.
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

// connect gives the supervisor a connection. The mutex is held.
func (s *supervisor) connect(conn *net.UnixConn) *link {
	l := &link{conn: conn, out: make(chan []byte, linkQueue), done: make(chan struct{})}
	l.raw, _ = conn.SyscallConn() // fails only if it is closed, which is noticed soon
	s.link, s.breath.pinged = l, false
	s.set.group.Go(l.write)
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

// send queues a frame. If there is no connection, or the queue is full, the
// frame is dropped: the supervisor's goroutine is about to find out what
// happened.
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

// now writes what the socket accepts at once and returns the rest. Most frames
// are written whole, without waking a goroutine. The set's mutex, which
// every sender holds, keeps frames in order.
func (l *link) now(frame []byte) (rest []byte) {
	if l.raw == nil || l.queued.Load() > 0 {
		return frame
	}
	_ = l.raw.Write(func(fd uintptr) bool {
		if n, err := syscall.Write(int(fd), frame); err == nil {
			frame = frame[n:]
		}
		return true // the queue deals with the rest
	})
	return frame
}

// ackFrame confirms the end of a job. The supervisor takes no other before, and one
// that could not write the end to its file waits for it.
func ackFrame(id string, attempt int) []byte {
	return encode(keep.Message(keep.FrameAck, "job", id, "attempt", attempt))
}

// hangUp closes the connection. A supervisor without a job then exits.
func (s *supervisor) hangUp() {
	if s.link != nil {
		s.link.conn.Close()
	}
}

// attend is the supervisor's goroutine for all its life: it reads frames, and
// when the connection ends, it reconnects or buries the supervisor.
func (s *supervisor) attend(l *link) {
	for {
		if l != nil {
			s.listen(l)
		}
		var gone bool
		if l, gone = s.rejoin(); gone {
			s.bury()
			return
		}
		if l == nil {
			return // berth is closing, and the job keeps running
		}
	}
}

// listen takes in frames until the connection ends.
func (s *supervisor) listen(l *link) {
	buffer := bufio.NewReader(l.conn)
	for {
		frame, err := keep.ReadFrame(buffer)
		if err != nil {
			break
		}
		switch frame.Kind {
		case keep.FrameHello:
			s.set.mu.Lock()
			s.greet(frame)
			s.set.mu.Unlock()
		case keep.FramePing:
			s.answered()
		case keep.FrameStuck:
			survivor, id, attempt := keep.StuckOf(frame)
			s.set.emit(Event{Kind: Stuck, Token: s.token, Job: id, Attempt: attempt, Process: survivor})
		case keep.FrameParked:
			news, id, attempt := keep.ParkNewsOf(frame)
			s.set.emit(Event{Kind: Parking, Token: s.token, Job: id, Attempt: attempt, Park: news})
		case keep.FrameStarted, keep.FrameEnded:
			record, err := keep.DecodeRecord([]byte(frame.Get("record")))
			if err != nil {
				s.set.log.Warn("supervisor sent a damaged record", "token", s.token, "error", err)
				l.conn.Close() // the record is in its file, too
				continue
			}
			s.heard(record)
		}
	}
	l.conn.Close()
	close(l.done)
	s.set.mu.Lock()
	s.link = nil
	s.set.mu.Unlock()
}

// heard takes in a record about the job that the supervisor holds.
func (s *supervisor) heard(record keep.Record) {
	s.set.mu.Lock()
	if s.phase != running || record.Job != s.job || record.Attempt != s.attempt {
		s.set.mu.Unlock()
		return
	}
	known := s.identity.PID != 0 // a new connection reports "started" again
	s.identify(record)
	over := record.State == keep.Ended
	if over {
		s.phase = ended
	}
	log := s.log
	s.set.mu.Unlock()
	switch {
	case over:
		s.set.emit(endedEvent(record, log))
	case !known:
		s.set.emit(Event{Kind: Started, Token: s.token, Job: record.Job, Attempt: record.Attempt, Record: record})
	}
}

// identify takes over the processes in a record.
func (s *supervisor) identify(record keep.Record) {
	s.pty = record.Pty
	s.identity = Identity{
		Token: s.token, KeepPID: record.KeepPID, KeepStart: record.KeepStart,
		PID: record.PID, Session: record.Session, Cgroup: record.Cgroup,
	}
}

// greet takes in the protocol version of the supervisor. The mutex is held.
func (s *supervisor) greet(hello keep.Frame) {
	s.protocol, _ = strconv.Atoi(hello.Get("protocol")) // the first version sends none
	s.settle()
}

// settle marks that nothing more will be learnt about the version.
func (s *supervisor) settle() {
	select {
	case <-s.greeted:
	default:
		close(s.greeted)
	}
}

// endedEvent is the event of an end. A supervisor of the first protocol did
// not read the log; its jobs always belong to berth's own user.
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

// helloRecord is the part of a record that a greeting carries.
func helloRecord(hello keep.Frame) keep.Record {
	attempt, _ := strconv.Atoi(hello.Get("attempt"))
	return keep.Record{State: keep.State(hello.Get("state")), Job: hello.Get("job"), Attempt: attempt, BootID: hello.Get("boot_id")}
}

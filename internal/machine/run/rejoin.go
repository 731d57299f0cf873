package run

import (
	"time"

	"berth/internal/machine/keep"
)

const (
	firstPause = 2 * time.Millisecond
	lastPause  = 250 * time.Millisecond
	// answerBudget is how long one supervisor may take to greet.
	answerBudget = 2 * time.Second
	// partingBudget bounds how long Close waits for a supervisor to exit.
	partingBudget = 2 * time.Second
)

// rejoin finds out what happened to a supervisor whose connection ended: gone
// if its lock is free, otherwise a new connection. Until one of them is
// certain, it reports nothing. It gives up only when berth closes.
func (s *supervisor) rejoin() (l *link, gone bool) {
	var parting time.Time
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		if s.dir.free() {
			return nil, true
		}
		s.set.mu.Lock()
		phase := s.phase
		s.set.mu.Unlock()
		switch {
		case s.set.closing():
			if parting.IsZero() {
				parting = time.Now().Add(partingBudget)
			}
			if phase == running || time.Now().After(parting) {
				return nil, false
			}
		case phase != over:
			if l := s.redial(); l != nil {
				return l, false
			}
		}
		s.set.pause(pause)
	}
}

// redial connects again and reads the greeting.
func (s *supervisor) redial() *link {
	conn, hello, err := s.dir.dial(answerBudget)
	if err != nil {
		return nil
	}
	said := helloRecord(hello)
	s.set.mu.Lock()
	if s.set.closed || s.phase == over {
		s.set.mu.Unlock()
		conn.Close()
		return nil
	}
	s.greet(hello)
	l := s.connect(conn)
	if s.job == "" { // its record could not be read
		s.job, s.attempt = said.Job, said.Attempt
	}
	waiting, job, attempt := s.phase == running, s.job, s.attempt
	if said.State == keep.Ended && (s.phase < running || said.Job != job || said.Attempt != attempt) {
		s.send(ackFrame(said.Job, said.Attempt)) // that was lost with the connection
	}
	if waiting && s.stop != nil {
		s.send(s.stop)
	}
	s.set.mu.Unlock()
	if !waiting {
		return l
	}
	if said.State == keep.Idle || said.Job != job || said.Attempt != attempt {
		// The order did not arrive completely, and its connection is closed.
		s.reportNeverRan()
		return l
	}
	if record, ok, err := s.dir.record(); err == nil && ok {
		s.heard(record)
	}
	return l
}

func (s *supervisor) reportNeverRan() {
	s.set.mu.Lock()
	s.phase, s.empty = ended, true
	e := Event{Kind: NeverRan, Token: s.token, Job: s.job, Attempt: s.attempt}
	s.set.mu.Unlock()
	s.set.emit(e)
}

// bury deals with a supervisor that is gone: its lock is free, so its process
// has exited and any process it had just forked is the job's. It reports how its
// job ended.
func (s *supervisor) bury() {
	if s.process != nil {
		// Its children are orphans once it is reaped. A tracer may delay that.
		reaped := make(chan struct{})
		go func() { spawned.wait(s.process); close(reaped) }()
		select {
		case <-reaped:
		case <-time.After(partingBudget):
		}
	}
	s.set.mu.Lock()
	s.dead = true
	s.settle()
	s.set.unpool(s)
	was := s.phase
	if was == idle || was == over || (was == leased && s.set.closed) {
		s.set.forget(s)
	}
	s.set.mu.Unlock()
	if was != running {
		return
	}
	record, ok, err := s.dir.record()
	switch {
	case err != nil:
		s.set.log.Warn("cannot read the record of a dead supervisor", "token", s.token, "error", err)
		s.lose(keep.Record{Token: s.token, Job: s.job, Attempt: s.attempt, BootID: keep.BootID()})
	case !ok || record.State == keep.Idle || record.Job != s.job || record.Attempt != s.attempt:
		s.reportNeverRan()
	case record.State == keep.Ended:
		s.set.cgroups.drop(record)
		s.heard(record)
	default:
		s.lose(record)
	}
}

// lose kills what a dead supervisor left, and only then reports its job as
// lost.
func (s *supervisor) lose(record keep.Record) {
	rebooted := record.BootID != "" && record.BootID != keep.BootID()
	if !rebooted && !s.hunt(record) {
		return // berth is closing; the next one hunts again
	}
	s.set.mu.Lock()
	s.phase = ended
	e := Event{Kind: Lost, Token: s.token, Job: s.job, Attempt: s.attempt, Record: record}
	s.set.mu.Unlock()
	s.set.emit(e)
}

package run

import (
	"errors"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

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
func (r *Runner) rejoin(s *supervisor) (l *link, gone bool) {
	var parting time.Time
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		if lockFree(s.dir) {
			return nil, true
		}
		if r.closing() {
			if r.phaseOf(s) == running {
				return nil, false
			}
			if parting.IsZero() {
				parting = time.Now().Add(partingBudget)
			}
			if time.Now().After(parting) {
				return nil, false
			}
		} else if r.phaseOf(s) != over {
			if l := r.redial(s); l != nil {
				return l, false
			}
		}
		r.pause(pause)
	}
}

// redial connects again and reads the greeting.
func (r *Runner) redial(s *supervisor) *link {
	conn, hello, err := dial(s.dir, s.token, answerBudget)
	if err != nil {
		return nil
	}
	said := helloRecord(hello)
	r.mu.Lock()
	if r.closed || s.phase == over {
		r.mu.Unlock()
		conn.Close()
		return nil
	}
	s.greet(hello)
	l := r.connect(s, conn)
	if s.job == "" { // its record could not be read
		s.job, s.attempt = said.Job, said.Attempt
	}
	waiting, job, attempt := s.phase == running, s.job, s.attempt
	if waiting && s.stop != nil {
		s.send(s.stop)
	}
	r.mu.Unlock()
	if !waiting {
		return l
	}
	if said.State == keep.Idle || said.Job != job || said.Attempt != attempt {
		// The order did not arrive completely, and its connection is closed.
		r.reportNeverRan(s)
		return l
	}
	if record, ok, err := keep.ReadRecords(filepath.Join(s.dir, recordName)); err == nil && ok {
		r.heard(s, record)
	}
	return l
}

func (r *Runner) reportNeverRan(s *supervisor) {
	r.mu.Lock()
	s.phase, s.empty = ended, true
	e := Event{Kind: NeverRan, Token: s.token, Job: s.job, Attempt: s.attempt}
	r.mu.Unlock()
	r.emit(e)
}

// bury deals with a supervisor that is gone: its lock is free, so its process
// has exited and any process it had just forked is the job's.
func (r *Runner) bury(s *supervisor) {
	if s.process != nil {
		// Its children are orphans once it is reaped. A tracer may delay that.
		reaped := make(chan struct{})
		go func() { spawned.wait(s.process); close(reaped) }()
		select {
		case <-reaped:
		case <-time.After(partingBudget):
		}
	}
	r.mu.Lock()
	s.dead = true
	s.settle()
	r.unpool(s)
	was := s.phase
	if was == idle || was == over || (was == leased && r.closed) {
		r.forget(s)
	}
	r.mu.Unlock()
	if was == running {
		r.conclude(s)
	}
}

// conclude reports how a job ended whose supervisor is gone.
func (r *Runner) conclude(s *supervisor) {
	record, ok, err := keep.ReadRecords(filepath.Join(s.dir, recordName))
	switch {
	case err != nil:
		r.log.Warn("cannot read the record of a dead supervisor", "token", s.token, "error", err)
		r.lose(s, keep.Record{Token: s.token, Job: s.job, Attempt: s.attempt, BootID: keep.BootID()})
	case !ok || record.State == keep.Idle || record.Job != s.job || record.Attempt != s.attempt:
		r.reportNeverRan(s)
	case record.State == keep.Ended:
		r.dropCgroup(record)
		r.heard(s, record)
	default:
		r.lose(s, record)
	}
}

// lose kills what a dead supervisor left, and only then reports its job as
// lost.
func (r *Runner) lose(s *supervisor, record keep.Record) {
	rebooted := record.BootID != "" && record.BootID != keep.BootID()
	if !rebooted && !r.hunt(s, record) {
		return // berth is closing; the next one hunts again
	}
	r.mu.Lock()
	s.phase = ended
	e := Event{Kind: Lost, Token: s.token, Job: s.job, Attempt: s.attempt, Record: record}
	r.mu.Unlock()
	r.emit(e)
}

// Lose ends what is left of a job whose supervisor's directory is gone: its
// processes may be there all the same.
func (r *Runner) Lose(token, id string, attempt int) {
	s := &supervisor{
		token: token, dir: filepath.Join(r.dir, token), adopted: true, dead: true, phase: ended,
		greeted: make(chan struct{}), identity: Identity{Token: token}, job: id, attempt: attempt,
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return
	}
	r.all[token] = s
	r.group.Go(func() { r.lose(s, keep.Record{Token: token, Job: id, Attempt: attempt}) })
}

// lockFree reports whether no process holds the supervisor's lock. Only the
// kernel's answer counts: after any other failure the supervisor counts as
// alive.
func lockFree(dir string) bool {
	file, err := os.OpenFile(filepath.Join(dir, lockName), os.O_RDWR, 0)
	if errors.Is(err, os.ErrNotExist) {
		return true // berth died while it created the directory
	}
	if err != nil {
		return false
	}
	defer file.Close()
	return unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil
}

func (r *Runner) closing() bool {
	select {
	case <-r.quit:
		return true
	default:
		return false
	}
}

// pause waits, but only for a moment once berth is closing.
func (r *Runner) pause(d time.Duration) {
	if r.closing() {
		time.Sleep(min(d, 5*time.Millisecond))
		return
	}
	select {
	case <-time.After(d):
	case <-r.quit:
	}
}

func (r *Runner) phaseOf(s *supervisor) phase {
	r.mu.Lock()
	defer r.mu.Unlock()
	return s.phase
}

package run

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"berth/internal/machine/keep"
)

// scanAtOnce bounds how many supervisors are asked at the same time.
const scanAtOnce = 64

// Scan finds the supervisors of earlier berths. It is called once, before the
// first Lease. Supervisors are asked in parallel, each with a time limit, so
// that a stuck one does not delay the others.
func (r *Runner) Scan() ([]Found, error) {
	entries, err := os.ReadDir(r.dir)
	if err != nil {
		return nil, fmt.Errorf("find supervisors: %w", err)
	}
	var mu sync.Mutex
	var found []Found
	var asking sync.WaitGroup
	turn := make(chan struct{}, scanAtOnce)
	for _, entry := range entries {
		r.set.mu.Lock()
		known := r.set.all[entry.Name()] != nil
		r.set.mu.Unlock()
		if !entry.IsDir() || known {
			continue
		}
		asking.Go(func() {
			turn <- struct{}{}
			defer func() { <-turn }()
			s := r.set.earlier(directory(filepath.Join(r.dir, entry.Name())))
			f := s.ask(r.greetsIn)
			if f.Job != "" {
				f.Copy = s.dir.copy()
			}
			mu.Lock()
			defer mu.Unlock()
			found = append(found, f)
		})
	}
	asking.Wait()
	slices.SortFunc(found, func(a, b Found) int { return strings.Compare(a.Token, b.Token) })
	return found, nil
}

// earlier is a supervisor of an earlier berth.
func (set *supervisors) earlier(dir directory) *supervisor {
	return &supervisor{set: set, token: dir.token(), dir: dir, adopted: true, phase: ended, greeted: make(chan struct{}), identity: Identity{Token: dir.token()}}
}

// add registers a supervisor that was found, as its record describes it.
func (set *supervisors) add(s *supervisor, record keep.Record) {
	set.mu.Lock()
	defer set.mu.Unlock()
	s.job, s.attempt, s.log = record.Job, record.Attempt, record.Log
	s.identify(record)
	set.all[s.token] = s
}

// ask finds out the state of an earlier supervisor, which has so long to greet.
func (s *supervisor) ask(budget time.Duration) Found {
	deadline := time.Now().Add(budget)
	for pause := firstPause; time.Now().Before(deadline); pause = min(2*pause, lastPause) {
		if s.dir.free() {
			return s.inherit()
		}
		conn, hello, err := s.dir.dial(time.Until(deadline))
		if err != nil {
			s.set.pause(pause)
			continue
		}
		if helloRecord(hello).State == keep.Idle {
			// It now takes orders from this berth only, gets none, and exits.
			conn.Close()
			return s.keepEmpty()
		}
		s.set.mu.Lock()
		s.greet(hello)
		l := s.connect(conn)
		s.set.mu.Unlock()
		return s.adopt(l, helloRecord(hello))
	}
	return s.unanswered()
}

// adopt takes over a live supervisor, based on its record, or on its greeting
// if the record cannot be read. Without a connection, its goroutine keeps
// trying.
func (s *supervisor) adopt(l *link, said keep.Record) Found {
	record, ok, err := s.dir.record()
	if err != nil || !ok {
		s.set.log.Warn("cannot read the record of a live supervisor", "token", s.token, "error", err)
		record = keep.Record{Token: s.token, BootID: keep.BootID(), Job: said.Job, Attempt: said.Attempt}
	}
	f := Found{Token: s.token, Job: record.Job, Attempt: record.Attempt, Kind: FoundRunning, Record: record}
	s.phase = running
	if record.State == keep.Ended {
		e := endedEvent(record, "")
		f.Kind, f.OOM = FoundEnded, e.OOM
		s.phase = ended
	}
	s.set.add(s, record)
	s.set.group.Go(func() { s.attend(l) })
	return f
}

// inherit reads how a supervisor that is gone ended.
func (s *supervisor) inherit() Found {
	s.dead = true
	record, ok, err := s.dir.record()
	// A directory without a record is one that berth did not finish, where no job
	// was ever placed, or one that somebody emptied.
	if err != nil {
		s.set.log.Warn("cannot read the record of a dead supervisor", "token", s.token, "error", err)
		record = keep.Record{Token: s.token}
	}
	f := Found{Token: s.token, Job: record.Job, Attempt: record.Attempt, Record: record}
	rebooted := record.BootID != "" && record.BootID != keep.BootID()
	switch {
	case err == nil && record.State == keep.Ended:
		s.set.cgroups.drop(record)
		e := endedEvent(record, "")
		f.Kind, f.OOM = FoundEnded, e.OOM
		s.set.add(s, record)
		return f
	case err == nil && !rebooted && (!ok || record.State == keep.Idle):
		return s.keepEmpty()
	}
	f.Kind = FoundLost
	s.set.add(s, record)
	s.set.group.Go(func() { s.lose(record) })
	return f
}

// keepEmpty reports a supervisor that ran nothing. Its directory stays until
// that is acknowledged or berth closes: a missing directory could mean
// anything.
func (s *supervisor) keepEmpty() Found {
	s.dead, s.empty = true, true
	s.set.add(s, keep.Record{})
	f := Found{Token: s.token, Kind: FoundEmpty}
	if last, ok, err := s.dir.record(); err == nil && ok && last.State == keep.Idle {
		f.Record.StartedAt = last.StartedAt // of the job before
	}
	return f
}

// unanswered deals with a live supervisor that does not greet, perhaps because
// a user stopped it with SIGSTOP. One with a job keeps it. One without may
// still have an order from the earlier berth unread, and must not start a job
// that this berth has requeued: it is killed. It may read that order at any
// moment, so it is halted first, and its record read again. One that cannot be
// halted may be just writing that record, and is asked on.
func (s *supervisor) unanswered() Found {
	if s.dir.holdsJob() {
		s.set.log.Warn("a supervisor does not answer; its job keeps running", "token", s.token)
		return s.adopt(nil, keep.Record{})
	}
	deadline := time.Now().Add(answerBudget)
	for _, p := range keepers(s.token) {
		_ = p.Signal(sigSTOP)
		for !p.Halted() && time.Now().Before(deadline) {
			s.set.pause(firstPause)
		}
		if !p.Halted() || s.dir.holdsJob() {
			_ = p.Signal(sigCONT)
			return s.adopt(nil, keep.Record{})
		}
		_ = p.Signal(sigKILL)
	}
	s.set.log.Warn("killed a supervisor that did not answer", "token", s.token)
	for deadline = time.Now().Add(answerBudget); time.Now().Before(deadline); s.set.pause(firstHuntPause) {
		endKeep(s.token)
		if s.dir.free() {
			return s.inherit()
		}
	}
	return s.adopt(nil, keep.Record{})
}

// Lose ends what is left of a job whose supervisor's directory is gone: its
// processes may be there all the same.
func (r *Runner) Lose(token, id string, attempt int) {
	s := r.set.earlier(directory(filepath.Join(r.dir, token)))
	s.dead, s.job, s.attempt = true, id, attempt
	r.set.mu.Lock()
	defer r.set.mu.Unlock()
	if r.set.closed {
		return
	}
	r.set.all[token] = s
	r.set.group.Go(func() { s.lose(keep.Record{Token: token, Job: id, Attempt: attempt}) })
}

// endKeep kills the supervisor with that token.
func endKeep(token string) {
	for _, p := range keepers(token) {
		_ = p.Signal(sigKILL)
	}
}

// keepers finds the supervisor with that token: the process whose last argument
// is the token and whose program is a supervisor's.
func keepers(token string) (found []keep.Process) {
	table, err := keep.Processes()
	if err != nil {
		return nil
	}
	for _, p := range table {
		if !p.Dead() && p.PID != os.Getpid() && isKeep(p.PID, token) {
			found = append(found, p)
		}
	}
	return found
}

// isKeep reports whether a process is the supervisor with that token.
func isKeep(pid int, token string) bool {
	cmdline, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil {
		return false
	}
	words := strings.Split(strings.TrimSuffix(string(cmdline), "\x00"), "\x00")
	uid, known := realUser("/proc", pid)
	return token != "" && len(words) <= 3 && len(words) >= 2 && words[len(words)-1] == token && known && uid == os.Getuid()
}

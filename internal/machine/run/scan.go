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
		if !entry.IsDir() || r.knows(entry.Name()) {
			continue
		}
		asking.Go(func() {
			turn <- struct{}{}
			defer func() { <-turn }()
			f := r.ask(entry.Name())
			if f.Job != "" {
				f.Copy = readCopy(filepath.Join(r.dir, f.Token))
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

func (r *Runner) knows(token string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.all[token] != nil
}

// ask finds out the state of one directory.
func (r *Runner) ask(token string) Found {
	s := &supervisor{
		token: token, dir: filepath.Join(r.dir, token), adopted: true, phase: ended,
		greeted: make(chan struct{}), identity: Identity{Token: token},
	}
	deadline := time.Now().Add(r.greetsIn)
	for pause := firstPause; time.Now().Before(deadline); pause = min(2*pause, lastPause) {
		if lockFree(s.dir) {
			return r.inherit(s)
		}
		conn, hello, err := dial(s.dir, token, time.Until(deadline))
		if err != nil {
			r.pause(pause)
			continue
		}
		if helloRecord(hello).State == keep.Idle {
			// It now takes orders from this berth only, gets none, and exits.
			conn.Close()
			return r.keepEmpty(s)
		}
		r.mu.Lock()
		s.greet(hello)
		l := r.connect(s, conn)
		r.mu.Unlock()
		return r.adopt(s, l, helloRecord(hello))
	}
	return r.unanswered(s)
}

// adopt takes over a live supervisor, based on its record, or on its greeting
// if the record cannot be read. Without a connection, its goroutine keeps
// trying.
func (r *Runner) adopt(s *supervisor, l *link, said keep.Record) Found {
	record, ok, err := keep.ReadRecords(filepath.Join(s.dir, recordName))
	if err != nil || !ok {
		r.log.Warn("cannot read the record of a live supervisor", "token", s.token, "error", err)
		record = keep.Record{Token: s.token, BootID: keep.BootID(), Job: said.Job, Attempt: said.Attempt}
	}
	f := Found{Token: s.token, Job: record.Job, Attempt: record.Attempt, Kind: FoundRunning, Record: record}
	s.phase = running
	if record.State == keep.Ended {
		e := endedEvent(record, "")
		f.Kind, f.OOM = FoundEnded, e.OOM
		s.phase = ended
	}
	r.register(s, record)
	r.group.Go(func() { r.attend(s, l) })
	return f
}

// inherit reads how a supervisor that is gone ended.
func (r *Runner) inherit(s *supervisor) Found {
	s.dead = true
	record, ok, err := keep.ReadRecords(filepath.Join(s.dir, recordName))
	// A directory without a record is one that berth did not finish, where no job
	// was ever placed, or one that somebody emptied.
	if err != nil {
		r.log.Warn("cannot read the record of a dead supervisor", "token", s.token, "error", err)
		record = keep.Record{Token: s.token}
	}
	f := Found{Token: s.token, Job: record.Job, Attempt: record.Attempt, Record: record}
	rebooted := record.BootID != "" && record.BootID != keep.BootID()
	switch {
	case err == nil && record.State == keep.Ended:
		r.dropCgroup(record)
		e := endedEvent(record, "")
		f.Kind, f.OOM = FoundEnded, e.OOM
		r.register(s, record)
		return f
	case err == nil && !rebooted && (!ok || record.State == keep.Idle):
		return r.keepEmpty(s)
	}
	f.Kind = FoundLost
	r.register(s, record)
	r.group.Go(func() { r.lose(s, record) })
	return f
}

// keepEmpty reports a supervisor that ran nothing. Its directory stays until
// that is acknowledged or berth closes: a missing directory could mean
// anything.
func (r *Runner) keepEmpty(s *supervisor) Found {
	s.dead, s.empty = true, true
	r.register(s, keep.Record{})
	f := Found{Token: s.token, Kind: FoundEmpty}
	if last, ok, err := keep.ReadRecords(filepath.Join(s.dir, recordName)); err == nil && ok && last.State == keep.Idle {
		f.Record.StartedAt = last.StartedAt // of the job before
	}
	return f
}

func (r *Runner) register(s *supervisor, record keep.Record) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s.job, s.attempt, s.log = record.Job, record.Attempt, record.Log
	s.identify(record)
	r.all[s.token] = s
}

// unanswered deals with a live supervisor that does not greet, perhaps because
// a user stopped it with SIGSTOP. One with a job keeps it. One without may
// still have an order from the earlier berth unread, and must not start a job
// that this berth has requeued: it is killed. It may read that order at any
// moment, so it is halted first, and its record read again. One that cannot be
// halted may be just writing that record, and is asked on.
func (r *Runner) unanswered(s *supervisor) Found {
	if r.holdsJob(s) {
		r.log.Warn("a supervisor does not answer; its job keeps running", "token", s.token)
		return r.adopt(s, nil, keep.Record{})
	}
	deadline := time.Now().Add(answerBudget)
	for _, p := range keepers(s.token) {
		_ = p.Signal(sigSTOP)
		for !p.Halted() && time.Now().Before(deadline) {
			r.pause(firstPause)
		}
		if !p.Halted() || r.holdsJob(s) {
			_ = p.Signal(sigCONT)
			return r.adopt(s, nil, keep.Record{})
		}
		_ = p.Signal(sigKILL)
	}
	r.log.Warn("killed a supervisor that did not answer", "token", s.token)
	for deadline = time.Now().Add(answerBudget); time.Now().Before(deadline); r.pause(firstHuntPause) {
		endKeep(s.token)
		if lockFree(s.dir) {
			return r.inherit(s)
		}
	}
	return r.adopt(s, nil, keep.Record{})
}

// holdsJob reports whether a live supervisor has begun a job: its record says
// so before there is a process.
func (r *Runner) holdsJob(s *supervisor) bool {
	record, ok, err := keep.ReadRecords(filepath.Join(s.dir, recordName))
	return err == nil && ok && record.State != keep.Idle
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

package run

import (
	"bytes"
	"os"
	"strconv"
	"strings"
	"time"

	"berth/internal/machine/keep"
)

const (
	firstHuntPause = 5 * time.Millisecond
	lastHuntPause  = time.Second
	cleanLooks     = 3
	cleanPause     = 20 * time.Millisecond
	// complainAfter is when a process that does not die is logged.
	complainAfter = 5 * time.Second
	complainEvery = time.Minute
)

// hunt kills every process that a dead supervisor left and returns true when
// none is left. It does not give up: a live process holds its card. It returns
// false if berth closes first.
func (s *supervisor) hunt(record keep.Record) bool {
	q := quarry{record: record, live: !s.adopted}
	begun := time.Now()
	complainAt, stuck := begun.Add(complainAfter), false
	for clean, pause := 0, firstHuntPause; ; pause = min(2*pause, lastHuntPause) {
		left, err := q.round()
		switch {
		case err != nil:
			clean = 0
		case len(left) == 0:
			// The process table is not a snapshot, and a process in the
			// middle of an exec shows no environment: look again.
			if clean++; clean == cleanLooks {
				s.set.cgroups.drop(record)
				return true
			}
			pause = cleanPause
		default:
			clean = 0
		}
		for _, p := range left {
			if time.Since(begun) >= complainAfter {
				p.EndTracers(record.UID)
			}
		}
		if len(left) > 0 && time.Since(begun) >= keep.UnkillableAfter && !stuck {
			stuck = true
			s.set.emit(Event{Kind: Stuck, Token: s.token, Job: s.job, Attempt: s.attempt, Process: keep.Worst(left)})
		}
		if now := time.Now(); now.After(complainAt) {
			s.set.log.Warn("processes of a lost job do not end", "job", record.Job, "token", record.Token, "left", len(left), "error", err)
			complainAt = now.Add(complainEvery)
		}
		select {
		case <-time.After(pause):
		case <-s.set.quit:
			return false
		}
	}
}

// quarry is the processes of one record.
type quarry struct {
	record keep.Record
	live   bool // this berth saw the supervisor alive, so its session is recent
}

// round kills what it finds and returns that.
func (q quarry) round() (found []keep.Process, err error) {
	// A supervisor that is being started must not be taken for an orphan.
	spawned.mu.Lock()
	defer spawned.mu.Unlock()
	found, err = q.find()
	if err != nil {
		return nil, err
	}
	for _, p := range found {
		if killErr := p.Signal(9); killErr != nil {
			err = killErr
		}
	}
	if q.record.Cgroup != "" {
		keep.KillCgroup(q.record.Cgroup)
	}
	return found, err
}

// find lists the job's live processes: those in its cgroup, in its session,
// with its token in their environment, or adopted by berth as orphans, and all
// their descendants.
func (q quarry) find() ([]keep.Process, error) {
	table, err := keep.Processes()
	if err != nil {
		return nil, err
	}
	roots := make(map[int]bool)
	if q.record.Cgroup != "" {
		for _, pid := range keep.CgroupProcesses(q.record.Cgroup) {
			roots[pid] = true
		}
	}
	for _, p := range spawned.orphans(table) {
		if p.Start >= q.record.PIDStart && !hasOtherToken(p.PID, q.record.Token) {
			roots[p.PID] = true
		}
	}
	oursBySession := q.sessionTest(table)
	for _, p := range table {
		// The supervisor is there if somebody removed its files.
		if oursBySession(p) || hasToken(p.PID, q.record) || isKeep(p.PID, q.record.Token) {
			roots[p.PID] = true
		}
	}
	self := os.Getpid()
	all := keep.Descendants(table, func(p keep.Process) bool { return p.PID != self && roots[p.PID] })
	living := all[:0]
	for _, p := range all {
		if !p.Dead() && p.PID != self && spawned.known[p.PID] == nil {
			living = append(living, p)
		}
	}
	return living, nil
}

// sessionTest recognises members of the job's session. Its id can be reused
// once the last member is gone, so the leader must be the job's own, or, if
// the leader is gone, berth must have seen the supervisor alive a moment ago.
func (q quarry) sessionTest(table []keep.Process) func(keep.Process) bool {
	session, trusted := q.record.Session, q.live
	if session <= 0 {
		return func(keep.Process) bool { return false }
	}
	for _, p := range table {
		if p.PID == session {
			trusted = p.Start == q.record.PIDStart
		}
	}
	return func(p keep.Process) bool { return trusted && p.Session == session && p.Start >= q.record.PIDStart }
}

// hasToken reports whether the process was started for this record's job, or
// for any job of its supervisor if the record could not be read. The token is
// not secret, and another user who keeps starting processes with it could keep
// the job from ever ending: so the process must run as the job's user.
func hasToken(pid int, record keep.Record) bool {
	if record.Token == "" {
		return false
	}
	value, ok := tokenOf(pid)
	if !ok || !strings.HasPrefix(value, record.Token+":") {
		return false
	}
	if uid, known := realUser("/proc", pid); os.Geteuid() == 0 && known && uid != record.UID && uid != 0 {
		return false
	}
	if record.Job == "" {
		return true
	}
	return value == keep.TokenValue(record.Token, record.Job, record.Attempt)
}

func hasOtherToken(pid int, token string) bool {
	value, ok := tokenOf(pid)
	return ok && !strings.HasPrefix(value, token+":")
}

// tokenOf reads the token from a process's environment, if that is allowed.
func tokenOf(pid int) (value string, ok bool) {
	environ, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/environ")
	if err != nil {
		return "", false
	}
	return tokenIn(environ)
}

func tokenIn(environ []byte) (value string, ok bool) {
	prefix := []byte(keep.TokenVariable + "=")
	for entry := range bytes.SplitSeq(environ, []byte{0}) {
		if value, found := bytes.CutPrefix(entry, prefix); found {
			return string(value), true
		}
	}
	return "", false
}

package run

import (
	"time"

	"golang.org/x/sys/unix"

	"berth/internal/machine/keep"
)

const (
	// pingEvery is the time between pings of a supervisor with a job. One that
	// leaves three in a row unanswered is reported, which is within 24 s.
	pingEvery   = 6 * time.Second
	silentAfter = 3
	// overruleSlack is how much longer than the grace period a supervisor that
	// does not answer may take to end its job.
	overruleSlack = 15 * time.Second
)

// breath is whether a supervisor answers.
type breath struct {
	pinged bool // a ping is unanswered
	missed int  // checks in a row without an answer
	silent bool // that was reported
	over   bool // it is being killed
}

// pulse checks the supervisors with a job, and reaps orphans, until berth closes.
func (set *supervisors) pulse() {
	ticker := time.NewTicker(pingEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			set.feel()
			spawned.reap()
		case <-set.quit:
			return
		}
	}
}

// feel checks each supervisor with a job once. It counts checks and not time:
// after berth itself was stopped, the answers are read before the next check.
func (set *supervisors) feel() {
	var news []Event
	set.mu.Lock()
	for _, s := range set.all {
		if s.phase != running || s.dead || s.breath.over {
			continue
		}
		process, _ := keep.ReadProcess(s.identity.KeepPID) // without one, its state is 0
		s.check(process)
		switch b := &s.breath; {
		case b.missed >= silentAfter && !b.silent:
			b.silent = true
			news = append(news, s.event(Silent, process))
			set.log.Warn("a supervisor does not answer; its job keeps running", "token", s.token, "job", s.job, "pid", process.PID, "state", string(rune(process.State)))
		case b.missed == 0 && b.silent && !b.pinged:
			b.silent = false
			news = append(news, s.event(Answers, process))
		}
		if s.breath.silent && !s.stopBy.IsZero() {
			if process.State == 'T' && process.Start == s.identity.KeepStart {
				_ = process.Signal(sigCONT) // so that it can do what it was told
			}
			if time.Now().After(s.stopBy) {
				s.breath.over = true
				set.group.Go(s.overrule)
			}
		}
	}
	set.mu.Unlock()
	for _, e := range news {
		set.emit(e)
	}
}

// The signals that berth sends to supervisors.
const (
	sigKILL = int(unix.SIGKILL)
	sigCONT = int(unix.SIGCONT)
	sigSTOP = int(unix.SIGSTOP)
)

// check counts a check without an answer. A supervisor of an earlier version
// cannot answer, and counts as silent only while it is stopped. The mutex is
// held.
func (s *supervisor) check(process keep.Process) {
	b := &s.breath
	switch {
	case s.link == nil, b.pinged:
		b.missed++
	case s.protocol >= keep.ProtocolPing:
		b.pinged = true
		s.send(pingFrame)
	case process.State == 'T', process.State == 't':
		b.missed++
	default:
		b.missed = 0
	}
}

var pingFrame = encode(keep.Frame{Kind: keep.FramePing})

// answered takes in the answer to a ping.
func (s *supervisor) answered() {
	s.set.mu.Lock()
	b := &s.breath
	was := b.silent && s.phase == running
	b.pinged, b.missed, b.silent = false, 0, false
	e := s.event(Answers, keep.Process{PID: s.identity.KeepPID})
	s.set.mu.Unlock()
	if was {
		s.set.emit(e)
	}
}

// event is about the supervisor itself. The mutex is held.
func (s *supervisor) event(kind EventKind, process keep.Process) Event {
	return Event{
		Kind: kind, Token: s.token, Job: s.job, Attempt: s.attempt,
		Process: keep.Stuck{PID: s.identity.KeepPID, State: process.State},
	}
}

// overrule ends the job of a supervisor that was told to and does not answer.
// The supervisor is killed first: a process with a pending KILL runs no more
// of its program, so it cannot start or report anything, even if it is slow to
// go. Its goroutine reports the end when it has gone and nothing of its job is
// left.
func (s *supervisor) overrule() {
	s.set.mu.Lock()
	keeper := keep.Process{PID: s.identity.KeepPID, Start: s.identity.KeepStart}
	s.set.mu.Unlock()
	s.set.log.Warn("killing a supervisor that does not end its job", "token", s.token, "job", s.job, "pid", keeper.PID)
	begun, told := time.Now(), false
	for pause := firstHuntPause; !s.dir.free() && !s.set.closing(); pause = min(2*pause, lastHuntPause) {
		if keeper.PID == 0 {
			endKeep(s.token)
		} else {
			_ = keeper.Signal(9)
		}
		if record, ok, err := s.dir.record(); err == nil && ok && record.State == keep.Started && time.Since(begun) >= answerBudget {
			_, _ = quarry{record: record, live: !s.adopted}.round() // it is tried again
		}
		if now, err := keep.ReadProcess(keeper.PID); err == nil && time.Since(begun) >= keep.UnkillableAfter && !told {
			told = true
			s.set.mu.Lock()
			e := s.event(Stuck, now)
			s.set.mu.Unlock()
			s.set.emit(e)
		}
		s.set.pause(pause)
	}
}

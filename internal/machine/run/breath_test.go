package run

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"berth/internal/job"
	"berth/internal/machine/keep"
	"berth/internal/tests/testkit"
)

// silence runs a job and stops its supervisor.
func (b *bench) silence(line string) (token string, keeper keep.Process) {
	b.t.Helper()
	token = b.start(b.order("1", line))
	b.next(Started)
	keeper = b.keeper(token)
	if err := keeper.Signal(int(unix.SIGSTOP)); err != nil {
		b.t.Fatal(err)
	}
	testkit.Eventually(b.t, "the supervisor is stopped", func() bool {
		p, err := keep.ReadProcess(keeper.PID)
		return err == nil && p.State == 'T'
	})
	return token, keeper
}

func (b *bench) keeper(token string) keep.Process {
	identity, _ := b.Identity(token)
	return keep.Process{PID: identity.KeepPID, Start: identity.KeepStart}
}

// checks are as many as make a supervisor silent.
func (b *bench) checks() {
	for range silentAfter + 1 {
		b.set.feel()
	}
}

func (b *bench) change(token string, f func(*supervisor)) {
	b.set.mu.Lock()
	defer b.set.mu.Unlock()
	f(b.set.all[token])
}

func TestAStoppedSupervisorIsReportedUntilItAnswers(t *testing.T) {
	t.Parallel()
	for name, protocol := range map[string]int{"one that can be pinged": keep.Protocol, "one of an earlier version": keep.ProtocolPing - 1} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			token, keeper := b.silence("sleep 1000")
			b.change(token, func(s *supervisor) { s.protocol = protocol })
			b.checks()
			if e := b.next(Silent); e.Process.PID != keeper.PID || e.Process.State != 'T' || e.Job != "1" {
				t.Errorf("got %+v", e)
			}
			b.checks() // it is reported once
			keeper.Signal(sigCONT)
			testkit.Eventually(t, "it runs again", func() bool {
				p, err := keep.ReadProcess(keeper.PID)
				return err == nil && p.State != 'T'
			})
			b.set.feel()
			b.next(Answers)
			b.Stop(token, job.StopCancel, 0)
			b.next(Ended)
		})
	}
}

// An answer that is late by less than the bound does no harm.
func TestASlowSupervisorIsNotReported(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	token, keeper := b.silence("sleep 1000")
	b.set.feel()
	b.set.feel()
	keeper.Signal(sigCONT)
	testkit.Eventually(t, "it has answered", func() (answered bool) {
		b.change(token, func(s *supervisor) { answered = s.breath == breath{} })
		return answered
	})
	b.Stop(token, job.StopCancel, 0)
	b.next(Ended)
}

func TestAStoppedSupervisorIsContinuedToEndItsJob(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	token, _ := b.silence("trap 'exit 7' TERM; echo $$ > ready; while :; do sleep 0.1; done")
	b.pidFrom("ready")
	b.Stop(token, job.StopCancel, testkit.Patience)
	b.checks()
	b.next(Silent)
	b.next(Answers)
	if r := b.next(Ended).Record; r.Stop != "cancel" || r.ExitCode != 7 {
		t.Errorf("got %+v", r)
	}
}

// A supervisor that a debugger holds cannot be continued.
func TestASupervisorThatDoesNotEndItsJobIsKilledWithIt(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	token := b.start(b.order("1", "echo $$ > main; exec sleep 1000"))
	b.next(Started)
	main, keeper := b.pidFrom("main"), b.keeper(token)
	traced(t, keeper, stopNow)
	b.checks()
	if e := b.next(Silent); e.Process.PID != keeper.PID {
		t.Errorf("got %+v", e)
	}
	b.checks()
	if !lives(keeper) || !lives(main) {
		t.Fatal("nobody asked for its end")
	}
	b.Stop(token, job.StopCancel, time.Hour)
	b.Stop(token, job.StopCancel, 0)
	b.set.feel()
	if !lives(keeper) {
		t.Fatal("it was not given its time")
	}
	b.change(token, func(s *supervisor) { s.stopBy = time.Now().Add(-time.Millisecond) })
	b.set.feel()
	if e := b.next(Lost); e.Job != "1" || e.Attempt != 1 {
		t.Errorf("got %+v", e)
	}
	b.gone(main, keeper)
	b.Ack(token)
}

// TestAnAcknowledgementThatWasLostComesWithTheNextConnection: without it, the
// supervisor would take no other job, and be given one again and again. It exits if
// it notices the end of the last connection before the next one comes.
func TestAnAcknowledgementThatWasLostComesWithTheNextConnection(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for came := false; !came; {
		token := b.start(b.order("1", "true"))
		b.next(Started)
		b.next(Ended)
		keeper := b.keepOf(token)
		var l *link
		b.change(token, func(s *supervisor) { l = s.link })
		testkit.Must(t, keeper.Signal(sigSTOP))
		testkit.Must(t, l.conn.Close())
		linked := func(change bool) (s *supervisor) {
			testkit.Eventually(t, "the connection to change", func() bool {
				b.set.mu.Lock()
				defer b.set.mu.Unlock()
				s = b.set.all[token]
				return s == nil || s.link != l && (s.link != nil) == change
			})
			return s
		}
		linked(false)
		b.Ack(token)
		testkit.Must(t, keeper.Signal(sigCONT))
		came = linked(true) != nil
	}
	b.start(b.order("2", "true"))
	b.next(Started)
	b.next(Ended)
}

package engine

import (
	"strings"
	"testing"
	"time"

	"berth/internal/job"
	"berth/internal/machine/keep"
	"berth/internal/machine/run"
	"berth/internal/queue/engine/running"
	"berth/internal/queue/engine/settings"
	"berth/internal/queue/engine/waiting"
)

// shared is a daemon of several users with a limit on GPUs.
func shared(gpus float64) func(*Config) {
	return func(c *Config) { c.Limits.Default.GPUs, c.Limits.Measured = gpus, true }
}

// shell is the command of a job, and its kind.
func shell(command string) func(*job.Spec) { return func(s *job.Spec) { s.Shell = command } }

// states are those of the first jobs, a letter each: r or q.
func (r *rig) states(n int) string {
	var letters strings.Builder
	for i := range n {
		letters.WriteByte(r.row(string(rune('1' + i))).State[0])
	}
	return letters.String()
}

func (r *rig) wantStates(says, want string) {
	r.t.Helper()
	if got := r.states(len(want)); got != want {
		r.t.Errorf("%s: %s, want %s", says, got, want)
	}
}

func TestAWaveOfSharesStartsAsItIsMeasured(t *testing.T) {
	four := func(change ...func(*job.Spec)) (list []job.Spec) {
		for i := range 4 {
			one := append([]func(*job.Spec){share(0.1), func(s *job.Spec) { s.Allow = []int{i} }}, change...)
			list = append(list, spec(one...))
		}
		return list
	}
	t.Run("as many start as would fit with a GPU each, until one was measured", func(t *testing.T) {
		r := newRig(t, 4, shared(2))
		r.submit(four()...)
		r.pass(time.Second)
		r.wantStates("at first", "rrqq")
		if why := r.at().explain.Why("3"); !strings.Contains(why, "a share counts as a whole GPU until its memory is measured") {
			t.Errorf("why: %q", why)
		}
		r.uses("1", 0, 1000)
		r.pass(time.Second)
		r.pass(running.SettleAfter - time.Second)
		r.wantStates("while it may still grow", "rrqq")
		r.pass(time.Second)
		r.wantStates("once one like them was measured", "rrrr")
	})
	t.Run("one that takes too much vouches for none", func(t *testing.T) {
		r := newRig(t, 4, shared(2))
		r.submit(four()...)
		r.uses("1", 0, 20000)
		r.uses("2", 1, 20000)
		r.pass(time.Second)
		r.pass(running.SettleAfter)
		r.wantStates("charged for two", "rrrq") // 1.63 by measurement, and one more on its word
		r.uses("3", 2, 20000)
		r.pass(time.Second)
		r.pass(running.SettleAfter)
		r.pass(settings.SettleAtMost)
		r.wantStates("over the limit", "rrrq")
	})
	t.Run("one that never uses a GPU does not hold up the others for long", func(t *testing.T) {
		r := newRig(t, 4, shared(2))
		r.submit(four()...)
		r.pass(settings.SettleAtMost - time.Second)
		r.wantStates("before", "rrqq")
		r.pass(time.Second)
		r.wantStates("after", "rrrr")
	})
	t.Run("another command is not vouched for", func(t *testing.T) {
		r := newRig(t, 4, shared(1))
		r.submit(spec(share(0.1)))
		r.uses("1", 0, 1000)
		r.pass(time.Second)
		r.pass(running.SettleAfter)
		r.submit(spec(share(0.1), shell("python other.py")), spec(share(0.1), shell("python other.py")), spec(share(0.1)), spec(share(0.2)))
		r.pass(time.Second)
		r.wantStates("of the new ones one starts, and all of the known kind wait for it", "rrqqq")
		r.manyUse(0, map[string]int64{"1": 1000, "2": 1000})
		r.pass(time.Second)
		r.pass(running.SettleAfter)
		r.wantStates("then the known ones, and the next unknown", "rrrrr")
	})
	t.Run("earlier runs vouch, and so does the past", func(t *testing.T) {
		r := newRig(t, 4, shared(2))
		r.submit(spec(share(0.1)))
		r.uses("1", 0, 1000)
		r.pass(time.Second)
		r.clear(0)
		r.end("1", keep.Record{Elapsed: time.Minute}, false)
		ended := r.row("1")
		r.submit(four()...)
		r.pass(time.Second)
		r.wantStates("after a run", "frrrr")
		r = newRig(t, 4, shared(2))
		r.at().recovery.Recall(func(int) ([]*job.Job, error) { return []*job.Job{ended}, nil })
		r.submit(four()...)
		r.pass(time.Second)
		r.wantStates("after a restart", "rrrr")
	})
	t.Run("a short run that was never seen on a GPU proves nothing", func(t *testing.T) {
		r := newRig(t, 4, shared(2))
		r.submit(spec(share(0.1)))
		r.end("1", keep.Record{Elapsed: time.Second}, false)
		r.submit(four()...)
		r.pass(time.Second)
		r.wantStates("after it", "frrqq")
	})
	t.Run("a private daemon starts all", func(t *testing.T) {
		r := newRig(t, 4, func(c *Config) { c.Limits.Default.GPUs = 2 })
		r.submit(four()...)
		r.pass(time.Second)
		r.wantStates("at once", "rrrr")
	})
}

// TestWhatIsVouchedForIsBounded: at the bound berth begins anew.
func TestWhatIsVouchedForIsBounded(t *testing.T) {
	v := waiting.Vouched{}
	j := &job.Job{User: "ann"}
	j.Grant, j.PeakMiB = job.Grant{GPUs: []int{0}, Share: 0.5}, map[int]int64{0: 10}
	for i := range waiting.MaxVouched + 5 {
		v.Note(j, strings.Repeat("x", i+1), time.Minute)
	}
	if len(v) != 5 {
		t.Errorf("%d kinds are remembered", len(v))
	}
}

// harmfulRig has bob's job, far beyond its declaration on a card.
func harmfulRig(t *testing.T, gpus float64, change ...func(*Config)) *rig {
	r := newRig(t, 2, append([]func(*Config){func(c *Config) {
		c.Overuse = settings.Overuse{Above: 0.5, After: 10 * time.Minute, Harmful: true}
		c.Limits.Default.GPUs = gpus
	}}, change...)...)
	r.submitAs("bob", spec(share(0.01)))
	r.uses("1", 0, 20000)
	r.pass(time.Second)
	r.did, r.told = nil, nil
	return r
}

// submitAs submits a job of a user.
func (r *rig) submitAs(user string, s job.Spec) {
	r.t.Helper()
	j := &job.Job{User: user, Spec: s}
	r.at().queue.Number([]*job.Job{j})
	r.at().queue.Submit([]*job.Job{j})
	r.step()
}

func TestOveruseEndsWhereOthersSuffer(t *testing.T) {
	exactly := func(card int) func(*job.Spec) { return func(s *job.Spec) { s.IDs = []int{card} } }
	for _, c := range []struct {
		says  string
		gpus  float64
		do    func(*rig)
		stops bool
	}{
		{"nobody waits", 2, func(*rig) {}, false},
		{"somebody waits for its GPU", 2, func(r *rig) { r.submitAs("ann", spec(exactly(0))) }, true},
		{"somebody waits for any GPU", 2, func(r *rig) {
			r.submitAs("cay", spec(exactly(1)))
			r.submitAs("ann", spec())
		}, true},
		{"somebody waits for another GPU", 2, func(r *rig) {
			r.submitAs("cay", spec(exactly(1)))
			r.submitAs("ann", spec(exactly(1)))
		}, false},
		{"only the user's own job waits", 2, func(r *rig) { r.submitAs("bob", spec(exactly(0))) }, false},
		{"the user is over the limit", 0.5, func(*rig) {}, true},
	} {
		r := harmfulRig(t, c.gpus)
		c.do(r)
		for range 11 {
			r.pass(time.Minute)
		}
		if got := r.row("1").Stop == job.StopOveruse; got != c.stops {
			t.Errorf("%s: ended %v", c.says, got)
		}
		if told := len(r.texts(job.EventOveruse)) == 1; told != c.stops {
			t.Errorf("%s: told %q", c.says, r.texts(job.EventOveruse))
		}
	}
}

func TestTheUserIsToldBeforeOveruseEnds(t *testing.T) {
	r := harmfulRig(t, 0.5)
	r.pass(4 * time.Minute)
	if told := r.texts(job.EventOveruse); len(told) != 0 {
		t.Errorf("told at once: %q", told)
	}
	const ends = "; it will be ended at "
	if shown := r.at().attempts.Copy(r.e.turn.line.Roster.Get("1")).Detail; !strings.Contains(shown, "20000 MiB used, 245 MiB declared"+ends) {
		t.Errorf("shown: %q", shown)
	}
	r.pass(2 * time.Minute)
	if told := r.texts(job.EventOveruse); len(told) != 1 || !strings.Contains(told[0], ends) {
		t.Errorf("told %q", told)
	}
	// Back within its declaration, the time begins anew.
	r.uses("1", 0, 200)
	r.pass(time.Second)
	if at := r.at().attempts.Uses.EndsForOveruse("1"); at != "" {
		t.Errorf("it still ends: %s", at)
	}
	r.uses("1", 0, 20000)
	r.pass(time.Second)
	r.pass(9 * time.Minute)
	if r.row("1").Stop != job.NoStop {
		t.Error("ended too soon")
	}
	r.pass(time.Minute)
	if r.row("1").Stop != job.StopOveruse {
		t.Error("not ended")
	}
}

// TestParkedJobsOfOneUser take a part of the host's memory, and count as jobs.
func TestParkedJobsOfOneUser(t *testing.T) {
	r := newRig(t, 2, func(c *Config) {
		c.Parking.FreeMiB, c.Parking.MemoryMiB, c.Parking.UserMiB = freeMiB(100_000), 12_000, 6_000
		c.Limits.Default.Jobs = 2
	})
	park := func(id string) string {
		t.Helper()
		why := r.at().parker.Park(id, "ann", time.Time{})
		r.step()
		if why == "" {
			r.clear(0)
			r.clear(1)
			r.says(id, wasParked)
		}
		return why
	}
	r.submit(spec())
	r.uses("1", 0, 5000)
	r.pass(time.Second)
	if why := park("1"); why != "" {
		t.Fatalf("not parked: %s", why)
	}
	r.submit(spec())
	if got := r.row("2").Grant.GPUs; len(got) != 1 || got[0] != 1 {
		t.Errorf("the next job is on %v, where the parked one must come back", got)
	}
	r.uses("2", 1, 5000)
	r.pass(time.Second)
	if why := park("2"); !strings.Contains(why, "limits.parked_memory") {
		t.Errorf("parked beyond the user's part: %q", why)
	}
	// The parked job and the running one are two.
	r.submit(spec(gpus(0)))
	r.wantRow("3", job.Queued, "")
	if why := r.at().explain.Why("3"); !strings.Contains(why, "2 jobs, 1 of them parked") {
		t.Errorf("why: %q", why)
	}
	// The limit on jobs does not keep a parked job from coming back.
	r.at().parker.Unpark("1", "ann")
	r.pass(time.Second)
	r.wantRow("1", job.Running, "")
}

func TestAJobIsParkedByHandForABoundedTime(t *testing.T) {
	day := 24 * time.Hour
	bound := func(c *Config) { c.Parking.Longest = day }
	parked := func(until time.Time, change ...func(*Config)) *rig {
		r := parkedRig(t, change...)
		if why := r.at().parker.Park("1", "ann", until); why != "" {
			t.Fatalf("not parked: %s", why)
		}
		r.step()
		r.clear(0)
		r.says("1", wasParked)
		return r
	}
	comesBack := func(says string, r *rig) {
		t.Helper()
		r.pass(23 * time.Hour)
		if got := r.row("1").State; got != job.Parked {
			t.Errorf("%s: %s after 23 hours", says, got)
		}
		r.pass(2 * time.Hour)
		if got := r.row("1").State; got != job.Running {
			t.Errorf("%s: %s after 25 hours", says, got)
		}
	}
	comesBack("without a time", parked(time.Time{}, bound))
	comesBack("until the end of time", parked(time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC), bound))
	r := parked(time.Time{}, bound)
	r.pass(12 * time.Hour)
	if why := r.at().parker.Park("1", "ann", time.Time{}); why != "" {
		t.Errorf("not parked for longer: %s", why)
	}
	r.pass(13 * time.Hour)
	r.wantRow("1", job.Running, "") // asking again does not prolong it
	// A bound that comes later holds for jobs that are parked, here and after a restart.
	r = parked(time.Time{})
	p := r.e.turn.cfg.Parking
	p.Longest = day
	r.at().set.Parking(p)
	comesBack("a new bound", r)
	r = parked(time.Time{})
	r.pass(48 * time.Hour)
	r.wantRow("1", job.Parked, "")
	r.boot([]*job.Job{r.row("1").Clone()}, []run.Found{{Token: "t1", Job: "1", Attempt: 1, Kind: run.FoundRunning}}, bound)
	r.says("1", foundParked)
	r.pass(time.Second)
	r.wantRow("1", job.Running, "")
}

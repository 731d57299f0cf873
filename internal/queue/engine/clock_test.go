package engine

import (
	"strings"
	"testing"
	"time"

	"berth/internal/job"
	"berth/internal/machine/keep"
	"berth/internal/machine/run"
	"berth/internal/queue/engine/journal"
)

// While berth runs it goes by a clock that nobody can set. What it finds on
// disk was written by another clock: these tests set the clock between one
// berth and the next.

const year = 365 * 24 * time.Hour

func eachJump(t *testing.T, check func(t *testing.T, jump time.Duration)) {
	for name, jump := range map[string]time.Duration{
		"an hour forward": time.Hour, "an hour back": -time.Hour, "a year forward": year, "a year back": -year,
	} {
		t.Run(name, func(t *testing.T) { check(t, jump) })
	}
}

// jump is kill -9 of berth, a clock that is set, and a new berth that finds
// these supervisors.
func (r *rig) jump(by time.Duration, found ...run.Found) {
	r.t.Helper()
	r.now = r.now.Add(by)
	var live []*job.Job
	for _, row := range r.rows {
		if !row.State.Terminal() {
			live = append(live, row.Clone())
		}
	}
	r.boot(live, found, fairShare)
	r.look()
	r.step()
}

// held is the supervisor of a running job, as a new berth finds it.
func (r *rig) held(id string) run.Found {
	row := r.row(id)
	return run.Found{Token: row.Keep, Job: id, Attempt: row.Attempt.Number, Kind: run.FoundRunning, Record: keep.Record{BootID: keep.BootID()}}
}

func TestATimeLimitIsNotTheWallClocks(t *testing.T) {
	eachJump(t, func(t *testing.T, jump time.Duration) {
		r := newRig(t, 1, fairShare)
		id := r.submit(spec(func(s *job.Spec) { s.TimeLimit = time.Minute }))[0].ID
		token := r.row(id).Keep
		if got := r.orders[token].Job; got != id {
			t.Fatalf("%s holds %q", token, got)
		}
		r.did = nil
		r.jump(jump, r.held(id))
		for range 5 {
			r.pass(10 * time.Second)
		}
		for _, act := range r.did {
			if strings.HasPrefix(act, "stop ") {
				t.Errorf("berth ended a job whose supervisor counts its time: %s", act)
			}
		}
		r.wantRow(id, job.Running, "")
		// The supervisor says when it ended, and how long it ran.
		r.end(id, keep.Record{Stop: "timeout", Elapsed: time.Minute, ExitCode: -1, Signal: 15}, false)
		r.wantRow(id, job.Failed, job.Timeout)
		if row := r.row(id); row.EndedAt.Sub(row.StartedAt) != time.Minute {
			t.Errorf("it ran from %s to %s", row.StartedAt, row.EndedAt)
		}
	})
}

func TestABackoffIsNoLongerForAClockThatWasSet(t *testing.T) {
	eachJump(t, func(t *testing.T, jump time.Duration) {
		r := newRig(t, 1, fairShare)
		id := r.submit(spec(onFail, retries(3)))[0].ID
		r.end(id, keep.Record{ExitCode: 1, Elapsed: time.Second}, false)
		r.wantRow(id, job.Queued, "")
		r.jump(jump)
		r.pass(2 * time.Second)
		r.wantRow(id, job.Running, "")
	})
}

func TestABeginIsWhatTheClockOnTheWallSays(t *testing.T) {
	eachJump(t, func(t *testing.T, jump time.Duration) {
		r := newRig(t, 1, fairShare)
		jobs := []*job.Job{{Spec: spec(), NotBefore: r.now.Add(30 * time.Minute)}}
		r.at().queue.Number(jobs)
		r.at().requests.Accept(journal.Batch{Jobs: jobs, Done: func(error) {}})
		r.step()
		r.jump(jump)
		r.pass(time.Second)
		want := job.Queued
		if jump > 0 {
			want = job.Running
		}
		r.wantRow(jobs[0].ID, want, "")
	})
}

func TestUsageIsWhatTheSupervisorMeasured(t *testing.T) {
	eachJump(t, func(t *testing.T, jump time.Duration) {
		r := newRig(t, 1, fairShare)
		id := r.submit(spec())[0].ID
		r.jump(jump, r.held(id))
		r.end(id, keep.Record{Elapsed: 100 * time.Second}, false)
		for user, seconds := range r.e.turn.line.Usage.Seconds {
			if seconds < 99 || seconds > 101 {
				t.Errorf("%s is charged %g GPU-seconds for 100", user, seconds)
			}
		}
		// A later look, with the clock back where it was, makes nothing negative.
		for _, s := range r.e.turn.line.Usage.Decayed(r.now.Add(-jump), time.Hour) {
			if s < 0 || s > 101 {
				t.Errorf("usage became %g", s)
			}
		}
	})
}

func TestALostJobDoesNotEndBeforeItBegan(t *testing.T) {
	eachJump(t, func(t *testing.T, jump time.Duration) {
		r := newRig(t, 1, fairShare)
		id := r.submit(spec())[0].ID
		r.jump(jump) // nothing is left of its supervisor
		r.wantRow(id, job.Failed, job.Lost)
		if row := r.row(id); row.EndedAt.Before(row.StartedAt) {
			t.Errorf("it ran from %s to %s", row.StartedAt, row.EndedAt)
		}
	})
}

func TestTheQueueGoesOnWhateverTheClockSays(t *testing.T) {
	eachJump(t, func(t *testing.T, jump time.Duration) {
		r := newRig(t, 1, fairShare)
		ids := r.submit(spec(), spec())
		r.jump(jump, r.held(ids[0].ID))
		r.end(ids[0].ID, keep.Record{Elapsed: time.Second}, false)
		r.wantRow(ids[0].ID, job.Finished, job.OK)
		r.pass(time.Second)
		r.wantRow(ids[1].ID, job.Running, "")
	})
}

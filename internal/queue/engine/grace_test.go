package engine

import (
	"strings"
	"testing"
	"time"

	"berth/internal/job"
	"berth/internal/machine/keep"
	"berth/internal/machine/run"
	"berth/internal/queue/engine/launch"
)

const fiveMinutes = 5 * time.Minute

func grace(d time.Duration) func(*job.Spec) { return func(s *job.Spec) { s.Grace = d } }

// bounds is a berth with a maximum, which passes a job's own grace period on.
func bounds(c *Config) {
	c.MaxGrace = fiveMinutes
	c.Order = func(j *job.Job, _ launch.CardOf) (keep.Order, error) {
		return keep.Order{Job: j.ID, Attempt: j.Attempt.Number, Grace: j.Spec.Grace}, nil
	}
}

var tenYears = grace(3650 * 24 * time.Hour)

// stops lists the orders to stop since the last call.
func (r *rig) stops() string {
	var list []string
	for _, did := range r.did {
		if strings.HasPrefix(did, "stop ") {
			list = append(list, did)
		}
	}
	r.did = nil
	return strings.Join(list, ", ")
}

// TestEveryEndingIsBounded: however a job that was accepted with a longer grace
// period ends, it gets no more than the maximum.
func TestEveryEndingIsBounded(t *testing.T) {
	for _, test := range []struct {
		name string
		end  func(r *rig)
		want string
	}{
		{"cancelled", func(r *rig) { r.at().requests.Cancel("1", "") }, "stop t1 cancel 5m0s"},
		{"cancelled by an administrator", func(r *rig) { r.at().requests.CancelBy("1", "root", time.Hour) }, "stop t1 cancel 5m0s"},
		{"cancelled with less", func(r *rig) { r.at().requests.CancelBy("1", "root", time.Second) }, "stop t1 cancel 1s"},
		{"requeued", func(r *rig) { r.at().requests.Requeue("1", "root", time.Hour) }, "stop t1 requeue 5m0s"},
		{"interrupted", func(r *rig) { r.at().requests.Interrupt(false) }, "stop t1 interrupt 5m0s"},
		{"idle", func(r *rig) { r.at().set.Idle(0, time.Hour); r.pass(time.Hour) }, "stop t1 cancel 5m0s"},
		{"found again while it is cancelled", func(r *rig) {
			r.at().requests.Cancel("1", "")
			r.step()
			r.did = nil
			row := r.row("1").Clone()
			r.boot([]*job.Job{row}, []run.Found{{Kind: run.FoundRunning, Token: row.Keep, Job: "1", Attempt: 1}}, bounds)
		}, "stop t1 cancel 5m0s"},
	} {
		r := newRig(t, 1, bounds)
		r.submit(spec(tenYears))
		r.uses("1", 0, 12000)
		r.devices[0].UtilPct = 0
		r.pass(time.Second)
		if got := r.orders["t1"].Grace; got != fiveMinutes {
			t.Errorf("its supervisor would wait %s at the time limit", got)
		}
		test.end(r)
		r.step()
		if got := r.stops(); got != test.want {
			t.Errorf("%s: the engine did %q, want %q", test.name, got, test.want)
		}
	}
}

// TestAWarningDoesNotDelayAPreemptionForLong: neither the signal nor the grace
// period takes longer than the maximum, and the plan knows.
func TestAWarningDoesNotDelayAPreemptionForLong(t *testing.T) {
	r := newRig(t, 1, bounds)
	r.submit(spec(gives, vram(20000), tenYears, warned(time.Hour)))
	r.pass(time.Hour)
	if out := r.at().explain.State().Allocations[0].Preempt.StopTime; out != 2*fiveMinutes {
		t.Errorf("the plan expects it gone after %s", out)
	}
	r.did = nil
	r.submit(spec(priority(5), vram(20000)))
	r.pass(fiveMinutes - time.Second)
	if got := r.stops(); got != "" {
		t.Errorf("too soon: %s", got)
	}
	r.pass(time.Second)
	if got := r.stops(); got != "stop t1 aside 5m0s" {
		t.Errorf("the engine did %q", got)
	}
	if by := r.at().explain.State().Allocations[0].FreeBy; by.Sub(r.now) != fiveMinutes {
		t.Errorf("the plan expects it gone in %s", by.Sub(r.now))
	}
}

// TestALoweredMaximumAppliesToRunningJobs: their supervisors were told a longer
// grace period, so berth stops them at their time limit itself.
func TestALoweredMaximumAppliesToRunningJobs(t *testing.T) {
	r := newRig(t, 2, bounds, func(c *Config) { c.MaxGrace = 0 })
	r.submit(spec(tenYears, limit(time.Hour)), spec(limit(time.Hour)), spec(tenYears, limit(time.Hour)))
	if got := r.orders["t1"].Grace; got != 3650*24*time.Hour {
		t.Errorf("without a maximum its supervisor waits %s", got)
	}
	if p := r.pendingOf("3"); p.Limit != time.Hour+3650*24*time.Hour {
		t.Errorf("the plan expects job 3 to take up to %s", p.Limit)
	}
	r.pass(time.Minute)
	r.at().set.MaxGrace(fiveMinutes)
	if p := r.pendingOf("3"); p.Limit != time.Hour+fiveMinutes {
		t.Errorf("then up to %s", p.Limit)
	}
	if at := r.at().attempts.Preemption.UrgeAt(); !at.Equal(r.row("1").StartedAt.Add(time.Hour)) {
		t.Errorf("the next stop is due %s", at)
	}
	r.pass(59*time.Minute - time.Second)
	if got := r.stops(); got != "" {
		t.Errorf("too soon: %s", got)
	}
	r.pass(time.Second)
	if got := r.stops(); got != "stop t1 timeout 5m0s" {
		t.Errorf("at the time limit the engine did %q", got)
	}
	r.pass(time.Minute)
	if got := r.stops(); got != "" {
		t.Errorf("it is told again: %s", got)
	}
	r.at().set.MaxGrace(time.Minute)
	r.step()
	if got := r.stops(); got != "stop t1 timeout 1m0s" {
		t.Errorf("a maximum that is lowered again: %q", got)
	}
	r.end("1", keep.Record{Stop: "timeout", Signal: 9}, false)
	r.wantRow("1", job.Failed, job.Timeout)
}

// TestGraceCountsInThePlan: a job can hold its cards for its time limit and the
// grace period after it.
func TestGraceCountsInThePlan(t *testing.T) {
	r := newRig(t, 1, bounds)
	r.submit(spec(limit(20*time.Second), tenYears), spec(limit(20*time.Second), tenYears))
	if h := r.at().explain.State().Allocations[0]; h.Limit != 20*time.Second+fiveMinutes || h.Run.Mid != 10*time.Second+fiveMinutes || h.Run.High != h.Limit {
		t.Errorf("running, the plan sees %+v", h)
	}
	if p := r.pendingOf("2"); p.Limit != 20*time.Second+fiveMinutes || p.Run.Mid != 10*time.Second+fiveMinutes {
		t.Errorf("queued, the plan sees %+v", p)
	}
	r.submit(spec())
	if p := r.pendingOf("3"); p.Limit != 0 {
		t.Errorf("without a time limit, the plan sees %+v", p)
	}
}

// TestNoBackfillByGrace: a job that would end in time only without its grace
// period does not start on cards that are reserved.
func TestNoBackfillByGrace(t *testing.T) {
	for g, starts := range map[time.Duration]bool{10 * time.Second: true, fiveMinutes: false} {
		r := newRig(t, 2, bounds)
		r.submit(spec(limit(4*time.Minute), grace(time.Second)))
		r.submit(spec(gpus(2)))
		r.submit(spec(limit(20*time.Second), grace(g)))
		if got := r.row("3").State == job.Running; got != starts {
			t.Errorf("with a grace period of %s it starts: %v", g, got)
		}
	}
}

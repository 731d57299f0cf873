package engine

import (
	"strings"
	"testing"
	"time"

	"berth/internal/job"
	"berth/internal/machine/keep"
	"berth/internal/queue/engine/settings"
)

func idleRig(t *testing.T, change ...func(*job.Spec)) *rig {
	r := newRig(t, 1, func(c *Config) { c.IdleAfter = settings.DefaultIdleAfter })
	r.submit(spec(change...))
	r.uses("1", 0, 12000)
	r.devices[0].UtilPct = 0
	r.pass(time.Second)
	r.pass(0)
	r.told = nil
	return r
}

func TestAnIdleJobIsToldOfOnce(t *testing.T) {
	r := idleRig(t)
	since := r.now
	r.pass(settings.DefaultIdleAfter - time.Second)
	if _, idle := r.at().attempts.Uses.IdleSince("1"); idle {
		t.Error("idle too soon")
	}
	r.wantTexts(job.EventIdle)
	r.pass(time.Second)
	r.pass(time.Hour)
	r.wantTexts(job.EventIdle, "1: holds 12000 MiB on gpu0 and has not used it for 30m")
	if got, idle := r.at().attempts.Uses.IdleSince("1"); !idle || !got.Equal(since) {
		t.Errorf("idle since %v %v", got, idle)
	}
	r.wantRow("1", job.Running, "")
	// A moment of use, and it begins anew.
	r.devices[0].UtilPct = 3
	r.pass(time.Second)
	if _, idle := r.at().attempts.Uses.IdleSince("1"); idle {
		t.Error("idle while it computes")
	}
	r.devices[0].UtilPct = 0
	r.pass(time.Second)
	r.pass(settings.DefaultIdleAfter)
	r.wantTexts(job.EventIdle, "1: holds 12000 MiB on gpu0 and has not used it for 30m")
}

func TestAJobIsNotIdleForWhatIsNotKnown(t *testing.T) {
	r := idleRig(t)
	r.devices[0].UtilPct = -1
	r.pass(time.Second)
	r.pass(2 * settings.DefaultIdleAfter)
	r.wantTexts(job.EventIdle)
}

func TestAnIdleJobIsCancelledOnlyWhereThatIsThePolicy(t *testing.T) {
	r := idleRig(t)
	r.at().set.Idle(0, 2*time.Hour)
	r.pass(2*time.Hour - time.Second)
	r.wantDid("book 1", "commit 1:running", "go 1 t1", "commit 1:running")
	r.pass(time.Second)
	r.wantTexts(job.EventIdle)
	r.wantDid("commit 1:running", "stop t1 cancel 10s")
	r.clear(0)
	r.end("1", keep.Record{Stop: string(job.StopCancel), Signal: 15}, false)
	if row := r.row("1"); row.Outcome != job.WasCancelled || row.Detail != "idle for 2h: it holds 12000 MiB on gpu0 and has not used it; cancelled by the administrator's policy" {
		t.Errorf("%s (%s)", row.Outcome, row.Detail)
	}
}

func TestAnAdoptedProcessIsNeverCancelledForBeingIdle(t *testing.T) {
	r := idleRig(t)
	r.e.turn.attempts.Active["1"].Job.Spec.Adopt = &job.Process{PID: 4711}
	r.at().set.Idle(0, time.Hour)
	r.pass(2 * time.Hour)
	for _, did := range r.did {
		if strings.HasPrefix(did, "stop") {
			t.Error(did)
		}
	}
}

func exclusive(s *job.Spec) { s.Exclusive = true }

// TestAJobThatOnlySleepsIsIdle: it keeps others off its cards, and holds no memory
// there.
func TestAJobThatOnlySleepsIsIdle(t *testing.T) {
	quiet := func(r *rig) {
		for i := range r.devices {
			r.devices[i].UtilPct = 0
		}
	}
	for name, test := range map[string]struct {
		spec job.Spec
		then func(r *rig)
		want string
	}{
		"one GPU":                {spec(), quiet, "holds gpu0 and has used neither its memory nor its cores for 30m"},
		"two GPUs":               {spec(gpus(2)), quiet, "holds 2 GPUs and has used neither their memory nor their cores for 30m"},
		"most of the memory":     {spec(vram(20000)), quiet, "holds gpu0 and has used neither its memory nor its cores for 30m"},
		"exclusively":            {spec(vram(1000), exclusive), quiet, "holds gpu0 and has used neither its memory nor its cores for 30m"},
		"half a GPU":             {spec(share(0.5)), quiet, "holds gpu0 and has used neither its memory nor its cores for 30m"},
		"a small part":           {spec(share(0.1)), quiet, ""},
		"little memory":          {spec(vram(1000)), quiet, ""},
		"no GPU":                 {spec(gpus(0)), quiet, ""},
		"use that is not known":  {spec(), func(*rig) {}, ""},
		"use of one of two":      {spec(gpus(2)), func(r *rig) { quiet(r); r.devices[1].UtilPct = 5 }, ""},
		"memory that is not its": {spec(), func(r *rig) { quiet(r); r.devices[0].UsedMiB = 5000 }, ""},
		"a process of nobody's": {spec(), func(r *rig) {
			quiet(r)
			r.uses("", 0, 5000)
			delete(r.owners, 100)
		}, ""},
		"a small context": {spec(), func(r *rig) { quiet(r); r.uses("1", 0, 10) }, "holds gpu0 and has used neither its memory nor its cores for 30m"},
		"processes that are not listed, and an empty card": {spec(), func(r *rig) {
			quiet(r)
			r.devices[0].ProcessesKnown = false
		}, "holds gpu0 and has used neither its memory nor its cores for 30m"},
		"processes that are not listed": {spec(), func(r *rig) {
			quiet(r)
			r.devices[0].ProcessesKnown, r.devices[0].UsedMiB = false, 5000
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, 2, func(c *Config) { c.IdleAfter = settings.DefaultIdleAfter })
			r.submit(test.spec)
			test.then(r)
			for range 4 {
				r.pass(time.Second)
			}
			r.pass(settings.DefaultIdleAfter)
			if test.want == "" {
				r.wantTexts(job.EventIdle)
			} else {
				r.wantTexts(job.EventIdle, "1: "+test.want)
			}
		})
	}
}

// TestAnIdleNeighbourDoesNotHelp: a job that sleeps beside one that works is idle
// if berth knows that all the work and memory are the other's.
func TestAnIdleNeighbourDoesNotHelp(t *testing.T) {
	r := newRig(t, 1, func(c *Config) { c.IdleAfter = settings.DefaultIdleAfter })
	r.submit(spec(share(0.5)), spec(share(0.5)))
	r.uses("2", 0, 8000)
	r.devices[0].UtilPct, r.devices[0].Processes[0].UtilPct = 80, 80
	r.pass(time.Second)
	r.pass(settings.DefaultIdleAfter)
	r.wantTexts(job.EventIdle, "1: holds gpu0 and has used neither its memory nor its cores for 30m")
}

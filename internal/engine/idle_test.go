package engine

import (
	"strings"
	"testing"
	"time"

	"berth/internal/job"
	"berth/internal/keep"
)

func idleRig(t *testing.T, change ...func(*job.Spec)) *rig {
	r := newRig(t, 1, func(c *Config) { c.IdleAfter = DefaultIdleAfter })
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
	r.pass(DefaultIdleAfter - time.Second)
	if _, idle := r.at().IdleSince("1"); idle {
		t.Error("idle too soon")
	}
	r.wantTexts(job.EventIdle)
	r.pass(time.Second)
	r.pass(time.Hour)
	r.wantTexts(job.EventIdle, "1: holds 12000 MiB on gpu0 and has not used it for 30m")
	if got, idle := r.at().IdleSince("1"); !idle || !got.Equal(since) {
		t.Errorf("idle since %v %v", got, idle)
	}
	r.wantRow("1", job.Running, "")
	// A moment of use, and it begins anew.
	r.devices[0].UtilPct = 3
	r.pass(time.Second)
	if _, idle := r.at().IdleSince("1"); idle {
		t.Error("idle while it computes")
	}
	r.devices[0].UtilPct = 0
	r.pass(time.Second)
	r.pass(DefaultIdleAfter)
	r.wantTexts(job.EventIdle, "1: holds 12000 MiB on gpu0 and has not used it for 30m")
}

func TestAJobIsNotIdleForWhatIsNotKnown(t *testing.T) {
	r := idleRig(t)
	r.devices[0].UtilPct = -1
	r.pass(time.Second)
	r.pass(2 * DefaultIdleAfter)
	r.wantTexts(job.EventIdle)
}

func TestAnIdleJobIsCancelledOnlyWhereThatIsThePolicy(t *testing.T) {
	r := idleRig(t)
	r.at().SetIdle(0, 2*time.Hour)
	r.pass(2*time.Hour - time.Second)
	r.wantDid("book 1", "commit 1:running", "go 1 t1", "commit 1:running")
	r.pass(time.Second)
	r.wantTexts(job.EventIdle)
	r.wantDid("commit 1:running", "stop t1 cancel 10s")
	r.clear(0)
	r.end("1", keep.Record{Stop: string(job.StopCancel), Signal: 15}, false)
	if row := r.row("1"); row.Outcome != job.WasCancelled || row.Detail != "idle for 2h: cancelled by the administrator's policy" {
		t.Errorf("%s (%s)", row.Outcome, row.Detail)
	}
}

func TestAnAdoptedProcessIsNeverCancelledForBeingIdle(t *testing.T) {
	r := idleRig(t)
	r.e.attempts.active["1"].job.Spec.Adopt = &job.Process{PID: 4711}
	r.at().SetIdle(0, time.Hour)
	r.pass(2 * time.Hour)
	for _, did := range r.did {
		if strings.HasPrefix(did, "stop") {
			t.Error(did)
		}
	}
}

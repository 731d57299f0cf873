package engine

import (
	"slices"
	"strings"
	"testing"
	"time"

	"berth/internal/job"
	"berth/internal/machine/keep"
	"berth/internal/machine/run"
	"berth/internal/queue/engine/settings"
)

func TestWhatIsReportedAsTooMuch(t *testing.T) {
	for _, c := range []struct {
		says string
		spec job.Spec
		card int
		mib  int64
		want string
	}{
		{"within a share", spec(share(0.25)), 0, 6144, ""},
		{"beyond a share, within the tolerance", spec(share(0.25)), 0, 6700, ""},
		{"beyond a share", spec(share(0.25)), 0, 6800, "1: gpu0:6800 MiB used, 6144 MiB declared"},
		{"a declaration beside a share is what counts", spec(share(0.25), vram(10000)), 0, 9000, ""},
		{"a whole card", spec(), 0, 24000, ""},
		{"another card than its own", spec(vram(1000)), 1, 5000, "1: gpu1:5000 MiB used, not allocated to it"},
		{"a trace on another card", spec(vram(1000)), 1, 150, ""},
		{"a CPU job on a card", spec(gpus(0)), 1, 5000, "1: gpu1:5000 MiB used, not allocated to it"},
	} {
		r := newRig(t, 2)
		r.submit(c.spec)
		r.uses("1", c.card, c.mib)
		r.pass(time.Second)
		r.pass(time.Second)
		var want []string
		if c.want != "" {
			want = []string{c.want}
		}
		t.Run(c.says, func(*testing.T) { r.wantTexts(job.EventExceeds, want...) })
		shown := r.at().attempts.Copy(r.e.turn.line.Roster.Get("1"))
		if _, text, _ := strings.Cut(c.want, ": "); shown.Detail != text {
			t.Errorf("%s: it is shown with %q", c.says, shown.Detail)
		}
	}
}

func overuseRig(t *testing.T, change ...func(*job.Spec)) *rig {
	r := newRig(t, 2, func(c *Config) { c.Overuse = settings.Overuse{Above: 0.5, After: time.Minute} })
	r.submit(spec(change...))
	r.pass(time.Second)
	r.did, r.told = nil, nil
	return r
}

func (r *rig) stopped() bool {
	return slices.ContainsFunc(r.did, func(did string) bool { return strings.HasPrefix(did, "stop") })
}

func TestAJobFarBeyondItsDeclarationIsEndedOnlyWhereThatIsThePolicy(t *testing.T) {
	r := overuseRig(t, vram(1000), retries(3))
	r.at().set.Overuse(settings.Overuse{Above: 0.5})
	r.uses("1", 0, 20000)
	r.pass(time.Second)
	r.pass(time.Hour)
	if r.stopped() {
		t.Error("ended by default")
	}
	r.at().set.Overuse(settings.Overuse{Above: 0.5, After: 2 * time.Hour})
	r.pass(time.Hour - time.Second)
	if r.stopped() {
		t.Error("ended too soon")
	}
	r.pass(time.Second)
	if !slices.Contains(r.did, "stop t1 overuse 10s") {
		t.Errorf("it did %q", r.did)
	}
	r.clear(0)
	r.end("1", keep.Record{Stop: string(job.StopOveruse), Signal: 15}, false)
	r.wantRow("1", job.Failed, job.Overuse)
	if got := r.row("1").Detail; got != "gpu0:20000 MiB used, 1000 MiB declared, for 2h; ended by the administrator's policy" {
		t.Errorf("it ended with %q", got)
	}
}

func TestWhatEndsNoJob(t *testing.T) {
	for says, try := range map[string]func(r *rig){
		"a little more than declared": func(r *rig) {
			r.uses("1", 0, 1500)
			r.pass(time.Second)
			r.pass(time.Hour)
		},
		"a short peak": func(r *rig) {
			r.uses("1", 0, 20000)
			r.pass(time.Second)
			r.uses("1", 0, 900)
			r.pass(30 * time.Second)
			r.uses("1", 0, 20000)
			r.pass(30 * time.Second)
			r.pass(59 * time.Second)
		},
		"an adopted process": func(r *rig) {
			r.e.turn.attempts.Active["1"].Job.Spec.Adopt = &job.Process{PID: 4711}
			r.uses("1", 0, 20000)
			r.pass(time.Second)
			r.pass(time.Hour)
		},
		"a job that is being cancelled": func(r *rig) {
			r.at().requests.CancelBy("1", "ann", time.Hour)
			r.step()
			r.did = nil
			r.uses("1", 0, 20000)
			r.pass(time.Second)
			r.pass(2 * time.Minute)
			if got := r.row("1").Stop; got != job.StopCancel {
				t.Errorf("it is stopped for %s", got)
			}
			r.did = nil
		},
	} {
		r := overuseRig(t, vram(1000))
		if try(r); r.stopped() {
			t.Errorf("%s: %q", says, r.did)
		}
	}
}

func TestAnEndForOveruseOutlivesBerth(t *testing.T) {
	over := func() *rig {
		r := overuseRig(t, share(0.01))
		r.uses("1", 0, 20000)
		r.pass(time.Second)
		r.pass(time.Minute)
		if row := r.row("1"); row.Stop != job.StopOveruse {
			t.Fatalf("it is %+v", row)
		}
		r.did = nil
		return r
	}
	r := over()
	r.again(foundOne(run.FoundRunning, keep.Record{}))
	r.pass(time.Second)
	if !slices.Contains(r.did, "stop t1 overuse 10s") {
		t.Errorf("after a restart it did %q", r.did)
	}
	r = over()
	r.hear(run.Lost, "1", keep.Record{}, false)
	r.pass(time.Second)
	r.wantRow("1", job.Failed, job.Overuse)
}

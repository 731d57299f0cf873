package engine

import (
	"maps"
	"testing"
	"testing/synctest"
	"time"

	"berth/internal/job"
	"berth/internal/machine/keep"
	"berth/internal/machine/run"
	"berth/internal/queue/engine/settings"
)

// cpuRig is a machine where what each job's CPU time is can be said, by job id.
func cpuRig(t *testing.T, cancel time.Duration) (*rig, map[string]time.Duration) {
	used := map[string]time.Duration{}
	r := newRig(t, 1, func(c *Config) {
		c.IdleAfter, c.IdleCancel = settings.DefaultIdleAfter, cancel
		c.CPUTimes = func(jobs []run.Identity) map[string]time.Duration {
			found := map[string]time.Duration{}
			for _, j := range jobs {
				if u, known := used[j.Token]; known {
					found[j.Token] = u
				}
			}
			return found
		}
	})
	return r, used
}

// minutes lets a minute pass at a time, in which each job uses this much CPU time.
func (r *rig) minutes(n int, used map[string]time.Duration, each time.Duration) {
	for range n {
		for token := range maps.Clone(used) {
			used[token] += each
		}
		r.pass(time.Minute)
		synctest.Wait() // for the reading
		r.pass(0)
	}
}

// TestAJobWithoutGPUsIsIdleWithoutCPUTime: the rule of GPUs holds for CPUs too.
func TestAJobWithoutGPUsIsIdleWithoutCPUTime(t *testing.T) {
	const hardly, some = 10 * time.Millisecond, time.Second // of each minute
	said := "1: holds 4 CPUs and has used almost no CPU time for 30m"
	for name, test := range map[string]struct {
		spec job.Spec
		run  func(r *rig, used map[string]time.Duration)
		want []string
	}{
		"it sleeps":       {spec(gpus(0), fourCPUs), func(r *rig, used map[string]time.Duration) { r.minutes(35, used, hardly) }, []string{said}},
		"it computes":     {spec(gpus(0), fourCPUs), func(r *rig, used map[string]time.Duration) { r.minutes(35, used, some) }, nil},
		"not for so long": {spec(gpus(0), fourCPUs), func(r *rig, used map[string]time.Duration) { r.minutes(29, used, 0) }, nil},
		"a moment of work": {spec(gpus(0), fourCPUs), func(r *rig, used map[string]time.Duration) {
			r.minutes(25, used, 0)
			r.minutes(1, used, some)
			r.minutes(25, used, 0)
		}, nil},
		"processes end": {spec(gpus(0), fourCPUs), func(r *rig, used map[string]time.Duration) {
			r.minutes(25, used, 0)
			r.minutes(1, used, -some)
			r.minutes(25, used, 0)
		}, nil},
		"its time is not known": {spec(gpus(0), fourCPUs), func(r *rig, used map[string]time.Duration) { clear(used); r.minutes(60, used, 0) }, nil},
		"it was not known for a moment": {spec(gpus(0), fourCPUs), func(r *rig, used map[string]time.Duration) {
			r.minutes(25, used, 0)
			clear(used)
			r.minutes(1, used, 0)
			used["t1"] = 0
			r.minutes(25, used, 0)
		}, nil},
		"it has a GPU, and its use is unknown": {spec(fourCPUs), func(r *rig, used map[string]time.Duration) { r.minutes(60, used, 0) }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, used := cpuRig(t, 0)
				r.submit(test.spec)
				used["t1"] = time.Hour // from the start, whatever came before
				test.run(r, used)
				r.wantTexts(job.EventIdle, test.want...)
				_, idle := r.at().attempts.Uses.IdleSince("1")
				if idle != (test.want != nil) {
					t.Errorf("idle %v", idle)
				}
			})
		})
	}
}

func TestAnIdleJobWithoutGPUsIsCancelledWhereThatIsThePolicy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, used := cpuRig(t, time.Hour)
		r.submit(spec(gpus(0)))
		used["t1"] = 0
		r.minutes(65, used, 0)
		r.end("1", keep.Record{Stop: string(job.StopCancel), Signal: 15}, false)
		if row := r.row("1"); row.Outcome != job.WasCancelled || row.Detail != "idle for 1h: it holds 1 CPU and has used almost no CPU time; cancelled by the administrator's policy" {
			t.Errorf("%s (%s)", row.Outcome, row.Detail)
		}
	})
}

// TestCPUTimeIsReadRarely: it is not read for every sample of the cards, one reading at
// a time, and not at all where nobody wants to know.
func TestCPUTimeIsReadRarely(t *testing.T) {
	for name, test := range map[string]struct {
		report, cancel time.Duration
		hangs          bool
		want           int
	}{
		"as is usual":              {30 * time.Minute, 0, false, 10},
		"for a policy of a minute": {30 * time.Minute, time.Minute, false, 20},
		"for one of a second":      {0, time.Second, false, 300},
		"never":                    {0, 0, false, 0},
		"a reading that hangs":     {30 * time.Minute, 0, true, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, _ := cpuRig(t, test.cancel)
				reads, done := 0, make(chan struct{})
				defer close(done)
				r.at().set.Idle(test.report, test.cancel)
				r.e.turn.cfg.CPUTimes = func([]run.Identity) map[string]time.Duration {
					if reads++; test.hangs {
						<-done
					}
					return nil
				}
				r.submit(spec(gpus(0)))
				reads = 0
				for range 300 {
					r.pass(time.Second)
					synctest.Wait()
				}
				if reads < test.want-1 || reads > test.want+1 {
					t.Errorf("read %d times in 5 minutes, want %d", reads, test.want)
				}
			})
		})
	}
}

func fourCPUs(s *job.Spec) { s.CPUs = 4 }

package engine

import (
	"math"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"berth/internal/job"
	"berth/internal/machine/gpu"
	"berth/internal/machine/keep"
	"berth/internal/machine/run"
	"berth/internal/queue/engine/running"
	"berth/internal/sched"
)

func share(part float64) func(*job.Spec) { return func(s *job.Spec) { s.Share = part } }

// manyUse puts a process of each job on a card.
func (r *rig) manyUse(card int, mib map[string]int64) {
	r.clear(card)
	for id, used := range mib {
		pid := 1000*(card+1) + int(id[0])
		r.owners[pid] = id
		r.devices[card].UsedMiB += used
		r.devices[card].Processes = append(r.devices[card].Processes, gpu.Process{PID: pid, UsedMiB: used})
	}
}

func wantGPUs(t *testing.T, what string, got, want float64) {
	t.Helper()
	if math.Abs(got-want) > 1e-9 {
		t.Errorf("%s: %g GPUs, want %g", what, got, want)
	}
}

// TestAJobIsChargedForItsPartOfTheHost: CPUs and host memory count in fair share and
// against limits.
func TestAJobIsChargedForItsPartOfTheHost(t *testing.T) {
	r := newRig(t, 2, fairShare, func(c *Config) {
		c.Host, c.Limits.Default = sched.Host{CPUs: 8, MemMiB: 1000}, sched.Limit{CPUs: 6, MemMiB: 600}
	})
	memory := func(mib int64) func(*job.Spec) { return func(s *job.Spec) { s.MemMiB = mib } }
	r.submit(spec(gpus(0), fourCPUs), spec(gpus(1), memory(250)), spec(gpus(0)), spec(gpus(0), fourCPUs), spec(memory(400)))
	r.pass(time.Second)
	if got, want := r.at().explain.State().InUse["ann"], (sched.Use{Jobs: 3, GPUs: 1, CPUs: 5, MemMiB: 250}); got != want {
		t.Errorf("in use: %+v, want %+v", got, want)
	}
	r.wantRow("4", job.Queued, "")
	r.wantRow("5", job.Queued, "")
	for id, want := range map[string]string{
		"4": "ann holds 5 CPUs and this job needs 4 more; the limit per user is 6 (limits.cpus)",
		"5": "ann holds 250 MiB of memory and this job needs 400 more; the limit per user is 600 (limits.memory_total)",
	} {
		if why := r.at().explain.Why(id); why != want {
			t.Errorf("job %s: %s", id, why)
		}
	}
	// Half of the CPUs is one of the two GPUs; a quarter of the memory is less than
	// the GPU that comes with it.
	before := r.at().explain.State().Usage["ann"]
	r.pass(100 * time.Second)
	if got, want := r.at().explain.State().Usage["ann"]-before, 100*(1+1+0.25); math.Abs(got-want) > 1 {
		t.Errorf("100 seconds are %g GPU-seconds, want %g", got, want)
	}
	r.end("1", keep.Record{}, false)
	if got := r.e.turn.line.Usage.Seconds["ann"]; math.Abs(got-101) > 2 {
		t.Errorf("usage of the job that ended: %g", got)
	}
}

func TestAJobIsChargedForTheMemoryItTakes(t *testing.T) {
	r := newRig(t, 2, fairShare, func(c *Config) { c.Limits.Default.GPUs = 1 })
	r.submit(spec(share(0.01)), spec(share(0.01)))
	r.pass(time.Second)
	wantGPUs(t, "before anything is measured", r.at().explain.State().InUse["ann"].GPUs, 0.02)
	r.manyUse(0, map[string]int64{"1": 12288, "2": 11059}) // half, and 45 %
	r.pass(time.Second)
	over := 0.5 + 11059.0/24576
	wantGPUs(t, "the limit counts", r.at().explain.State().InUse["ann"].GPUs, over)
	for _, h := range r.at().explain.State().Allocations {
		wantGPUs(t, "forecasts count "+h.Job, h.CountedGPUs(), map[string]float64{"1": 0.5, "2": 11059.0 / 24576}[h.Job])
	}
	r.submit(spec(share(0.25)))
	r.pass(time.Second)
	r.wantRow("3", job.Queued, "")
	if why := r.at().explain.Why("3"); !strings.Contains(why, "limit") || !strings.Contains(why, "0.95") {
		t.Errorf("why: %q", why)
	}
	// It is charged for its peak, which berth keeps free for it, not for what it
	// uses at the moment.
	r.manyUse(0, map[string]int64{"1": 100, "2": 11059})
	r.pass(time.Second)
	wantGPUs(t, "after it shrank", r.at().explain.State().InUse["ann"].GPUs, over)
	copied := r.at().attempts.Copy(r.e.turn.line.Roster.Get("1"))
	wantGPUs(t, "shown", copied.ChargedGPUs(), 0.5)
	// The charge outlives berth.
	r.pass(running.GrownDelay)
	wantGPUs(t, "on disk", r.row("1").ChargedGPUs(), 0.5)
	r.manyUse(0, map[string]int64{"2": 11059})
	r.end("1", keep.Record{Elapsed: 100 * time.Second}, false)
	if got := r.e.turn.line.Usage.Seconds["ann"]; math.Abs(got-50) > 0.1 {
		t.Errorf("fair share counts %.2f GPU-seconds of 100 s on half a GPU", got)
	}
	r.pass(time.Second)
	r.wantRow("3", job.Running, "")
}

func TestChargesAfterARestart(t *testing.T) {
	r := runOne(t, share(0.1))
	r.uses("1", 0, 12288)
	r.pass(time.Second)
	r.pass(running.GrownDelay)
	r.again(foundOne(run.FoundRunning, keep.Record{}))
	wantGPUs(t, "before the cards are read", r.at().explain.State().InUse["ann"].GPUs, 0.1)
	r.pass(time.Second)
	wantGPUs(t, "after that", r.at().explain.State().InUse["ann"].GPUs, 0.5)
}

func TestAnotherAttemptIsChargedForItself(t *testing.T) {
	r := runOne(t, share(0.1), retries(1))
	r.uses("1", 0, 12288)
	r.pass(time.Second)
	r.clear(0)
	r.end("1", keep.Record{ExitCode: 1}, true)
	r.pass(time.Second)
	r.wantRow("1", job.Running, "")
	if row := r.row("1"); row.OverGPUs != float64(row.VRAMMiB)/24576-0.1 && row.OverGPUs != 0 {
		t.Errorf("the second attempt begins with %g GPUs", row.OverGPUs)
	}
}

func TestMemoryOutsideTheGrantIsCharged(t *testing.T) {
	r := newRig(t, 2)
	r.submit(spec(gpus(0)))
	r.pass(time.Second)
	r.uses("1", 1, 12288)
	r.pass(time.Second)
	wantGPUs(t, "a CPU job on a GPU", r.at().explain.State().InUse["ann"].GPUs, 0.5)
}

// TestChargesAreAtLeastWhatWasDeclaredAndWhatWasUsed, and never more than both
// together.
func TestChargesAreAtLeastWhatWasDeclaredAndWhatWasUsed(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const cards, total = 3, int64(1000)
		grant := job.Grant{Share: rapid.SampledFrom([]float64{0, 0.01, 0.25, 1.0 / 3, 0.99}).Draw(t, "share")}
		for card := range cards {
			if rapid.Bool().Draw(t, "granted") {
				grant.GPUs = append(grant.GPUs, card)
			}
		}
		peaks := map[int]int64{}
		var used float64
		for card := range cards {
			if rapid.Bool().Draw(t, "used") {
				peaks[card] = rapid.SampledFrom([]int64{0, 1, 10, 250, 333, 334, 1000, 1001}).Draw(t, "peak")
				used += min(1, float64(peaks[card])/float64(total))
			}
		}
		a := job.Attempt{Grant: grant}
		declared := a.ChargedGPUs()
		a.OverGPUs = sched.OverGPUs(grant, 0, peaks, func(int) int64 { return total })
		charged := a.ChargedGPUs()
		if charged < declared || charged < used-1e-9 || charged > declared+used+1e-9 || charged > cards+1e-9 {
			t.Fatalf("%g GPUs for %g declared and %g used", charged, declared, used)
		}
		if grant.Share == 0 && len(grant.GPUs) == cards && charged != declared {
			t.Fatalf("whole GPUs are charged as %g", charged)
		}
		peaks[0]++
		if more := sched.OverGPUs(grant, 0, peaks, func(int) int64 { return total }); more < a.OverGPUs {
			t.Fatalf("with more memory the charge falls from %g to %g", a.OverGPUs, more)
		}
	})
}

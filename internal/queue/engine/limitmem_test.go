package engine

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"berth/internal/job"
	"berth/internal/machine/gpu"
	"berth/internal/machine/keep"
	"berth/internal/machine/run"
	"berth/internal/queue/engine/running"
)

// strictDriver holds cgroups to amounts of memory, or fails to.
type strictDriver struct {
	cannot bool
	err    error
	hold   chan struct{} // a call waits for it to close, if there is one

	mu     sync.Mutex
	limits []gpu.MemoryLimit
	left   []time.Duration // until the deadline of each call, when it was made
	called chan struct{}
}

func newStrictDriver() *strictDriver { return &strictDriver{called: make(chan struct{}, 100)} }

func (*strictDriver) Name() string                               { return "strict" }
func (*strictDriver) Sample(context.Context) (gpu.Sample, error) { return gpu.Sample{}, nil }
func (*strictDriver) Cheap() bool                                { return true }
func (*strictDriver) Close() error                               { return nil }
func (d *strictDriver) CanLimit() bool                           { return !d.cannot }

func (d *strictDriver) refuse(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.err = err
}

func (d *strictDriver) Limit(ctx context.Context, l gpu.MemoryLimit) error {
	deadline, _ := ctx.Deadline()
	left := time.Until(deadline)
	if d.hold != nil {
		<-d.hold
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.limits, d.left = append(d.limits, l), append(d.left, left)
	d.called <- struct{}{}
	return d.err
}

// await returns the limits once there are so many.
func (d *strictDriver) await(t *testing.T, n int) []gpu.MemoryLimit {
	t.Helper()
	for range n {
		select {
		case <-d.called:
		case <-time.After(30 * time.Second):
			t.Fatal("the driver was not asked")
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.limits)
}

func declares(cap string, mib int64) job.Spec {
	return spec(func(s *job.Spec) { s.Cap, s.VRAMMiB, s.GPUs = cap, mib, 1 })
}

// begin submits a job and has its supervisor say that it runs in that cgroup.
func (r *rig) begin(s job.Spec, cgroup string) *job.Job {
	r.t.Helper()
	j := r.submit(s)[0]
	r.hear(run.Started, j.ID, keep.Record{Cgroup: cgroup}, false)
	return j
}

func TestTheDriverLimitsTheMemoryOfACappedJob(t *testing.T) {
	rows := []struct {
		name string
		spec job.Spec
		want gpu.MemoryLimit
	}{
		{"a soft cap is what the job can count on", declares("soft", 4096), gpu.MemoryLimit{Cgroup: "/c", UUID: "GPU-0", SoftMiB: 4096}},
		{"a hard cap is what it cannot pass", declares("mps", 4096), gpu.MemoryLimit{Cgroup: "/c", UUID: "GPU-0", HardMiB: 4096}},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			r, d := newRig(t, 1), newStrictDriver()
			r.e.turn.cards.Source = d
			r.begin(row.spec, "/c")
			if diff := cmp.Diff([]gpu.MemoryLimit{row.want}, d.await(t, 1)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestWhereTheDriverIsNotAsked(t *testing.T) {
	rows := []struct {
		name   string
		spec   job.Spec
		cgroup string
		cannot bool
	}{
		{"for a job without a cap", declares("", 4096), "/c", false},
		{"for a job without an amount", spec(func(s *job.Spec) { s.Cap = "soft" }), "/c", false},
		{"without a cgroup", declares("mps", 4096), "", false},
		{"where it cannot", declares("mps", 4096), "/c", true},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			r, d := newRig(t, 1), newStrictDriver()
			d.cannot = row.cannot
			r.e.turn.cards.Source = d
			r.begin(row.spec, row.cgroup)
			if len(r.e.turn.attempts.Limits) != 0 {
				t.Error("it was")
			}
		})
	}
}

// A supervisor's jobs follow one another in one cgroup, and a slow driver must
// not bring the first one's limit back under the second.
func TestALimitDoesNotOutliveItsJob(t *testing.T) {
	r, d := newRig(t, 1), newStrictDriver()
	d.hold = make(chan struct{})
	r.e.turn.cards.Source = d
	first := r.begin(declares("mps", 4096), "/c")
	r.end(first.ID, keep.Record{}, false)
	r.begin(declares("", 4096), "/c")
	close(d.hold)
	want := []gpu.MemoryLimit{{Cgroup: "/c", UUID: "GPU-0", HardMiB: 4096}, {Cgroup: "/c", UUID: "GPU-0"}}
	if diff := cmp.Diff(want, d.await(t, 2)); diff != "" {
		t.Error(diff)
	}
}

// A driver that hung over the job before has as long as ever for this one.
func TestALimitHasItsWholeTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, d := newRig(t, 1), newStrictDriver()
		d.hold = make(chan struct{})
		r.e.turn.cards.Source = d
		first := r.begin(declares("mps", 4096), "/c")
		r.end(first.ID, keep.Record{}, false)
		r.begin(declares("mps", 2048), "/c")
		<-time.After(running.LimitDeadline - time.Second)
		close(d.hold)
		d.await(t, 2)
		if left := d.left[1]; left != running.LimitDeadline {
			t.Errorf("the second has %s", left)
		}
		synctest.Wait()
	})
}

func TestALimitThatCannotBeTakenBackIsAWarningOnTheNextJob(t *testing.T) {
	r, d := newRig(t, 1), newStrictDriver()
	r.e.turn.cards.Source = d
	first := r.begin(declares("mps", 4096), "/c")
	d.await(t, 1)
	r.end(first.ID, keep.Record{}, false)
	d.refuse(errors.New("no permission"))
	next := r.begin(declares("", 4096), "/c")
	select {
	case <-r.e.turn.door.Knock():
		r.kinds()
		f, _, _ := r.e.turn.door.Take()
		f(r.at())
	case <-time.After(30 * time.Second):
		t.Fatal("nobody was told")
	}
	r.step()
	if got := r.told; len(got) != 1 || got[0].Job.ID != next.ID || got[0].Text != "the driver may still apply the memory limit of the previous job: no permission" {
		t.Errorf("told: %+v", got)
	}
}

func TestALimitThatCannotBeSetIsAWarningOnTheJob(t *testing.T) {
	r, d := newRig(t, 1), newStrictDriver()
	d.err = errors.New("no permission")
	r.e.turn.cards.Source = d
	j := r.begin(declares("mps", 4096), "/c")
	select {
	case <-r.e.turn.door.Knock():
		r.kinds()
		f, _, _ := r.e.turn.door.Take()
		f(r.at())
	case <-time.After(30 * time.Second):
		t.Fatal("nobody was told")
	}
	r.step()
	if got := r.told; len(got) != 1 || got[0].Kind != job.EventWarning || got[0].Job.ID != j.ID || got[0].Text != "the driver does not limit its memory: no permission" {
		t.Errorf("told: %+v", got)
	}
	r.wantRow(j.ID, job.Running, "")
}

func TestWhatASupervisorNotesIsToldOnce(t *testing.T) {
	r := newRig(t, 1)
	j := r.submit(spec())[0]
	r.kinds()
	r.hear(run.Started, j.ID, keep.Record{Note: "not pinned"}, false)
	r.hear(run.Started, j.ID, keep.Record{Note: "not pinned"}, false)
	r.end(j.ID, keep.Record{Note: "not pinned; its MPS server ended while it ran"}, false)
	var texts []string
	for _, ev := range r.told {
		if ev.Kind == job.EventWarning && ev.Job != nil && ev.Job.ID == j.ID {
			texts = append(texts, ev.Text)
		}
	}
	if got := strings.Join(texts, "|"); got != "not pinned|its MPS server ended while it ran" {
		t.Errorf("told: %s", got)
	}
}

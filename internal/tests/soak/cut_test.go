package soak

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"berth/internal/api"
	"berth/internal/tests/testkit"
)

// TestCutDisk lets the disk of a daemon fail after each of its changes in turn,
// kills everything, and starts again on what had been synced, in the same boot of
// the machine. An acknowledged job is there, no job runs twice, and a job that is
// "ok" has run.
func TestCutDisk(t *testing.T) {
	first := newCutHost(t)
	all := first.life(-1)
	if all < 20 {
		t.Fatalf("a job's life is %d changes of the disk: is it used?", all)
	}
	points := cutPoints(t, all)
	ran := 0
	for _, after := range points {
		h := newCutHost(t)
		h.life(after)
		ran += h.count("ran")
		if t.Failed() {
			t.Fatalf("the disk failed after %d of %d changes", after, all)
		}
		h.disk.close()
	}
	t.Logf("%d cuts among %d changes; in %d of them the job ran", len(points), all, ran)
	if ran == 0 {
		t.Error("the job never ran")
	}
}

// cutPoints are the changes after which the disk fails: all of the job's own life,
// which comes last, and some of the daemon's start. BERTH_KILLS asks for every one.
func cutPoints(t *testing.T, all int) (points []int) {
	t.Helper()
	life, step := 30, 10
	if testing.Short() {
		life, step = 12, 30
	}
	if unbounded() {
		life = all
	}
	for after := 0; after < all; after++ {
		if after >= all-life || after%step == 0 {
			points = append(points, after)
		}
	}
	return points
}

// cutHost is a host whose state is on a disk that can be cut.
type cutHost struct {
	*host
	disk *cutDisk
}

func newCutHost(t *testing.T) *cutHost {
	t.Helper()
	h := &cutHost{host: newHost(t, 1)}
	h.mustBeFaulty() // such a berth takes the disk for a local one
	dir := filepath.Join(h.dir, "disk")
	if err := os.Mkdir(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	h.disk = newCutDisk(t, dir)
	h.logDir = filepath.Join(dir, "state")
	return h
}

// life takes a job from its submission to its end on a disk that fails after so
// many changes, below 0 on one that does not. It returns how many there were.
func (h *cutHost) life(after int) (changes int) {
	h.t.Helper()
	h.disk.fail(after)
	b := h.serve()
	id := h.ask(b)
	if id != "" {
		h.await(id, after)
	}
	changes = h.disk.changes()
	h.killAll(b)
	h.disk.cut()
	b = h.up()
	if id != "" {
		h.drain()
		if v := h.job(id); h.count("ran") > 1 || outcome(v) == "ok" && h.count("ran") != 1 {
			h.t.Errorf("job %s ended as %q and ran %d times", id, outcome(v), h.count("ran"))
		}
	} else {
		h.drain() // a job whose answer was lost may be there
		if h.count("ran") > 1 {
			h.t.Errorf("a job that nobody was told about ran %d times", h.count("ran"))
		}
	}
	h.killAll(b)
	return changes
}

// ask submits a job as soon as the daemon answers, and returns its id, or "" where
// the disk was faster.
func (h *cutHost) ask(b *berth) (id string) {
	h.t.Helper()
	request := api.SubmitRequest{Dir: h.dir, Environ: h.environ()}
	spec := api.Spec{Command: api.Command{Shell: "echo ran once >> $SOAK/ledger"}}
	spec.Set("gpus", "0")
	request.Jobs = []api.Spec{spec}
	testkit.Eventually(h.t, "the daemon answers or ends", func() bool {
		if !b.running() {
			return true
		}
		_, err := api.Call(h.ctx(), h.client, api.GetStatus, api.None{})
		return err == nil
	})
	if !b.running() {
		return ""
	}
	reply, err := api.Call(h.ctx(), h.client, api.Submit, request)
	if err != nil || len(reply.Jobs) != 1 {
		return ""
	}
	return reply.Jobs[0].ID
}

// await waits until the job has ended. On a disk that fails it waits only for a
// moment, since the end may never come: the cut may find it anywhere.
func (h *cutHost) await(id string, after int) {
	h.t.Helper()
	patience := testkit.Patience
	if after >= 0 {
		patience = 300 * time.Millisecond
	}
	ended := testkit.Holds(patience, func() bool {
		detail, err := api.Call(h.ctx(), h.client, api.GetJob, api.JobID{ID: id})
		return err == nil && detail.View.Outcome != nil
	})
	if !ended && after < 0 {
		h.t.Fatalf("job %s does not end", id)
	}
}

// killAll leaves no process of the site, as a power cut does.
func (h *cutHost) killAll(b *berth) {
	h.t.Helper()
	b.signal(syscall.SIGKILL)
	b.wait()
	testkit.Eventually(h.t, "everything is dead", func() bool {
		left := h.processes()
		for _, p := range left {
			syscall.Kill(p.pid, syscall.SIGKILL)
		}
		return len(left) == 0
	})
}

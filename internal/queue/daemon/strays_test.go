package daemon

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"berth/internal/api"
	"berth/internal/job"
	"berth/internal/tests/testkit"
)

func agrees(RestorePlan) error { return nil }

// TestAnEmptyStoreBesideRunningJobs: it is refused; if it is accepted, the jobs
// are left alone, keep their GPUs, and can be taken back.
func TestAnEmptyStoreBesideRunningJobs(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	line, open := l.gate("gate")
	id := l.one(sh(line+"; echo went on; exit 4", "gpus", "1", "env.A", "b"))
	l.untilState(id, job.Running)
	l.stop()
	testkit.Must(t, os.RemoveAll(filepath.Join(l.opt.Places.StateDir, "store")))
	err := Serve(l.ctx, l.opt)
	if err == nil || !strings.Contains(err.Error(), "is empty, but 1 job of an earlier daemon still runs: "+id) {
		t.Fatalf("served beside an empty store: %v", err)
	}
	l.opt.AcceptEmptyStore = true
	l.start()
	strays, err := api.Call(l.ctx, l.Client, api.ListStrays, api.None{})
	if err != nil || len(strays) != 1 || strays[0].Job != id || strays[0].State != "running" || !strays[0].Adoptable || len(strays[0].GPUs) != 1 || strays[0].PID == 0 {
		t.Fatalf("strays %+v, %v", strays, err)
	}
	if s, err := api.Call(l.ctx, l.Client, api.GetStatus, api.None{}); err != nil || s.Strays != 1 {
		t.Errorf("status %+v, %v", s, err)
	}
	// Its GPU is not another's, and its number neither.
	next := l.one(sh("true", "gpus", "0"))
	if next == id {
		t.Error("a new job has the stray's number")
	}
	cards, err := api.Call(l.ctx, l.Client, api.ListGPUs, api.None{})
	if err != nil || !slices.ContainsFunc(cards, func(g api.GPU) bool {
		return len(g.Jobs) == 1 && g.Jobs[0].ID == id && g.Jobs[0].Other
	}) {
		t.Errorf("cards %+v, %v", cards, err)
	}
	adopted, err := api.Call(l.ctx, l.Client, api.AdoptStrays, api.AdoptStraysRequest{})
	if err != nil || len(adopted) != 1 || adopted[0].Job != id || adopted[0].Problem != "" {
		t.Fatalf("adopted %+v, %v", adopted, err)
	}
	if j := l.job(id); j.State != job.Running || j.Env["A"] != "b" {
		t.Errorf("it is %+v", j)
	}
	if strays, _ := api.Call(l.ctx, l.Client, api.ListStrays, api.None{}); len(strays) != 0 {
		t.Errorf("strays %+v", strays)
	}
	// It is an ordinary job again, for the next daemon too.
	l.stop()
	l.opt.AcceptEmptyStore = false
	l.start()
	open()
	if j := l.end(id); value(j.Outcome) != job.Exited(4) {
		t.Errorf("it ended %s", value(j.Outcome))
	}
}

// TestAnEmptyStoreWhereJobsWere: it is refused although nothing runs, whichever
// trace the jobs left, until somebody accepts it.
func TestAnEmptyStoreWhereJobsWere(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		lose func(t *testing.T, dir string)
		want string
	}{
		{"removed", func(t *testing.T, dir string) {
			testkit.Must(t, os.RemoveAll(filepath.Join(dir, "store")))
		}, "is empty, but an earlier queue left jobs/1"},
		{"emptied", func(t *testing.T, dir string) {
			testkit.Must(t, os.Truncate(filepath.Join(dir, "store", "berth.db"), 0))
		}, "is empty, but an earlier queue left jobs/1"},
		{"removed with all logs", func(t *testing.T, dir string) {
			testkit.Must(t, os.RemoveAll(filepath.Join(dir, "store")))
			testkit.Must(t, os.RemoveAll(filepath.Join(dir, "jobs")))
		}, "is empty, but audit.jsonl names jobs of an earlier queue: 1"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			l := newLab(t)
			l.end(l.one(sh("true", "gpus", "0")))
			l.one(sh("true", "gpus", "0", "hold", "yes")) // this is what would be forgotten
			l.stop()
			test.lose(t, l.opt.Places.StateDir)
			for range 2 { // the first start has made a new file
				if err := Serve(l.ctx, l.opt); err == nil || !strings.Contains(err.Error(), test.want) {
					t.Fatalf("it is served: %v", err)
				}
			}
			l.opt.AcceptEmptyStore = true
			l.start()
			l.stop()
			l.opt.AcceptEmptyStore = false // once is enough
			l.start()
			if jobs, err := api.Call(l.ctx, l.Client, api.ListJobs, api.Query{Over: true, Select: api.Select{All: true}}); err != nil || len(jobs.Jobs) != 0 {
				t.Errorf("the new queue has %+v, %v", jobs, err)
			}
		})
	}
}

// TestAQueueThatNeverHadAJob starts again and again, whatever else was done.
func TestAQueueThatNeverHadAJob(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	if _, err := api.Call(l.ctx, l.Client, api.PauseGPU, api.GPUIndex{Index: 0}); err != nil {
		t.Fatal(err)
	}
	l.act(api.ActCancel, "7") // there is none, which the audit log says, too
	l.stop()
	l.start()
	l.stop()
	testkit.Must(t, os.RemoveAll(filepath.Join(l.opt.Places.StateDir, "store")))
	l.start()
}

// TestAnOlderStoreBesideRunningJobs: a job that the backup has queued runs now,
// and one that it does not know.
func TestAnOlderStoreBesideRunningJobs(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	line, open := l.gate("gate")
	known := l.one(sh("echo ran >> once; "+line+"; exit 5", "gpus", "0", "hold", "yes", "dir", l.dir()))
	again := l.one(sh("true", "gpus", "0", "hold", "yes"))
	var copied bytes.Buffer
	testkit.Must(t, l.Backup(l.ctx, &copied))
	l.act(api.ActRelease, known)
	l.act(api.ActRelease, again)
	unknown := l.one(sh("echo > begun; "+line+"; exit 6", "gpus", "0", "dir", l.dir()))
	for _, file := range []string{"once", "begun"} { // a job runs before its process exists
		testkit.Eventually(t, "the jobs begin", func() bool { _, err := os.Stat(filepath.Join(l.dir(), file)); return err == nil })
	}
	l.finished(again)
	l.stop()
	path := filepath.Join(l.dir(), "copy")
	l.write(path, copied.String())
	var plan RestorePlan
	_, err := Restore(l.opt.Places.StateDir, path, func(p RestorePlan) error { plan = p; return os.ErrPermission })
	if err == nil || len(plan.Strays) != 1 || plan.Strays[0] != unknown || len(plan.Again) != 1 || plan.Again[0] != again || plan.Unknown != 1 {
		t.Fatalf("plan %+v, %v", plan, err)
	}
	if words := strings.Join(plan.Words(), "\n"); strings.Count(words, "\n") != 2 || !strings.Contains(words, "1 job ("+unknown+")") {
		t.Errorf("it says %s", words)
	}
	_, err = Restore(l.opt.Places.StateDir, path, agrees)
	testkit.Must(t, err)
	l.start()
	if j := l.job(known); j.State != job.Running || j.Attempt != 1 {
		t.Errorf("the one it has queued is %s, attempt %d", j.State, j.Attempt)
	}
	if strays, err := api.Call(l.ctx, l.Client, api.ListStrays, api.None{}); err != nil || len(strays) != 1 || strays[0].Job != unknown {
		t.Errorf("strays %+v, %v", strays, err)
	}
	open()
	if j := l.end(known); value(j.Outcome) != job.Exited(5) {
		t.Errorf("it ended %s", value(j.Outcome))
	}
	if text := testkit.Read(t, filepath.Join(l.dir(), "once")); text != "ran\n" {
		t.Errorf("it ran %q", text)
	}
	testkit.Eventually(t, "the stray is over", func() bool {
		strays, err := api.Call(l.ctx, l.Client, api.ListStrays, api.None{})
		return err == nil && len(strays) == 1 && strays[0].State == "ended"
	})
	if _, err := api.Call(l.ctx, l.Client, api.AdoptStrays, api.AdoptStraysRequest{}); err != nil {
		t.Fatal(err)
	}
	if j := l.end(unknown); value(j.Outcome) != job.Exited(6) {
		t.Errorf("the stray ended %s", value(j.Outcome))
	}
}

package allocation

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"berth/internal/job"
	"berth/internal/queue/batch"
	"berth/internal/slurm/handover"
	"berth/internal/tests/testkit"
)

// testFront is a front with one allocation that has begun with n jobs.
func testFront(t *testing.T, n int) (*front, *allocation) {
	t.Helper()
	dir := t.TempDir()
	f := newFront(Options{Options: batch.Options{Out: io.Discard, HostOptions: batch.HostOptions{LogDir: dir}}, Count: 1, Silent: time.Minute}, dirOf(dir))
	testkit.Must(t, os.MkdirAll(filepath.Join(f.dir, "1"), 0o755))
	var err error
	f.narrator, err = newNarrator(&f.opt, dir)
	testkit.Must(t, err)
	f.ledger, _, err = openLedger(filepath.Join(f.dir, "ledger.jsonl"))
	testkit.Must(t, err)
	g := f.newAllocation(1)
	f.allocations = append(f.allocations, g)
	for i := range n {
		task := f.jobs.add(fmt.Sprint(i))
		task.inFile = true
		g.take(task)
	}
	g.marker = &startMarker{Begun: handover.Begun{Node: "n1"}}
	t.Cleanup(f.close)
	return f, g
}

// write adds an event to the journal of an allocation.
func (g *allocation) write(t *testing.T, seq int64, kind job.EventKind, index int, o job.Outcome, at time.Time, code ...int) {
	t.Helper()
	view := job.View{ID: fmt.Sprint(index), StartedAt: &at, EndedAt: &at}
	if len(code) > 0 {
		view.ExitCode = &code[0]
	}
	if o != "" {
		view.Outcome = &o
	}
	raw, err := json.Marshal(record{Seq: seq, Time: at, Event: kind, Job: &view})
	testkit.Must(t, err)
	file, err := os.OpenFile(g.directory.file("journal.jsonl"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	testkit.Must(t, err)
	_, err = file.Write(append(raw, '\n'))
	testkit.Must(t, err, file.Close())
}

// TestWhatAnAllocationDidNotFinish: jobs that were stopped with it run again, those
// that ended by themselves do not.
func TestWhatAnAllocationDidNotFinish(t *testing.T) {
	now := time.Now()
	f, g := testFront(t, 6)
	g.write(t, 1, job.EventEnded, 1, job.OK, now.Add(-time.Hour))
	g.write(t, 2, job.EventEnded, 2, job.Exited(3), now.Add(-time.Hour))
	g.write(t, 3, job.EventEnded, 3, job.Signalled("TERM"), now)
	g.write(t, 4, job.EventStarted, 4, "", now)
	testkit.Must(t, g.follow())
	if got := outcomes(f); got != "[ok exit:3    ]" {
		t.Errorf("before the notice: %q", got)
	}
	testkit.Write(t, g.directory.file(toldName), fmt.Sprint(now.Unix()))
	g.write(t, 5, job.EventRequeued, 4, "", now)
	g.write(t, 6, job.EventEnded, 5, job.Exited(1), now.Add(time.Second))
	g.write(t, 7, job.EventEnded, 6, job.OK, now.Add(time.Second))
	testkit.Must(t, f.end(g, now, true))
	if got := outcomes(f); got != "[ok exit:3    ok]" {
		t.Errorf("after it: %q", got)
	}
	if f.jobs.left() != 3 {
		t.Errorf("%d are left", f.jobs.left())
	}
	again := newFront(f.opt, f.dir)
	again.narrator = f.narrator
	again.replay([]entry{{Run: "a"}, {Jobs: []string{"0", "1", "2", "3", "4", "5"}}, {Ask: 1}, {Deal: 1, IDs: []int{1, 2, 3, 4, 5, 6}}, {Close: 1}})
	if outcomes(again) != outcomes(f) || again.jobs.all[3].in != 0 || again.jobs.all[0].in != 1 {
		t.Errorf("replayed: %s", outcomes(again))
	}
}

func outcomes(f *front) string {
	var list []job.Outcome
	for _, t := range f.jobs.all {
		list = append(list, t.outcome)
	}
	return fmt.Sprint(list)
}

// TestAJobsOwnExitCodeCounts, as in a berth run on one machine.
func TestAJobsOwnExitCodeCounts(t *testing.T) {
	now := time.Now()
	f, g := testFront(t, 4)
	g.write(t, 1, job.EventEnded, 1, job.Exited(3), now, 3)
	g.write(t, 2, job.EventEnded, 2, job.OOM, now, 7)
	g.write(t, 3, job.EventEnded, 3, job.Launch, now, 9) // of its set-up
	g.write(t, 4, job.EventEnded, 4, job.Lost, now)
	testkit.Must(t, g.follow())
	if status := f.jobs.tally().status; status != 7 {
		t.Errorf("exit status %d, want that of the job that ran out of memory", status)
	}
}

// TestASignalWithoutANotice is a job's own end, after some time.
func TestASignalWithoutANotice(t *testing.T) {
	now := time.Now()
	f, g := testFront(t, 1)
	g.write(t, 1, job.EventEnded, 1, job.Signalled("KILL"), now)
	testkit.Must(t, g.follow())
	g.resolve(now.Add(time.Second), false)
	if f.jobs.all[0].ended() || len(g.backlog()) != 0 {
		t.Error("it is not in doubt")
	}
	g.resolve(now.Add(time.Minute), false)
	if f.jobs.all[0].outcome != job.Signalled("KILL") {
		t.Errorf("outcome %q", f.jobs.all[0].outcome)
	}
}

// TestHalfALine of a journal or the ledger waits for its other half, or never
// counted.
func TestHalfALine(t *testing.T) {
	f, g := testFront(t, 2)
	path := g.directory.file("journal.jsonl")
	testkit.Write(t, path, `{"seq":1,"event":"ended","job":{"id":"1","outc`)
	testkit.Must(t, g.follow())
	testkit.Write(t, path, `{"seq":1,"event":"ended","job":{"id":"1","outcome":"ok"}}`+"\n"+`{"seq":1,"event":"ended","job":{"id":"2","outcome":"ok"}}`+"\n")
	testkit.Must(t, g.follow())
	if got := outcomes(f); got != "[ok ]" {
		t.Errorf("%q: the second has a number that was there before", got)
	}
	ledger := filepath.Join(t.TempDir(), "ledger")
	testkit.Write(t, ledger, `{"ask":1}`+"\n"+`{"ask":`)
	l, entries, err := openLedger(ledger)
	testkit.Must(t, err)
	testkit.Must(t, l.write(entry{Ask: 2}), l.file.Close())
	if got := testkit.Read(t, ledger); len(entries) != 1 || got != `{"ask":1}`+"\n"+`{"ask":2}`+"\n" {
		t.Errorf("%v, %q", entries, got)
	}
}

// TestOnlyCertainEndsCount: an allocation that Slurm does not list has to be silent,
// and one that never began is taken back first.
func TestOnlyCertainEndsCount(t *testing.T) {
	now := time.Now()
	f, g := testFront(t, 1)
	beat := func(text string, at time.Duration) {
		t.Helper()
		testkit.Write(t, g.directory.file(aliveName), text)
		testkit.Must(t, f.visit(t.Context(), g, now.Add(at)))
	}
	g.absent = 3
	beat("1", 0)
	beat("2", 50*time.Second)
	beat("2", 100*time.Second)
	if g.closed {
		t.Fatal("it was alive less than a minute ago")
	}
	beat("2", 111*time.Second)
	if !g.closed || f.jobs.left() != 1 {
		t.Error("it is not over")
	}
	taken := f.newAllocation(2)
	testkit.Must(t, os.MkdirAll(string(taken.directory), 0o755))
	for range 2 { // the second time by a front that comes after a kill
		if ok, err := taken.directory.take(); !ok || err != nil {
			t.Errorf("take: %v %v", ok, err)
		}
	}
	begun := f.newAllocation(3)
	testkit.Must(t, os.MkdirAll(string(begun.directory), 0o755), handover.Begin(string(begun.directory), 0, handover.Begun{Node: "n1"}))
	if ok, err := begun.directory.take(); ok || err != nil {
		t.Errorf("one that has begun is taken: %v %v", ok, err)
	}
}

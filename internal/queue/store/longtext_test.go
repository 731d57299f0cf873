package store

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"berth/internal/job"
)

// fat is a queued job with 0.9 MB of arguments.
func fat(seq int64) *job.Job {
	j := queued(seq)
	j.Spec.Shell, j.Spec.Argv = "", []string{"/bin/true", fmt.Sprint(seq)}
	for range 7 {
		j.Spec.Argv = append(j.Spec.Argv, strings.Repeat("a", 124_000))
	}
	return j
}

func (s *Store) logBytes(t *testing.T) int64 {
	t.Helper()
	info, err := os.Stat(s.path + "-wal")
	if err != nil {
		t.Fatal(err)
	}
	return info.Size()
}

func countRows(t *testing.T, s *Store, table string) (n int) {
	t.Helper()
	if err := s.reader.QueryRow("SELECT count(*) FROM " + table).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

func mustRead(t *testing.T, s *Store, want *job.Job) {
	t.Helper()
	got, err := s.Job(want.ID)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got, same...); diff != "" {
		t.Errorf("job %s: %.500s", want.ID, diff)
	}
}

// TestAChangeOfStateDoesNotWriteTheTextAgain: it writes a few pages, however long
// the job's text is, also as the first change after the store was opened.
func TestAChangeOfStateDoesNotWriteTheTextAgain(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	j := fat(1)
	commit(t, s, Tx{Put: []*job.Job{j}})
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = openIn(t, dir)
	if j, err = s.Job("1"); err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct {
		change string
		make   func()
	}{
		{"held", func() { j.Held = true }},
		{"released", func() { j.Held = false }},
		{"started", func() { j.State, j.Attempt.Number = job.Running, 1 }},
		{"back in the queue", func() { j = j.Clone(); j.State = job.Queued }},
		{"ended", func() { j.State, j.Outcome, j.EndedAt = job.Failed, job.WasCancelled, j.SubmittedAt }},
		{"queued again", func() { j.State, j.Outcome = job.Queued, "" }},
	} {
		before := s.logBytes(t)
		row.make()
		commit(t, s, Tx{Put: []*job.Job{j}, Events: []*job.Event{{Kind: job.EventHeld, Job: j}}})
		if grown := s.logBytes(t) - before; grown > 64<<10 {
			t.Errorf("%s: the log grew by %d KiB", row.change, grown>>10)
		}
		mustRead(t, s, j)
	}
}

func TestLongTextSurvives(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("näh \u2028", 2000)
	for name, change := range map[string]func(*job.Spec){
		"a shell line":   func(s *job.Spec) { s.Shell = long },
		"words":          func(s *job.Spec) { s.Shell, s.Argv = "", []string{"a", "", long} },
		"variables":      func(s *job.Spec) { s.Env = []job.EnvVar{{Key: "A", Value: long}, {Key: "B"}} },
		"a set-up":       func(s *job.Spec) { s.Setup = long },
		"others":         func(s *job.Spec) { s.Venv, s.Conda, s.Output, s.Export, s.Slurm = "v", "c", long, "A,B", "--x" },
		"bytes":          func(s *job.Spec) { s.Shell = long + "\xff\x00" },
		"bytes in a row": func(s *job.Spec) { s.Shell, s.Name = long, "\xff" },
	} {
		t.Run(name, func(t *testing.T) {
			s := openIn(t, t.TempDir())
			j := queued(1)
			change(&j.Spec)
			for _, state := range []job.State{job.Queued, job.Running, job.Finished} {
				j.State = state
				commit(t, s, Tx{Put: []*job.Job{j}})
				mustRead(t, s, j)
			}
			if n := countRows(t, s, "blobs"); n != 1 {
				t.Errorf("%d blobs", n)
			}
		})
	}
}

// TestTextIsKeptOnce: the tasks of an array share it, and an edit leaves nothing
// behind.
func TestTextIsKeptOnce(t *testing.T) {
	t.Parallel()
	s := openIn(t, t.TempDir())
	text := fat(1).Spec.Argv
	var tasks []*job.Job
	for seq := int64(1); seq <= 200; seq++ {
		j := queued(seq)
		j.Spec.Shell, j.Spec.Argv = "", text
		tasks = append(tasks, j)
	}
	commit(t, s, Tx{Put: tasks})
	if n := countRows(t, s, "blobs"); n != 1 {
		t.Errorf("200 tasks have %d blobs", n)
	}
	seen := 0
	if err := s.Each(func(j *job.Job) error {
		if seen++; !cmp.Equal(j.Spec.Argv, text) {
			return fmt.Errorf("job %s has another text", j.ID)
		}
		return nil
	}); err != nil || seen != 200 {
		t.Fatal(seen, err)
	}
	for edit := range 5 {
		tasks[0].Spec.Argv = append([]string{fmt.Sprint("edit ", edit)}, text...)
		commit(t, s, Tx{Put: tasks[:1]})
		mustRead(t, s, tasks[0])
		if n := countRows(t, s, "blobs"); n != 2 {
			t.Errorf("edit %d leaves %d blobs", edit, n)
		}
	}
	tasks[0].Spec.Argv = []string{"true"}
	commit(t, s, Tx{Put: tasks[:1]})
	mustRead(t, s, tasks[0])
	mustRead(t, s, tasks[1])
	if n := countRows(t, s, "blobs"); n != 1 {
		t.Errorf("a short text leaves %d blobs", n)
	}
}

// TestTextOfACommitThatFailedIsWrittenByTheNext: what was undone is not taken for
// written.
func TestTextOfACommitThatFailedIsWrittenByTheNext(t *testing.T) {
	t.Parallel()
	s := openIn(t, t.TempDir())
	j, twin := fat(1), queued(2)
	twin.ID = "1"
	if err := s.Commit(Tx{Put: []*job.Job{j, twin}}); err == nil {
		t.Fatal("two jobs have one id")
	}
	commit(t, s, Tx{Put: []*job.Job{j}})
	mustRead(t, s, j)
	commit(t, s, Tx{Delete: []string{"1"}})
	if _, err := s.SweepBlobs(); err != nil {
		t.Fatal(err)
	}
	commit(t, s, Tx{Put: []*job.Job{j}})
	mustRead(t, s, j)
}

// TestAnOlderStoreHasItsTextInRows, where it stays until the job changes.
func TestAnOlderStoreHasItsTextInRows(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := openIn(t, dir)
	j := fat(1)
	commit(t, s, Tx{Put: []*job.Job{j}})
	spec, err := encodeSpec(j.Spec)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.conn.ExecContext(t.Context(), "UPDATE jobs SET spec = ?, text = NULL; DELETE FROM blobs", string(spec)); err != nil {
		t.Fatal(err)
	}
	s = ofFormat3(t, s, dir)
	mustRead(t, s, j)
	j.Held = true
	commit(t, s, Tx{Put: []*job.Job{j}})
	mustRead(t, s, j)
	if n := countRows(t, s, "blobs"); n != 1 {
		t.Errorf("%d blobs", n)
	}
}

func TestAMissingTextIsDamage(t *testing.T) {
	t.Parallel()
	s := openIn(t, t.TempDir())
	commit(t, s, Tx{Put: []*job.Job{fat(1)}})
	if _, err := s.conn.ExecContext(t.Context(), "DELETE FROM blobs"); err != nil {
		t.Fatal(err)
	}
	if j, err := s.Job("1"); !errors.Is(err, errBroken) {
		t.Errorf("%v, %v", j, err)
	}
}

// TestTheLogStaysSmallUnderLongTexts: its bytes count, not only its rows.
func TestTheLogStaysSmallUnderLongTexts(t *testing.T) {
	t.Parallel()
	s := openIn(t, t.TempDir())
	for seq := int64(1); seq <= 60; seq++ {
		commit(t, s, Tx{Put: []*job.Job{fat(seq)}})
		if got := s.logBytes(t); got > walLimitBytes+2<<20 {
			t.Fatalf("the log has %d MiB after %d jobs", got>>20, seq)
		}
	}
}

// TestTextIsWrittenAheadOfTheJobs: their commit is small, and text of jobs that are
// not committed is deleted.
func TestTextIsWrittenAheadOfTheJobs(t *testing.T) {
	t.Parallel()
	s := openIn(t, t.TempDir())
	jobs := []*job.Job{fat(1), fat(2), queued(3), fat(4)}
	refused := fat(5)
	refused.Spec.Argv = append(refused.Spec.Argv, "more")
	done, err := s.WriteText(jobs)
	if err != nil {
		t.Fatal(err)
	}
	undo, err := s.WriteText([]*job.Job{refused, fat(1)})
	if err != nil {
		t.Fatal(err)
	}
	if n, err := s.SweepBlobs(); err != nil || n != 0 {
		t.Errorf("%d texts were swept: %v", n, err)
	}
	other := fat(1) // the last job that has the text of one that is about to be committed
	other.ID, other.Spec = "other", jobs[0].Spec
	commit(t, s, Tx{Put: []*job.Job{other}})
	other.Spec = queued(1).Spec
	commit(t, s, Tx{Put: []*job.Job{other}})
	for i, j := range jobs {
		j.Seq = int64(i + 2)
	}
	before := s.logBytes(t)
	commit(t, s, Tx{Put: jobs})
	if grown := s.logBytes(t) - before; grown > 64<<10 {
		t.Errorf("the commit wrote %d KiB", grown>>10)
	}
	undo()
	done()
	for _, j := range jobs {
		mustRead(t, s, j)
	}
	if n := countRows(t, s, "blobs"); n != 3 || len(s.ahead) != 0 {
		t.Errorf("%d blobs, %d ahead", n, len(s.ahead))
	}
}

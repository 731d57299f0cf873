package store

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"berth/internal/job"
)

// same compares jobs as berth does: times by the moment, an absent list like
// an empty one. An absent and an empty map of peaks differ. Whether a line
// was marked for cancelling is the jobs file's to say, and is not stored.
var same = []cmp.Option{
	cmp.Comparer(func(a, b time.Time) bool { return a.Equal(b) }),
	cmpopts.IgnoreFields(job.Spec{}, "CancelMarked"),
	cmp.Transformer("int", func(s []int) []int { return append([]int{}, s...) }),
	cmp.Transformer("string", func(s []string) []string { return append([]string{}, s...) }),
	cmp.Transformer("env", func(s []job.EnvVar) []job.EnvVar { return append([]job.EnvVar{}, s...) }),
	cmp.Transformer("after", func(s []job.Dependency) []job.Dependency { return append([]job.Dependency{}, s...) }),
}

// anyText makes ordinary words, every kind of quote, and bytes that are not
// text at all.
func anyText() *rapid.Generator[string] {
	return rapid.OneOf(
		rapid.SampledFrom([]string{"", "a", "ok", "\x00", "\xff", "\"\\\n<>&\u2028", "näh", "\xc3", "{}"}),
		rapid.String(),
		rapid.Map(rapid.SliceOfN(rapid.Byte(), 0, 8), func(b []byte) string { return string(b) }),
	)
}

func anyTime(t *rapid.T, label string) time.Time {
	if rapid.Bool().Draw(t, label+" set") {
		return time.Unix(0, rapid.Int64Range(1, 1<<62).Draw(t, label))
	}
	return time.Time{}
}

func anySpec(t *rapid.T) job.Spec {
	text := func(label string) string { return anyText().Draw(t, label) }
	ints := func(label string) []int { return rapid.SliceOfN(rapid.IntRange(0, 1023), 0, 3).Draw(t, label) }
	span := func(label string) time.Duration { return time.Duration(rapid.Int64().Draw(t, label)) }
	s := job.Spec{
		Name: text("name"), GPUs: rapid.Int().Draw(t, "gpus"), Share: rapid.Float64Range(0, 1).Draw(t, "share"),
		Type: text("type"), VRAMMiB: rapid.Int64().Draw(t, "vram"), VRAMAuto: rapid.Bool().Draw(t, "auto"),
		IDs: ints("ids"), Allow: ints("allow"), Exclusive: rapid.Bool().Draw(t, "exclusive"),
		CPUs: rapid.Int().Draw(t, "cpus"), MemMiB: rapid.Int64().Draw(t, "mem"), Priority: rapid.Int().Draw(t, "priority"),
		TimeLimit: span("limit"), WarnSignal: text("signal"), WarnBefore: span("before"), OnTimeout: job.OnTimeout(text("on")),
		MaxRequeues: rapid.Int().Draw(t, "requeues"), Retries: rapid.Int().Draw(t, "retries"), RetryOn: job.RetryOn(text("retry on")),
		Grace: span("grace"), Requeue: rapid.Bool().Draw(t, "requeue"), Preemptible: job.Preemptible(text("preemptible")), Cap: text("cap"),
		Dir: text("dir"), Venv: text("venv"), Conda: text("conda"), Setup: text("setup"), Output: text("output"),
		CancelMarked: rapid.Bool().Draw(t, "cancel"), NoPark: rapid.Bool().Draw(t, "no park"), SlurmEnv: rapid.Bool().Draw(t, "slurm env"), ArrayShape: job.ArrayShape{Tasks: rapid.IntRange(0, 9).Draw(t, "tasks"), Min: rapid.IntRange(0, 9).Draw(t, "min"), Max: rapid.IntRange(0, 9).Draw(t, "max"), Step: rapid.IntRange(0, 9).Draw(t, "step")}, ParkTimeout: span("park timeout"), Checkpoint: job.Checkpoint(span("checkpoint")), To: job.Place(text("to")), Slurm: text("slurm"),
	}
	if rapid.Bool().Draw(t, "words") {
		s.Argv = rapid.SliceOfN(anyText(), 1, 3).Draw(t, "argv")
	} else {
		s.Shell = text("shell")
	}
	if rapid.Bool().Draw(t, "trial") {
		s.Trial = job.Trial{
			Sweep: text("sweep"), Params: []job.Param{{Name: text("param"), Value: text("param value")}}, Metrics: []string{text("metric")}, Late: rapid.Bool().Draw(t, "late"),
			Template: &job.Template{Shell: text("template"), Argv: []string{text("word")}, Name: text("named"), Base: text("base"), Dir: text("in"), Output: text("out"), Env: []job.EnvVar{{Key: text("key"), Value: text("value")}}},
		}
	}
	for range rapid.IntRange(0, 2).Draw(t, "variables") {
		s.Env = append(s.Env, job.EnvVar{Key: text("key"), Value: text("value")})
		s.Notify = append(s.Notify, text("notify"))
		s.After = append(s.After, job.Dependency{Job: text("job"), Name: text("after"), On: job.Condition(text("condition"))})
	}
	return s
}

// change draws everything about a job that may differ from one commit to the
// next.
func change(t *rapid.T, j *job.Job) {
	text := func(label string) string { return anyText().Draw(t, label) }
	j.Spec = anySpec(t)
	j.Key, j.User = text("key"), text("user")
	j.State = rapid.SampledFrom([]job.State{job.Queued, job.Queued, job.Running, job.Parked, job.Finished, job.Failed}).Draw(t, "state")
	j.Outcome, j.Detail = job.Outcome(text("outcome")), text("detail")
	j.Rank, j.VRAMMiB = rapid.Int64().Draw(t, "rank"), rapid.Int64().Draw(t, "vram now")
	j.NotBefore = anyTime(t, "not before")
	j.Attempt.Number, j.RetriesUsed, j.Requeues = rapid.Int().Draw(t, "attempt"), rapid.Int().Draw(t, "used"), rapid.Int().Draw(t, "requeued")
	j.Preemptions, j.WaitsSince = rapid.Int().Draw(t, "preempted"), anyTime(t, "waits since")
	j.PreemptedFor, j.PreemptAt = text("aside for"), anyTime(t, "aside at")
	j.Checkpoints = job.Checkpoints{Ran: time.Duration(rapid.Int64().Draw(t, "ran")), Lost: time.Duration(rapid.Int64().Draw(t, "lost")), Stopping: time.Duration(rapid.Int64().Draw(t, "stopping")), Saved: anyTime(t, "saved")}
	j.Grant = job.Grant{}
	if rapid.Bool().Draw(t, "granted") {
		j.Grant = job.Grant{
			GPUs:  rapid.SliceOfN(rapid.IntRange(0, 7), 0, 2).Draw(t, "cards"),
			UUIDs: rapid.SliceOfN(anyText(), 0, 2).Draw(t, "uuids"), BudgetMiB: rapid.Int64().Draw(t, "budget"),
			Share: rapid.Float64Range(0, 1).Draw(t, "part"), Alone: rapid.Bool().Draw(t, "alone"), Exclusive: rapid.Bool().Draw(t, "own"),
		}
	}
	j.Keep, j.Stop, j.Signal, j.Log = text("keep"), job.Stop(text("stop")), text("signal"), text("log")
	j.SubmittedAt, j.StartedAt, j.EndedAt = anyTime(t, "submitted"), anyTime(t, "started"), anyTime(t, "ended")
	j.ExitCode = rapid.Ptr(rapid.Int(), true).Draw(t, "code")
	j.LogDropped = rapid.Int64().Draw(t, "dropped")
	j.AvgUtil = rapid.Ptr(rapid.Float64(), true).Draw(t, "util")
	j.PeakMiB = nil
	if rapid.Bool().Draw(t, "measured") {
		j.PeakMiB = rapid.MapOfN(rapid.IntRange(0, 7), rapid.Int64Range(0, 1<<40), 0, 3).Draw(t, "peaks")
	}
}

// TestEveryFieldSurvives commits jobs and their later selves, and reads them
// back by every road there is.
func TestEveryFieldSurvives(t *testing.T) {
	t.Parallel()
	s := openIn(t, t.TempDir())
	seq := int64(0)
	rapid.Check(t, func(t *rapid.T) {
		seq++
		j := &job.Job{Seq: seq, ID: fmt.Sprint(seq) + anyText().Draw(t, "id")}
		if rapid.Bool().Draw(t, "as submitted") {
			j.State, j.Spec, j.User = job.Queued, anySpec(t), anyText().Draw(t, "user")
		} else {
			change(t, j)
		}
		for range rapid.IntRange(1, 3).Draw(t, "versions") {
			event := &job.Event{At: anyTime(t, "at"), Kind: job.EventKind(anyText().Draw(t, "kind")), Text: anyText().Draw(t, "text"), Job: j}
			before := j.Clone()
			if err := s.Commit(Tx{Put: []*job.Job{j}, Events: []*job.Event{event}}); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(before, j, same...); diff != "" {
				t.Fatal("the caller's job was changed", diff)
			}
			got, err := s.Job(j.ID)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(j, got, same...); diff != "" {
				t.Fatal("as a row", diff)
			}
			events, err := s.EventsAfter(event.Seq-1, 1)
			if err != nil || len(events) != 1 {
				t.Fatal(events, err)
			}
			if diff := cmp.Diff(*event, events[0], same...); diff != "" {
				t.Fatal("as an event", diff)
			}
			change(t, j)
		}
	})
}

func TestEachReadsInTheOrderOfSubmission(t *testing.T) {
	t.Parallel()
	s := openIn(t, t.TempDir())
	states := []job.State{job.Queued, job.Finished, job.Running, job.Failed, job.Parked, job.Cancelled}
	var want []string
	var jobs []*job.Job
	for seq := int64(1); seq <= 300; seq++ {
		j := queued(seq)
		j.State = states[seq%6]
		j.Spec.Retries = int(seq % 3)
		jobs = append(jobs, j)
		want = append(want, j.ID)
	}
	if err := s.Commit(Tx{Put: jobs}); err != nil {
		t.Fatal(err)
	}
	var got []string
	err := s.Each(func(j *job.Job) error {
		got = append(got, j.ID)
		if diff := cmp.Diff(jobs[j.Seq-1], j, same...); diff != "" {
			t.Error(diff)
		}
		return nil
	})
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Error(diff, err)
	}
}

// TestJobsThatShareASpecKeepTheirNames: a name that begins a spec is read apart from
// it, and what many rows share is decoded once.
func TestJobsThatShareASpecKeepTheirNames(t *testing.T) {
	t.Parallel()
	names := []string{"", "run-1", "", "run-2", `a","gpus":9,"x":"`, "a\\", `"`, "näh", "\xff", "<&>", "run-1"}
	s, at := openIn(t, t.TempDir()), time.Unix(1_700_000_000, 0)
	var put []*job.Job
	for round := range 2 {
		for i, name := range names {
			j := queued(int64(len(put) + 1))
			j.Spec.Name, j.Held, j.SubmittedAt = name, round == 1, at
			if i%2 == 1 {
				j.Environ, j.UID = "env", 7
			}
			put = append(put, j)
		}
	}
	if err := s.Commit(Tx{Put: put}); err != nil {
		t.Fatal(err)
	}
	n := 0
	if err := s.Each(func(j *job.Job) error {
		if diff := cmp.Diff(put[n], j, same...); diff != "" {
			t.Errorf("job %s: %s", j.ID, diff)
		}
		n++
		return nil
	}); err != nil || n != len(put) {
		t.Fatalf("%d of %d jobs, %v", n, len(put), err)
	}
}

// TestTheJobsOfALargeCommitKeepTheirFields, of which some are alike.
func TestTheJobsOfALargeCommitKeepTheirFields(t *testing.T) {
	t.Parallel()
	s := openIn(t, t.TempDir())
	seq := int64(0)
	rapid.Check(t, func(t *rapid.T) {
		var jobs []*job.Job
		for range rapid.IntRange(2, 5).Draw(t, "jobs") {
			j := &job.Job{}
			switch {
			case len(jobs) > 0 && rapid.Bool().Draw(t, "like the last"):
				j = jobs[len(jobs)-1].Clone()
				j.Spec.Shell, j.Held, j.Detail = anyText().Draw(t, "shell"), rapid.Bool().Draw(t, "held"), rapid.SampledFrom([]string{"", "why"}).Draw(t, "detail")
			case rapid.Bool().Draw(t, "as submitted"):
				j.State, j.Spec, j.User = job.Queued, anySpec(t), anyText().Draw(t, "user")
			default:
				change(t, j)
			}
			seq++
			j.Seq, j.ID = seq, fmt.Sprint(seq)
			jobs = append(jobs, j)
		}
		if err := s.Commit(Tx{Put: jobs}); err != nil {
			t.Fatal(err)
		}
		for _, j := range jobs {
			got, err := s.Job(j.ID)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(j, got, same...); diff != "" {
				t.Fatal(diff)
			}
		}
	})
}

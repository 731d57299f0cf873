package daemon

import (
	"slices"
	"strings"
	"testing"
	"time"

	"berth/internal/api"
	"berth/internal/job"
	"berth/internal/job/jobfile"
	"berth/internal/queue"
	"berth/internal/queue/config"
	"berth/internal/text/problem"
)

func TestNotesOn(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		spec job.Spec
		want []string
	}{
		"nothing to say": {job.Spec{TimeLimit: time.Hour, WarnSignal: "USR1", WarnBefore: time.Minute, Output: "~/%n/%j_%a.%u%%"}, nil},
		"a signal without a limit": {job.Spec{WarnSignal: "USR1", WarnBefore: time.Minute},
			[]string{"signal: USR1 is sent before a time limit, and this job has none"}},
		"a signal that comes at once": {job.Spec{TimeLimit: 50 * time.Second, WarnSignal: "USR1", WarnBefore: 100 * time.Second},
			[]string{"signal: USR1 is sent at the start, because the time limit of 50s is not longer than 1m40s"}},
		"marks that are none": {job.Spec{Output: "%x-%j-%%x-%é-%"},
			[]string{"output: %x %é % is not replaced; berth knows %j %c %n %u %a %A %N %+ and %%"}},
		"a job that cannot be parked yet": {job.Spec{Preemptible: "park"},
			[]string{"preemptible: jobs cannot be parked here (the driver is too old), so this one is not preempted (with requeue it would be)"}},
		"a job that gives way where nobody is set aside": {job.Spec{Preemptible: "requeue", WarnSignal: "USR1", WarnBefore: time.Minute},
			[]string{"signal: USR1 is sent before a time limit, and this job has none", "preemptible: this daemon preempts no jobs (scheduling.preempt is never)"}},
		"a job that cannot be parked where nobody is set aside": {job.Spec{Preemptible: "park"},
			[]string{"preemptible: this daemon preempts no jobs (scheduling.preempt is never)"}},
		"a plain job where nobody is set aside": {job.Spec{}, nil},
		"a job that gives way":                  {job.Spec{Preemptible: "requeue"}, nil},
		"a signal before it gives way":          {job.Spec{Preemptible: "requeue", WarnSignal: "USR1", WarnBefore: time.Minute}, nil},
		"a signal that may not delay it for long": {job.Spec{Preemptible: "requeue", WarnSignal: "USR1", WarnBefore: time.Hour},
			[]string{"signal: before a preemption, USR1 is sent at most 5m ahead (limits.grace)"}},
	} {
		cfg := config.Config{Grace: 5 * time.Minute}
		if strings.HasSuffix(name, "where nobody is set aside") {
			cfg.Preempt = queue.PreemptNever
		}
		if got := notesOn(&jobfile.Asked{Spec: row.spec}, &cfg, "the driver is too old"); !slices.Equal(got, row.want) {
			t.Errorf("%s: %q, want %q", name, got, row.want)
		}
	}
}

func TestNotesOnAmountsThatWereMeantOtherwise(t *testing.T) {
	t.Parallel()
	array := &jobfile.Array{}
	for name, row := range map[string]struct {
		asked jobfile.Asked
		want  string // empty: nothing
	}{
		"10 MiB":                   {jobfile.Asked{Spec: job.Spec{GPUs: 1, VRAMMiB: 10}}, "vram: 10 MiB is less than a program needs to use a GPU at all; 10G is GiB"},
		"256 MiB":                  {jobfile.Asked{Spec: job.Spec{GPUs: 1, VRAMMiB: 256}}, ""},
		"5":                        {jobfile.Asked{Spec: job.Spec{TimeLimit: 5 * time.Second}, BareTime: true}, "time: without a unit, 5 is seconds, and the job ends after them; 5m is minutes"},
		"5s":                       {jobfile.Asked{Spec: job.Spec{TimeLimit: 5 * time.Second}}, ""},
		"3600":                     {jobfile.Asked{Spec: job.Spec{TimeLimit: time.Hour}, BareTime: true}, ""},
		"a variable no shell sees": {jobfile.Asked{Spec: job.Spec{Argv: []string{"echo", "idx $BERTH_ARRAY_INDEX"}}, Array: array}, "the command has several words, so no shell replaces $BERTH_ARRAY_INDEX in it; put the whole command in single quotes"},
		"a shell that sees it":     {jobfile.Asked{Spec: job.Spec{Argv: []string{"bash", "-lc", "echo ${BERTH_ARRAY_INDEX}"}}, Array: array}, ""},
		"a shell line":             {jobfile.Asked{Spec: job.Spec{Shell: "echo $BERTH_ARRAY_INDEX"}, Array: array}, ""},
		"a script that reads it":   {jobfile.Asked{Spec: job.Spec{Argv: []string{"python", "train.py"}}, Array: array}, ""},
	} {
		var want []string
		if row.want != "" {
			want = []string{row.want}
		}
		if got := notesOn(&row.asked, &config.Config{}, ""); !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}

// TestNotesAreOnTheirJobs: each job has its own, tried or submitted.
func TestNotesAreOnTheirJobs(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	request := api.SubmitRequest{Jobs: []api.Spec{sh("true", "hold", "yes", "output", "%x"), sh("true", "hold", "yes"), sh("true", "hold", "yes", "signal", "USR1@60")}}
	for _, request.DryRun = range []bool{true, false} {
		reply, err := api.Call(l.ctx, l.Client, api.Submit, request)
		if err != nil {
			t.Fatal(err)
		}
		for i, word := range []string{"output: %x ", "", "signal: "} {
			if notes := reply.Jobs[i].Notes; word == "" && len(notes) > 0 || word != "" && (len(notes) != 1 || !strings.HasPrefix(notes[0], word)) {
				t.Errorf("the notes on job %d are %q", i+1, notes)
			}
		}
	}
}

// TestWordsTheKernelTakes: as long as possible a job runs, and longer it is
// refused when it is submitted, not when it starts.
func TestWordsTheKernelTakes(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	text := func(n int) string { return strings.Repeat("x", n) }
	variable := sh(`echo ${#LONG}`, "gpus", "0")
	variable.Env = map[string]string{"LONG": text(maxWord - len("LONG="))}
	if got := l.finished(l.one(variable)); got != "131066\n" {
		t.Errorf("a variable as long as can be: %q", got)
	}
	// A quote is four bytes in a quoted word.
	if got := l.finished(l.one(sh("echo done", "gpus", "0", "setup", ": "+strings.Repeat(`\'`, (maxWord-2*wrapped)/12)))); got != "done\n" {
		t.Errorf("a long set-up: %.200q", got)
	}
	variable.Env["LONG"] += "x"
	l.refused(api.SubmitRequest{Jobs: []api.Spec{variable}}, problem.TooMuch, "the variable LONG has 131072 bytes", "131071")
	l.refused(api.SubmitRequest{Jobs: []api.Spec{sh("true")}, Environ: []string{"LONG=" + variable.Env["LONG"]}}, problem.TooMuch, "the variable LONG has 131072 bytes")
	l.refused(api.SubmitRequest{Jobs: []api.Spec{sh("echo "+text(maxWord/2), "setup", ": "+text(maxWord/2))}}, problem.TooMuch, "the set-up and the command have")
	l.refused(api.SubmitRequest{Jobs: []api.Spec{sh("true", "setup", ": "+strings.Repeat("'", maxWord/6))}}, problem.TooMuch, "the set-up and the command have")
	held := l.one(sh("true", "hold", "yes"))
	_, err := api.Call(l.ctx, l.Client, api.EditJob, api.EditRequest{JobID: api.JobID{ID: held}, Set: api.Spec{Env: variable.Env}})
	wantProblem(t, err, problem.TooMuch, "the variable LONG has 131072 bytes")
}

// TestAnEditHasNotes: as a submission has, and on the limits that it meets.
func TestAnEditHasNotes(t *testing.T) {
	t.Parallel()
	l := newLab(t, with(func(c *config.Config) { c.JobTime = time.Hour }))
	id := l.submit(sh("true", "hold", "yes"))[0]
	detail, err := api.Call(l.ctx, l.Client, api.EditJob, api.EditRequest{JobID: api.JobID{ID: id}, Set: api.Spec{Timeout: "2h", GPUs: "1.5"}})
	want := []string{"jobs are limited to 1h0m0s here", "gpus: 1.5 means 2 whole GPUs; a fraction below 1 shares one"}
	if err != nil || !slices.Equal(detail.Notes, want) {
		t.Errorf("the notes are %q, want %q, %v", detail.Notes, want, err)
	}
	if detail, err = api.Call(l.ctx, l.Client, api.EditJob, api.EditRequest{JobID: api.JobID{ID: id}, Set: api.Spec{GPUs: "1"}}); err != nil || len(detail.Notes) > 0 {
		t.Errorf("notes on a plain edit: %q, %v", detail.Notes, err)
	}
}

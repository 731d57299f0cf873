package batch

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"berth/internal/job"
	"berth/internal/tests/testkit"
)

// at0 is when everything begins in these tests.
var at0 = time.Date(2026, 3, 14, 15, 9, 26, 0, time.UTC)

func TestMain(m *testing.M) {
	time.Local = time.UTC // what people are shown is local time
	testkit.Parallel(6)
	os.Exit(m.Run())
}

// golden compares text with testdata/<name>.golden.
func golden(t *testing.T, name, got string) {
	t.Helper()
	testkit.Golden(t, filepath.Join("testdata", name+".golden"), []byte(got))
}

func silent() *slog.Logger { return slog.New(slog.DiscardHandler) }

func number[T any](value T) *T { return &value }

func spec(command string, change ...func(*job.Spec)) job.Spec {
	s := job.Defaults()
	s.Shell = command
	for _, f := range change {
		f(&s)
	}
	return s
}

// started is a job that began a minute and a half after the run did.
func started(id, command string, cards ...int) *job.Job {
	return &job.Job{
		ID: id, Spec: spec(command), State: job.Running, Attempt: job.Attempt{Number: 1, Grant: job.Grant{GPUs: cards, CardMiB: 24576}, StartedAt: at0.Add(90 * time.Second), Log: "/run/berth_logs/jobs/" + id + "/1.log"},
	}
}

func ended(j *job.Job, outcome job.Outcome, after time.Duration) *job.Job {
	j.State, j.Outcome, j.EndedAt = outcome.State(), outcome, j.StartedAt.Add(after)
	return j
}

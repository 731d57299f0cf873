package judge

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"berth/internal/job"
	"berth/internal/machine/keep"
)

func limited(onTimeout job.OnTimeout, most int) func(*job.Spec) {
	return func(s *job.Spec) { s.TimeLimit, s.OnTimeout, s.MaxRequeues = time.Hour, onTimeout, most }
}

func TestJudge(t *testing.T) {
	now := start0
	tests := []struct {
		name string
		spec job.Spec
		job  job.Job // what the job brought with it: retries used, requeues, a stop
		end  End
		want Ruling
	}{
		{
			name: "a command that exits 0 is ok",
			want: Ruling{Outcome: job.OK},
		},
		{
			name: "processes that it left behind are told of, and it is ok all the same",
			end:  End{Record: keep.Record{Stragglers: 3}},
			want: Ruling{Outcome: job.OK, Detail: "left 3 background processes behind, which were killed"},
		},
		{
			name: "out-of-memory text in the log of a job that exits 0 means nothing",
			spec: spec(retries(1)),
			end:  End{OOM: true},
			want: Ruling{Outcome: job.OK},
		},
		{
			name: "a command that exits 3 failed with that code",
			end:  End{Record: keep.Record{ExitCode: 3}},
			want: Ruling{Outcome: "exit:3"},
		},
		{
			name: "a command that a signal ended failed with its name",
			end:  End{Record: keep.Record{ExitCode: -1, Signal: 11}},
			want: Ruling{Outcome: "signal:SEGV"},
		},
		{
			name: "a command that the kernel ended at its memory limit says so",
			spec: spec(func(s *job.Spec) { s.MemMiB = 4096 }),
			end:  End{Record: keep.Record{ExitCode: -1, Signal: 9, MemoryKilled: true}},
			want: Ruling{Outcome: "signal:KILL", Detail: "the kernel killed it at its limit of 4096 MiB of host memory"},
		},
		{
			name: "a command that could not be started says why, and no retry would help it",
			spec: spec(retries(2), onFail),
			end:  End{Record: keep.Record{ExitCode: -1, Launch: "chdir /nowhere: no such file or directory"}},
			want: Ruling{Outcome: job.Launch, Detail: "chdir /nowhere: no such file or directory"},
		},
		{
			name: "a set-up that failed never became the command",
			end:  End{Record: keep.Record{ExitCode: 7, SetupFailed: true}},
			want: Ruling{Outcome: job.Launch, Detail: "set-up failed (exit 7); see its log"},
		},
		{
			name: "a job at its limit is a timeout",
			spec: spec(limited(job.TimeoutKill, 10)),
			end:  End{Record: keep.Record{ExitCode: -1, Signal: 15, Stop: "timeout"}},
			want: Ruling{Outcome: job.Timeout, Detail: "reached its time limit of 1h0m0s"},
		},
		{
			name: "a job that handles TERM and exits 0 at its limit is a timeout still",
			spec: spec(limited(job.TimeoutKill, 10)),
			end:  End{Record: keep.Record{ExitCode: 0, Stop: "timeout"}},
			want: Ruling{Outcome: job.Timeout, Detail: "reached its time limit of 1h0m0s"},
		},
		{
			name: "a timeout uses no retry, not even when its log ends in out-of-memory text",
			spec: spec(limited(job.TimeoutKill, 10), retries(3), onFail),
			end:  End{Record: keep.Record{ExitCode: 1, Stop: "timeout"}, OOM: true},
			want: Ruling{Outcome: job.Timeout, Detail: "reached its time limit of 1h0m0s"},
		},
		{
			name: "on_timeout=requeue sends it to the end of the queue and counts",
			spec: spec(limited(job.TimeoutRequeue, 10)),
			job:  job.Job{Requeues: 4},
			end:  End{Record: keep.Record{Stop: "timeout"}},
			want: Ruling{Again: job.EventRequeued, ToTheEnd: true, Detail: "reached its time limit of 1h0m0s; requeue 5 of 10"},
		},
		{
			name: "after the last requeue it is a timeout, and says how often it was requeued",
			spec: spec(limited(job.TimeoutRequeue, 10)),
			job:  job.Job{Requeues: 10},
			end:  End{Record: keep.Record{Stop: "timeout"}},
			want: Ruling{Outcome: job.Timeout, Detail: "reached its time limit of 1h0m0s after 10 requeues"},
		},
		{
			name: "after its only requeue it says so",
			spec: spec(limited(job.TimeoutRequeue, 1)),
			job:  job.Job{Requeues: 1},
			end:  End{Record: keep.Record{Stop: "timeout"}},
			want: Ruling{Outcome: job.Timeout, Detail: "reached its time limit of 1h0m0s after 1 requeue"},
		},
		{
			name: "one process left behind is one",
			end:  End{Record: keep.Record{Stragglers: 1}},
			want: Ruling{Outcome: job.OK, Detail: "left 1 background process behind, which was killed"},
		},
		{
			name: "a job that was cancelled is cancelled, however it exits",
			job:  job.Job{Attempt: job.Attempt{Stop: job.StopCancel}},
			end:  End{Record: keep.Record{ExitCode: 0, Stop: "cancel"}},
			want: Ruling{Outcome: job.WasCancelled, Detail: "cancelled while running"},
		},
		{
			name: "a job that ended well before the cancellation reached it is ok",
			job:  job.Job{Attempt: job.Attempt{Stop: job.StopCancel}},
			want: Ruling{Outcome: job.OK},
		},
		{
			name: "a cancelled job that fails by itself is not retried",
			spec: spec(retries(3)),
			job:  job.Job{Attempt: job.Attempt{Stop: job.StopCancel}},
			end:  End{Record: keep.Record{ExitCode: 1}, OOM: true},
			want: Ruling{Outcome: job.WasCancelled, Detail: "cancelled while running"},
		},
		{
			name: "a job that was stopped because berth was goes back to the queue, and uses no retry",
			spec: spec(retries(3), onFail),
			job:  job.Job{Attempt: job.Attempt{Stop: job.StopInterrupt}},
			end:  End{Record: keep.Record{ExitCode: -1, Signal: 15, Stop: "interrupt"}},
			want: Ruling{Again: job.EventRequeued, Detail: "berth was stopped while it ran"},
		},
		{
			name: "out of memory without a retry left is oom; with GPUs of its own, no declaration would have helped",
			spec: spec(gpus(1)),
			end:  End{Record: keep.Record{ExitCode: 1}, OOM: true, CapMiB: 24064},
			want: Ruling{Outcome: job.OOM, Detail: "ran out of GPU memory, although its GPUs were its own: it needs a larger GPU, more GPUs, or less memory"},
		},
		{
			name: "out of memory with less declared than fits",
			spec: spec(vram(8000)),
			end:  End{Record: keep.Record{ExitCode: 1}, OOM: true, CapMiB: 24064},
			want: Ruling{Outcome: job.OOM, Detail: "ran out of GPU memory with 8000 MiB declared; up to 24064 fit here"},
		},
		{
			name: "out of memory with all declared that fits",
			spec: spec(vram(24064)),
			end:  End{Record: keep.Record{ExitCode: 1}, OOM: true, CapMiB: 24064},
			want: Ruling{Outcome: job.OOM, Detail: "ran out of GPU memory with 24064 MiB declared, as much as fits here: it needs a larger GPU, more GPUs, or less memory"},
		},
		{
			name: "out of memory where nobody knows the GPUs",
			spec: spec(vram(8000)),
			end:  End{Record: keep.Record{ExitCode: 1}, OOM: true},
			want: Ruling{Outcome: job.OOM, Detail: "ran out of GPU memory"},
		},
		{
			name: "out of memory with a retry left declares a quarter more than was declared",
			spec: spec(vram(8001), retries(2)),
			end:  End{Record: keep.Record{ExitCode: 1}, OOM: true, Peaks: map[int]int64{0: 4000}, CapMiB: 24064},
			want: Ruling{Again: job.EventRetry, Retried: true, VramMiB: 10002, Detail: "out of GPU memory; retry 1 of 2 with 10002 MiB"},
		},
		{
			name: "or than was seen, where that is more",
			spec: spec(vram(8000), retries(2)),
			job:  job.Job{RetriesUsed: 1},
			end:  End{Record: keep.Record{ExitCode: 1}, OOM: true, Peaks: map[int]int64{0: 4000, 3: 12000}, CapMiB: 24064},
			want: Ruling{Again: job.EventRetry, Retried: true, VramMiB: 15000, Detail: "out of GPU memory; retry 2 of 2 with 15000 MiB"},
		},
		{
			name: "a retry asks for no more than a card can hold",
			spec: spec(vram(20000), retries(1)),
			end:  End{Record: keep.Record{ExitCode: 1}, OOM: true, CapMiB: 24064},
			want: Ruling{Again: job.EventRetry, Retried: true, VramMiB: 24064, Detail: "out of GPU memory; retry 1 of 1 with 24064 MiB"},
		},
		{
			name: "an undeclared job that was never measured is retried undeclared, with a card to itself",
			spec: spec(retries(1)),
			end:  End{Record: keep.Record{ExitCode: 1}, OOM: true, CapMiB: 24064},
			want: Ruling{Again: job.EventRetry, Retried: true, Detail: "out of GPU memory; retry 1 of 1"},
		},
		{
			name: "killed for memory by a signal counts as out of memory too",
			spec: spec(vram(1000), retries(1)),
			end:  End{Record: keep.Record{ExitCode: -1, Signal: 6}, OOM: true},
			want: Ruling{Again: job.EventRetry, Retried: true, VramMiB: 1250, Detail: "out of GPU memory; retry 1 of 1 with 1250 MiB"},
		},
		{
			name: "another failure uses no retry, and says so",
			spec: spec(vram(1000), retries(3)),
			end:  End{Record: keep.Record{ExitCode: 2}},
			want: Ruling{Outcome: "exit:2", Detail: "not retried, as it did not run out of GPU memory (retry_on=fail retries any failure)"},
		},
		{
			name: "nor does it after an attempt that ran out of memory",
			spec: spec(vram(1000), retries(3)),
			job:  job.Job{RetriesUsed: 1, Attempt: job.Attempt{Number: 2}},
			end:  End{Record: keep.Record{ExitCode: 2}},
			want: Ruling{Outcome: "exit:2", Detail: "not retried, as it did not run out of GPU memory (retry_on=fail retries any failure)"},
		},
		{
			name: "with retry_on=fail it does, after a pause",
			spec: spec(retries(3), onFail),
			job:  job.Job{RetriesUsed: 2},
			end:  End{Record: keep.Record{ExitCode: 2}},
			want: Ruling{Again: job.EventRetry, Retried: true, NotBefore: now.Add(4 * time.Second), Detail: "exit:2; retry 3 of 3 in 4s"},
		},
		{
			name: "until none is left",
			spec: spec(retries(3), onFail),
			job:  job.Job{RetriesUsed: 3},
			end:  End{Record: keep.Record{ExitCode: 2}},
			want: Ruling{Outcome: "exit:2"},
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			j := test.job
			j.Spec, j.VRAMMiB = test.spec, test.spec.VRAMMiB
			test.end.Now = now
			got := Attempt(&j, test.end)
			if diff := cmp.Diff(test.want, got, cmp.AllowUnexported(Ruling{})); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestBackoffDoublesUpToFiveMinutes(t *testing.T) {
	want := []time.Duration{1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300}
	for n, seconds := range want {
		if got := Backoff(n); got != seconds*time.Second {
			t.Errorf("before retry %d: %s, want %ds", n+1, got, seconds)
		}
	}
	if got := Backoff(1_000_000); got != 5*time.Minute {
		t.Errorf("after very many: %s", got)
	}
}

func TestBumpNeverLowersADeclaration(t *testing.T) {
	// A job that a later rule or a smaller card would cap below what it
	// declared keeps its declaration: less memory cannot be the cure.
	if got := bump(20000, nil, 16000); got != 20000 {
		t.Errorf("bump(20000) within 16000 = %d", got)
	}
	if got := bump(1000, nil, 0); got != 1250 {
		t.Errorf("with no card known, bump(1000) = %d", got)
	}
}

var start0 = time.Date(2026, 3, 14, 15, 9, 26, 0, time.UTC)

func spec(change ...func(*job.Spec)) job.Spec {
	s := job.Defaults()
	s.Shell = "python train.py"
	for _, f := range change {
		f(&s)
	}
	return s
}

func vram(mib int64) func(*job.Spec) { return func(s *job.Spec) { s.VRAMMiB = mib } }
func retries(n int) func(*job.Spec)  { return func(s *job.Spec) { s.Retries = n } }
func gpus(n int) func(*job.Spec)     { return func(s *job.Spec) { s.GPUs = n } }
func onFail(s *job.Spec)             { s.RetryOn = job.RetryFail }

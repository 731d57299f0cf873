package engine

import (
	"fmt"
	"math"
	"strings"
	"time"

	"berth/internal/job"
	"berth/internal/keep"
	"berth/internal/text"
)

// end is a supervisor's record with what was measured.
type end struct {
	record keep.Record
	oom    bool // the log of this attempt ends with an out-of-memory message
	peaks  map[int]int64
	capMiB int64 // the most a retry may declare; 0: not known
	now    time.Time
}

// ruling is how an attempt ended and what follows. It is a pure function of the
// job and its end.
type ruling struct {
	outcome job.Outcome // empty: the job goes back to the queue
	detail  string
	again   job.EventKind // why it goes back: retry, requeued or preempted

	vramMiB   int64
	notBefore time.Time
	retried   bool
	toTheEnd  bool
	preempted bool // for another job
	neverRan  bool
}

// judge decides what the end of an attempt means. A cancelled job does not go
// back to the queue, and one that its user requeued does, whatever ended it
// first.
func judge(j *job.Job, e end) ruling {
	if j.Spec.Adopt != nil {
		return judgeAdopted(j, e.record)
	}
	r := judgeEnd(j, e)
	switch {
	case j.Stop == job.StopCancel && r.outcome == "":
		return ruling{outcome: job.WasCancelled, detail: said(j, "cancelled while running")}
	case j.Stop == job.StopRequeue && (r.outcome != "" || r.preempted):
		return ruling{again: job.EventRequeued, detail: said(j, "requeued")}
	}
	return r
}

// judgeEnd believes the supervisor: a job that ended by itself before the stop
// reached it ended by itself.
func judgeEnd(j *job.Job, e end) ruling {
	r := e.record
	switch job.Stop(r.Stop) {
	case job.StopInterrupt:
		return interrupted
	case job.StopCancel:
		return ruling{outcome: job.WasCancelled, detail: said(j, "cancelled while running")}
	case job.StopRequeue:
		return ruling{again: job.EventRequeued, detail: said(j, "requeued")}
	case job.StopPreempt:
		return preempted(j)
	case job.StopOveruse:
		return ruling{outcome: job.Overuse, detail: j.Detail}
	case job.StopTimeout:
		return judgeTimeout(j)
	case job.StopBroken:
		if j.Spec.Requeue {
			return ruling{again: job.EventRequeued, detail: r.Note}
		}
		return ruling{outcome: job.Resume, detail: r.Note}
	}
	switch {
	case r.Launch != "":
		return ruling{outcome: job.Launch, detail: r.Launch}
	case r.SetupFailed:
		return ruling{outcome: job.Launch, detail: fmt.Sprintf("set-up failed (exit %d); see its log", r.ExitCode)}
	case r.Signal == 0 && r.ExitCode == 0 && r.MemoryKilled:
		return ruling{outcome: job.OK, detail: "it ended well, although the kernel killed one of its processes at " + memoryLimit(j)}
	case r.Signal == 0 && r.ExitCode == 0:
		return ruling{outcome: job.OK, detail: stragglers(r)}
	}
	outcome := job.Exited(r.ExitCode)
	if r.Signal != 0 {
		outcome = job.Signalled(keep.SignalName(r.Signal))
	}
	if e.oom {
		return judgeOOM(j, e)
	}
	detail := stragglers(r)
	if r.MemoryKilled {
		detail = "the kernel killed it at " + memoryLimit(j)
	}
	return judgeFailure(j, outcome, detail, e.now)
}

// judgeFailure retries a job that failed by itself, if that was asked for.
func judgeFailure(j *job.Job, outcome job.Outcome, detail string, now time.Time) ruling {
	if j.Spec.RetryOn == job.RetryFail && j.RetriesUsed < j.Spec.Retries {
		wait := backoff(j.RetriesUsed)
		return ruling{
			again: job.EventRetry, retried: true, notBefore: now.Add(wait),
			detail: fmt.Sprintf("%s; retry %d of %d in %s", outcome, j.RetriesUsed+1, j.Spec.Retries, wait),
		}
	}
	if j.Spec.Retries > 0 && j.Spec.RetryOn != job.RetryFail {
		detail = strings.TrimPrefix(detail+"; ", "; ") + "not retried, as it did not run out of GPU memory (retry_on=fail retries any failure)"
	}
	return ruling{outcome: outcome, detail: detail}
}

// memoryLimit is the limit of host memory that the job reached.
func memoryLimit(j *job.Job) string {
	if j.Spec.MemMiB == 0 {
		return "the limit of host memory for one job (limits.memory)"
	}
	return fmt.Sprintf("its limit of %d MiB of host memory", j.Spec.MemMiB)
}

// interrupted is the ruling for a job that was stopped because berth was.
var interrupted = ruling{again: job.EventRequeued, detail: "berth was stopped while it ran"}

func judgeTimeout(j *job.Job) ruling {
	limit := j.Spec.TimeLimit
	if j.Spec.OnTimeout != job.TimeoutRequeue {
		return ruling{outcome: job.Timeout, detail: fmt.Sprintf("reached its time limit of %s", limit)}
	}
	if j.Requeues >= j.Spec.MaxRequeues {
		return ruling{outcome: job.Timeout, detail: fmt.Sprintf("reached its time limit of %s after %s", limit, text.Count(j.Requeues, "requeue"))}
	}
	return ruling{
		again: job.EventRequeued, toTheEnd: true,
		detail: fmt.Sprintf("reached its time limit of %s; requeue %d of %d", limit, j.Requeues+1, j.Spec.MaxRequeues),
	}
}

func judgeOOM(j *job.Job, e end) ruling {
	if j.RetriesUsed >= j.Spec.Retries {
		return ruling{outcome: job.OOM, detail: "ran out of GPU memory" + oomAdvice(j, e.capMiB)}
	}
	next := bump(j.VRAMMiB, e.peaks, e.capMiB)
	detail := fmt.Sprintf(job.OutOfMemory+"; retry %d of %d", j.RetriesUsed+1, j.Spec.Retries)
	if next > 0 {
		detail += fmt.Sprintf(" with %d MiB", next)
	}
	return ruling{again: job.EventRetry, retried: true, vramMiB: next, detail: detail}
}

// oomAdvice says whether declaring more memory can help.
func oomAdvice(j *job.Job, capMiB int64) string {
	const beyond = ": it needs a larger GPU, more GPUs, or less memory"
	switch {
	case j.Spec.GPUs == 0 || j.Spec.Share > 0:
		return ""
	case j.VRAMMiB == 0:
		return ", although its GPUs were its own" + beyond
	case capMiB == 0:
		return ""
	case j.VRAMMiB >= capMiB:
		return fmt.Sprintf(" with %d MiB declared, as much as fits here", j.VRAMMiB) + beyond
	}
	return fmt.Sprintf(" with %d MiB declared; up to %d fit here", j.VRAMMiB, capMiB)
}

// bump is the declaration of the next attempt after an out-of-memory failure: a
// quarter more than was used or declared, within what its cards can hold.
func bump(declaredMiB int64, peaks map[int]int64, capMiB int64) int64 {
	most := declaredMiB
	for _, peak := range peaks {
		most = max(most, peak)
	}
	next := int64(math.Ceil(1.25 * float64(most)))
	if capMiB > 0 && next > capMiB {
		next = max(capMiB, declaredMiB)
	}
	return next
}

// backoff is the wait before retry n (from 0): 1 s, 2 s, 4 s … 5 minutes.
func backoff(n int) time.Duration {
	return min(time.Second<<min(n, 20), 5*time.Minute)
}

func stragglers(r keep.Record) string {
	if r.Stragglers == 0 {
		return ""
	}
	were := "were"
	if r.Stragglers == 1 {
		were = "was"
	}
	return fmt.Sprintf("left %s behind, which %s killed", text.Count(r.Stragglers, "background process"), were)
}

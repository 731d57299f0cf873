package judge

import (
	"cmp"
	"fmt"
	"math"
	"strings"
	"time"

	"berth/internal/job"
	"berth/internal/job/reason"
	"berth/internal/machine/keep"
	"berth/internal/slurm/handover"
	"berth/internal/text"
)

// End is a supervisor's record with what was measured.
type End struct {
	Record keep.Record
	OOM    bool // the log of this attempt ends with an out-of-memory message
	Peaks  map[int]int64
	CapMiB int64 // the most a retry may declare; 0: not known
	Now    time.Time
}

// Ruling is how an attempt ended and what follows. It is a pure function of the
// job and its end.
type Ruling struct {
	Outcome job.Outcome // empty: the job goes back to the queue
	Detail  string
	Again   job.EventKind // why it goes back: retry, requeued or preempted

	VramMiB   int64
	NotBefore time.Time
	Retried   bool
	ToTheEnd  bool
	Preempted bool // for another job
	NeverRan  bool
}

// Attempt decides what the end of an attempt means. A cancelled job does not go
// back to the queue, and one that its user requeued does, whatever ended it
// first.
func Attempt(j *job.Job, e End) Ruling {
	if j.Spec.Adopt != nil {
		return adopted(j, e.Record)
	}
	r := ended(j, e)
	switch {
	case j.Stop == job.StopCancel && r.Outcome == "":
		return Ruling{Outcome: job.WasCancelled, Detail: Said(j, "cancelled while running")}
	case j.Stop == job.StopRequeue && (r.Outcome != "" || r.Preempted):
		return Ruling{Again: job.EventRequeued, Detail: Said(j, "requeued")}
	}
	return r
}

// ended believes the supervisor: a job that ended by itself before the stop
// reached it ended by itself.
func ended(j *job.Job, e End) Ruling {
	r := e.Record
	switch job.Stop(r.Stop) {
	case job.StopInterrupt:
		return Interrupted
	case job.StopCancel:
		return Ruling{Outcome: job.WasCancelled, Detail: Said(j, "cancelled while running")}
	case job.StopRequeue:
		return Ruling{Again: job.EventRequeued, Detail: Said(j, "requeued")}
	case job.StopPreempt:
		return Preempted(j)
	case job.StopOveruse:
		return Ruling{Outcome: job.Overuse, Detail: j.Detail}
	case job.StopTimeout:
		return Timeout(j)
	case job.StopBroken:
		if j.Spec.Requeue {
			return Ruling{Again: job.EventRequeued, Detail: r.Note}
		}
		return Ruling{Outcome: job.Resume, Detail: r.Note}
	}
	switch {
	case r.Launch != "":
		return Ruling{Outcome: job.Launch, Detail: r.Launch}
	case r.SetupFailed:
		return Ruling{Outcome: job.Launch, Detail: fmt.Sprintf("set-up failed (exit %d); see its log", r.ExitCode)}
	case r.Signal == 0 && r.ExitCode == 0 && r.MemoryKilled:
		return Ruling{Outcome: job.OK, Detail: "it ended well, although the kernel killed one of its processes at " + memoryLimit(j)}
	case r.Signal == 0 && r.ExitCode == 0:
		return Ruling{Outcome: job.OK, Detail: stragglers(r)}
	}
	outcome := job.Exited(r.ExitCode)
	if r.Signal != 0 {
		outcome = job.Signalled(keep.SignalName(r.Signal))
	}
	if e.OOM {
		return oom(j, e)
	}
	detail := stragglers(r)
	if r.MemoryKilled {
		detail = "the kernel killed it at " + memoryLimit(j)
	}
	return failure(j, outcome, detail, e.Now)
}

// failure retries a job that failed by itself, if that was asked for.
func failure(j *job.Job, outcome job.Outcome, detail string, now time.Time) Ruling {
	if j.Spec.RetryOn == job.RetryFail && j.RetriesUsed < j.Spec.Retries {
		wait := Backoff(j.RetriesUsed)
		return Ruling{
			Again: job.EventRetry, Retried: true, NotBefore: now.Add(wait),
			Detail: fmt.Sprintf("%s; retry %d of %d in %s", outcome, j.RetriesUsed+1, j.Spec.Retries, wait),
		}
	}
	if j.Spec.Retries > 0 && j.Spec.RetryOn != job.RetryFail {
		detail = strings.TrimPrefix(detail+"; ", "; ") + "not retried, as it did not run out of GPU memory (retry_on=fail retries any failure)"
	}
	return Ruling{Outcome: outcome, Detail: detail}
}

// memoryLimit is the limit of host memory that the job reached.
func memoryLimit(j *job.Job) string {
	if j.Spec.MemMiB == 0 {
		return "the limit of host memory for one job (limits.memory)"
	}
	return fmt.Sprintf("its limit of %d MiB of host memory", j.Spec.MemMiB)
}

// Interrupted is the ruling for a job that was stopped because berth was.
var Interrupted = Ruling{Again: job.EventRequeued, Detail: "berth was stopped while it ran"}

func Timeout(j *job.Job) Ruling {
	limit := j.Spec.TimeLimit
	if j.Spec.OnTimeout != job.TimeoutRequeue {
		return Ruling{Outcome: job.Timeout, Detail: fmt.Sprintf("reached its time limit of %s", limit)}
	}
	if j.Requeues >= j.Spec.MaxRequeues {
		return Ruling{Outcome: job.Timeout, Detail: fmt.Sprintf("reached its time limit of %s after %s", limit, text.Count(j.Requeues, "requeue"))}
	}
	return Ruling{
		Again: job.EventRequeued, ToTheEnd: true,
		Detail: fmt.Sprintf("reached its time limit of %s; requeue %d of %d", limit, j.Requeues+1, j.Spec.MaxRequeues),
	}
}

func oom(j *job.Job, e End) Ruling {
	if j.RetriesUsed >= j.Spec.Retries {
		return Ruling{Outcome: job.OOM, Detail: "ran out of GPU memory" + oomAdvice(j, e.CapMiB)}
	}
	next := bump(j.VRAMMiB, e.Peaks, e.CapMiB)
	detail := fmt.Sprintf(job.OutOfMemory+"; retry %d of %d", j.RetriesUsed+1, j.Spec.Retries)
	if next > 0 {
		detail += fmt.Sprintf(" with %d MiB", next)
	}
	return Ruling{Again: job.EventRetry, Retried: true, VramMiB: next, Detail: detail}
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

// Backoff is the wait before retry n (from 0): 1 s, 2 s, 4 s … 5 minutes.
func Backoff(n int) time.Duration {
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

func AdoptedEnded(j *job.Job) string {
	return fmt.Sprintf("adopted: process %d ended; berth cannot know its exit status", j.Spec.Adopt.PID)
}

// GoesOn says what happens to an adopted process when its job is cancelled:
// nothing.
func GoesOn(j *job.Job) string {
	return fmt.Sprintf("no longer accounted for; process %d keeps running", j.Spec.Adopt.PID)
}

// adopted judges the end of a watcher. Only a parent learns how a process
// ended, so an adopted job never counts as successful.
func adopted(j *job.Job, r keep.Record) Ruling {
	switch {
	case job.Stop(r.Stop) == job.StopCancel, r.Stop != "" && j.Stop == job.StopCancel:
		return Ruling{Outcome: job.WasCancelled, Detail: Said(j, GoesOn(j))}
	case job.Stop(r.Stop) == job.StopInterrupt:
		return Ruling{Again: job.EventRequeued, Detail: "berth was stopped while it ran"}
	case r.Launch != "":
		return Ruling{Outcome: job.Launch, Detail: r.Launch}
	case r.Signal == 0 && r.ExitCode == 0:
		return Ruling{Outcome: job.Lost, Detail: AdoptedEnded(j)}
	}
	how := job.Exited(r.ExitCode)
	if r.Signal != 0 {
		how = job.Signalled(keep.SignalName(r.Signal))
	}
	return Ruling{Outcome: job.Lost, Detail: fmt.Sprintf("adopted: the supervisor watching process %d was stopped (%s); berth no longer accounts for the process", j.Spec.Adopt.PID, how)}
}

// Remote decides what the end of a job on the cluster means. Its wrapper judged
// the attempt as a supervisor's berth does; what follows is decided here.
func Remote(j *job.Job, r handover.Record, now time.Time) Ruling {
	stopped := r.Stopped != job.NoStop
	switch {
	case j.Stop == job.StopCancel && (stopped || r.Outcome != job.OK):
		return Ruling{Outcome: job.WasCancelled, Detail: Said(j, "cancelled while running")}
	case j.Stop == job.StopRequeue:
		return Ruling{Again: job.EventRequeued, Detail: Said(j, "requeued")}
	case r.Stopped == job.StopRequeue:
		return Ruling{Again: job.EventRequeued, Detail: r.Detail}
	case r.Outcome == job.Timeout:
		ruling := Timeout(j)
		if ruling.Outcome != "" && stopped {
			ruling.Detail = r.Detail // the limit was Slurm's own
		}
		return ruling
	case (stopped || r.Outcome == job.Lost) && j.Spec.Requeue && r.Outcome != job.WasCancelled && r.Outcome != job.OOM:
		return Ruling{Again: job.EventRequeued, Detail: r.Detail}
	case stopped || r.Outcome == job.OK || r.Outcome == job.Launch || r.Outcome == job.Lost || r.Outcome == job.WasCancelled:
		return Ruling{Outcome: r.Outcome, Detail: r.Detail}
	case r.Outcome == job.OOM:
		return oom(j, End{Peaks: r.PeakMiB, Now: now})
	}
	return failure(j, r.Outcome, r.Detail, now)
}

// Preempted is the ruling for a victim. It uses up no retry.
func Preempted(j *job.Job) Ruling {
	return Ruling{Again: job.EventPreempted, Detail: reason.Preempted(j.PreemptedFor), Preempted: true}
}

// Said returns the job's detail, or a default. The detail names the user who
// asked for a stop.
func Said(j *job.Job, otherwise string) string {
	return cmp.Or(j.Detail, otherwise)
}

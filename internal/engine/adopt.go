package engine

import (
	"fmt"
	"maps"
	"os"
	"slices"

	"berth/internal/job"
	"berth/internal/keep"
	"berth/internal/run"
	"berth/internal/sched"
)

// A job can stand for a process that berth did not start. It is where it is,
// so it takes no place in the line: it starts on its cards whatever fits, and
// what is started there only watches.

// Adopt takes such a job, numbered and with the process in its spec. Like any
// other it exists once it is on disk, and done says so.
func (t *Turn) Adopt(j *job.Job, grant job.Grant, done func(error)) {
	if j.Spec.Adopt == nil {
		panic("bug: job " + j.ID + " is adopted, and stands for no process")
	}
	t.Accept(Batch{Jobs: []*job.Job{j}, Done: done})
	j.Grant = grant
}

// Adopted is the job that stands for this process, if one does.
func (t *Turn) Adopted(p job.Process) (id string, found bool) {
	for id, j := range t.line.jobs {
		if j.Spec.Adopt != nil && *j.Spec.Adopt == p {
			return id, true
		}
	}
	t.changes.eachStaged(func(j *job.Job) {
		if j.Spec.Adopt != nil && *j.Spec.Adopt == p {
			id, found = j.ID, true
		}
	})
	return id, found
}

// OverLimit says why a limit keeps the user from holding one job more, on so
// many cards; empty: none does. What is not started yet counts as well, since it
// takes no place in the line.
func (t *Turn) OverLimit(user string, cards int) string {
	limit, own := t.cfg.Limits.Users[user]
	if !own {
		limit = t.cfg.Limits.Default
	}
	var use sched.Use
	count := func(j *job.Job) {
		if j.User == user {
			use.Jobs++
			use.GPUs += holding(j).CountedGPUs()
		}
	}
	for _, a := range t.attempts.active {
		count(a.job)
	}
	for id := range t.line.strangers {
		count(t.line.jobs[id])
	}
	t.changes.eachStaged(func(j *job.Job) {
		if j.Spec.Adopt != nil {
			count(j)
		}
	})
	switch {
	case limit.Jobs > 0 && use.Jobs >= limit.Jobs:
		return fmt.Sprintf("%s has %d running jobs, which is the limit", user, use.Jobs)
	case limit.GPUs > 0 && use.GPUs+float64(cards) > limit.GPUs:
		return fmt.Sprintf("%s holds %g GPUs; with %d more the limit of %g would be passed", user, use.GPUs, cards, limit.GPUs)
	}
	return ""
}

// watchStrangers starts what watches the processes that jobs stand for. It
// comes after the decision and asks nobody: the memory is taken.
func (t *Turn) watchStrangers(decided []*job.Job) []*job.Job {
	if t.stopping || len(t.line.strangers) == 0 {
		return decided
	}
	var planned []sched.Start
	for _, id := range slices.Sorted(maps.Keys(t.line.strangers)) {
		j := t.line.jobs[id]
		if !t.alive(*j.Spec.Adopt) {
			t.finish(j, job.Lost, strangerEnded(j))
			continue
		}
		planned = append(planned, sched.Start{Job: id, Grant: j.Grant})
	}
	starts := t.lease(planned)
	if len(starts) == 0 {
		return decided
	}
	starts = append(decided, starts...)
	t.cards.publish(t.Now, t.attempts.bookings(starts))
	return starts
}

func (t *Turn) alive(p job.Process) bool {
	if t.cfg.Alive != nil {
		return t.cfg.Alive(p)
	}
	return run.Alive(p)
}

// startText is what an event adds to the start of a job.
func startText(j *job.Job) string {
	if j.Spec.Adopt == nil {
		return ""
	}
	return fmt.Sprintf("process %d is accounted for from here on", j.Spec.Adopt.PID)
}

func strangerEnded(j *job.Job) string {
	return fmt.Sprintf("adopted: process %d ended; its exit status is not berth's to know", j.Spec.Adopt.PID)
}

// GoesOn says of a job that stands for a process what becomes of that one when
// the job is given up: nothing.
func GoesOn(j *job.Job) string {
	return fmt.Sprintf("no longer accounted for; process %d goes on", j.Spec.Adopt.PID)
}

// judgeStranger reads the end of a watcher. How the process itself ended
// nobody can know who is not its parent, so it never ended well.
func judgeStranger(j *job.Job, r keep.Record) ruling {
	switch {
	case job.Stop(r.Stop) == job.StopCancel, r.Stop != "" && j.Stop == job.StopCancel:
		return ruling{outcome: job.WasCancelled, detail: said(j, GoesOn(j))}
	case job.Stop(r.Stop) == job.StopInterrupt:
		return ruling{again: job.EventRequeued, detail: "berth was stopped while it ran"}
	case r.Launch != "":
		return ruling{outcome: job.Launch, detail: r.Launch}
	case r.Signal == 0 && r.ExitCode == 0:
		return ruling{outcome: job.Lost, detail: strangerEnded(j)}
	}
	how := job.Exited(r.ExitCode)
	if r.Signal != 0 {
		how = job.Signalled(keep.SignalName(r.Signal))
	}
	return ruling{outcome: job.Lost, detail: fmt.Sprintf("adopted: what watched process %d was ended (%s); it is no longer accounted for", j.Spec.Adopt.PID, how)}
}

// watch turns an order into one that only watches: nothing of what the job
// says of its cards and limits is the watcher's.
func (l *Launcher) watch(j *job.Job, o keep.Order) keep.Order {
	self, err := os.Executable()
	if err != nil {
		self = "/proc/self/exe"
	}
	o.Argv = append([]string{self}, run.WatchArgs(*j.Spec.Adopt)...)
	o.Dir, o.Setup, o.Pty, o.CPUs, o.MemMiB, o.Devices, o.MPS, o.Affinity, o.Note = "/", false, false, 0, 0, nil, nil, "", ""
	return o
}

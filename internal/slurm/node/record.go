package node

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"syscall"
	"time"

	"berth/internal/job"
	"berth/internal/machine/keep"
	"berth/internal/slurm/handover"
)

const (
	firstPause = time.Second
	lastPause  = 30 * time.Second
	// termLag is how long after the job the wrapper may get Slurm's TERM: Slurm
	// sends it to all processes, one after the other. A job that saves its work and
	// ends well is rarely that quick, so for such an end less is waited.
	termLag  = time.Second
	shortLag = 100 * time.Millisecond
)

// finish leaves the record and returns the exit status of the job.
func (n *node) finish(signals <-chan os.Signal) int {
	if at, _ := n.stop.when(); at.IsZero() && n.ended != nil {
		lag := shortLag
		// A script that was written for Slurm may just have asked it for a requeue.
		if endedByTerm(n.ended) || n.order.Job.Spec.SlurmEnv || n.order.Job.Spec.Requeue {
			lag = termLag
		}
		select {
		case sig := <-signals:
			n.stop.request(sig)
		case <-time.After(lag):
		}
	}
	r := n.record()
	n.leave(r)
	return exitStatus(r)
}

// record is how the job ended.
func (n *node) record() handover.Record {
	at, by := n.stop.when()
	r := handover.Record{Outcome: job.Lost, StartedAt: n.began, EndedAt: time.Now()}
	if n.gaveUp != nil {
		r.Detail = n.gaveUp.Error()
	}
	if j := n.ended; j != nil {
		r = handover.Record{
			Outcome: j.Outcome, Detail: j.Detail, ExitCode: j.ExitCode, Signal: j.Signal, StartedAt: j.StartedAt, EndedAt: j.EndedAt,
			PeakMiB: j.PeakMiB, AvgUtil: j.AvgUtil, LogDropped: j.LogDropped,
		}
		if r.StartedAt.IsZero() {
			r.StartedAt = n.began
		}
	}
	switch {
	case !at.IsZero() && !(n.ended != nil && endedBefore(n.ended, at)):
		r.Stopped, r.Outcome = job.StopInterrupt, job.WasCancelled
		r.Detail = stoppedBy(by, r.Detail, n.gaveUp)
	case r.Outcome.State() == job.Failed && n.token != "" && oomKills("/") > n.kills:
		outOfHostMemory(&r)
	case r.Outcome == job.Infeasible || n.ended == nil && n.token == "":
		r.Outcome = job.Launch
	}
	return r
}

func stoppedBy(by os.Signal, detail string, late error) string {
	name := "a signal"
	if number, ok := by.(syscall.Signal); ok {
		name = "SIG" + keep.SignalName(int(number))
	}
	if late != nil {
		return "stopped by Slurm (" + name + "): " + detail
	}
	return "stopped by Slurm (" + name + ")"
}

// endedBefore reports whether a job ended by itself or at its own time limit, and
// not because Slurm stopped it at that time.
func endedBefore(j *job.Job, at time.Time) bool {
	return j.Outcome == job.Timeout || j.Outcome != job.WasCancelled && j.EndedAt.Before(at.Add(-termLag)) && !endedByTerm(j)
}

// endedByTerm reports whether a job ended as one that got a TERM, which Slurm may
// have sent.
func endedByTerm(j *job.Job) bool {
	return slices.Contains([]job.Outcome{job.Signalled("TERM"), job.Signalled("INT"), job.Exited(128 + 15), job.Exited(128 + 2)}, j.Outcome)
}

// leave writes the record. On a full disk it tries until there is room, or Slurm
// kills it: the job's end is known only here. If the batch's directory was removed,
// nobody wants the record.
func (n *node) leave(r handover.Record) {
	for pause, told := firstPause, false; ; pause = min(2*pause, lastPause) {
		err := handover.Finish(n.dir, n.index, r)
		if (errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)) && handover.Forget(n.dir, n.index) == nil {
			err = handover.Finish(n.dir, n.index, r)
		}
		if err == nil {
			return
		}
		if _, gone := os.Stat(n.dir); errors.Is(gone, fs.ErrNotExist) {
			n.say(fmt.Errorf("cannot write its record: %w", err))
			return
		}
		if !told {
			told = true
			line, _ := json.Marshal(r) // it is all numbers and text
			n.say(fmt.Errorf("cannot write its record, and tries again until it can: %w\n%s", err, line))
		}
		time.Sleep(pause)
	}
}

// exitStatus is the job's own, for Slurm's accounting.
func exitStatus(r handover.Record) int {
	switch number, signalled := keep.SignalNumber(r.Signal); {
	case r.Signal != "" && signalled:
		return 128 + number
	case r.ExitCode != nil && (*r.ExitCode != 0 || r.Outcome == job.OK):
		return *r.ExitCode
	case r.Outcome == job.OK:
		return 0
	}
	return 1
}

package batch

import (
	"bytes"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"time"

	"berth/internal/job"
	"berth/internal/job/jobfile"
	"berth/internal/machine/keep"
)

// theirEvent is a line of gpusched's journal, of 0.3.0 and 0.4.0.
type theirEvent struct {
	Key   string `json:"key"` // a hash of the command, "#", and how many equal lines precede it
	Event string `json:"event"`
	Seq   int64  `json:"seq"` // always 0: only berth's own records have it

	Number   int              `json:"no"` // seen
	Command  string           `json:"command"`
	Group    int              `json:"pgid"`     // started (0.4.0)
	Attempts *int             `json:"attempts"` // oom
	NextMiB  int64            `json:"next_vram"`
	Status   string           `json:"status"` // done
	Code     int              `json:"returncode"`
	PeakMiB  map[string]int64 `json:"peak_mib"`
	AvgUtil  *float64         `json:"avg_util"`
}

// isTheirs reports whether a line is from gpusched's journal, not berth's.
func (ev *theirEvent) isTheirs() bool {
	known := []string{"seen", "started", "interrupted", "oom", "done"}
	return ev.Key != "" && ev.Seq == 0 && slices.Contains(known, ev.Event)
}

// theirJob is the state of one line of a jobs file according to its journal.
type theirJob struct {
	command    string
	occurrence int // from 1, as in jobfile
	number     int // in the name of its log
	attempts   int
	nextMiB    int64
	group      int  // its process group, if it started and no end was recorded
	seen       bool // the group was found running
	done       *theirEvent
}

// readTheirs turns a journal of gpusched's into jobs, in the order they were
// first seen. Like gpusched, it skips foreign and incomplete lines.
func readTheirs(text []byte) []*theirJob {
	var jobs []*theirJob
	byKey := map[string]*theirJob{}
	for len(text) > 0 {
		var line []byte
		line, text, _ = bytes.Cut(text, []byte{'\n'})
		var ev theirEvent
		if json.Unmarshal(line, &ev) != nil || !ev.isTheirs() {
			continue
		}
		j := byKey[ev.Key]
		if j == nil {
			j = &theirJob{}
			byKey[ev.Key] = j
			jobs = append(jobs, j)
		}
		j.fold(&ev)
	}
	// A job that was never seen has no command, so it matches no line.
	return slices.DeleteFunc(jobs, func(j *theirJob) bool { return j.command == "" })
}

func (j *theirJob) fold(ev *theirEvent) {
	switch ev.Event {
	case "seen":
		_, above, _ := strings.Cut(ev.Key, "#")
		n, err := strconv.Atoi(above)
		if err != nil {
			return
		}
		j.command, j.occurrence, j.number = ev.Command, n+1, ev.Number
	case "started":
		j.group, j.done = ev.Group, nil
	case "interrupted":
		j.group, j.done = 0, nil
	case "oom":
		j.group, j.done = 0, nil
		if j.attempts++; ev.Attempts != nil {
			j.attempts = *ev.Attempts
		}
		if ev.NextMiB > 0 {
			j.nextMiB = ev.NextMiB
		}
	case "done":
		j.group, j.done = 0, ev
		j.attempts++
	}
}

// outcome is berth's outcome for how it ended; empty: it is to run.
func (j *theirJob) outcome() job.Outcome {
	if j.done == nil {
		return ""
	}
	switch j.done.Status {
	case "ok":
		return job.OK
	case "timeout":
		return job.Timeout
	case "infeasible":
		return job.Infeasible
	case "failed_oom":
		return job.OOM
	case "cancelled":
		return job.WasCancelled
	case "failed":
		if j.done.Code < 0 {
			return job.Signalled(keep.SignalName(-j.done.Code))
		}
		return job.Exited(max(j.done.Code, 1))
	}
	return "" // an unknown status of a later gpusched
}

// key is the key of its line.
func (j *theirJob) key() string { return jobfile.Key(j.command, j.occurrence) }

// left reports whether the job still runs although gpusched is gone.
func (j *theirJob) left(alive func(group int) bool) bool {
	return j.done == nil && j.group > 1 && (j.seen || alive(j.group))
}

// job is the corresponding job of berth.
func (j *theirJob) job(now time.Time, spec job.Spec) *job.Job {
	made := &job.Job{Key: j.key(), Spec: spec, Attempt: job.Attempt{Number: j.attempts}, VRAMMiB: spec.VRAMMiB}
	made.Spec.CancelMarked = false
	outcome := j.outcome()
	if outcome != "" {
		made.Detail = "under gpusched"
		j.measured(made)
	} else {
		made.RetriesUsed = j.attempts
		made.VRAMMiB = max(made.VRAMMiB, j.nextMiB)
	}
	made.Submitted(now)
	if made.Outcome = outcome; outcome != "" {
		made.EndedAt = now // the journal has no times
		made.MustTo(job.Running)
		made.MustTo(outcome.State())
	}
	return made
}

// measured copies what gpusched recorded at the end.
func (j *theirJob) measured(made *job.Job) {
	if code := j.done.Code; code < 0 {
		made.Signal = keep.SignalName(-code)
	} else {
		made.ExitCode = &code
	}
	for card, mib := range j.done.PeakMiB {
		if index, err := strconv.Atoi(card); err == nil {
			if made.PeakMiB == nil {
				made.PeakMiB = map[int]int64{}
			}
			made.PeakMiB[index] = mib
			made.Grant.GPUs = append(made.Grant.GPUs, index)
		}
	}
	slices.Sort(made.Grant.GPUs)
	made.AvgUtil = j.done.AvgUtil
}

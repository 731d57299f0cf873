package daemon

import (
	"fmt"
	"strconv"
	"strings"

	"berth/internal/job"
	"berth/internal/sched"
	"berth/internal/text"
)

// notesOn lists where a job that is accepted as requested does less than it may
// seem to.
func notesOn(s *job.Spec, cfg *Config, cannotPark string) []string {
	var notes []string
	keepAll := cfg.Preempt == PreemptNever // then preemptible has no effect
	switch {
	case s.WarnSignal == "":
	case s.TimeLimit == 0 && s.Preemptible == string(sched.Requeue) && !keepAll: // the signal comes before preemption
	case s.TimeLimit == 0:
		notes = append(notes, fmt.Sprintf("signal: %s is sent before a time limit, and this job has none", s.WarnSignal))
	case s.WarnBefore >= s.TimeLimit:
		notes = append(notes, fmt.Sprintf("signal: %s is sent at the start, because the time limit of %s is not longer than %s", s.WarnSignal, s.TimeLimit, s.WarnBefore))
	}
	if s.WarnSignal != "" && cfg.Grace > 0 && s.WarnBefore > cfg.Grace && s.Preemptible == string(sched.Requeue) && !keepAll {
		notes = append(notes, fmt.Sprintf("signal: before a preemption, %s is sent at most %s ahead (limits.grace)", s.WarnSignal, text.Brief(cfg.Grace)))
	}
	if marks := unknownMarks(s.Output); len(marks) > 0 {
		notes = append(notes, fmt.Sprintf("output: %s is not replaced; berth knows %%j %%c %%n %%u %%a and %%%%", strings.Join(marks, " ")))
	}
	switch {
	case s.Preemptible != "" && keepAll:
		notes = append(notes, "preemptible: this daemon preempts no jobs (scheduling.preempt is never)")
	case s.Preemptible == string(sched.Park) && cannotPark != "":
		notes = append(notes, "preemptible: jobs cannot be parked here ("+cannotPark+"), so this one is not preempted (with requeue it would be)")
	}
	return notes
}

// roundedUp mentions a fraction above 1, of which a job gets the next whole number.
func roundedUp(asked string, gpus int) string {
	if n, err := strconv.ParseFloat(asked, 64); err != nil || gpus < 2 || n == float64(gpus) {
		return ""
	}
	return fmt.Sprintf("gpus: %s means %d whole GPUs; a fraction below 1 shares one", asked, gpus)
}

// maxMarksNamed bounds how many a note names.
const maxMarksNamed = 5

// unknownMarks lists what looks like a placeholder in a pattern and is not one.
func unknownMarks(pattern string) []string {
	var unknown []string
	for {
		_, rest, found := strings.Cut(pattern, "%")
		if !found || len(unknown) == maxMarksNamed {
			return unknown
		}
		mark := ""
		for _, r := range rest {
			mark = string(r)
			break
		}
		pattern = rest[len(mark):]
		if mark == "" || !strings.Contains("%jcnua", mark) {
			unknown = append(unknown, "%"+mark)
		}
	}
}

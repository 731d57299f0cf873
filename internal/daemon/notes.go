package daemon

import (
	"fmt"
	"strings"

	"berth/internal/job"
	"berth/internal/sched"
)

// notesOn is what a caller should know about a job that is taken as asked, and
// that does less than it may seem to. Where nobody is set aside (keepAll) it
// makes no difference that it would give way.
func notesOn(s *job.Spec, keepAll bool) []string {
	var notes []string
	switch {
	case s.WarnSignal == "":
	case s.TimeLimit == 0 && s.Preemptible == string(sched.Requeue) && !keepAll: // it comes before it is set aside
	case s.TimeLimit == 0:
		notes = append(notes, fmt.Sprintf("signal: %s comes before a time limit, and this job has none", s.WarnSignal))
	case s.WarnBefore >= s.TimeLimit:
		notes = append(notes, fmt.Sprintf("signal: %s comes at the start, because its limit of %s leaves no %s before it", s.WarnSignal, s.TimeLimit, s.WarnBefore))
	}
	if marks := unknownMarks(s.Output); len(marks) > 0 {
		notes = append(notes, fmt.Sprintf("output: %s stands for nothing and is left as it is; %%j %%c %%n %%u %%a and %%%% are known", strings.Join(marks, " ")))
	}
	switch {
	case s.Preemptible != "" && keepAll:
		notes = append(notes, "preemptible: this daemon sets no job aside (scheduling.preempt is never)")
	case s.Preemptible == string(sched.Park):
		notes = append(notes, "preemptible: it will be parked once this machine can; until then it is not set aside (requeue can be)")
	}
	return notes
}

// maxMarksNamed bounds how many of them a note names.
const maxMarksNamed = 5

// unknownMarks is what in a pattern looks like a mark and is none.
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

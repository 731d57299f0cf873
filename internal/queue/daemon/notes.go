package daemon

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"berth/internal/job"
	"berth/internal/job/jobfile"
	"berth/internal/queue"
	"berth/internal/queue/config"
	"berth/internal/queue/engine"
	"berth/internal/queue/fair"
	"berth/internal/sched"
	"berth/internal/text"
)

// notesOn lists where a job that is accepted as requested does less than it may
// seem to.
func notesOn(asked *jobfile.Asked, cfg *config.Config, cannotPark string) []string {
	var notes []string
	s := &asked.Spec
	keepAll := cfg.Preempt == queue.PreemptNever // then preemptible has no effect
	switch {
	case s.WarnSignal == "":
	case s.TimeLimit == 0 && s.Preemptible.Requeues() && !keepAll: // the signal comes before preemption
	case s.TimeLimit == 0:
		notes = append(notes, fmt.Sprintf("signal: %s is sent before a time limit, and this job has none", s.WarnSignal))
	case s.WarnBefore >= s.TimeLimit:
		notes = append(notes, fmt.Sprintf("signal: %s is sent at the start, because the time limit of %s is not longer than %s", s.WarnSignal, s.TimeLimit, s.WarnBefore))
	}
	if s.WarnSignal != "" && cfg.Grace > 0 && s.WarnBefore > cfg.Grace && s.Preemptible.Requeues() && !keepAll {
		notes = append(notes, fmt.Sprintf("signal: before a preemption, %s is sent at most %s ahead (limits.grace)", s.WarnSignal, text.Brief(cfg.Grace)))
	}
	if marks := unknownMarks(s.Output); len(marks) > 0 {
		notes = append(notes, fmt.Sprintf("output: %s is not replaced; berth knows %%j %%c %%n %%u %%a %%A %%N %%+ and %%%%", strings.Join(marks, " ")))
	}
	switch {
	case s.Preemptible != job.NotPreemptible && keepAll:
		notes = append(notes, "preemptible: this daemon preempts no jobs (scheduling.preempt is never)")
	case s.Preemptible == job.PreemptByPark && cannotPark != "":
		notes = append(notes, "preemptible: jobs cannot be parked here ("+cannotPark+"), so this one is not preempted (with requeue it would be)")
	case s.Preemptible == job.PreemptByEither && cannotPark != "":
		notes = append(notes, "preemptible: jobs cannot be parked here ("+cannotPark+"), so this one is requeued")
	}
	switch {
	case s.OnTimeout != job.TimeoutPark:
	case s.TimeLimit == 0:
		notes = append(notes, "on_timeout: park is for a time limit, and this job has none")
	case cannotPark != "":
		notes = append(notes, "on_timeout: jobs cannot be parked here ("+cannotPark+"), so this one ends at its time limit")
	}
	notes = append(notes, oddAmounts(asked)...)
	if asked.Note != "" {
		notes = append(notes, asked.Note)
	}
	return notes
}

// Below these, a value was most likely meant in another unit.
const (
	leastVRAMMiB   = 256 // a CUDA context takes more
	leastBareLimit = 10 * time.Minute
)

// oddAmounts lists values that were most likely meant otherwise.
func oddAmounts(asked *jobfile.Asked) (notes []string) {
	s := &asked.Spec
	if s.GPUs > 0 && s.VRAMMiB > 0 && s.VRAMMiB < leastVRAMMiB {
		notes = append(notes, fmt.Sprintf("vram: %d MiB is less than a program needs to use a GPU at all; %dG is GiB", s.VRAMMiB, s.VRAMMiB))
	}
	if asked.BareTime && s.TimeLimit < leastBareLimit {
		seconds := int64(s.TimeLimit.Seconds())
		notes = append(notes, fmt.Sprintf("time: without a unit, %d is seconds, and the job ends after them; %dm is minutes", seconds, seconds))
	}
	if asked.Array != nil && len(s.Argv) > 1 && unexpanded(s.Argv) {
		notes = append(notes, "the command has several words, so no shell replaces $BERTH_ARRAY_INDEX in it; put the whole command in single quotes")
	}
	return notes
}

// unexpanded reports whether a variable of berth stays as it is in a command that
// no shell reads.
func unexpanded(argv []string) bool {
	isScript := func(word string) bool { return strings.HasPrefix(word, "-") && strings.HasSuffix(word, "c") } // sh -c, bash -lc
	isVariable := func(word string) bool { return strings.Contains(word, "$BERTH_") || strings.Contains(word, "${BERTH_") }
	return slices.ContainsFunc(argv, isVariable) && !slices.ContainsFunc(argv, isScript)
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
		if mark == "" || !strings.Contains("%jcnuaAN+", mark) {
			unknown = append(unknown, "%"+mark)
		}
	}
}

// optInGain is the least gain that is worth a note.
const optInGain = 10 * time.Minute

// optIn says how much earlier a job would start that cannot make room for others yet;
// nothing: no earlier.
func (s *service) optIn(preview *sched.Preview, j *job.Job) []string {
	if s.Config().Preempt == queue.PreemptNever {
		return nil
	}
	gain := preview.Gain(sched.Preempt{Mode: sched.Requeue, Saves: true, StopTime: j.Spec.Grace})
	if gain < optInGain {
		return nil
	}
	return []string{fmt.Sprintf("with --preemptible=requeue --checkpoint term, if it saves its work when it gets TERM, this job would start about %s earlier (berth help resume)", text.Span(gain))}
}

// gainOf is optIn for a job that was just submitted.
func (s *service) gainOf(ctx context.Context, j *job.Job) []string {
	ctx, leave := s.gate.Begin(ctx)
	defer leave()
	if fair.Spend(ctx, fair.Long) != nil {
		return nil
	}
	var preview *sched.Preview
	if s.Do(ctx, func(t *engine.Turn) { preview = sched.NewPreview(t.Explain().State(), []string{j.ID}) }) != nil {
		return nil
	}
	return s.optIn(preview, j)
}

package batch

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"berth/internal/job"
	"berth/internal/machine/keep"
	"berth/internal/queue/engine/running"
	"berth/internal/text"
)

// theirWords says what gpusched says, where it says something: users' scripts
// look for its words. What only berth has to say stays berth's.
type theirWords struct {
	tolerance   float64
	verbose     bool
	cards       int
	declaredMiB map[string]int64 // of each job when it last started
	stopped     map[string]stopped

	ok, cancelled, under, over int
	failed                     []string // bounded
	notNamed                   int      // failures beyond the bound
}

// stopped is what was said of a job that is being stopped.
type stopped struct {
	at     time.Time // of SIGTERM
	killed bool
}

func newTheirWords(tolerance float64, verbose bool, cards int) *theirWords {
	return &theirWords{tolerance: tolerance, verbose: verbose, cards: cards, declaredMiB: map[string]int64{}, stopped: map[string]stopped{}}
}

// sentence is gpusched's sentence for an event. It is not known where gpusched
// says nothing.
func (w *theirWords) sentence(ev job.Event, dispatched, total int) (said string, known bool) {
	j := ev.Job
	if j == nil {
		return "", false
	}
	switch ev.Kind {
	case job.EventStarted:
		w.declaredMiB[j.ID] = j.VRAMMiB
		return w.started(j, dispatched, total), true
	case job.EventRetry:
		return w.retry(j)
	case job.EventUsage:
		_, mib, _ := strings.Cut(ev.Text, ":")
		if !w.verbose {
			return "", true
		}
		return fmt.Sprintf("job %s vram now %s (peak %s)", j.ID, ev.Text, mib), true
	case job.EventStopping:
		if j.Stop != job.StopCancel {
			return "", false
		}
		w.stopped[j.ID] = stopped{at: ev.At}
		return fmt.Sprintf("WARN  job %s CANCELLED by user — SIGTERM to its process group", j.ID), true
	case job.EventEnded:
		defer delete(w.declaredMiB, j.ID)
		defer delete(w.stopped, j.ID)
		return w.ended(j), true
	}
	return "", false
}

// signals says which signals a job has got since the last look: supervisors send
// them without an event. It also looks at a job that has ended, whose time
// limit it may have missed.
func (w *theirWords) signals(j *job.Job, now time.Time) (said []string) {
	limit, elapsed := j.Spec.TimeLimit, j.Worked(now)
	s, stopping := w.stopped[j.ID]
	overdue := limit > 0 && elapsed >= limit && j.Stop == job.NoStop && j.Outcome == "" || j.Outcome == job.Timeout
	if overdue && !stopping {
		s.at, stopping = now.Add(limit-elapsed), true
		said = append(said, fmt.Sprintf("WARN  job %s TIMEOUT after %.0fs (limit %.0fs) — SIGTERM", j.ID, elapsed.Seconds(), limit.Seconds()))
	}
	if stopping && !s.killed && (j.Signal == "KILL" || j.Outcome == "" && now.Sub(s.at) >= j.Spec.Grace) {
		s.killed = true
		said = append(said, fmt.Sprintf("WARN  job %s did not exit after SIGTERM — SIGKILL", j.ID))
	}
	if stopping {
		w.stopped[j.ID] = s
	}
	return said
}

func (w *theirWords) started(j *job.Job, dispatched, total int) string {
	declared := "undeclared (exclusive idle GPU)"
	if j.VRAMMiB > 0 {
		declared = fmt.Sprintf("declared %d MiB/gpu", j.VRAMMiB)
	}
	return fmt.Sprintf("job %s started on gpu [%s] (%d/%d dispatched, %s) — %s", j.ID, j.Grant.List(), dispatched, total, declared, text.Line(j.Spec.Command()))
}

func (w *theirWords) retry(j *job.Job) (string, bool) {
	if j.Spec.RetryOn == job.RetryFail {
		return "", false
	}
	said := fmt.Sprintf("↻ job %s hit CUDA OOM (attempt %d/%d) — requeued", j.ID, j.RetriesUsed, j.Spec.Retries+1)
	if before := w.declaredMiB[j.ID]; j.VRAMMiB > 0 {
		said += fmt.Sprintf(" with vram %s → %d MiB", orNA(before), j.VRAMMiB)
	}
	return said, true
}

func orNA(mib int64) string {
	if mib == 0 {
		return "n/a"
	}
	return strconv.FormatInt(mib, 10)
}

func (w *theirWords) ended(j *job.Job) string {
	w.count(j)
	command := text.Line(j.Spec.Command())
	switch {
	case j.Outcome == job.Infeasible && j.Spec.GPUs > w.cards:
		return fmt.Sprintf("WARN  job %s INFEASIBLE — needs %d GPUs but only %d are usable; marking failed: %s", j.ID, j.Spec.GPUs, w.cards, command)
	case j.Outcome == job.Infeasible:
		return fmt.Sprintf("WARN  job %s INFEASIBLE — %s; marking failed: %s", j.ID, text.Line(j.Detail), command)
	case j.StartedAt.IsZero() && j.Outcome == job.WasCancelled:
		return fmt.Sprintf("job %s cancelled before start: %s", j.ID, command)
	}
	facts := []string{theirPeaks(j)}
	if j.Outcome == job.OK {
		facts = appendSome(facts, verdict(j, w.tolerance))
	}
	if j.AvgUtil != nil {
		facts = append(facts, fmt.Sprintf("avg gpu util %.0f%%", *j.AvgUtil))
	}
	if !slices.Contains([]job.Outcome{job.OK, job.WasCancelled, job.Timeout, job.OOM}, j.Outcome) {
		facts = appendSome(facts, text.Line(j.Detail))
	}
	seconds := j.Worked(j.EndedAt).Seconds()
	return fmt.Sprintf("job %s finished [%s] in %.0fs — %s", j.ID, theirStatus(j), seconds, strings.Join(facts, " | "))
}

// theirStatus is how a job ended, as gpusched puts it.
func theirStatus(j *job.Job) string {
	switch j.Outcome {
	case job.OK:
		return "OK"
	case job.WasCancelled:
		return "CANCELLED"
	case job.Timeout:
		return "TIMEOUT"
	case job.OOM:
		return fmt.Sprintf("OOM (exit %d, retries exhausted)", theirCode(j))
	}
	if j.ExitCode != nil || j.Signal != "" {
		return fmt.Sprintf("EXIT %d", theirCode(j))
	}
	return strings.ToUpper(string(j.Outcome)) // berth's own: lost, launch, dependency
}

// theirCode is an exit code as Python's subprocess has it: a signal is negative.
func theirCode(j *job.Job) int {
	switch {
	case j.Signal != "":
		number, _ := keep.SignalNumber(j.Signal)
		return -number
	case j.ExitCode != nil:
		return *j.ExitCode
	}
	return j.Outcome.Status()
}

func theirPeaks(j *job.Job) string {
	if j.PeakMiB == nil {
		return "peak vram n/a (attribution failed)"
	}
	parts := make([]string, 0, len(j.PeakMiB))
	for _, card := range slices.Sorted(slices.Values(j.Grant.GPUs)) {
		if mib, known := j.PeakMiB[card]; known {
			parts = append(parts, fmt.Sprintf("gpu%d:%d MiB", card, mib))
		}
	}
	return "peak vram " + strings.Join(parts, ", ")
}

func (w *theirWords) count(j *job.Job) {
	switch {
	case j.Outcome == job.WasCancelled:
		w.cancelled++
	case j.Outcome != job.OK && len(w.failed) == maxNamed:
		w.notNamed++
	case j.Outcome != job.OK:
		w.failed = append(w.failed, fmt.Sprintf("  failed: job %s (%s, exit %d) — %s", j.ID, theirVerdict(j, w.tolerance), theirCode(j), text.Line(j.Spec.Command())))
	default:
		w.ok++
		switch v, _ := job.Judge(j.VRAMMiB, j.PeakMiB, w.tolerance); v {
		case job.VerdictUnder:
			w.under++
		case job.VerdictOver:
			w.over++
		}
	}
}

// theirVerdict is the word of gpusched's board for an ended job.
func theirVerdict(j *job.Job, tolerance float64) string {
	switch j.Outcome {
	case job.OK:
	case job.WasCancelled, job.Timeout, job.Infeasible:
		return string(j.Outcome)
	case job.OOM:
		return "failed_oom"
	default:
		return "failed"
	}
	switch v, _ := job.Judge(j.VRAMMiB, j.PeakMiB, tolerance); {
	case j.PeakMiB == nil:
		return "unattributed"
	case v == job.VerdictUnder:
		return "over" // the usage is over the declaration
	case v == job.VerdictOver:
		return "under"
	}
	return "ok"
}

// summary is gpusched's last words about this run.
func (w *theirWords) summary(now time.Time) []string {
	failed := len(w.failed) + w.notNamed
	lines := []string{stamp(now, fmt.Sprintf("all %d jobs done — %d ok, %d failed, %d cancelled, %d under-declared vram, %d over-declared vram",
		w.ok+failed+w.cancelled, w.ok, failed, w.cancelled, w.under, w.over))}
	for _, line := range w.failed {
		lines = append(lines, stamp(now, line))
	}
	if w.notNamed > 0 {
		lines = append(lines, stamp(now, fmt.Sprintf("  and %d more", w.notNamed)))
	}
	return lines
}

// board is gpusched's status board: what runs, what waits, and what ended in this
// run.
func (w *theirWords) board(s snapshot) []byte {
	var b bytes.Buffer
	ended := slices.DeleteFunc(slices.Clone(s.ended), func(j *job.Job) bool { return j.EndedAt.Before(s.began) })
	fmt.Fprintf(&b, "gpusched status @ %s — %d running, %d pending, %d done\n", s.at.Local().Format("15:04:05"),
		s.tally.running, s.tally.queued, s.tally.done()-s.tally.earlier)
	byNumber := func(a, b string) int { return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b)) }
	slices.SortFunc(s.running, func(a, b running.Job) int { return byNumber(a.Job.ID, b.Job.ID) })
	for _, r := range s.running {
		state := ""
		if r.Job.Stop == job.StopCancel {
			state = " (cancelling…)"
		}
		fmt.Fprintf(&b, "▶ job %-3s gpu[%s] %5.0fs  %s MiB (peak %d)%s — %s\n", r.Job.ID, r.Job.Grant.List(),
			r.Job.Worked(s.at).Seconds(), theirUsage(r), r.PeakMiB, state, text.Line(r.Job.Spec.Command()))
	}
	for _, p := range s.pending {
		mark, more := "·", ""
		if p.job.RetriesUsed > 0 {
			mark, more = "↻", fmt.Sprintf(" retry %d, vram→%d", p.job.RetriesUsed, p.job.VRAMMiB)
		}
		vram := ""
		if p.job.VRAMMiB > 0 {
			vram = fmt.Sprintf(" vram %d", p.job.VRAMMiB)
		}
		fmt.Fprintf(&b, "%s job %-3s pending%s%s — %s\n", mark, p.job.ID, vram, more, text.Line(p.job.Spec.Command()))
	}
	if rest := s.tally.queued - len(s.pending); rest > 0 {
		fmt.Fprintf(&b, "· and %d more pending\n", rest)
	}
	slices.SortFunc(ended, func(a, b *job.Job) int { return byNumber(a.ID, b.ID) })
	for _, j := range ended {
		mark := "✗"
		switch j.Outcome {
		case job.OK:
			mark = "✓"
		case job.WasCancelled:
			mark = "⊘"
		}
		peak := int64(0)
		for _, mib := range j.PeakMiB {
			peak = max(peak, mib)
		}
		fmt.Fprintf(&b, "%s job %-3s %s (exit %d, peak %d MiB) — %s\n", mark, j.ID, theirVerdict(j, w.tolerance), theirCode(j), peak, text.Line(j.Spec.Command()))
	}
	return b.Bytes()
}

func theirUsage(r running.Job) string {
	parts := make([]string, 0, len(r.Job.Grant.GPUs))
	for _, card := range slices.Sorted(slices.Values(r.Job.Grant.GPUs)) {
		parts = append(parts, fmt.Sprintf("gpu%d:%d", card, r.CardMiB[card]))
	}
	return strings.Join(parts, ", ")
}

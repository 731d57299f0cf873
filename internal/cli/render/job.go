package render

import (
	"fmt"
	"strconv"
	"time"

	"berth/internal/api"
	"berth/internal/job"
	"berth/internal/text"
)

// StateCell is a job's state in its colour, or the states of an array's tasks.
func StateCell(r *Row, _ time.Time) text.Cell {
	switch {
	case r.Tasks != nil && r.Tasks.Counts[string(job.Failed)] > 0:
		return text.Cell{Text: tasksText(r), Paint: text.Red}
	case r.Tasks != nil:
		return text.Cell{Text: r.Tasks.String(), Paint: StatePaint(r.State)}
	}
	return text.Cell{Text: StateText(r.View), Paint: StatePaint(r.State)}
}

// tasksText counts the tasks of an array by state. Of one that is over, the
// failures are enough.
func tasksText(r *Row) string {
	failed, all := r.Tasks.Counts[string(job.Failed)], 0
	for _, n := range r.Tasks.Counts {
		all += n
	}
	if r.State.Terminal() && failed > 0 && failed < all {
		return fmt.Sprintf("%d of %d failed", failed, all)
	}
	return r.Tasks.String()
}

// StateText is a job's state; a queued job may be held.
func StateText(v job.View) string {
	if v.State == job.Queued && v.Held {
		return "held"
	}
	return string(v.State)
}

func StatePaint(state job.State) text.Paint {
	colours := map[job.State]text.Paint{job.Running: text.Green, job.Queued: text.Yellow, job.Parked: text.Blue, job.Failed: text.Red, job.Finished: text.Dim, job.Cancelled: text.Dim}
	return colours[state]
}

// gpusText is the GPUs of a running job, or how many a waiting job needs.
func gpusText(v job.View) string {
	switch where := v.Slurm.Where(); {
	case where != "":
		return where
	case v.GPUs == 0:
		return "cpu"
	case len(v.GPUIDs) > 0:
		return text.Numbers(v.GPUIDs)
	case v.Share != nil:
		return "×" + strconv.FormatFloat(*v.Share, 'g', 3, 64)
	}
	return "×" + strconv.Itoa(v.GPUs)
}

// RowGPUs is gpusText; the lines of a file may need different numbers of them.
func RowGPUs(r *Row) string {
	if r.file != "" {
		return ""
	}
	return gpusText(r.View)
}

// rowNote is noteText, with when all jobs of the row are expected to be done.
func rowNote(r *Row, now time.Time) string {
	note := noteText(r.View, now)
	if r.Tasks == nil {
		return note
	}
	left := r.Tasks.Left(now)
	if left != "" && note != "" {
		left += "; "
	}
	return left + note
}

// VRAMText is peak and declared memory per GPU.
func VRAMText(v job.View) string {
	highest := PeakOf(&v)
	switch measured := len(v.PeakVRAMMiB) > 0; {
	case measured && v.VRAMMiB != nil:
		return text.GiB(highest) + "/" + text.GiB(*v.VRAMMiB) + "G"
	case measured:
		return text.GiB(highest) + "G/–"
	case v.VRAMMiB != nil:
		return "–/" + text.GiB(*v.VRAMMiB) + "G"
	}
	return ""
}

// PeakOf is the most memory a job used on a GPU; 0: not known.
func PeakOf(v *job.View) (highest int64) {
	for _, mib := range v.PeakVRAMMiB {
		highest = max(highest, mib)
	}
	return highest
}

// SpanOf returns how long a job has waited or run.
func SpanOf(v job.View, now time.Time) (span time.Duration, known bool) {
	switch {
	case v.StartedAt != nil && v.EndedAt != nil:
		return worked(v, *v.EndedAt), true
	case v.StartedAt != nil && !v.State.Terminal() && v.State != job.Queued:
		return worked(v, now), true
	case v.State == job.Queued && v.SubmittedAt != nil:
		return now.Sub(*v.SubmittedAt), true
	}
	return 0, false
}

func TimeText(v job.View, now time.Time) string {
	span, known := SpanOf(v, now)
	if !known {
		return "-"
	}
	return text.Span(span)
}

// worked returns how long a job has run, without the time it was parked.
func worked(v job.View, until time.Time) time.Duration {
	if v.ParkedSince != nil {
		until = *v.ParkedSince
	}
	return until.Sub(*v.StartedAt) - text.OfSeconds(v.ParkedS)
}

// ReasonText says how a job ended or why it waits.
func ReasonText(v job.View) string {
	reason, outcome := "", ""
	if v.Reason != nil {
		reason = *v.Reason
	}
	if v.Outcome != nil && *v.Outcome != job.OK && *v.Outcome != job.WasCancelled {
		outcome = string(*v.Outcome)
	}
	switch {
	case outcome == "":
		return reason
	case reason == "":
		return outcome
	}
	return outcome + ": " + reason
}

// noteText is ReasonText, with how long a job has been parked or has left its
// GPUs idle.
func noteText(v job.View, now time.Time) string {
	if v.ParkedSince != nil {
		written := "for " + text.Span(now.Sub(*v.ParkedSince))
		if v.HostMiB != nil {
			written += ", " + text.GiB(*v.HostMiB) + " GiB on the host"
		}
		if reason := ReasonText(v); reason != "" {
			written += ": " + reason
		}
		return written
	}
	if under := ParkingText(v); under != "" && v.Reason == nil {
		return under
	}
	if v.State == job.Running && v.IdleSince != nil && v.Reason == nil {
		return "idle " + text.Span(now.Sub(*v.IdleSince))
	}
	return ReasonText(v)
}

// ParkingText says that a job is being parked or resumed.
func ParkingText(v job.View) string {
	switch {
	case v.Parking == nil || v.State != job.Running:
		return ""
	case *v.Parking == job.ParkOut:
		return "being parked"
	}
	return "coming back"
}

func CommandText(v job.View) string {
	if v.Command == nil {
		return "-"
	}
	return *v.Command
}

// EndText says how a job ended: "job 17 (train) failed after 4m12s: exit:3".
func EndText(v job.View) string {
	written := "job " + v.ID
	if v.Name != "" && v.Name != "job"+v.ID {
		written += " (" + v.Name + ")"
	}
	written += " " + string(v.State)
	if v.StartedAt != nil && v.EndedAt != nil {
		written += " after " + text.Span(worked(v, *v.EndedAt))
	}
	if reason := ReasonText(v); reason != "" {
		written += ": " + reason
	}
	return written
}

func Because(v job.View) string {
	if v.Reason == nil || *v.Reason == "" {
		return ""
	}
	return " (" + *v.Reason + ")"
}

const EmptyQueue = "no jobs"

// CountLine counts all selected jobs by state, including those not shown.
func CountLine(counts map[string]int, shown int) string {
	counted := api.Tasks{Counts: counts}.String()
	switch {
	case counted == "":
		return EmptyQueue
	case shown == 0:
		return "no jobs to show; in total: " + counted
	}
	return counted
}

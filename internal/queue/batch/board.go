package batch

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"berth/internal/job"
	"berth/internal/queue/engine/running"
	"berth/internal/sched"
	"berth/internal/text"
)

// The board lists all running jobs, the first queued and the last ended ones;
// the rest of a long queue is counted.
const (
	boardPending = 100
	boardEnded   = 100
)

// snapshot is what the board and the live view show, taken in the engine's
// goroutine.
type snapshot struct {
	at      time.Time
	file    string
	tally   tally
	total   int
	cards   []sched.Card
	running []running.Job
	pending []waitingJob
	ended   []*job.Job // newest first, bounded
	paused  string     // why no job can start
	began   time.Time  // when this berth run did
	doneAt  time.Time  // when all are expected to have ended; zero: not known
}

// left says after a separator when all are expected to have ended; empty: that is not
// known.
func (s *snapshot) left(separator string) string {
	if !s.doneAt.After(s.at) {
		return ""
	}
	return separator + "about " + text.Span(s.doneAt.Sub(s.at)) + " left"
}

// waitingJob is a queued job with the reason it waits.
type waitingJob struct {
	job    *job.Job
	reason string
}

// board writes status.txt, always as a whole, so that `watch cat` never sees
// half of it.
type board struct {
	path   string
	render func(snapshot) []byte
	last   []byte
}

func (b *board) write(s snapshot) error {
	text := b.render(s)
	if bytes.Equal(text[bytes.IndexByte(text, '\n'):], b.last) {
		return nil // only the time has changed
	}
	if err := Replace(b.path, text); err != nil {
		return err
	}
	b.last = bytes.Clone(text[bytes.IndexByte(text, '\n'):])
	return nil
}

// Replace writes a file as a whole or not at all.
func Replace(path string, data []byte) error {
	err := os.WriteFile(path+".new", data, 0o644)
	if err == nil {
		err = os.Rename(path+".new", path)
	}
	if err != nil {
		return fmt.Errorf("write status board: %w", err)
	}
	return nil
}

func renderBoard(s snapshot) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s · %s\n", text.Line(filepath.Base(s.file)), s.at.Local().Format("2006-01-02 15:04:05"))
	fmt.Fprintf(&b, "%d/%d done: %s%s\n\n", s.tally.done(), s.total, s.tally, s.left(", "))
	for _, c := range s.cards {
		fmt.Fprintf(&b, "gpu%-2d %6d / %d MiB used%s%s%s\n", c.Index, c.UsedMiB, c.TotalMiB, utilText(c.UtilPct), foreignText(c.ForeignMiB), staleText(c))
	}
	if s.paused != "" {
		fmt.Fprintf(&b, "no job can start: %s\n", text.Line(s.paused))
	}
	b.WriteByte('\n')
	for _, r := range s.running {
		fmt.Fprintf(&b, "▶ %s  %s  %s  %s — %s\n", label(r.Job), where(r.Job), text.Clock(r.Job.Worked(s.at)), memory(r), text.Line(r.Job.Spec.Command()))
	}
	for _, w := range s.pending {
		mark := "·"
		if w.job.RetriesUsed > 0 {
			mark = "↻"
		}
		fmt.Fprintf(&b, "%s %s — %s", mark, label(w.job), text.Line(w.job.Spec.Command()))
		if w.reason != "" {
			fmt.Fprintf(&b, "  (%s)", text.Line(w.reason))
		}
		b.WriteByte('\n')
	}
	if rest := s.tally.queued - len(s.pending); rest > 0 {
		fmt.Fprintf(&b, "· and %d more queued\n", rest)
	}
	for _, j := range s.ended {
		mark := "✗"
		if j.Outcome == job.OK {
			mark = "✓"
		}
		fmt.Fprintf(&b, "%s %s  %s", mark, label(j), j.Outcome)
		if !j.StartedAt.IsZero() {
			fmt.Fprintf(&b, "  %s", text.Seconds(j.Worked(j.EndedAt)))
		}
		fmt.Fprintf(&b, " — %s\n", text.Line(j.Spec.Command()))
	}
	if rest := s.tally.done() - len(s.ended); rest > 0 {
		fmt.Fprintf(&b, "  and %d more ended\n", rest)
	}
	return b.Bytes()
}

// memory is a running job's memory in use and its declaration.
func memory(r running.Job) string {
	if len(r.Job.Grant.GPUs) == 0 {
		return "cpu job"
	}
	now := "n/a"
	if r.NowMiB >= 0 {
		now = fmt.Sprint(r.NowMiB)
	}
	if r.Job.VRAMMiB > 0 {
		return fmt.Sprintf("%s/%d MiB", now, r.Job.VRAMMiB)
	}
	return now + " MiB"
}

func utilText(pct float64) string {
	if pct < 0 {
		return ""
	}
	return fmt.Sprintf("  util %.0f%%", pct)
}

func foreignText(mib int64) string {
	if mib <= 0 {
		return ""
	}
	return fmt.Sprintf("  external %d MiB", mib)
}

func staleText(c sched.Card) string {
	switch {
	case c.Health != sched.HealthOK:
		return "  (" + c.Health.String() + ": " + c.HealthReason + ")"
	case c.Stale || c.HealthReason != "":
		return "  (" + c.HealthReason + ")"
	}
	return ""
}

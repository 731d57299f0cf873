package batch

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"berth/internal/engine"
	"berth/internal/job"
	"berth/internal/reason"
	"berth/internal/sched"
	"berth/internal/text"
)

// The board shows everything that runs and the ends of what is long: a queue
// of 100,000 lines is counted, not listed.
const (
	boardPending = 100
	boardOver    = 100
)

// snapshot is what people are shown, taken in the engine's goroutine.
type snapshot struct {
	at      time.Time
	file    string
	tally   tally
	total   int
	cards   []sched.Card
	running []engine.Running
	pending []waiting
	over    []*job.Job // newest first, bounded
	paused  string     // why nothing starts at all
}

// waiting is a queued job with the reason it waits and when it is expected to
// start.
type waiting struct {
	job    *job.Job
	reason string
	story  *reason.Story // nil: it is held, or waits for a time or for other jobs
}

// board writes status.txt: whole or not at all, so that `watch cat` never
// sees half of it. What berth itself reads of it lies beside it.
type board struct {
	path    string
	last    []byte
	toldAt  time.Time // when status.json was written
	toldFor string    // and of which jobs it tells
}

func (b *board) write(s snapshot) error {
	if err := b.tell(s); err != nil {
		return err
	}
	text := renderBoard(s)
	if bytes.Equal(text[bytes.IndexByte(text, '\n'):], b.last) {
		return nil // nothing but the time has changed
	}
	if err := replace(b.path, text); err != nil {
		return err
	}
	b.last = bytes.Clone(text[bytes.IndexByte(text, '\n'):])
	return nil
}

// replace writes a file whole or not at all.
func replace(path string, data []byte) error {
	temporary := path + ".new"
	if err := os.WriteFile(temporary, data, 0o644); err != nil {
		return fmt.Errorf("write status board: %w", err)
	}
	if err := os.Rename(temporary, path); err != nil {
		return fmt.Errorf("write status board: %w", err)
	}
	return nil
}

func renderBoard(s snapshot) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s · %s\n", text.Line(filepath.Base(s.file)), s.at.Local().Format("2006-01-02 15:04:05"))
	fmt.Fprintf(&b, "%d/%d done: %s\n\n", s.tally.done(), s.total, s.tally)
	for _, c := range s.cards {
		fmt.Fprintf(&b, "gpu%-2d %6d / %d MiB used%s%s%s\n", c.Index, c.UsedMiB, c.TotalMiB, utilText(c.UtilPct), foreignText(c.ForeignMiB), staleText(c))
	}
	if s.paused != "" {
		fmt.Fprintf(&b, "nothing starts: %s\n", text.Line(s.paused))
	}
	b.WriteByte('\n')
	for _, r := range s.running {
		fmt.Fprintf(&b, "▶ %s  %s  %s  %s — %s\n", label(r.Job), where(r.Job), text.Clock(s.at.Sub(r.Job.StartedAt)), memory(r), text.Line(r.Job.Spec.Command()))
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
	for _, j := range s.over {
		mark := "✗"
		if j.Outcome == job.OK {
			mark = "✓"
		}
		fmt.Fprintf(&b, "%s %s  %s", mark, label(j), j.Outcome)
		if !j.StartedAt.IsZero() {
			fmt.Fprintf(&b, "  %s", text.Seconds(j.EndedAt.Sub(j.StartedAt)))
		}
		fmt.Fprintf(&b, " — %s\n", text.Line(j.Spec.Command()))
	}
	if rest := s.tally.done() - len(s.over); rest > 0 {
		fmt.Fprintf(&b, "  and %d more that are over\n", rest)
	}
	return b.Bytes()
}

// memory is a running job's use against its declaration.
func memory(r engine.Running) string {
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
	return fmt.Sprintf("  foreign %d MiB", mib)
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

package cli

import (
	"fmt"
	"strings"
	"time"

	"berth/internal/api"
	"berth/internal/cli/render"
	"berth/internal/job"
	"berth/internal/job/reason"
	"berth/internal/text"
)

// whyLine says in one line why a job waits and when it should start, or how it
// ended.
func whyLine(why *api.Why) string {
	if why.State != string(job.Running) {
		return why.Story.String()
	}
	if end := why.Expected.End(); end != "" {
		return why.Text + "; " + end
	}
	return why.Text
}

// tellStory prints everything known about a waiting job.
func tellStory(s render.Screen, why *api.Why, now time.Time) error {
	title := fmt.Sprintf("%s  %s", s.Painted(text.Bold, text.Line("job "+why.ID)), s.Painted(render.StatePaint(job.Queued), positionText(why)))
	if _, err := fmt.Fprintln(s.Out, title); err != nil {
		return err
	}
	f := &render.Facts{}
	f.Add("reason", why.Text)
	if why.PreemptedFor != "" {
		f.Add("preempted", "for job "+why.PreemptedFor)
	}
	f.Add("needs", why.Needs)
	if !why.Since.IsZero() {
		f.Add("waiting since", fmt.Sprintf("%s (%s)", render.Moment(why.Since, now), text.Span(now.Sub(why.Since))))
	}
	if b := why.Behind; b != nil {
		words := b.String() + ": " + b.Because
		if b.Kept {
			words += "; GPUs are reserved for it"
		}
		f.Add("behind", words)
	}
	f.Add("reserved", why.Kept.Words(now))
	f.Add("preempts", victimsText(why.Victims))
	f.Add("room", why.Leaves.Words(now))
	f.Add("parking", why.Unparked())
	f.Add("overtaking", why.Overtaking(now))
	f.Add("starts", why.Forecast().Start())
	f.Add("run time", render.RunWords(why.ExpectedRun))
	f.Add("VRAM", render.VRAMWords(why.ExpectedVRAM))
	for _, note := range why.Notes {
		f.Add("note", note)
	}
	if err := f.Tell(s); err != nil || len(why.Cards) == 0 {
		return err
	}
	return tellCards(s, why.Cards, now)
}

func positionText(why *api.Why) string {
	if why.Position == 0 {
		return "queued"
	}
	return fmt.Sprintf("position %s of %s in the queue", text.Grouped(why.Position), text.Grouped(why.Queued))
}

// victimsText names the jobs that are preempted for this one.
func victimsText(jobs []string) string {
	names := make([]string, len(jobs))
	for i, id := range jobs {
		names[i] = reason.Holder{ID: id}.String()
	}
	return text.Some(names, maxRunsShown)
}

// maxRunsShown bounds the jobs listed per GPU.
const maxRunsShown = 8

// tellCards says for each GPU what is missing and which jobs are on it.
func tellCards(s render.Screen, cards []reason.CardStory, now time.Time) error {
	fmt.Fprintln(s.Out)
	widest := 0
	for _, g := range cards {
		widest = max(widest, len(fmt.Sprint("gpu", g.GPU)))
	}
	for _, g := range cards {
		colour := text.Yellow
		if g.Fits {
			colour = text.Green
		}
		name := fmt.Sprintf("%-*s", widest, fmt.Sprint("gpu", g.GPU))
		if err := render.Hang(s, s.Painted(text.Dim, name), widest+text.Gap, colour, text.Line(g.What)); err != nil {
			return err
		}
		for i, r := range g.Runs {
			if i == maxRunsShown {
				more := fmt.Sprintf("and %d more", len(g.Runs)-i)
				if err := render.Hang(s, strings.Repeat(" ", widest), widest+text.Gap, text.Plain, more); err != nil {
					return err
				}
				break
			}
			if err := render.Hang(s, strings.Repeat(" ", widest), widest+text.Gap, text.Plain, text.Line(r.Words(now))); err != nil {
				return err
			}
		}
	}
	return nil
}

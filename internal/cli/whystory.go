package cli

import (
	"fmt"
	"strings"
	"time"

	"berth/internal/api"
	"berth/internal/job"
	"berth/internal/reason"
	"berth/internal/text"
)

// whyLine is why a job waits and when it is expected to start, or what became of
// it, in one line.
func whyLine(why *api.Why) string {
	if why.State != string(job.Running) {
		return why.Story.String()
	}
	if end := why.Expected.End(); end != "" {
		return why.Text + "; " + end
	}
	return why.Text
}

// tellStory is everything there is to say of a job that waits.
func tellStory(s screen, why *api.Why, now time.Time) error {
	title := fmt.Sprintf("%s  %s", s.painted(text.Bold, text.Line("job "+why.ID)), s.painted(stateCell(job.Queued).Paint, whyStanding(why)))
	if _, err := fmt.Fprintln(s.out, title); err != nil {
		return err
	}
	f := &facts{}
	f.add("reason", why.Text)
	if why.PreemptedFor != "" {
		f.add("preempted", "for job "+why.PreemptedFor)
	}
	f.add("needs", why.Needs)
	if !why.Since.IsZero() {
		f.add("waits since", fmt.Sprintf("%s (%s)", moment(why.Since, now), text.Span(now.Sub(why.Since))))
	}
	if b := why.Behind; b != nil {
		words := b.String() + ": " + b.Because
		if b.Kept {
			words += "; GPUs are reserved for it"
		}
		f.add("behind", words)
	}
	f.add("reserved", why.Kept.Words(now))
	f.add("victims", victimWords(why.Victims))
	f.add("overtaking", why.Overtaking(now))
	f.add("starts", why.Forecast().Start())
	f.add("runs for", runWords(why.ExpectedRun))
	f.add("uses", vramWords(why.ExpectedVRAM))
	for _, note := range why.Notes {
		f.add("note", note)
	}
	if err := f.tell(s); err != nil || len(why.Cards) == 0 {
		return err
	}
	return tellCards(s, why.Cards, now)
}

func whyStanding(why *api.Why) string {
	if why.Position == 0 {
		return "queued"
	}
	return fmt.Sprintf("number %s of %s in the queue", text.Grouped(why.Position), text.Grouped(why.Queued))
}

// victimWords names the jobs that are being preempted.
func victimWords(jobs []string) string {
	names := make([]string, len(jobs))
	for i, id := range jobs {
		names[i] = reason.Holder{ID: id}.String()
	}
	return text.Some(names, maxRunsTold)
}

// maxRunsTold bounds what is told of a card that many share.
const maxRunsTold = 8

// tellCards says of each card what is missing and who holds it.
func tellCards(s screen, cards []reason.CardStory, now time.Time) error {
	fmt.Fprintln(s.out)
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
		if err := hang(s, s.painted(text.Dim, name), widest+text.Gap, colour, text.Line(g.What)); err != nil {
			return err
		}
		for i, r := range g.Runs {
			if i == maxRunsTold {
				more := fmt.Sprintf("and %d more", len(g.Runs)-i)
				if err := hang(s, strings.Repeat(" ", widest), widest+text.Gap, text.Plain, more); err != nil {
					return err
				}
				break
			}
			if err := hang(s, strings.Repeat(" ", widest), widest+text.Gap, text.Plain, text.Line(r.Words(now))); err != nil {
				return err
			}
		}
	}
	return nil
}

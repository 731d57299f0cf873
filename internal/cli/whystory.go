package cli

import (
	"fmt"
	"strings"
	"time"

	"berth/internal/api"
	"berth/internal/job"
	"berth/internal/reason"
)

// whyLine is why a job waits and when it is expected to start, or what became of
// it, in one line.
func whyLine(why *api.Why) string {
	if why.State == string(job.Running) {
		return why.Text + endWords(why.Expected)
	}
	f := forecastOf(why)
	line := reason.Line(why.Text, why.Needs, behindOf(why.Behind), f) + reason.Passed(local(why.OldestSince), boundOf(why), f)
	if why.AsideFor != "" && !strings.HasPrefix(line, "set aside") {
		line = "set aside for job " + why.AsideFor + "; " + line
	}
	return line
}

func behindOf(b *api.WhyBehind) *reason.Behind {
	if b == nil {
		return nil
	}
	return &reason.Behind{Job: b.ID, User: b.User, Priority: b.Priority, First: reason.First(b.First)}
}

// forecastOf is what is expected, in the times of whoever reads it.
func forecastOf(why *api.Why) reason.Forecast {
	f := reason.Forecast{None: reason.NoForecast(why.NoStart)}
	e := why.Expected
	if e == nil {
		if f.None == "" {
			f.None = reason.NoneNotQueued // nothing is known, so nothing is said
		}
		return f
	}
	f.Now, f.Low, f.Mid, f.High, f.Beyond = e.At.Local(), e.Low.Local(), local(e.Mid), local(e.High), e.Beyond
	f.Rests = reason.Basis{Running: e.Running, InFront: e.InFront, Limit: e.Limit, History: e.History, Unknown: e.Unknown}
	return f
}

func local(t *time.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.Local()
}

// endWords is when a running job is expected to be over.
func endWords(e *api.Expected) string {
	if e == nil || e.High == nil {
		return ""
	}
	return "; expected to end " + between(e.Low, *e.High, e.At) + ", " + reason.Basis{Limit: e.Limit, History: e.History}.String()
}

// between writes a stretch of time; what has begun is not said to begin.
func between(low, high, now time.Time) string {
	if !low.After(now) {
		return "by " + hourOf(high, now)
	}
	if a, b := hourOf(low, now), hourOf(high, now); a != b {
		return "between " + a + " and " + b
	}
	return "about " + hourOf(high, now)
}

// hourOf writes a time of day to the minute, with its date where that is not
// today's.
func hourOf(t, now time.Time) string {
	t, now = t.Local(), now.Local()
	if t.Year() == now.Year() && t.YearDay() == now.YearDay() {
		if t.Sub(now) < 10*time.Minute {
			return t.Format(time.TimeOnly)
		}
		return t.Format("15:04")
	}
	return t.Format("2006-01-02 15:04")
}

// tellStory is everything there is to say of a job that waits.
func tellStory(s screen, why *api.Why, now time.Time) error {
	title := fmt.Sprintf("%s  %s", s.painted(bold, printable("job "+why.ID)), s.painted(stateCell(job.Queued).paint, whyStanding(why)))
	if _, err := fmt.Fprintln(s.out, title); err != nil {
		return err
	}
	f := &facts{}
	f.add("reason", why.Text)
	if why.AsideFor != "" {
		f.add("set aside", "for job "+why.AsideFor)
	}
	f.add("needs", why.Needs)
	if why.Since != nil {
		f.add("waits since", fmt.Sprintf("%s (%s)", moment(*why.Since, now), span(now.Sub(*why.Since))))
	}
	if b := why.Behind; b != nil {
		text := behindOf(b).String() + ": " + b.Because
		if b.Kept {
			text += "; cards are kept for it"
		}
		f.add("behind", text)
	}
	f.add("kept for it", keptWords(why.Kept, now))
	if len(why.GivesWay) > 0 {
		f.add("gives way", givesWayWords(why.GivesWay))
	}
	f.add("passed", passedWords(why, now))
	f.add("starts", strings.TrimPrefix(forecastOf(why).String(), "expected to start "))
	f.add("runs for", runWords(why.ExpectedRun))
	f.add("uses", vramWords(why.ExpectedVRAM))
	for _, note := range why.Notes {
		f.add("note", note)
	}
	if err := f.tell(s); err != nil || len(why.GPUs) == 0 {
		return err
	}
	return tellCards(s, why.GPUs, now)
}

func whyStanding(why *api.Why) string {
	if why.Position == 0 {
		return "queued"
	}
	return fmt.Sprintf("number %s of %s in the queue", grouped(why.Position), grouped(why.Queued))
}

// givesWayWords names those that are set aside.
func givesWayWords(jobs []string) string {
	named := jobs[:min(len(jobs), maxRunsTold)]
	text := "job " + strings.Join(named, ", job ")
	if more := len(jobs) - len(named); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// keptWords is what is kept for a job, and for when.
func keptWords(k *api.WhyKept, now time.Time) string {
	if k == nil {
		return ""
	}
	what := "its share of the host"
	if len(k.GPUs) > 0 {
		what = "gpu " + cards(k.GPUs)
	}
	text := what + ", from about " + hourOf(k.At, now)
	if !k.At.After(now) {
		text = what + ", from now"
	}
	if k.Hard {
		text += "; nothing starts there that may run for longer"
	}
	return text
}

// passedWords is the bound on how long others may go first.
func passedWords(why *api.Why, now time.Time) string {
	if why.MaxBypassS <= 0 {
		return ""
	}
	bound := boundOf(why)
	if why.OldestSince == nil {
		return "for " + reason.Hours(bound) + " at most, counted once it is its user's oldest"
	}
	over, until := now.Sub(*why.OldestSince), why.OldestSince.Add(bound)
	if over >= bound {
		return "for " + reason.Hours(bound) + ", the most there is: it goes first now"
	}
	return fmt.Sprintf("for %s in all, %s so far; it goes first from %s on", reason.Hours(bound), reason.Hours(max(0, over)), hourOf(until, now))
}

// boundOf is how long others may go before the job.
func boundOf(why *api.Why) time.Duration {
	return time.Duration(why.MaxBypassS * float64(time.Second))
}

// maxRunsTold bounds what is told of a card that many share.
const maxRunsTold = 8

// tellCards says of each card what is missing and who holds it.
func tellCards(s screen, gpus []api.WhyGPU, now time.Time) error {
	fmt.Fprintln(s.out)
	widest := 0
	for _, g := range gpus {
		widest = max(widest, len(fmt.Sprint("gpu", g.GPU)))
	}
	for _, g := range gpus {
		colour := yellow
		if g.Fits {
			colour = green
		}
		name := fmt.Sprintf("%-*s", widest, fmt.Sprint("gpu", g.GPU))
		if err := hang(s, s.painted(dim, name), widest+gap, colour, printable(g.What)); err != nil {
			return err
		}
		for i, r := range g.Runs {
			if i == maxRunsTold {
				more := fmt.Sprintf("and %d more", len(g.Runs)-i)
				if err := hang(s, strings.Repeat(" ", widest), widest+gap, plain, more); err != nil {
					return err
				}
				break
			}
			if err := hang(s, strings.Repeat(" ", widest), widest+gap, plain, printable(runText(&r, now))); err != nil {
				return err
			}
		}
	}
	return nil
}

// runText is a run on a card: whose, with how much of it, since when and for how
// long.
func runText(r *api.WhyRun, now time.Time) string {
	name := "job " + r.ID
	if r.Other {
		name = "another berth's job " + r.ID
	}
	if r.User != "" {
		name += " (" + r.User + ")"
	}
	parts := []string{name}
	switch {
	case r.Alone:
		parts = append(parts, "alone")
	case r.Share > 0:
		parts = append(parts, fmt.Sprintf("share %.3g", r.Share))
	case r.BudgetMiB > 0:
		parts = append(parts, fmt.Sprintf("%d MiB", r.BudgetMiB))
	}
	if r.Since != nil {
		parts = append(parts, "since "+moment(*r.Since, now))
	}
	return strings.Join(append(parts, endOf(r, now)), ", ")
}

func endOf(r *api.WhyRun, now time.Time) string {
	switch {
	case r.LeavesFor != "":
		return "being set aside for job " + r.LeavesFor
	case r.High != nil && r.Low != nil:
		source := "from what ran before"
		if r.By == "limit" {
			source = "from its time limit"
		}
		return "ends " + between(*r.Low, *r.High, now) + " (" + source + ")"
	case r.Mid != nil:
		return "ends about " + hourOf(*r.Mid, now) + " if it takes as long again"
	}
	return "nothing is known of its end"
}

package cli

import (
	"fmt"
	"strings"

	"berth/internal/api"
	"berth/internal/cli/session"
	"berth/internal/text"
)

// runWords is the estimated run time of a job, and the source of the estimate.
func runWords(g *api.RunGuess) string {
	if g == nil {
		return ""
	}
	low, mid, high := text.OfSeconds(g.LowS), text.OfSeconds(g.MidS), text.OfSeconds(g.HighS)
	if text.Span(low) == text.Span(high) {
		return "about " + text.Span(mid) + ", " + estimatedFrom(g.Source, g.Runs, g.Longer)
	}
	return fmt.Sprintf("%s, about %s, %s", stretch(text.Span(low), text.Span(high), low > 0), text.Span(mid), estimatedFrom(g.Source, g.Runs, g.Longer))
}

// vramWords is the estimated peak memory of a job on each GPU.
func vramWords(g *api.VRAMGuess) string {
	if g == nil {
		return ""
	}
	return fmt.Sprintf("%s GiB on each GPU, %s", stretch(text.GiB(g.LowMiB), text.GiB(g.HighMiB), g.LowMiB > 0), estimatedFrom(g.Source, g.Runs, false))
}

// stretch writes an interval; without a lower bound, only its end.
func stretch(low, high string, bounded bool) string {
	switch {
	case !bounded:
		return "at most " + high
	case low == high:
		return low
	}
	return low + " to " + high
}

// estimatedFrom names the source of an estimate: whose runs, and how many. Those
// of other commands make it a guess. longer means that shorter runs do not count,
// because the job has run longer than they did.
func estimatedFrom(source string, runs int, longer bool) string {
	which := ""
	if longer {
		which = " that took longer"
	}
	switch source {
	case "command":
		return "from " + text.CountGrouped(runs, "earlier run") + " with the same arguments" + which
	case "program":
		return "a guess from " + text.CountGrouped(runs, "run") + " of this program with other arguments" + which
	case "user":
		if runs == 1 {
			return "a guess from another job of the user" + which
		}
		return "a guess from the user's last " + text.CountGrouped(runs, "job") + which
	case "limit":
		return "from its time limit only"
	}
	return "without a better source"
}

// tell draws facts whose values are sentences, which may wrap. A command or a
// path must not.
func (f *facts) tell(s session.Screen) error {
	widest := 0
	for _, name := range f.names {
		widest = max(widest, text.Width(name))
	}
	for i, name := range f.names {
		lead := s.Painted(text.Dim, name) + strings.Repeat(" ", widest-text.Width(name))
		if err := hang(s, lead, widest+text.Gap, text.Plain, f.values[i]); err != nil {
			return err
		}
	}
	return nil
}

// hang writes a label and a text, which wraps with a hanging indent on a narrow
// screen.
func hang(s session.Screen, name string, indent int, p text.Paint, written string) error {
	lines := []string{written}
	if s.Width > indent+minText {
		lines = text.Wrap(written, s.Width-indent)
	}
	for i, line := range lines {
		lead := name + strings.Repeat(" ", text.Gap)
		if i > 0 {
			lead = strings.Repeat(" ", indent)
		}
		if _, err := fmt.Fprintf(s.Out, "%s%s\n", lead, s.Painted(p, line)); err != nil {
			return err
		}
	}
	return nil
}

// minText is the narrowest column in which text is wrapped.
const minText = 20

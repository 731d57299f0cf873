package render

import (
	"fmt"

	"berth/internal/api"
	"berth/internal/text"
)

// RunWords is the estimated run time of a job, and the source of the estimate.
func RunWords(g *api.RunGuess) string {
	if g == nil {
		return ""
	}
	low, mid, high := text.OfSeconds(g.LowS), text.OfSeconds(g.MidS), text.OfSeconds(g.HighS)
	if text.Span(low) == text.Span(high) {
		return "about " + text.Span(mid) + ", " + estimatedFrom(g.Source, g.Runs, g.Longer)
	}
	return fmt.Sprintf("%s, about %s, %s", stretch(text.Span(low), text.Span(high), low > 0), text.Span(mid), estimatedFrom(g.Source, g.Runs, g.Longer))
}

// VRAMWords is the estimated peak memory of a job on each GPU.
func VRAMWords(g *api.VRAMGuess) string {
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

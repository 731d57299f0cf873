package cli

import (
	"fmt"
	"strings"
	"time"

	"berth/internal/api"
)

// runWords is how long a job is expected to run, and on what that rests. It is
// an expectation and reads like one.
func runWords(g *api.RunGuess) string {
	if g == nil {
		return ""
	}
	low, mid, high := seconds(g.LowS), seconds(g.MidS), seconds(g.HighS)
	if span(low) == span(high) {
		return "about " + span(mid) + ", " + guessedFrom(g.Source, g.Runs)
	}
	return fmt.Sprintf("%s, about %s, %s", stretch(span(low), span(high), low > 0), span(mid), guessedFrom(g.Source, g.Runs))
}

// vramWords is what a job is expected to use on each of its cards.
func vramWords(g *api.VRAMGuess) string {
	if g == nil {
		return ""
	}
	return fmt.Sprintf("%s GiB on each GPU, %s", stretch(gib(g.LowMiB), gib(g.HighMiB), g.LowMiB > 0), guessedFrom(g.Source, g.Runs))
}

// stretch writes an interval; one from nothing has an end alone.
func stretch(low, high string, bounded bool) string {
	switch {
	case !bounded:
		return "at most " + high
	case low == high:
		return low
	}
	return low + " to " + high
}

// guessedFrom says what a guess rests on.
func guessedFrom(source string, runs int) string {
	switch source {
	case "command":
		return "from " + plural(runs, "earlier run") + " of the same command"
	case "user":
		if runs == 1 {
			return "from the user's last job"
		}
		return "from the user's last " + plural(runs, "job")
	case "limit":
		return "from its time limit alone"
	}
	return "from nothing better"
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// tell draws facts whose values are sentences: they are broken between words,
// which a command or a path must not be.
func (f *facts) tell(s screen) error {
	widest := 0
	for _, name := range f.names {
		widest = max(widest, columnsOf(name))
	}
	for i, name := range f.names {
		lead := s.painted(dim, name) + strings.Repeat(" ", widest-columnsOf(name))
		if err := hang(s, lead, widest+gap, plain, f.values[i]); err != nil {
			return err
		}
	}
	return nil
}

// hang writes a text behind a name, its further lines below one another where
// the screen is too narrow for one.
func hang(s screen, name string, indent int, p paint, text string) error {
	lines := []string{text}
	if s.width > indent+minText {
		lines = wordLines(text, s.width-indent)
	}
	for i, line := range lines {
		lead := name + strings.Repeat(" ", gap)
		if i > 0 {
			lead = strings.Repeat(" ", indent)
		}
		if _, err := fmt.Fprintf(s.out, "%s%s\n", lead, s.painted(p, line)); err != nil {
			return err
		}
	}
	return nil
}

// minText is the narrowest column in which text is broken into lines: words
// would be torn apart in less.
const minText = 20

// wordLines breaks a text between words. A word that is too long has a line of its
// own, and is as long as it is.
func wordLines(text string, columns int) []string {
	var lines []string
	line, used := "", 0
	for word := range strings.FieldsSeq(text) {
		width := columnsOf(word)
		if used > 0 && used+1+width > columns {
			lines = append(lines, line)
			line, used = "", 0
		}
		if used > 0 {
			line, used = line+" ", used+1
		}
		line, used = line+word, used+width
	}
	return append(lines, line)
}

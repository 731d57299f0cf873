package cli

import (
	"io"
	"strconv"

	"berth/internal/text"
)

// screen is where a verb writes. What is known of it decides how much fits.
type screen struct {
	out      io.Writer
	width    int // columns; 0: as many as it takes
	height   int
	terminal bool
	colour   bool
}

// newScreen asks the terminal for its size. Where the output goes elsewhere
// nothing is cut, unless COLUMNS says how wide it is to be.
func newScreen(out io.Writer, noColour bool, getenv func(string) string) screen {
	s := screen{out: out, terminal: stdoutIsTerminal(out)}
	if s.terminal {
		s.width, s.height = terminalSize(out)
		s.colour = !noColour && getenv("NO_COLOR") == ""
		return s
	}
	const narrowest, widest = 20, 10_000
	if columns, err := strconv.Atoi(getenv("COLUMNS")); err == nil && columns >= narrowest && columns <= widest {
		s.width = columns
	}
	return s
}

// painted puts words in a colour, where there are colours.
func (s screen) painted(p text.Paint, words string) string {
	if !s.colour {
		return words
	}
	return p.On(words)
}

// draw writes a table as wide as the screen is.
func (s screen) draw(t *text.Table) error {
	_, err := io.WriteString(s.out, t.Draw(s.width, s.colour))
	return err
}

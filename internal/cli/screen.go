package cli

import (
	"io"
	"strconv"

	"berth/internal/text"
)

// screen is where a verb writes, and how much fits there.
type screen struct {
	out      io.Writer
	width    int // columns; 0: unlimited
	height   int
	terminal bool
	colour   bool
}

// newScreen asks the terminal for its size. Output to a pipe or a file is not
// cut, unless COLUMNS gives a width.
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

// painted colours words, if the screen has colours.
func (s screen) painted(p text.Paint, words string) string {
	if !s.colour {
		return words
	}
	return p.On(words)
}

// draw writes a table that fits the screen.
func (s screen) draw(t *text.Table) error {
	_, err := io.WriteString(s.out, t.Draw(s.width, s.colour))
	return err
}

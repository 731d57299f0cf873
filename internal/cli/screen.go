package cli

import (
	"io"
	"strconv"
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

// paint is a colour of the terminal.
type paint string

const (
	plain  paint = ""
	bold   paint = "1"
	dim    paint = "2"
	red    paint = "31"
	green  paint = "32"
	yellow paint = "33"
	blue   paint = "34"
)

// painted puts text in a colour, where there are colours.
func (s screen) painted(p paint, text string) string {
	if !s.colour || p == plain || text == "" {
		return text
	}
	return "\x1b[" + string(p) + "m" + text + "\x1b[0m"
}

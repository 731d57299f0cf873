package render

import (
	"io"
	"strconv"

	"berth/internal/text"
)

// Screen is where a verb writes, and how much fits there.
type Screen struct {
	Out      io.Writer
	Width    int // columns; 0: unlimited
	Height   int
	Terminal bool
	Colour   bool
}

// NewScreen asks the terminal for its size. Output to a pipe or a file is not
// cut, unless COLUMNS gives a width.
func NewScreen(out io.Writer, noColour bool, getenv func(string) string) Screen {
	s := Screen{Out: out, Terminal: StdoutIsTerminal(out)}
	if s.Terminal {
		s.Width, s.Height = TerminalSize(out)
		s.Colour = !noColour && getenv("NO_COLOR") == ""
		return s
	}
	const narrowest, widest = 20, 10_000
	if columns, err := strconv.Atoi(getenv("COLUMNS")); err == nil && columns >= narrowest && columns <= widest {
		s.Width = columns
	}
	return s
}

// Painted colours words, if the screen has colours.
func (s Screen) Painted(p text.Paint, words string) string {
	if !s.Colour {
		return words
	}
	return p.On(words)
}

// Fit cuts a line to the screen.
func (s Screen) Fit(line string) string {
	if s.Width == 0 {
		return line
	}
	return text.Cut(line, s.Width)
}

// Draw writes a table that fits the screen.
func (s Screen) Draw(t *text.Table) error {
	_, err := io.WriteString(s.Out, t.Draw(s.Width, s.Colour))
	return err
}

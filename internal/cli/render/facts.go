package render

import (
	"fmt"
	"strings"

	"berth/internal/text"
)

// Facts is a block of labelled values, one per line.
type Facts struct {
	names, values []string
}

// Add skips an empty value.
func (f *Facts) Add(name, value string) {
	if value != "" {
		f.names = append(f.names, name)
		f.values = append(f.values, text.Line(value))
	}
}

func (f *Facts) Draw(s Screen) error {
	widest := 0
	for _, name := range f.names {
		widest = max(widest, text.Width(name))
	}
	for i, name := range f.names {
		blanks := strings.Repeat(" ", widest-text.Width(name)+text.Gap)
		if _, err := fmt.Fprintf(s.Out, "%s%s%s\n", s.Painted(text.Dim, name), blanks, f.values[i]); err != nil {
			return err
		}
	}
	return nil
}

// Tell draws facts whose values are sentences, which may wrap. A command or a
// path must not.
func (f *Facts) Tell(s Screen) error {
	widest := 0
	for _, name := range f.names {
		widest = max(widest, text.Width(name))
	}
	for i, name := range f.names {
		lead := s.Painted(text.Dim, name) + strings.Repeat(" ", widest-text.Width(name))
		if err := Hang(s, lead, widest+text.Gap, text.Plain, f.values[i]); err != nil {
			return err
		}
	}
	return nil
}

// Hang writes a label and a text, which wraps with a hanging indent on a narrow
// screen.
func Hang(s Screen, name string, indent int, p text.Paint, written string) error {
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

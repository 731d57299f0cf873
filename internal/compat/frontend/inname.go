package frontend

import (
	"bytes"
	"io"
	"strings"
)

// Renamed passes lines on in the name of the program that berth stands in
// for: what complains is that program, and what is to be typed is its name.
type Renamed struct {
	out   io.Writer
	name  string
	typed *strings.Replacer // berth's commands, as that program has them
	rest  []byte            // of a line whose end has not come yet
}

// InItsName is where berth says, under that name, what goes to w. typed are
// pairs: a command of berth's, and the same one of the program's.
func InItsName(w io.Writer, name string, typed ...string) *Renamed {
	return &Renamed{out: w, name: name, typed: strings.NewReplacer(typed...)}
}

func (w *Renamed) Write(p []byte) (int, error) {
	w.rest = append(w.rest, p...)
	for {
		end := bytes.IndexByte(w.rest, '\n') + 1
		if end == 0 {
			return len(p), nil
		}
		line := w.rest[:end]
		w.rest = w.rest[end:]
		if _, err := w.out.Write(w.rename(line)); err != nil {
			return len(p), err
		}
	}
}

// Flush passes on a last line that has no end.
func (w *Renamed) Flush() {
	if len(w.rest) > 0 {
		_, _ = w.out.Write(w.rename(w.rest)) // there is nowhere left to say so
		w.rest = nil
	}
}

func (w *Renamed) rename(line []byte) []byte {
	if rest, found := bytes.CutPrefix(line, []byte("berth: ")); found {
		line = append([]byte(w.name+": "), rest...)
	}
	return []byte(w.typed.Replace(string(line)))
}

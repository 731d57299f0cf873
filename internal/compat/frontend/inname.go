package frontend

import (
	"bytes"
	"io"
	"strings"
)

// Renamed passes on berth's lines under another program's name: complaints begin
// with that name, and commands in hints are that program's.
type Renamed struct {
	out   io.Writer
	name  string
	typed *strings.Replacer // berth's commands to that program's
	rest  []byte            // the incomplete last line
}

// InItsName is a writer that renames berth's output and passes it to w. typed are
// pairs: a command of berth's, and the program's equivalent.
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

// Flush passes on a last line without a newline.
func (w *Renamed) Flush() {
	if len(w.rest) > 0 {
		_, _ = w.out.Write(w.rename(w.rest)) // there is nowhere to report it
		w.rest = nil
	}
}

func (w *Renamed) rename(line []byte) []byte {
	if rest, found := bytes.CutPrefix(line, []byte("berth: ")); found {
		line = append([]byte(w.name+": "), rest...)
	}
	return []byte(w.typed.Replace(string(line)))
}

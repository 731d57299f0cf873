package frontend

import (
	"bytes"
	"cmp"
	"io"
	"strings"
)

// Lines passes on what is written to it, line by line.
type Lines struct {
	Each func(line []byte) error // with its end, if it has one
	Ends string                  // the bytes that end a line; empty: \n
	Most int                     // bytes of a line that are kept until its end; 0: no bound
	rest []byte
}

func (l *Lines) Write(p []byte) (int, error) {
	l.rest = append(l.rest, p...)
	for {
		end := bytes.IndexAny(l.rest, cmp.Or(l.Ends, "\n")) + 1
		if end == 0 && (len(l.rest) == 0 || l.Most == 0 || len(l.rest) < l.Most) {
			return len(p), nil
		}
		end = cmp.Or(end, len(l.rest))
		line := l.rest[:end]
		l.rest = l.rest[end:]
		if err := l.Each(line); err != nil {
			return len(p), err
		}
	}
}

// Flush passes on a last line that has no end, with this one.
func (l *Lines) Flush(end string) {
	if len(l.rest) > 0 {
		_ = l.Each(append(l.rest, end...)) // there is nowhere to report it
		l.rest = nil
	}
}

// InItsName passes on berth's lines under another program's name: complaints begin
// with that name. typed are pairs: a command of berth's in a hint, and the program's
// equivalent.
func InItsName(w io.Writer, name string, typed ...string) *Lines {
	commands := strings.NewReplacer(typed...)
	return &Lines{Each: func(line []byte) error {
		if rest, found := bytes.CutPrefix(line, []byte("berth: ")); found {
			line = append([]byte(name+": "), rest...)
		}
		_, err := commands.WriteString(w, string(line))
		return err
	}}
}

// Verb runs a command line of berth in the program's name.
func (c *Call) Verb(out io.Writer, args []string, typed ...string) int {
	errOut := InItsName(c.Err, c.Name, typed...)
	defer errOut.Flush("")
	return c.Berth(args, out, errOut)
}

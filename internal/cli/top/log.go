package top

import (
	"bytes"
	"strings"

	"berth/internal/text"
)

// logView is the end of a job's log, in lines.
type logView struct {
	lines  []string
	open   bool   // the last line has no end yet
	raw    []byte // of the open line
	note   string // why there is no more
	back   int    // lines between the last one and the last that is shown
	search string
}

var colours = text.Pattern("\x1b\\[[0-9;:]*m")

// add takes more of the log. A carriage return begins a line anew, as progress
// bars do.
func (l *logView) add(data []byte) {
	for len(data) > 0 {
		part, rest, ended := bytes.Cut(data, []byte{'\n'})
		if !l.open {
			l.lines, l.raw = append(l.lines, ""), nil
			if l.back > 0 && l.back < maxLogLines {
				l.back++ // what is being read stays in its place
			}
		}
		l.raw = append(l.raw, part...)
		l.raw = l.raw[max(0, len(l.raw)-maxLogLine):]
		l.lines[len(l.lines)-1] = shown(l.raw)
		l.open, data = !ended, rest
	}
	if n := len(l.lines); n > maxLogLines {
		l.lines = append([]string(nil), l.lines[n-maxLogLines:]...)
	}
}

// shown returns a line as a terminal would show it, without colours: a carriage
// return overwrites what is before it. What remains of control characters is replaced when it is drawn.
func shown(raw []byte) string {
	line := strings.TrimSuffix(string(raw), "\r")
	line = line[strings.LastIndexByte(line, '\r')+1:]
	line = colours().ReplaceAllString(line, "")
	return strings.ReplaceAll(line, "\t", "    ")
}

// next goes up to the next line with the searched words.
func (l *logView) next() {
	if l.search == "" {
		return
	}
	for back := l.back + 1; back < len(l.lines); back++ {
		if strings.Contains(l.lines[len(l.lines)-1-back], l.search) {
			l.back = back
			return
		}
	}
	for back := 0; back <= l.back && back < len(l.lines); back++ { // from the end again
		if strings.Contains(l.lines[len(l.lines)-1-back], l.search) {
			l.back = back
			return
		}
	}
}

// tail is the part that fits, before the lines that are scrolled away.
func (l *logView) tail(rows int) []string {
	end := max(0, len(l.lines)-l.back)
	return l.lines[max(0, end-rows):end]
}

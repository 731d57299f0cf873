package api

import (
	"fmt"
	"strconv"
)

// LogGap is what reading a log says where a part of it was taken out to keep
// it within its limit: what follows stands at Next. It is no end: the next
// read goes on there.
type LogGap struct{ From, Next int64 }

func (g *LogGap) Error() string {
	return fmt.Sprintf("%s bytes were dropped here to keep the log within its limit", grouped(g.Next-g.From))
}

// mark is the gap as a reader sees it: a line of its own, whatever stands
// before it.
func (g *LogGap) mark(inLine bool) string {
	line := "[berth: " + g.Error() + "]\n"
	if inLine {
		return "\n" + line
	}
	return line
}

// grouped writes a number as people read it: 6,291,456.
func grouped(n int64) string {
	digits := strconv.FormatInt(n, 10)
	for at := len(digits) - 3; at > 0 && digits[at-1] != '-'; at -= 3 {
		digits = digits[:at] + "," + digits[at:]
	}
	return digits
}

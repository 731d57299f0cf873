package api

import (
	"fmt"

	"berth/internal/text"
)

// LogGap is what reading a log says where a part of it was taken out to keep
// it within its limit: what follows stands at Next. It is no end: the next
// read goes on there.
type LogGap struct{ From, Next int64 }

func (g *LogGap) Error() string {
	return fmt.Sprintf("%s bytes were dropped here to keep the log within its limit", text.Grouped(g.Next-g.From))
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

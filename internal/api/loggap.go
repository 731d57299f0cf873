package api

import (
	"fmt"

	"berth/internal/text"
)

// LogGap is returned where a part of a log was dropped to keep it within its
// limit. The log continues at Next, with the next read.
type LogGap struct{ From, Next int64 }

func (g *LogGap) Error() string {
	return fmt.Sprintf("%s bytes were dropped here to keep the log within its limit", text.Grouped(g.Next-g.From))
}

// mark is the gap as a reader sees it: a line of its own.
func (g *LogGap) mark(inLine bool) string {
	line := "[berth: " + g.Error() + "]\n"
	if inLine {
		return "\n" + line
	}
	return line
}

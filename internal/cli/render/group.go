package render

import (
	"fmt"
	"strings"

	"berth/internal/api"
)

// GroupText is a group in one line.
func GroupText(g api.Group) string {
	parts := []string{"no limit"}
	if g.Limit != nil {
		parts[0] = fmt.Sprintf("limit %d", *g.Limit)
	}
	if g.Paused {
		parts = append(parts, "paused by "+g.PausedBy)
	}
	if g.Running+g.Queued == 0 {
		return strings.Join(append(parts, "no jobs"), ", ")
	}
	return strings.Join(append(parts, fmt.Sprintf("%d running", g.Running), fmt.Sprintf("%d queued", g.Queued)), ", ")
}

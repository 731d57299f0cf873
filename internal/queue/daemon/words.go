package daemon

import (
	"fmt"
	"strings"

	"berth/internal/queue/config"
	"berth/internal/queue/engine"
	"berth/internal/text/problem"
)

// Bounds on the text in the jobs of a request.
const (
	maxRequestBytes = 64 << 20
	maxDir          = 4096 // bytes, as in the kernel
	maxTerm         = 256
)

// roomFor says why a user's unfinished jobs cannot have that much more text and
// this environment; nil: there is room.
func roomFor(t *engine.Turn, cfg *config.Config, user string, more int, environ string) *problem.Problem {
	have := t.Jobs().Text(user, "")
	more += t.Jobs().Text(user, environ) - have
	if cfg.MaxText == 0 || more <= 0 || int64(have+more) <= cfg.MaxText {
		return nil
	}
	return problem.Newf(problem.TooMuch, "wait for some to end, or move text into a script", "your unfinished jobs have %d KiB of text and environments; %d KiB more would exceed the limit of %d MiB", have>>10, more>>10, cfg.MaxText>>20)
}

// listed is the first few of many ids.
func listed(ids []string) string {
	const most = 10
	if len(ids) <= most {
		return strings.Join(ids, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(ids[:most], ", "), len(ids)-most)
}

// actJobs and actBytes bound the jobs handled in one turn and their text, so that
// no turn and no commit takes long, and other requests come between two of them.
const (
	actJobs  = 250
	actBytes = 1 << 20
)

// orNil is a number that the driver reported, or nil for -1.
func orNil[T int | int64 | float64](value T) *T {
	if value < 0 {
		return nil
	}
	return &value
}

package daemon

import (
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

package cli

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"berth/internal/text/problem"
)

// watchInterval is how often --watch refreshes.
const watchInterval = time.Second

// watch redraws a view until it is interrupted.
func watch(ctx context.Context, s *session, draw func(screen) error) error {
	if !s.terminal {
		return problem.Newf(problem.Invalid, "leave --watch out, or read /v1/events of the API", "--watch needs a terminal")
	}
	tick := time.NewTicker(watchInterval)
	defer tick.Stop()
	for {
		var frame bytes.Buffer
		view := s.screen
		view.width, view.height = terminalSize(s.out)
		view.out = &frame
		if err := draw(view); err != nil {
			return err
		}
		// Each line is erased as it is overwritten: clearing the screen first
		// would flicker.
		text := bytes.ReplaceAll(frame.Bytes(), []byte("\n"), []byte("\x1b[K\r\n"))
		if _, err := fmt.Fprintf(s.out, "\x1b[H%s\x1b[J", text); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}

package session

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"berth/internal/cli/render"
	"berth/internal/text/problem"
)

// watchInterval is how often --watch refreshes.
const watchInterval = time.Second

// Watch redraws a view until it is interrupted.
func Watch(ctx context.Context, s *Session, draw func(render.Screen) error) error {
	if !s.Terminal {
		return problem.Newf(problem.Invalid, "leave --watch out, or read /v1/events of the API", "--watch needs a terminal")
	}
	tick := time.NewTicker(watchInterval)
	defer tick.Stop()
	for {
		var frame bytes.Buffer
		view := s.Screen
		view.Width, view.Height = render.TerminalSize(s.Out)
		view.Out = &frame
		if err := draw(view); err != nil {
			return err
		}
		// Each line is erased as it is overwritten: clearing the screen first
		// would flicker.
		text := bytes.ReplaceAll(frame.Bytes(), []byte("\n"), []byte("\x1b[K\r\n"))
		if _, err := fmt.Fprintf(s.Out, "\x1b[H%s\x1b[J", text); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}

package run

import (
	"errors"
	"fmt"
	"net"

	"berth/internal/keep"
)

// ErrNoTerminal is the answer where a job cannot be attached to.
var ErrNoTerminal = errors.New("the job has no terminal")

// Attach connects to the terminal of the job that a supervisor holds, an
// adopted one's too. The connection carries keep's frames: what was last shown
// and then what comes as FrameOutput, and FrameEnded as the last; FrameInput
// and FrameResize the other way. Closing it detaches.
func (r *Runner) Attach(token string) (*net.UnixConn, error) {
	r.mu.Lock()
	s := r.all[token]
	if s == nil || s.phase != running || s.dead {
		r.mu.Unlock()
		return nil, fmt.Errorf("supervisor %s: %w: it is not running", token, ErrNoTerminal)
	}
	pty, dir := s.pty && s.protocol >= keep.Protocol, s.dir
	r.mu.Unlock()
	if !pty {
		return nil, fmt.Errorf("supervisor %s: %w", token, ErrNoTerminal)
	}
	return knock(dir, token, keep.AttachFrame(0, 0))
}

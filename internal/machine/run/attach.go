package run

import (
	"errors"
	"fmt"
	"net"
	"path/filepath"

	"berth/internal/machine/keep"
)

// ErrNoTerminal means that a job cannot be attached to.
var ErrNoTerminal = errors.New("the job has no terminal")

// Attach connects to the terminal of a job under a supervisor, even an adopted
// one. By then the supervisor may hold another user's job; it then says so.
// The connection carries keep's frames: the latest screen and all further
// output as FrameOutput, and finally FrameEnded; FrameInput and FrameResize in
// the other direction. Closing it detaches.
func (r *Runner) Attach(token, job string) (*net.UnixConn, error) {
	r.set.mu.Lock()
	s := r.set.all[token]
	if s == nil || s.phase != running || s.dead || s.job != job {
		r.set.mu.Unlock()
		return nil, fmt.Errorf("supervisor %s: %w: it is not running", token, ErrNoTerminal)
	}
	pty, dir, attempt, started := s.pty && s.protocol >= keep.ProtocolTerminal, s.dir, s.attempt, s.identity.PID != 0
	r.set.mu.Unlock()
	switch {
	case !pty:
		return nil, fmt.Errorf("supervisor %s: %w", token, ErrNoTerminal)
	case !started:
		return nil, fmt.Errorf("supervisor %s: %w yet", token, ErrNoTerminal)
	}
	return dir.knock(keep.AttachTo(job, attempt))
}

// AttachIn is Attach for a process that is not the berth of these supervisors.
func AttachIn(keepDir, job string) (*net.UnixConn, error) {
	living, err := Living(keepDir)
	if err != nil {
		return nil, err
	}
	for _, found := range living {
		if found.Job == job {
			return directory(filepath.Join(keepDir, found.Token)).knock(keep.AttachTo(job, found.Attempt))
		}
	}
	return nil, fmt.Errorf("job %s: %w: it is not running", job, ErrNoTerminal)
}

package node

import (
	"context"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"berth/internal/queue/engine"
	"berth/internal/slurm"
)

const (
	// usualKillWait is how long Slurm waits between TERM and KILL, unless its
	// configuration says otherwise.
	usualKillWait = 30 * time.Second
	// mostAfterTerm bounds the time from TERM to the record.
	mostAfterTerm = 20 * time.Second
)

// stopping is Slurm's request to stop the job; the zero value: not yet.
type stopping struct {
	mu sync.Mutex
	at time.Time
	by os.Signal
}

// request notes the first one.
func (s *stopping) request(sig os.Signal) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.at.IsZero() {
		s.at, s.by = time.Now(), sig
	}
}

func (s *stopping) when() (at time.Time, by os.Signal) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.at, s.by
}

// overdue reports whether the record can wait no longer.
func (s *stopping) overdue(now time.Time) bool {
	at, _ := s.when()
	return !at.IsZero() && now.Sub(at) >= afterTerm()
}

// heed stops the job when Slurm asks for it: scancel, the time limit, a drain.
func (n *node) heed(ctx context.Context, signals <-chan os.Signal) {
	for {
		select {
		case <-ctx.Done():
			return
		case sig := <-signals:
			n.stop.request(sig)
			n.halt(ctx)
		}
	}
}

// halt stops the job, with as much of its grace period as Slurm leaves.
func (n *node) halt(ctx context.Context) {
	// Time is needed to kill what is left, and to write the record.
	grace := min(n.order.Job.Spec.Grace, afterTerm()*3/4)
	n.queue.Engine.Do(ctx, func(t *engine.Turn) { t.Requests().CancelBy(n.order.Job.ID, "Slurm", grace) })
	n.askAfter(ctx, afterTerm())
}

// afterTerm is how long after TERM the record has to be written.
var afterTerm = sync.OnceValue(func() time.Duration {
	wait := usualKillWait
	for _, path := range []string{os.Getenv("SLURM_CONF"), "/etc/slurm/slurm.conf", "/run/slurm/conf/slurm.conf", "/etc/slurm-llnl/slurm.conf"} {
		if raw, err := os.ReadFile(path); err == nil {
			wait = killWait(string(raw))
			break
		}
	}
	return min(mostAfterTerm, wait*2/3)
})

// killWait reads Slurm's configuration.
func killWait(config string) time.Duration {
	value, _, _ := strings.Cut(slurm.Settings(config)["killwait"], "#")
	if seconds, err := strconv.Atoi(strings.TrimSpace(value)); err == nil && seconds > 0 {
		return time.Duration(seconds) * time.Second
	}
	return usualKillWait
}

package keep

import (
	"fmt"
	"path/filepath"
	"strings"
)

// MPS is how to run a job's MPS server. A host, which is the supervisor's own
// program executed again, runs NVIDIA's control daemon, which starts the
// server when the job first uses a card. The limit is set on the control
// daemon, where the job cannot change it.
type MPS struct {
	Control  string   // the program: nvidia-cuda-mps-control
	Dir      string   // for its pipes and logs; created for it, and removed after it
	Cards    []string // UUIDs, in the job's order
	LimitMiB int64    // memory limit of a process on each card; 0: none
	Threads  int      // percent of each card's multiprocessors; 0: all
}

func (m *MPS) pipes() string { return filepath.Join(m.Dir, "pipe") }
func (m *MPS) logs() string  { return filepath.Join(m.Dir, "log") }

// Env makes a CUDA program use the server.
func (m *MPS) Env() []string {
	if m == nil {
		return nil
	}
	return []string{"CUDA_MPS_PIPE_DIRECTORY=" + m.pipes(), "CUDA_MPS_LOG_DIRECTORY=" + m.logs()}
}

// maxCards bounds the cards of one server; no machine has more MIG parts.
const maxCards = 256

// check refuses values that no server can run with.
func (m *MPS) check() error {
	switch {
	case m == nil:
		return nil
	case !filepath.IsAbs(m.Control) || !filepath.IsAbs(m.Dir):
		return fmt.Errorf("expected absolute paths, found MPS program %q and directory %q", m.Control, m.Dir)
	case len(m.Cards) == 0 || len(m.Cards) > maxCards:
		return fmt.Errorf("expected 1 to %d GPUs for an MPS server, found %d", maxCards, len(m.Cards))
	case m.LimitMiB < 0 || m.LimitMiB > maxMemMiB || m.Threads < 0 || m.Threads > 100:
		return fmt.Errorf("expected the limits of an MPS server, found %d MiB and %d percent", m.LimitMiB, m.Threads)
	}
	for _, card := range m.Cards {
		if card == "" || strings.ContainsAny(card, ", \x00") {
			return fmt.Errorf("expected the UUID of a GPU, found %q", card)
		}
	}
	return nil
}

// passMPS passes the server of an order, if it has one.
func passMPS(c *codec, to **MPS) {
	if c.reading && c.has("mps_control") {
		*to = &MPS{}
	}
	m := *to
	if m == nil {
		return
	}
	c.text("mps_control", &m.Control)
	c.text("mps_dir", &m.Dir)
	c.strict = true
	c.int64("mps_limit_mib", &m.LimitMiB)
	c.int("mps_threads", &m.Threads)
	c.strict = false
	c.kept("mps_card", &m.Cards)
}

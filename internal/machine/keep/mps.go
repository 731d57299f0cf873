package keep

import (
	"fmt"
	"path/filepath"
	"strconv"
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

// fields is the server as an order carries it; nil has none.
func (m *MPS) fields() []Field {
	if m == nil {
		return nil
	}
	fields := []Field{
		{"mps_control", m.Control}, {"mps_dir", m.Dir},
		{"mps_limit_mib", strconv.FormatInt(m.LimitMiB, 10)}, {"mps_threads", strconv.Itoa(m.Threads)},
	}
	for _, card := range m.Cards {
		fields = append(fields, Field{"mps_card", card})
	}
	return fields
}

// mpsOf reads them back.
func mpsOf(f Frame) (*MPS, error) {
	if f.Get("mps_control") == "" {
		return nil, nil
	}
	m := &MPS{Control: strings.Clone(f.Get("mps_control")), Dir: strings.Clone(f.Get("mps_dir"))}
	for _, card := range f.all("mps_card") {
		m.Cards = append(m.Cards, strings.Clone(card))
	}
	limit, err := strconv.ParseInt(f.Get("mps_limit_mib"), 10, 64)
	if err != nil {
		return nil, fmt.Errorf("%w: mps_limit_mib: %w", ErrFrame, err)
	}
	threads, err := strconv.Atoi(f.Get("mps_threads"))
	if err != nil {
		return nil, fmt.Errorf("%w: mps_threads: %w", ErrFrame, err)
	}
	m.LimitMiB, m.Threads = limit, threads
	return m, nil
}

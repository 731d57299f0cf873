package gpu

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// maxSimCards bounds a simulated box; a wrong number should not fill a disk.
const maxSimCards = 1024

// Sim is a source of simulated cards. Real processes hold memory on them by
// joining the box.
type Sim struct{ box *simBox }

var _ Source = (*Sim)(nil)

// OpenSim opens the simulated box in dir, or makes one of n cards. The box is
// the same after a restart. One that processes are using keeps its size.
func OpenSim(dir string, n int, vramMiB int64) (*Sim, error) {
	if n < 1 || n > maxSimCards || vramMiB < 1 {
		return nil, fmt.Errorf("cannot simulate %d GPUs of %d MiB", n, vramMiB)
	}
	abs, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("open simulated box: %w", err)
	}
	procs := filepath.Join(abs, "procs")
	if err := os.MkdirAll(procs, 0o755); err != nil {
		return nil, fmt.Errorf("open simulated box: %w", err)
	}
	// Jobs of other users report here too. Whoever owns the box sets the
	// rights; for anyone else they are already as they are.
	_ = os.Chmod(procs, 0o777|fs.ModeSticky)

	box := newSimBox(abs, n, vramMiB)
	err = box.locked(func() error {
		_ = os.Chmod(filepath.Join(abs, "lock"), 0o666)
		found, err := readSimBox(abs)
		if err == nil && found.sameSize(n, vramMiB) {
			box = found
			return nil
		}
		if err == nil {
			if records, err := found.live(); err != nil || len(records) > 0 {
				return errors.Join(fmt.Errorf("simulated box %s has %d GPUs and %d processes on them: it cannot become one of %d GPUs of %d MiB now",
					abs, len(found.Cards), len(records), n, vramMiB), err)
			}
		}
		return box.write()
	})
	if err != nil {
		return nil, err
	}
	return &Sim{box: box}, nil
}

// Dir is the box's directory, which BERTH_SIM_DIR passes to processes.
func (s *Sim) Dir() string { return s.box.dir }

// Name names the source to people.
func (s *Sim) Name() string { return "simulated GPUs" }

// Cheap is true: a sample reads a handful of small files.
func (s *Sim) Cheap() bool { return true }

// Close leaves the box as it is: its processes outlive berth.
func (s *Sim) Close() error { return nil }

// Sample reads the cards and who is on them.
func (s *Sim) Sample(ctx context.Context) (Sample, error) {
	fault, err := s.box.fault()
	if err != nil {
		return Sample{}, err
	}
	switch fault.kind {
	case "unreadable":
		return Sample{}, errors.New("simulated GPUs are unreadable")
	case "hang":
		<-ctx.Done()
		return Sample{}, fmt.Errorf("simulated GPUs do not answer: %w", context.Cause(ctx))
	}
	if err := ctx.Err(); err != nil {
		return Sample{}, fmt.Errorf("sample simulated GPUs: %w", err)
	}
	records, err := s.box.live()
	if err != nil {
		return Sample{}, err
	}
	sample := Sample{At: time.Now(), Devices: s.box.devices(records)}
	switch fault.kind {
	case "lose":
		sample.Devices = slices.DeleteFunc(sample.Devices, func(d Device) bool { return d.Index == fault.card })
		sample.Problems = append(sample.Problems, fmt.Sprintf("gpu%d has fallen off the bus", fault.card))
	case "no-processes":
		for i := range sample.Devices {
			sample.Devices[i].Processes, sample.Devices[i].ProcessesKnown = nil, false
		}
	}
	return sample, nil
}

// devices adds up what the processes hold on each card.
func (b *simBox) devices(records []simRecord) []Device {
	devices := make([]Device, len(b.Cards))
	at := make(map[int]*Device, len(b.Cards))
	for i, c := range b.Cards {
		devices[i] = Unknown(c.Index, c.UUID, c.Name)
		devices[i].TotalMiB, devices[i].ReservedMiB, devices[i].UtilPct = c.TotalMiB, c.ReservedMiB, 0
		devices[i].ProcessesKnown, devices[i].Links = true, maps.Clone(c.Links)
		if c.NUMA != nil {
			devices[i].NUMA = *c.NUMA
		}
		at[c.Index] = &devices[i]
	}
	for _, r := range records {
		for _, use := range r.Uses {
			d := at[use.Card]
			if d == nil {
				continue
			}
			d.UsedMiB += use.MiB
			d.UtilPct = min(100, d.UtilPct+use.UtilPct)
			d.Processes = append(d.Processes, Process{PID: r.pid, UsedMiB: use.MiB, Graphics: r.Graphics})
		}
	}
	return devices
}

// simFault is what the file "fault" in the box asks to go wrong.
type simFault struct {
	kind string
	card int
}

func (b *simBox) fault() (simFault, error) {
	data, err := os.ReadFile(filepath.Join(b.dir, "fault"))
	if errors.Is(err, fs.ErrNotExist) {
		return simFault{}, nil
	}
	if err != nil {
		return simFault{}, fmt.Errorf("read simulated fault: %w", err)
	}
	words := strings.Fields(string(data))
	switch {
	case len(words) == 0:
		return simFault{}, nil
	case len(words) == 1 && (words[0] == "unreadable" || words[0] == "hang" || words[0] == "no-processes"):
		return simFault{kind: words[0]}, nil
	case len(words) == 2 && words[0] == "lose":
		card, err := strconv.Atoi(words[1])
		if err == nil {
			return simFault{kind: "lose", card: card}, nil
		}
	}
	return simFault{}, fmt.Errorf("unknown simulated fault %q: want unreadable, hang, lose N or no-processes", strings.TrimSpace(string(data)))
}

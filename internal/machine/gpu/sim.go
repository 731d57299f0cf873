package gpu

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// maxSimCards bounds a simulation; a wrong number should not fill a disk.
const maxSimCards = 1024

// Sim is a source of simulated cards. Real processes hold memory on them by
// joining the box.
type Sim struct {
	box *simBox

	mu     sync.Mutex
	raised string // the faults whose Xids were already returned
}

var _ Source = (*Sim)(nil)

// OpenSim opens the simulation in dir, or creates one with n cards. The simulation
// survives a restart, and keeps its size while processes use it.
func OpenSim(dir string, n int, vramMiB int64) (*Sim, error) {
	if n < 1 || n > maxSimCards || vramMiB < 1 {
		return nil, fmt.Errorf("cannot simulate %d GPUs of %d MiB", n, vramMiB)
	}
	abs, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("open simulation directory: %w", err)
	}
	procs := filepath.Join(abs, "procs")
	if err := os.MkdirAll(procs, 0o755); err != nil {
		return nil, fmt.Errorf("open simulation directory: %w", err)
	}
	// Jobs of other users write here, too. Only the owner of the box can set
	// the mode, and for other users it is set already.
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
				return errors.Join(fmt.Errorf("simulation directory %s has %d GPUs with %d processes on them: cannot change it to %d GPUs of %d MiB now",
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

// dirPath is the directory of the box, which BERTH_SIM_DIR passes to
// processes.
func (s *Sim) dirPath() string { return s.box.dir }

// Name is the name of the source, for display.
func (s *Sim) Name() string { return "simulated GPUs" }

// Cheap is true: a sample reads a handful of small files.
func (s *Sim) Cheap() bool { return true }

// Close leaves the box in place: its processes outlive berth.
func (s *Sim) Close() error { return nil }

// Sample reads the cards and their processes.
func (s *Sim) Sample(ctx context.Context) (Sample, error) {
	faults, err := s.box.faults()
	if err != nil {
		return Sample{}, err
	}
	switch {
	case faults.has("unreadable"):
		return Sample{}, errors.New("simulated GPUs are unreadable")
	case faults.has("hang"):
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
	faults.apply(&sample)
	sample.Xids = s.fresh(faults, sample.At)
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
		devices[i].Near, devices[i].CPUs = maps.Clone(c.Near), c.CPUs
		if c.NUMA != nil {
			devices[i].NUMA = *c.NUMA
		}
		if c.Minor != nil {
			devices[i].Minor = *c.Minor
		}
		if c.PartOf != nil {
			devices[i].Part = &Part{Of: *c.PartOf, Profile: c.Profile}
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
			d.Processes = append(d.Processes, Process{PID: r.pid, UsedMiB: use.MiB, UtilPct: use.UtilPct, Graphics: r.Graphics})
		}
	}
	return devices
}

package gpu

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// outOfMemoryError means that a simulated card is full.
type outOfMemoryError struct {
	Card     int
	AskedMiB int64 // on top of what the process already holds
	FreeMiB  int64
	TotalMiB int64
}

func (e *outOfMemoryError) Error() string {
	return fmt.Sprintf("gpu%d is out of memory: asked for %d MiB, %d of %d MiB free", e.Card, e.AskedMiB, e.FreeMiB, e.TotalMiB)
}

// simProcess is the calling process as a user of a simulation. The simulation
// forgets it when the process ends, however it ends.
type simProcess struct {
	Graphics bool // report as a graphics-only process; set it before Set

	box  *simBox
	pid  int
	path string
}

// joinSim adds the calling process to the simulation in dir.
func joinSim(dir string) (*simProcess, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("join simulation directory: %w", err)
	}
	box, err := readSimBox(abs)
	if err != nil {
		return nil, err
	}
	pid := os.Getpid()
	startTicks, err := processStart(pid)
	if err != nil {
		return nil, fmt.Errorf("join simulation directory: %w", err)
	}
	return &simProcess{box: box, pid: pid, path: filepath.Join(abs, "procs", fmt.Sprintf("%d.%d", pid, startTicks))}, nil
}

// Set makes the process hold mib on each of cards and nothing elsewhere. If
// one of them is too full, it returns an *outOfMemoryError and changes
// nothing.
func (p *simProcess) Set(cards []int, mib int64, utilPct float64) error {
	if mib < 0 {
		return fmt.Errorf("cannot hold %d MiB", mib)
	}
	for {
		err := p.set(cards, mib, utilPct)
		if !errors.Is(err, errSimLocked) {
			return err
		}
		time.Sleep(simLockPause) // its calls wait while it is locked
	}
}

// simLockPause is the time between two tries of a locked process.
const simLockPause = 10 * time.Millisecond

var errSimLocked = errors.New("the process is locked")

// away is how long the process has been parked in all. It waits while the
// process is locked.
func (p *simProcess) away() time.Duration {
	for {
		record, _ := readSimRecord(p.path, p.pid)
		if record.Phase == "" {
			return record.Away
		}
		time.Sleep(simLockPause)
	}
}

func (p *simProcess) set(cards []int, mib int64, utilPct float64) error {
	return p.box.locked(func() error {
		records, err := p.box.live()
		if err != nil {
			return err
		}
		old, _ := readSimRecord(p.path, p.pid)
		if old.Phase != "" {
			return errSimLocked
		}
		record := simRecord{Graphics: p.Graphics, Away: old.Away}
		for i, index := range cards {
			if slices.Contains(cards[:i], index) {
				continue
			}
			if err := p.fits(records, index, mib); err != nil {
				return err
			}
			record.Uses = append(record.Uses, simUse{Card: index, MiB: mib, UtilPct: utilPct})
		}
		data, err := json.Marshal(record)
		if err != nil {
			return fmt.Errorf("encode simulated process: %w", err)
		}
		return replaceFile(p.path, data)
	})
}

// fits checks one card against what the others hold there.
func (p *simProcess) fits(records []simRecord, index int, mib int64) error {
	card, found := p.box.card(index)
	if !found {
		return fmt.Errorf("the simulation has no gpu%d", index)
	}
	var ownMiB, othersMiB int64
	for _, r := range records {
		for _, use := range r.Uses {
			switch {
			case use.Card != index:
			case r.pid == p.pid:
				ownMiB += use.MiB
			default:
				othersMiB += use.MiB
			}
		}
	}
	roomMiB := card.TotalMiB - card.ReservedMiB - othersMiB
	if mib > roomMiB {
		return &outOfMemoryError{Card: index, AskedMiB: mib - ownMiB, FreeMiB: max(0, roomMiB-ownMiB), TotalMiB: card.TotalMiB}
	}
	return nil
}

// free frees everything the process holds.
func (p *simProcess) free() error {
	if err := os.Remove(p.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("leave simulation directory: %w", err)
	}
	return nil
}

package gpu

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// simBox is a simulation directory, shared by the berth that samples it
// and the processes that pretend to use its cards:
//
//	box.json              the cards
//	lock                  held (flock) while an allocation changes
//	procs/<pid>.<ticks>   what one process holds; void once the process is gone
//	fault                 faults to simulate, for tests
type simBox struct {
	dir   string
	Cards []simCard `json:"cards"`
}

// simCard is one card of box.json. Tests may edit what OpenSim wrote there.
type simCard struct {
	Index       int         `json:"index"`
	UUID        string      `json:"uuid"`
	Name        string      `json:"name"`
	TotalMiB    int64       `json:"total_mib"`
	ReservedMiB int64       `json:"reserved_mib"`
	NUMA        *int        `json:"numa,omitempty"`
	Links       map[int]int `json:"links,omitempty"`
	Near        map[int]int `json:"near,omitempty"`
	CPUs        string      `json:"cpus,omitempty"`
	Minor       *int        `json:"minor,omitempty"`
	PartOf      *int        `json:"part_of,omitempty"` // the card this is a MIG part of,
	Profile     string      `json:"profile,omitempty"` // and its profile
}

// simUse is what a process holds on one card.
type simUse struct {
	Card    int     `json:"card"`
	MiB     int64   `json:"mib"`
	UtilPct float64 `json:"util"`
}

// simRecord is the content of a process's file.
type simRecord struct {
	pid      int
	Graphics bool     `json:"graphics,omitempty"`
	Uses     []simUse `json:"uses"`

	// Of a process that is being parked.
	Phase    string        `json:"phase,omitempty"`
	Saved    []simUse      `json:"saved,omitempty"` // what it held
	LockedAt time.Time     `json:"locked_at,omitzero"`
	Away     time.Duration `json:"away,omitempty"` // how long it was, in all
}

func newSimBox(dir string, n int, vramMiB int64) *simBox {
	hash := sha256.Sum256([]byte(dir))
	box := &simBox{dir: dir}
	for i := range n {
		box.Cards = append(box.Cards, simCard{
			Index: i, UUID: fmt.Sprintf("GPU-sim-%x-%d", hash[:6], i), Name: "Simulated GPU", TotalMiB: vramMiB,
		})
	}
	return box
}

func readSimBox(dir string) (*simBox, error) {
	data, err := os.ReadFile(filepath.Join(dir, "box.json"))
	if err != nil {
		return nil, fmt.Errorf("read simulation directory: %w", err)
	}
	box := &simBox{dir: dir}
	if err := json.Unmarshal(data, box); err != nil {
		return nil, fmt.Errorf("read simulation directory %s: %w", dir, err)
	}
	if len(box.Cards) == 0 {
		return nil, fmt.Errorf("simulation directory %s has no GPUs", dir)
	}
	return box, nil
}

func (b *simBox) write() error {
	data, err := json.MarshalIndent(b, "", "  ")
	if err != nil {
		return fmt.Errorf("encode simulation directory: %w", err)
	}
	return replaceFile(filepath.Join(b.dir, "box.json"), append(data, '\n'))
}

func (b *simBox) card(index int) (simCard, bool) {
	for _, c := range b.Cards {
		if c.Index == index {
			return c, true
		}
	}
	return simCard{}, false
}

// sameSize reports whether the box has n cards of vramMiB each, whatever else
// was changed.
func (b *simBox) sameSize(n int, vramMiB int64) bool {
	for _, c := range b.Cards {
		if c.TotalMiB != vramMiB {
			return false
		}
	}
	return len(b.Cards) == n
}

// locked runs change while no other process changes an allocation.
func (b *simBox) locked(change func() error) error {
	path := filepath.Join(b.dir, "lock")
	lock, err := os.OpenFile(path, os.O_RDONLY|os.O_CREATE, 0o666)
	if err != nil {
		return fmt.Errorf("lock simulation directory: %w", err)
	}
	defer lock.Close()
	for {
		err = unix.Flock(int(lock.Fd()), unix.LOCK_EX)
		if !errors.Is(err, unix.EINTR) {
			break
		}
	}
	if err != nil {
		return fmt.Errorf("lock simulation directory %s: %w", path, err)
	}
	return change()
}

// live reads what the live processes hold. It removes the files of dead ones,
// as a driver frees the memory of a process that died.
func (b *simBox) live() ([]simRecord, error) {
	dir, err := os.Open(filepath.Join(b.dir, "procs"))
	if err != nil {
		return nil, fmt.Errorf("read simulation directory: %w", err)
	}
	names, err := dir.Readdirnames(-1)
	dir.Close()
	if err != nil {
		return nil, fmt.Errorf("read simulation directory: %w", err)
	}
	var records []simRecord
	for _, name := range names {
		path := filepath.Join(b.dir, "procs", name)
		pid, startTicks, valid := parseSimName(name)
		if !valid {
			continue
		}
		if !processAlive(pid, startTicks) {
			_ = os.Remove(path) // another user's, or already gone: void in any case
			continue
		}
		if strings.HasPrefix(name, ".") {
			continue // being written
		}
		record, sound := readSimRecord(path, pid)
		if !sound {
			continue
		}
		records = append(records, record)
	}
	return records, nil
}

// maxSimRecord is far more than a process on a thousand cards writes.
const maxSimRecord = 1 << 20

// readSimRecord reads what a process holds. Any user may put a file there, so
// an invalid one is ignored: it must neither block the others nor create room
// that does not exist.
func readSimRecord(path string, pid int) (record simRecord, sound bool) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return record, false // it has just ended, or the file is invalid
	}
	file := os.NewFile(uintptr(fd), path)
	defer file.Close()
	info, err := file.Stat()
	if err != nil || !info.Mode().IsRegular() || info.Size() > maxSimRecord || !speaksFor(ownerOf(info), pid) {
		return record, false
	}
	data, err := io.ReadAll(io.LimitReader(file, maxSimRecord))
	if err != nil || json.Unmarshal(data, &record) != nil {
		return record, false
	}
	record.pid = pid
	nonsense := func(use simUse) bool { return use.MiB < 0 || use.MiB > 1<<40 || use.UtilPct < 0 }
	return record, !slices.ContainsFunc(record.Uses, nonsense)
}

// parseSimName splits "<pid>.<ticks>", with a leading dot for a file that is
// not complete yet.
func parseSimName(name string) (pid int, startTicks uint64, valid bool) {
	digits, ticks, found := strings.Cut(strings.TrimPrefix(name, "."), ".")
	pid, pidErr := strconv.Atoi(digits)
	startTicks, ticksErr := strconv.ParseUint(ticks, 10, 64)
	return pid, startTicks, found && pidErr == nil && ticksErr == nil
}

// replaceFile writes a file so that readers see the old content or the new
// one. Its owner stays: root parks the processes of others. It does not sync: nothing
// here has to survive a crash of the machine.
func replaceFile(path string, data []byte) error {
	partial := filepath.Join(filepath.Dir(path), "."+filepath.Base(path))
	if err := os.WriteFile(partial, data, 0o644); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	var old unix.Stat_t
	if unix.Lstat(path, &old) == nil && int(old.Uid) != os.Geteuid() {
		_ = os.Lchown(partial, int(old.Uid), int(old.Gid)) // only root can
	}
	if err := os.Rename(partial, path); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}

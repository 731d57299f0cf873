package gpu

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Entry is one job's reservation as other berths see it.
type Entry struct {
	Key       string   `json:"key"` // unique on the machine: <berth instance>/<job>
	User      string   `json:"user,omitempty"`
	Job       string   `json:"job,omitempty"`
	Name      string   `json:"name,omitempty"`
	UUIDs     []string `json:"uuids,omitempty"`
	BudgetMiB []int64  `json:"budget_mib,omitempty"` // parallel to UUIDs
	Share     float64  `json:"share,omitempty"`
	Alone     bool     `json:"alone,omitempty"`
	Exclusive bool     `json:"exclusive,omitempty"`

	// The process whose life is the reservation's. Publish puts the calling
	// process where it is zero: a job that is booked and has no supervisor yet
	// is held by the berth that booked it.
	HolderPID   int    `json:"holder_pid"`
	HolderStart uint64 `json:"holder_start"`
}

// errLedgerBusy is the cause when the machine-wide lock could not be had.
var errLedgerBusy = errors.New("the ledger of GPU reservations is locked")

// lockPoll is how often a busy lock is tried again. Holders keep it for the
// time of one decision.
const lockPoll = 2 * time.Millisecond

// Anyone may open the lock, and so keep it. Holders need it for the time of one
// decision: after lockPatience of nothing but refusals a berth goes on without
// it, at the risk of a race, rather than stand still for whoever has it. Tries
// further apart than lockPause are not one wait.
const (
	lockPatience = 5 * time.Second
	lockPause    = 15 * time.Second
)

// isInstance reports whether a berth may call itself that; it becomes a file
// name.
func isInstance(name string) bool {
	if name == "" || len(name) > 128 || strings.IndexByte("._-", name[0]) >= 0 {
		return false
	}
	return strings.IndexFunc(name, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("._-", r)
	}) < 0
}

// Ledger is the machine-wide list of reservations: a directory that every
// user may write to, one file per berth, and one lock around "look, decide,
// book". It is for the calling goroutine alone.
type Ledger struct {
	dir, own  string
	bootID    string
	pidSpace  string
	lock      *os.File // open, not necessarily held
	held      bool
	without   bool          // held in name only: somebody keeps it
	patience  time.Duration // until then
	busySince time.Time     // since when every try was refused
	busyAt    time.Time     // and the last of them
	published []byte        // what our file holds; nil: nothing of ours yet
	cache     map[string]cachedFile
	notes     []string // not yet asked for
	noted     []string // all that were made
}

// OpenLedger opens the ledger in dir, or the machine's own where dir is
// empty, for the berth that calls itself instance. What an earlier berth of
// that name left there stays until the first Publish: its jobs may live.
func OpenLedger(dir, instance string) (*Ledger, error) {
	if !isInstance(instance) {
		return nil, fmt.Errorf("open ledger: %q cannot name a berth", instance)
	}
	bootID, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return nil, fmt.Errorf("open ledger: %w", err)
	}
	pidSpace, err := os.Readlink("/proc/self/ns/pid")
	if err != nil {
		return nil, fmt.Errorf("open ledger: %w", err)
	}
	l := &Ledger{
		own:    fmt.Sprintf("%d-%s", os.Geteuid(), instance),
		bootID: strings.TrimSpace(string(bootID)), pidSpace: pidSpace,
		cache: map[string]cachedFile{}, patience: lockPatience,
	}
	var problems []error
	for _, candidate := range ledgerDirs(dir) {
		l.dir = candidate
		err := l.makeDir()
		if err == nil {
			err = l.openLock()
		}
		if err == nil {
			l.removePartials()
			return l, nil
		}
		problems = append(problems, err)
	}
	return nil, fmt.Errorf("open ledger: %w", errors.Join(problems...))
}

// ledgerDirs are the places to try. Only one is tried where a place was named:
// two berths that do not meet are worse than one that says why it cannot start.
func ledgerDirs(dir string) []string {
	if dir == "" {
		dir = os.Getenv("BERTH_LEDGER_DIR")
	}
	if dir != "" {
		return []string{dir}
	}
	return []string{"/dev/shm/berth-ledger", "/tmp/berth-ledger"}
}

// makeDir makes the directory, or checks the one found. Anybody on the
// machine may have made it first; a symlink would lead us elsewhere.
func (l *Ledger) makeDir() error {
	if err := os.Mkdir(l.dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	fd, err := unix.Open(l.dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return &fs.PathError{Op: "open", Path: l.dir, Err: err}
	}
	defer unix.Close(fd)
	var stat unix.Stat_t
	if err := unix.Fstat(fd, &stat); err != nil {
		return &fs.PathError{Op: "stat", Path: l.dir, Err: err}
	}
	if os.Geteuid() == 0 && stat.Uid != 0 {
		// Its owner could remove what others put there.
		if err := unix.Fchown(fd, 0, 0); err != nil {
			return &fs.PathError{Op: "chown", Path: l.dir, Err: err}
		}
	}
	if stat.Mode&0o7777 != 0o1777 && (os.Geteuid() == 0 || int(stat.Uid) == os.Geteuid()) {
		if err := unix.Fchmod(fd, 0o1777); err != nil {
			return &fs.PathError{Op: "chmod", Path: l.dir, Err: err}
		}
	}
	return nil
}

// openLock opens the lock file. A kernel may refuse to "create" a file of
// another user's that exists already, so it is created only where missing; a
// descriptor for reading is enough to lock it.
func (l *Ledger) openLock() error {
	path := filepath.Join(l.dir, "lock")
	const flags = unix.O_RDONLY | unix.O_NOFOLLOW | unix.O_NONBLOCK | unix.O_CLOEXEC
	for range 3 {
		fd, err := unix.Open(path, flags, 0)
		if errors.Is(err, unix.ENOENT) {
			fd, err = unix.Open(path, flags|unix.O_CREAT|unix.O_EXCL, 0o644)
			if errors.Is(err, unix.EEXIST) {
				continue // another berth was faster
			}
			if err == nil {
				_ = unix.Fchmod(fd, 0o644) // a strict umask must not lock others out
			}
		}
		if err != nil {
			return &fs.PathError{Op: "open", Path: path, Err: err}
		}
		if l.lock != nil {
			l.lock.Close()
		}
		l.lock = os.NewFile(uintptr(fd), path)
		return nil
	}
	return fmt.Errorf("open %s: it comes and goes", path)
}

// Lock takes the machine-wide lock, or gives up when ctx is done.
func (l *Ledger) Lock(ctx context.Context) error {
	if l.held {
		panic("bug: ledger locked twice")
	}
	for {
		err := unix.Flock(int(l.lock.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil && l.lockIsCurrent() {
			l.held, l.without, l.busySince = true, false, time.Time{}
			return nil
		}
		if errors.Is(err, unix.EWOULDBLOCK) && l.keptTooLong(time.Now()) {
			l.note("going on without the lock %s, which %s has kept for long", l.lock.Name(), lockHolder(l.lock))
			l.held, l.without = true, true
			return nil
		}
		switch {
		case err == nil: // the ledger was removed under us: meet the others in the new one
			if err := errors.Join(l.makeDir(), l.openLock()); err != nil {
				return fmt.Errorf("lock ledger: %w", err)
			}
			l.published = nil
		case !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR):
			return fmt.Errorf("lock ledger %s: %w", l.dir, err)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: %s is held by %s: %w", errLedgerBusy, l.lock.Name(), lockHolder(l.lock), context.Cause(ctx))
		case <-time.After(lockPoll):
		}
	}
}

// keptTooLong reports whether the lock was refused for longer than anybody
// needs it.
func (l *Ledger) keptTooLong(now time.Time) bool {
	if l.busySince.IsZero() || now.Sub(l.busyAt) > lockPause {
		l.busySince = now
	}
	l.busyAt = now
	return now.Sub(l.busySince) > l.patience
}

// lockIsCurrent reports whether the file we locked is the one that others
// would open now.
func (l *Ledger) lockIsCurrent() bool {
	var ours, theirs unix.Stat_t
	return unix.Fstat(int(l.lock.Fd()), &ours) == nil && unix.Lstat(l.lock.Name(), &theirs) == nil &&
		ours.Ino == theirs.Ino && ours.Dev == theirs.Dev
}

// Unlock gives the lock back.
func (l *Ledger) Unlock() {
	if !l.held {
		panic("bug: ledger unlocked but not locked")
	}
	l.held = false
	if l.without {
		return
	}
	if err := unix.Flock(int(l.lock.Fd()), unix.LOCK_UN); err != nil {
		panic("bug: unlock ledger: " + err.Error())
	}
}

// Publish replaces what this berth has reserved. It is for the moment, not
// for the disk: after a reboot nothing in it is true.
func (l *Ledger) Publish(own []Entry) error {
	if len(own) == 0 {
		l.published = nil
		if err := os.Remove(l.ownPath()); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("publish reservations: %w", err)
		}
		return nil
	}
	data, err := l.encode(own)
	if err != nil {
		return err
	}
	if bytes.Equal(data, l.published) {
		if _, err := os.Lstat(l.ownPath()); err == nil {
			return nil
		}
	}
	if err := l.replaceOwn(data); err != nil {
		return fmt.Errorf("publish reservations: %w", err)
	}
	l.published = data
	return nil
}

func (l *Ledger) encode(own []Entry) ([]byte, error) {
	file := ledgerFile{Version: ledgerVersion, BootID: l.bootID, PIDSpace: l.pidSpace}
	for _, e := range own {
		if len(e.UUIDs) != len(e.BudgetMiB) {
			panic("bug: reservation " + e.Key + " has not one budget per card")
		}
		if e.HolderPID == 0 {
			startTicks, err := processStart(os.Getpid())
			if err != nil {
				return nil, fmt.Errorf("publish reservations: %w", err)
			}
			e.HolderPID, e.HolderStart = os.Getpid(), startTicks
		}
		file.Entries = append(file.Entries, e)
	}
	data, err := json.Marshal(file)
	if err != nil {
		return nil, fmt.Errorf("publish reservations: %w", err)
	}
	if len(data) > maxLedgerFile {
		return nil, fmt.Errorf("publish reservations: %d of them are too many for one file", len(own))
	}
	return data, nil
}

// replaceOwn writes beside our file and renames: no reader sees half of it.
func (l *Ledger) replaceOwn(data []byte) error {
	partial, err := os.CreateTemp(l.dir, l.partialPrefix()+"*")
	if errors.Is(err, fs.ErrNotExist) {
		if err := l.makeDir(); err != nil {
			return err
		}
		partial, err = os.CreateTemp(l.dir, l.partialPrefix()+"*")
	}
	if err != nil {
		return err
	}
	_, err = partial.Write(data)
	err = errors.Join(err, partial.Chmod(0o644), partial.Close())
	if err == nil {
		err = os.Rename(partial.Name(), l.ownPath())
	}
	if err != nil {
		_ = os.Remove(partial.Name())
	}
	return err
}

// removePartials clears away what a berth of our name left when it was killed
// in the middle of a write.
func (l *Ledger) removePartials() {
	left, _ := filepath.Glob(filepath.Join(l.dir, l.partialPrefix()+"*"))
	for _, path := range left {
		_ = os.Remove(path)
	}
}

// Close removes our file if no reservation in it is alive. Otherwise it stays:
// jobs outlive berth, and so do their reservations.
func (l *Ledger) Close() error {
	entries, err := l.Own()
	if err == nil && len(entries) == 0 {
		err = l.Publish(nil)
	}
	return errors.Join(err, l.lock.Close())
}

// Dir is where the ledger lies.
func (l *Ledger) Dir() string { return l.dir }

func (l *Ledger) ownPath() string       { return filepath.Join(l.dir, l.own) }
func (l *Ledger) partialPrefix() string { return "." + l.own + "~" }

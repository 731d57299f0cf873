package gpu

import (
	"bytes"
	"cmp"
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

// Entry is one job's booking as other berths see it.
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

	// The booking lasts as long as this process. If it is zero, Publish sets
	// the calling process: a job without a supervisor yet is held by the berth
	// that booked it.
	HolderPID   int    `json:"holder_pid"`
	HolderStart uint64 `json:"holder_start"`
}

// errLedgerBusy means that the machine-wide lock could not be taken.
var errLedgerBusy = errors.New("the GPU ledger is locked")

// lockPoll is how often a busy lock is tried again. It is held for the time of
// one decision.
const lockPoll = 2 * time.Millisecond

// Any user may open the lock file, and so keep the lock. A decision needs it
// only for a moment: after lockPatience of refusals a berth continues without
// it, at the risk of a race, instead of standing still. Tries further apart
// than lockPause count as separate waits.
const (
	lockPatience = 5 * time.Second
	lockPause    = 15 * time.Second
)

// isInstance reports whether a name can identify a berth; it becomes a file
// name.
func isInstance(name string) bool {
	if name == "" || len(name) > 128 || strings.IndexByte("._-", name[0]) >= 0 {
		return false
	}
	return strings.IndexFunc(name, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("._-", r)
	}) < 0
}

// Ledger is the machine-wide list of bookings: a directory that every user may
// write to, with one file per berth and one lock around "look, decide, book".
// It is not safe for concurrent use.
type Ledger struct {
	dir, own  string
	bootID    string
	pidSpace  string
	lock      *os.File // open, not necessarily locked
	held      bool
	without   bool          // held in name only: another process keeps the lock
	patience  time.Duration // before continuing without the lock
	busySince time.Time     // when the refusals began
	busyAt    time.Time     // the latest refusal
	published []byte        // the content of our file; nil: none yet
	cache     map[string]cachedFile
	notes     []string // not collected yet
	noted     []string // all that were made
}

// OpenLedger opens the ledger in dir, or the machine's own if dir is empty,
// for the berth called instance. Entries of an earlier berth of that name stay
// until the first Publish: its jobs may be alive.
func OpenLedger(dir, instance string) (*Ledger, error) {
	if !isInstance(instance) {
		return nil, fmt.Errorf("open ledger: %q is not a valid name for a berth", instance)
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
			// A berth of this name may have been killed in the middle of a write.
			left, _ := filepath.Glob(filepath.Join(l.dir, l.partialPrefix()+"*"))
			for _, path := range left {
				_ = os.Remove(path)
			}
			return l, nil
		}
		problems = append(problems, err)
	}
	return nil, fmt.Errorf("open ledger: %w", errors.Join(problems...))
}

// ledgerDirs are the directories to try. If one was named, it is the only one:
// two berths that do not see each other are worse than one that does not
// start.
func ledgerDirs(dir string) []string {
	dir = cmp.Or(dir, os.Getenv("BERTH_LEDGER_DIR"))
	if dir != "" {
		return []string{dir}
	}
	return []string{"/dev/shm/berth-ledger", "/tmp/berth-ledger"}
}

// makeDir creates the directory, or checks the existing one. Any user may have
// created it first, and a symlink would lead elsewhere.
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
		// Its owner could remove other users' files.
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

// openLock opens the lock file. A kernel may refuse to "create" an existing
// file of another user, so it is created only if missing; a descriptor for
// reading is enough to lock it.
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
				_ = unix.Fchmod(fd, 0o644) // whatever the umask, other users must be able to open it
			}
		}
		if err == nil {
			if err = takeLock(fd); err != nil {
				unix.Close(fd)
			}
		}
		if os.Geteuid() == 0 && (errors.Is(err, unix.ELOOP) || errors.Is(err, errNoLock)) && os.Remove(path) == nil {
			continue
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
	return fmt.Errorf("open %s: it keeps being created and removed", path)
}

var errNoLock = errors.New("expected a file with one name")

// takeLock makes the lock root's, if a root berth opens it: its owner could
// replace it again and again, and no berth would ever have the current one.
func takeLock(fd int) error {
	var stat unix.Stat_t
	if err := unix.Fstat(fd, &stat); err != nil || os.Geteuid() != 0 || stat.Uid == 0 {
		return err
	}
	if stat.Mode&unix.S_IFMT != unix.S_IFREG || stat.Nlink > 1 {
		return errNoLock
	}
	return unix.Fchown(fd, 0, 0)
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
		if (err == nil || errors.Is(err, unix.EWOULDBLOCK)) && l.keptTooLong(time.Now()) {
			if err == nil {
				l.note("continuing without the lock %s, which is replaced again and again", l.lock.Name())
			} else {
				l.note("continuing without the lock %s, which %s has held for too long", l.lock.Name(), lockHolder(l.lock))
			}
			l.held, l.without = true, true
			return nil
		}
		switch {
		case err == nil: // the ledger was removed and created anew: join the others there
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

// keptTooLong reports whether the lock was refused for longer than a decision
// can take.
func (l *Ledger) keptTooLong(now time.Time) bool {
	if l.busySince.IsZero() || now.Sub(l.busyAt) > lockPause {
		l.busySince = now
	}
	l.busyAt = now
	return now.Sub(l.busySince) > l.patience
}

// lockIsCurrent reports whether the locked file is the one that others would
// open now.
func (l *Ledger) lockIsCurrent() bool {
	var ours, theirs unix.Stat_t
	return unix.Fstat(int(l.lock.Fd()), &ours) == nil && unix.Lstat(l.lock.Name(), &theirs) == nil &&
		ours.Ino == theirs.Ino && ours.Dev == theirs.Dev
}

// Unlock releases the lock.
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

// Publish replaces the bookings of this berth. It does not sync: after a
// reboot they are void anyway.
func (l *Ledger) Publish(own []Entry) error {
	if len(own) == 0 {
		l.published = nil
		if err := os.Remove(l.ownPath()); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("publish bookings: %w", err)
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
		return fmt.Errorf("publish bookings: %w", err)
	}
	l.published = data
	return nil
}

func (l *Ledger) encode(own []Entry) ([]byte, error) {
	file := ledgerFile{Version: ledgerVersion, BootID: l.bootID, PIDSpace: l.pidSpace}
	for _, e := range own {
		if len(e.UUIDs) != len(e.BudgetMiB) {
			panic("bug: booking " + e.Key + " does not have one budget per card")
		}
		if e.HolderPID == 0 {
			startTicks, err := processStart(os.Getpid())
			if err != nil {
				return nil, fmt.Errorf("publish bookings: %w", err)
			}
			e.HolderPID, e.HolderStart = os.Getpid(), startTicks
		}
		file.Entries = append(file.Entries, e)
	}
	data, err := json.Marshal(file)
	if err != nil {
		return nil, fmt.Errorf("publish bookings: %w", err)
	}
	if len(data) > maxLedgerFile {
		return nil, fmt.Errorf("publish bookings: %d do not fit into one file", len(own))
	}
	return data, nil
}

// replaceOwn writes a new file and renames it, so that no reader sees half of
// it.
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

// Close removes our file unless a booking in it is alive: jobs outlive berth,
// and so do their bookings.
func (l *Ledger) Close() error {
	entries, err := l.Own()
	if err == nil && len(entries) == 0 {
		err = l.Publish(nil)
	}
	return errors.Join(err, l.lock.Close())
}

// Dir is the directory of the ledger.
func (l *Ledger) Dir() string { return l.dir }

func (l *Ledger) ownPath() string       { return filepath.Join(l.dir, l.own) }
func (l *Ledger) partialPrefix() string { return "." + l.own + "~" }

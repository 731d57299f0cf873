package gpu

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"berth/internal/text"
)

// Any user may write to the ledger, so everything read from it is bounded. The
// rest is skipped, with a note.
const (
	ledgerVersion    = 1
	maxLedgerFile    = 1 << 20 // bytes
	maxLedgerNames   = 1 << 16
	maxUserFiles     = 256  // of one user
	maxLedgerEntries = 4096 // per file
	maxEntryCards    = 1024
	maxLedgerNotes   = 16
)

// ledgerFile is one berth's file.
type ledgerFile struct {
	Version  int     `json:"version"`
	BootID   string  `json:"boot_id"`
	PIDSpace string  `json:"pid_space"` // the PID namespace; pids mean nothing in another one
	Entries  []Entry `json:"entries"`

	owner uint32 // of the file, according to the kernel
}

// raceWindow is how old a file must be before its inode, size and time are
// trusted to identify its content: file system clocks are coarse, and inodes
// are reused.
const raceWindow = 100 * time.Millisecond

// cachedFile saves parsing a file that did not change.
type cachedFile struct {
	inode   uint64
	size    int64
	changed time.Time
	file    ledgerFile
}

// isLedgerFile reports whether a file in the directory is named like a
// berth's: the uid and the instance.
func isLedgerFile(name string) bool {
	uid, instance, found := strings.Cut(name, "-")
	if !found || uid == "" || len(uid) > 10 || strings.Trim(uid, "0123456789") != "" {
		return false
	}
	return isInstance(instance)
}

// Others are the live bookings of other berths. An unreadable file is skipped
// with a note: it must not stop every berth on the machine.
func (l *Ledger) Others() ([]Entry, error) {
	dir, err := os.Open(l.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil // removed; the next Lock or Publish creates it again
	}
	if err != nil {
		return nil, fmt.Errorf("read ledger: %w", err)
	}
	names, err := dir.Readdirnames(maxLedgerNames + 1)
	dir.Close()
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("read ledger: %w", err)
	}
	if len(names) > maxLedgerNames {
		l.note("the ledger %s has more than %d files: some bookings are ignored", l.dir, maxLedgerNames)
	}
	names = l.counted(names)
	for name := range l.cache {
		if _, there := slices.BinarySearch(names, name); !there {
			delete(l.cache, name)
		}
	}
	var others []Entry
	for _, name := range names {
		if name != l.own {
			others = append(others, l.living(name)...)
		}
	}
	return others, nil
}

// counted are the names of berths' files that count, sorted: a few of each user,
// so that no user can crowd out the bookings of others.
func (l *Ledger) counted(names []string) []string {
	names = slices.DeleteFunc(names, func(name string) bool { return !isLedgerFile(name) })
	slices.Sort(names)
	if len(names) <= maxUserFiles {
		return names
	}
	of := map[uint32]int{}
	return slices.DeleteFunc(names, func(name string) bool {
		var stat unix.Stat_t
		if unix.Lstat(filepath.Join(l.dir, name), &stat) != nil {
			return true // it is gone
		}
		if of[stat.Uid]++; of[stat.Uid] == maxUserFiles+1 {
			l.note("user %d has more than %d files in the ledger %s: some are ignored", stat.Uid, maxUserFiles, l.dir)
		}
		return of[stat.Uid] > maxUserFiles && name != l.own
	})
}

// Own are the live bookings in our own file: after a restart, those of the
// earlier berth.
func (l *Ledger) Own() ([]Entry, error) {
	file, err := l.read(l.own)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read own bookings: %w", err)
	}
	return l.alive(file), nil
}

// living reads one berth's file and tries to remove it if nothing in it is
// alive. The kernel decides whether that is allowed: the directory is sticky.
func (l *Ledger) living(name string) []Entry {
	file, err := l.read(name)
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			l.note("ignoring a file in the ledger: %v", err)
		}
		return nil
	}
	if file.BootID == l.bootID && file.PIDSpace != l.pidSpace {
		return nil // of another container; its holders cannot be checked
	}
	living := l.alive(file)
	if len(living) == 0 && l.held && !l.without {
		// Under the lock, no berth is between reading and replacing that file.
		_ = os.Remove(filepath.Join(l.dir, name))
		delete(l.cache, name)
	}
	return living
}

func (l *Ledger) alive(file ledgerFile) []Entry {
	if file.BootID != l.bootID {
		return nil
	}
	var living []Entry
	for _, e := range file.Entries {
		if processAlive(e.HolderPID, e.HolderStart) && speaksFor(file.owner, e.HolderPID) {
			living = append(living, e)
		}
	}
	return living
}

// read opens a file that may be anything: a symlink, a pipe, a huge file.
func (l *Ledger) read(name string) (ledgerFile, error) {
	path := filepath.Join(l.dir, name)
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return ledgerFile{}, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	f := os.NewFile(uintptr(fd), path)
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return ledgerFile{}, err
	}
	if !info.Mode().IsRegular() || info.Size() > maxLedgerFile {
		return ledgerFile{}, fmt.Errorf("%s: expected a ledger file, found %s of %d bytes", path, info.Mode(), info.Size())
	}
	key := cachedFile{inode: inodeOf(info), size: info.Size(), changed: info.ModTime()}
	if cached, found := l.cache[name]; found && cached.inode == key.inode && cached.size == key.size && cached.changed.Equal(key.changed) {
		return cached.file, nil
	}
	data, err := io.ReadAll(io.LimitReader(f, maxLedgerFile))
	if err != nil {
		return ledgerFile{}, err
	}
	if err := json.Unmarshal(data, &key.file); err != nil {
		return ledgerFile{}, fmt.Errorf("%s: %w", path, err)
	}
	if key.file.Version != ledgerVersion {
		return ledgerFile{}, fmt.Errorf("%s: unknown version %d", path, key.file.Version)
	}
	key.file.Entries, key.file.owner = l.sound(path, key.file.Entries), ownerOf(info)
	if age := time.Since(key.changed); age > raceWindow {
		l.cache[name] = key
	}
	return key.file, nil
}

// sound keeps the valid entries. A negative budget would create room that does
// not exist; a control character would end up on a terminal.
func (l *Ledger) sound(path string, entries []Entry) []Entry {
	if len(entries) > maxLedgerEntries {
		l.note("%s has %d bookings: only the first %d count", path, len(entries), maxLedgerEntries)
		entries = entries[:maxLedgerEntries]
	}
	var sound []Entry
	for _, e := range entries {
		negative := slices.ContainsFunc(e.BudgetMiB, func(mib int64) bool { return mib < 0 || mib > 1<<40 })
		if len(e.UUIDs) != len(e.BudgetMiB) || len(e.UUIDs) > maxEntryCards || negative || e.Share < 0 || e.Share > 1 {
			l.note("%s has an invalid booking", path)
			continue
		}
		for _, said := range []*string{&e.Key, &e.User, &e.Job, &e.Name} {
			*said = text.Said(*said)
		}
		sound = append(sound, e)
	}
	return sound
}

func inodeOf(info fs.FileInfo) uint64 {
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		return stat.Ino
	}
	return 0
}

func ownerOf(info fs.FileInfo) uint32 {
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		return stat.Uid
	}
	return 0
}

// note keeps a remark for the log. Each one is made once, and the last one
// says that more are dropped.
func (l *Ledger) note(format string, args ...any) {
	written := text.Said(fmt.Sprintf(format, args...))
	if len(l.noted) >= maxLedgerNotes || slices.Contains(l.noted, written) {
		return
	}
	l.noted = append(l.noted, written)
	if len(l.noted) == maxLedgerNotes {
		written += " (further remarks are dropped)"
	}
	l.notes = append(l.notes, written)
}

// Notes are the remarks since the last call, for berth's own log.
func (l *Ledger) Notes() []string {
	notes := l.notes
	l.notes = nil
	return notes
}

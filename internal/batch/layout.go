package batch

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"berth/internal/site"
)

// layout is where everything of one queue lies.
type layout struct {
	logDir string // what the user named, absolute
	state  string // store, supervisors and simulated box: the same place, unless that is on a network
}

func (l layout) jobsDir() string { return filepath.Join(l.logDir, "jobs") }
func (l layout) journal() string { return filepath.Join(l.logDir, "journal.jsonl") }
func (l layout) board() string   { return filepath.Join(l.logDir, "status.txt") }
func (l layout) log() string     { return filepath.Join(l.logDir, "berth.log") }

// pointerName is a file in the log directory that says where the state is.
const pointerName = "state-is-at"

// openLayout makes the log directory. On a network file system, where neither
// locks nor SQLite's shared memory can be trusted, the state goes to the
// user's own local directory and the log directory says where that is.
func openLayout(logDir string, stateHome string, network func(path string) (bool, error)) (layout, error) {
	abs, err := filepath.Abs(logDir)
	if err != nil {
		return layout{}, fmt.Errorf("log directory %s: %w", logDir, err)
	}
	if err := fits(abs); err != nil {
		return layout{}, fmt.Errorf("log directory %w", err)
	}
	if err := site.MakeDir(filepath.Join(abs, "jobs"), 0o755); err != nil {
		return layout{}, fmt.Errorf("make log directory: %w", err)
	}
	remote, err := network(abs)
	if err != nil {
		return layout{}, fmt.Errorf("look at the file system of %s: %w", abs, err)
	}
	l := layout{logDir: abs, state: abs}
	if !remote {
		return l, nil
	}
	sum := sha256.Sum256([]byte(abs))
	l.state = filepath.Join(stateHome, "runs", hex.EncodeToString(sum[:8]))
	if err := fits(l.state); err != nil {
		return layout{}, fmt.Errorf("state directory %w", err)
	}
	if err := site.MakeDir(l.state, 0o700); err != nil {
		return layout{}, fmt.Errorf("make state directory: %w", err)
	}
	host, _ := os.Hostname()
	pointer := fmt.Sprintf("%s:%s\n", host, l.state)
	if err := os.WriteFile(filepath.Join(abs, pointerName), []byte(pointer), 0o644); err != nil {
		return layout{}, fmt.Errorf("write pointer to the state directory: %w", err)
	}
	return l, nil
}

// maxDirBytes is the longest path a queue may lie at: SQLite opens no file
// whose path is longer than 512 bytes, and its files have names of their own
// below this one.
const maxDirBytes = 470

func fits(dir string) error {
	if len(dir) > maxDirBytes {
		return fmt.Errorf("%s: its path is %d bytes long; at most %d are possible", dir, len(dir), maxDirBytes)
	}
	return nil
}

// stateHome is where a user's local state belongs.
func stateHome(getenv func(string) string) string {
	if dir := getenv("XDG_STATE_HOME"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "berth")
	}
	if home := getenv("HOME"); filepath.IsAbs(home) {
		return filepath.Join(home, ".local", "state", "berth")
	}
	return filepath.Join(os.TempDir(), fmt.Sprintf("berth-%d", os.Getuid()))
}

// holdsSomething is true of a file with a word in it and of a directory with
// an entry.
func holdsSomething(path string) bool {
	info, err := os.Stat(path)
	if err != nil || !info.IsDir() {
		return err == nil && info.Size() > 0
	}
	entries, err := os.ReadDir(path)
	return err != nil || len(entries) > 0
}

// setAside moves the records of earlier runs out of the way of a fresh start.
// Nothing a job ever wrote is deleted.
func (l layout) setAside(now time.Time) (string, error) {
	old, err := l.theirs()
	if err != nil {
		return "", err
	}
	for _, path := range []string{l.jobsDir(), l.journal(), l.board()} {
		if holdsSomething(path) {
			old = append(old, path)
		}
	}
	if len(old) == 0 {
		return "", nil
	}
	name := "old-" + now.Format("20060102-150405")
	dir := filepath.Join(l.logDir, name)
	for n := 2; ; n++ {
		err := os.Mkdir(dir, 0o755)
		if err == nil {
			break
		}
		if !os.IsExist(err) || n > 1000 {
			return "", fmt.Errorf("set old logs aside: %w", err)
		}
		dir = filepath.Join(l.logDir, fmt.Sprintf("%s-%d", name, n))
	}
	for _, path := range old {
		if err := os.Rename(path, filepath.Join(dir, filepath.Base(path))); err != nil {
			return "", fmt.Errorf("set old logs aside: %w", err)
		}
	}
	return strings.TrimPrefix(dir, l.logDir+"/"), os.MkdirAll(l.jobsDir(), 0o755)
}

package batch

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"berth/internal/machine/site"
	"berth/internal/queue"
	"berth/internal/queue/store"
	"berth/internal/text"
)

// layout is where the files of one queue are.
type layout struct {
	logDir string // as the user named it, absolute
	state  string // store, supervisors and simulation directory: the same directory, unless it is on a network
}

func (l layout) jobsDir() string { return filepath.Join(l.logDir, "jobs") }
func (l layout) journal() string { return filepath.Join(l.logDir, "journal.jsonl") }
func (l layout) board() string   { return filepath.Join(l.logDir, "status.txt") }
func (l layout) log() string     { return filepath.Join(l.logDir, "berth.log") }

// pointerName is a file in the log directory that says where the state is.
const pointerName = "state-is-at"

// openLayout makes the log directory. On a network file system, where neither
// locks nor SQLite's shared memory are reliable, the state goes to the user's
// local directory and the log directory holds a pointer to it.
func openLayout(logDir string, stateHome string, network func(path string) (bool, error)) (layout, error) {
	abs, err := filepath.Abs(logDir)
	if err != nil {
		return layout{}, fmt.Errorf("log directory %s: %w", logDir, err)
	}
	if err := fits(abs); err != nil {
		return layout{}, fmt.Errorf("log directory %w", err)
	}
	if err := store.MakeDir(abs, 0o755); err != nil {
		return layout{}, fmt.Errorf("make log directory: %w", err)
	}
	if err := site.OwnPlace(abs); err != nil {
		return layout{}, fmt.Errorf("log directory %w", err)
	}
	if err := store.MakeDir(filepath.Join(abs, "jobs"), 0o755); err != nil {
		return layout{}, fmt.Errorf("make log directory: %w", err)
	}
	for _, name := range []string{"jobs", "store", "keep", "sim", "journal.jsonl", "status.txt", "berth.log", pointerName} {
		if err := site.OwnEntry(filepath.Join(abs, name)); err != nil {
			return layout{}, fmt.Errorf("log directory %w", err)
		}
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
	if err := store.MakeDir(l.state, 0o700); err != nil {
		return layout{}, fmt.Errorf("make state directory: %w", err)
	}
	host, _ := os.Hostname()
	pointer := fmt.Sprintf("%s:%s\n", host, l.state)
	if err := os.WriteFile(filepath.Join(abs, pointerName), []byte(pointer), 0o644); err != nil {
		return layout{}, fmt.Errorf("write pointer to the state directory: %w", err)
	}
	return l, nil
}

// Place is where a queue is, for those who ask about it.
type Place struct {
	LogDir   string // absolute
	StateDir string
	JobsDir  string
	Log      string // of berth itself
}

func (l layout) place() Place {
	return Place{LogDir: l.logDir, StateDir: l.state, JobsDir: l.jobsDir(), Log: l.log()}
}

// fromPipe is the batch of lines that came through a pipe.
const fromPipe = "-"

// FileName is a jobs file as queues know it: its absolute path, without links in its
// directory. The file that keeps the lines of a pipe is that pipe.
func FileName(dir, path string) string {
	if !filepath.IsAbs(path) {
		path = filepath.Join(dir, path)
	}
	if abs, err := filepath.Abs(path); err == nil {
		path = abs
	}
	if dir, err := filepath.EvalSymlinks(filepath.Dir(path)); err == nil {
		path = filepath.Join(dir, filepath.Base(path))
	}
	if filepath.Base(path) == pipedName {
		path = filepath.Join(filepath.Dir(path), fromPipe)
	}
	return path
}

// DefaultLogDir is the log directory of a berth run in its working directory.
const DefaultLogDir = "berth_logs"

// Find is the queue of a log directory that a berth run made. It changes nothing
// there. Only the user's own is found: another user could have put false answers,
// or links to any file, into theirs.
func Find(logDir string) (Place, error) { return find(logDir, site.OnNetwork) }

func find(logDir string, network func(path string) (bool, error)) (Place, error) {
	abs, err := filepath.Abs(logDir)
	if err != nil {
		return Place{}, fmt.Errorf("log directory %s: %w", logDir, err)
	}
	if err := site.OwnPlace(abs); err != nil {
		return Place{}, fmt.Errorf("log directory %w", err)
	}
	l := layout{logDir: abs, state: abs}
	for _, name := range []string{pointerName, "store"} {
		if err := site.OwnEntry(filepath.Join(abs, name)); err != nil {
			return Place{}, fmt.Errorf("log directory %w", err)
		}
	}
	remote, err := network(abs)
	if err != nil {
		return Place{}, fmt.Errorf("look at the file system of %s: %w", abs, err)
	}
	if remote {
		pointer, err := os.ReadFile(filepath.Join(abs, pointerName))
		if err != nil {
			return Place{}, fmt.Errorf("%s: %w", logDir, errNoRun)
		}
		if l.state, err = pointsTo(string(pointer)); err != nil {
			return Place{}, fmt.Errorf("the queue of %s %w", logDir, err)
		}
		if err := site.OwnPlace(l.state); err != nil {
			return Place{}, fmt.Errorf("state directory %w", err)
		}
	}
	if _, err := os.Stat(store.Path(queue.StoreDir(l.state))); err != nil {
		return Place{}, fmt.Errorf("%s: %w", logDir, errNoRun)
	}
	return l.place(), nil
}

var errNoRun = errors.New("expected the log directory of a berth run, found no queue in it")

// pointsTo is the state directory that a pointer names, on this machine.
func pointsTo(pointer string) (state string, err error) {
	host, state, _ := strings.Cut(strings.TrimSuffix(pointer, "\n"), ":")
	if here, _ := os.Hostname(); host != here {
		return "", fmt.Errorf("is on the machine %s", text.Line(host))
	}
	if !filepath.IsAbs(state) {
		return "", fmt.Errorf("is at %q, which is not a path", state)
	}
	return state, nil
}

// elsewhere is an error if the state of a log directory is on another machine: a
// run here would start all its jobs again.
func elsewhere(logDir string) error {
	pointer, err := os.ReadFile(filepath.Join(logDir, pointerName))
	if err != nil {
		return nil // no run has put its state elsewhere, or openLayout says what is wrong
	}
	host, state, _ := strings.Cut(strings.TrimSuffix(string(pointer), "\n"), ":")
	if _, there := os.Stat(state); there == nil {
		return nil
	}
	if here, _ := os.Hostname(); host == here {
		return nil // it was removed
	}
	return fmt.Errorf("the queue of %s is on the machine %s, in %s", logDir, text.Line(host), text.Line(state))
}

// maxDirBytes bounds the path of a queue: SQLite opens no file whose path is
// longer than 512 bytes, and its files are below this directory.
const maxDirBytes = 470

func fits(dir string) error {
	if len(dir) > maxDirBytes {
		return fmt.Errorf("%s: expected a path of at most %d bytes, found %d", dir, maxDirBytes, len(dir))
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

// holdsSomething reports whether a file or directory exists and is not empty.
func holdsSomething(path string) bool {
	info, err := os.Stat(path)
	if err != nil || !info.IsDir() {
		return err == nil && info.Size() > 0
	}
	entries, err := os.ReadDir(path)
	return err != nil || len(entries) > 0
}

// archive moves the records of earlier runs to a directory of their own before a
// fresh start. It deletes nothing.
func (l layout) archive(now time.Time) (string, error) {
	old, err := l.theirs()
	if err != nil {
		return "", err
	}
	links, err := l.theirLogs()
	if err != nil {
		return "", err
	}
	old = append(old, links...)
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
			return "", fmt.Errorf("move old logs: %w", err)
		}
		dir = filepath.Join(l.logDir, fmt.Sprintf("%s-%d", name, n))
	}
	for _, path := range old {
		if err := os.Rename(path, filepath.Join(dir, filepath.Base(path))); err != nil {
			return "", fmt.Errorf("move old logs: %w", err)
		}
	}
	return strings.TrimPrefix(dir, l.logDir+"/"), os.MkdirAll(l.jobsDir(), 0o755)
}

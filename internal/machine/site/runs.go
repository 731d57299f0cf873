package site

import (
	"cmp"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"berth/internal/machine/keep"
)

// Runs is the list of a user's berth runs that serve a queue of their own on
// this machine. Each has a file: its name says which process serves the queue,
// its text is the log directory.
//
// The files are in the state directory, not the runtime directory: that one is
// removed at logout, and a run may outlive a logout.
type Runs struct{ dir string }

// RunsOf is the list of the user with this environment. A home directory may be
// shared between machines, so each has a list of its own.
func RunsOf(getenv func(string) string) (Runs, error) {
	places, err := PrivatePlaces(getenv)
	if err != nil {
		return Runs{}, err
	}
	host, err := os.Hostname()
	if err != nil {
		return Runs{}, fmt.Errorf("name of this machine: %w", err)
	}
	return Runs{dir: filepath.Join(places.StateDir, "running", filepath.Base(host))}, nil
}

// Add lists a run that this process serves until remove is called.
func (r Runs) Add(logDir string) (remove func(), err error) {
	abs, err := filepath.Abs(logDir)
	if err != nil {
		return nil, err
	}
	began, err := keep.StartTicks(os.Getpid())
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(r.dir, 0o700); err != nil {
		return nil, err
	}
	if err := OwnPlace(r.dir); err != nil {
		return nil, err
	}
	sum := fnv.New64a()
	_, _ = io.WriteString(sum, abs) // it never fails
	path := filepath.Join(r.dir, fmt.Sprintf("%d-%d-%x", os.Getpid(), began, sum.Sum64()))
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	_, err = io.WriteString(file, abs+"\n")
	if err = cmp.Or(err, file.Close()); err != nil {
		_ = os.Remove(path) // the error is what counts
		return nil, err
	}
	return func() { _ = os.Remove(path) }, nil // once the process has ended, the next reader removes it
}

// Running is the log directories of the runs whose processes live, the oldest
// process first. It removes the files of processes that are gone. What it cannot
// trust or read is left out.
func (r Runs) Running() []string {
	entries, err := os.ReadDir(r.dir)
	if err != nil || len(entries) == 0 || OwnPlace(r.dir) != nil {
		return nil
	}
	type run struct {
		began  uint64
		logDir string
	}
	var runs []run
	for _, e := range entries {
		pid, began, sum := 0, uint64(0), uint64(0)
		if n, err := fmt.Sscanf(e.Name(), "%d-%d-%x", &pid, &began, &sum); n != 3 || err != nil || e.Name() != fmt.Sprintf("%d-%d-%x", pid, began, sum) {
			continue // not one of ours
		}
		path := filepath.Join(r.dir, e.Name())
		p, err := keep.ReadProcess(pid)
		if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ESRCH) || err == nil && (p.Dead() || p.Start != began) {
			_ = os.Remove(path) // the next reader tries again
			continue
		}
		if dir, ok := readRun(path); ok && !slices.ContainsFunc(runs, func(other run) bool { return other.logDir == dir }) {
			runs = append(runs, run{began, dir})
		}
	}
	slices.SortFunc(runs, func(a, b run) int { return cmp.Or(cmp.Compare(a.began, b.began), cmp.Compare(a.logDir, b.logDir)) })
	dirs := make([]string, len(runs))
	for i := range runs {
		dirs[i] = runs[i].logDir
	}
	return dirs
}

// readRun reads a file of the list, unless it is a link, another user's or
// unfinished.
func readRun(path string) (logDir string, ok bool) {
	file, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return "", false
	}
	defer file.Close()
	var stat unix.Stat_t
	if err := unix.Fstat(int(file.Fd()), &stat); err != nil || stat.Mode&unix.S_IFMT != unix.S_IFREG || int(stat.Uid) != os.Geteuid() {
		return "", false
	}
	data, err := io.ReadAll(io.LimitReader(file, unix.PathMax+1))
	if err != nil {
		return "", false
	}
	dir, whole := strings.CutSuffix(string(data), "\n")
	return dir, whole && filepath.IsAbs(dir)
}

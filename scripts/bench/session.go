package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// session runs measurements one after another, each as a process in a directory of
// its own, and leaves neither processes nor files.
type session struct {
	dir    string
	end    time.Time // of all of them
	child  func(ctx context.Context, name string) *exec.Cmd
	was    map[string]row // the committed ones; empty: goals count
	rows   []row          // guarded
	missed int            // rows
	lost   int            // measurements that did not tell all of theirs
}

// measured runs a measurement within its time. If a row is worse than it was, it is
// measured twice more, and the best counts: other work on the machine comes and
// goes.
func (s *session) measured(ctx context.Context, m measurement) {
	most := min(m.most, time.Until(s.end))
	if most < m.most/2 {
		s.lost++
		fmt.Printf("%s: not measured, no time is left\n", m.name)
		return
	}
	fmt.Printf("%s: at most %v\n", m.name, most.Round(time.Second))
	within, stop := context.WithTimeout(ctx, most)
	defer stop()
	best, err := s.try(within, m.name)
	begun := time.Now()
	for range 2 {
		ends, _ := within.Deadline()
		if err != nil || !slices.ContainsFunc(best, s.isWorse) || time.Until(ends) < time.Since(begun) {
			break
		}
		begun = time.Now()
		var again []result
		if again, err = s.try(within, m.name); err == nil {
			for i := range best {
				if best[i].worseThan(again[i].row) > 1 {
					best[i] = again[i]
				}
			}
		}
	}
	if err != nil {
		s.lost++
		fmt.Printf("%s: NOT MEASURED to its end: %v\n", m.name, err)
	}
	for _, r := range best {
		s.take(r)
	}
}

// take counts a result.
func (s *session) take(r result) {
	if r.Guarded {
		s.rows = append(s.rows, r.row)
	}
	if len(s.was) == 0 {
		if !r.OK {
			s.missed++
		}
		return
	}
	old, known := s.was[r.What]
	switch by := r.worseThan(old); {
	case !r.Guarded:
	case !known:
		fmt.Printf("%-72s is new\n", r.What)
	case by > tolerated:
		s.missed++
		fmt.Printf("%-72s WORSE: %.3g, was %.3g\n", r.What, r.Value, old.Value)
	case by < 1/tolerated:
		fmt.Printf("%-72s better: %.3g, was %.3g\n", r.What, r.Value, old.Value)
	}
}

func (s *session) isWorse(r result) bool {
	old, known := s.was[r.What]
	return known && r.worseThan(old) > tolerated
}

// try measures once, and returns also what a measurement told before it failed.
func (s *session) try(ctx context.Context, name string) ([]result, error) {
	dir, err := os.MkdirTemp(s.dir, name)
	check(err)
	ledger := ledgerIn(dir)
	defer remove(ledger)
	cmd := s.child(ctx, name)
	cmd.Env = append(cmd.Environ(), "BERTH_LEDGER_DIR="+ledger)
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, os.Stdout, os.Stderr
	// What it leaves running becomes a child of this process.
	check(unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0))
	err = cmd.Run()
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		err = errors.New("it took too long")
	}
	endChildren()
	results, unread := readResults(filepath.Join(dir, told))
	remove(dir)
	return results, errors.Join(err, unread)
}

// ledgerIn is a directory where the berths of a measurement share their bookings: in
// memory, where they do by default, and otherwise in this one. A file that replaces
// another one at each start is written to a disk at once.
func ledgerIn(dir string) string {
	ledger, err := os.MkdirTemp("/dev/shm", "berth-bench-")
	if err != nil {
		ledger = filepath.Join(dir, "ledger")
	}
	return ledger
}

// endChildren kills what a measurement left running, in rounds: the children of a
// process that dies become ours.
func endChildren() {
	for range 1000 {
		pids := childrenOf(os.Getpid())
		for _, pid := range pids {
			_ = syscall.Kill(pid, syscall.SIGKILL) // or it is gone
			_, _ = syscall.Wait4(pid, nil, 0, nil)
		}
		if len(pids) == 0 {
			return
		}
	}
	fail("processes of a measurement do not end")
}

func childrenOf(pid int) (pids []int) {
	tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, t := range tasks {
		text, _ := os.ReadFile(t) // or the thread is gone
		for _, field := range bytes.Fields(text) {
			pid, _ := strconv.Atoi(string(field))
			pids = append(pids, pid)
		}
	}
	return pids
}

func (s *session) close() { remove(s.dir) }

// remove also removes snapshots, whose directories are read-only.
func remove(dir string) {
	_ = filepath.WalkDir(dir, func(path string, entry os.DirEntry, err error) error {
		if err == nil && entry.IsDir() {
			_ = os.Chmod(path, 0o755)
		}
		return nil
	})
	if err := os.RemoveAll(dir); err != nil {
		fmt.Println("left behind:", strings.TrimSpace(err.Error()))
	}
}

package run

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"syscall"

	"berth/internal/job"
	"berth/internal/machine/keep"
)

// External is a process that berth did not start, as the kernel shows it.
type External struct {
	job.Process
	UID    int      // real user
	Name   string   // the kernel's short name for it
	Argv   []string // its command line, truncated if long
	Kernel bool     // a kernel thread
	Leader int      // the process it is a thread of; itself if it is a process
}

// ErrNoProcess means that there is no such process, or not any more.
var ErrNoProcess = errors.New("no such process")

// Bounds on a command line, which is only displayed.
const (
	maxShownBytes = 4096
	maxShownWords = 256
)

// ReadExternal reads one process. All fields are about the same one: if its
// pid was reused in the meantime, there is no such process.
func ReadExternal(pid int) (External, error) {
	s := External{Process: job.Process{PID: pid}}
	before, err := keep.ReadProcess(pid)
	if err != nil || before.Dead() {
		return s, noProcess(pid, err)
	}
	s.Start = before.Start
	if err := s.readStatus(); err != nil {
		return s, noProcess(pid, err)
	}
	if s.Argv, err = readArgv(pid); err != nil {
		return s, noProcess(pid, err)
	}
	if !Alive(s.Process) {
		return s, noProcess(pid, nil)
	}
	// Every user process has a command line, unless it erased it.
	s.Kernel = len(s.Argv) == 0 && (pid == kernelThreads || before.Parent == kernelThreads)
	if len(s.Argv) == 0 {
		s.Argv = []string{s.Name}
	}
	return s, nil
}

// kernelThreads is the parent of all kernel threads.
const kernelThreads = 2

func noProcess(pid int, err error) error {
	if err != nil && !errors.Is(err, os.ErrNotExist) && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("examine process %d: %w", pid, err)
	}
	return fmt.Errorf("process %d: %w", pid, ErrNoProcess)
}

func (s *External) readStatus() error {
	status, err := os.ReadFile("/proc/" + strconv.Itoa(s.PID) + "/status")
	if err != nil {
		return err
	}
	s.UID = -1
	for line := range strings.Lines(string(status)) {
		key, value, _ := strings.Cut(line, ":")
		fields := strings.Fields(value)
		if len(fields) == 0 {
			continue
		}
		switch key {
		case "Name":
			s.Name = strings.TrimSpace(value)
		case "Tgid":
			s.Leader, err = strconv.Atoi(fields[0])
		case "Uid": // the real one comes first
			s.UID, err = strconv.Atoi(fields[0])
		}
		if err != nil {
			return err
		}
	}
	if s.UID < 0 || s.Leader <= 0 {
		return errors.New("its status has no user")
	}
	return nil
}

// readArgv is a command line, truncated to a readable length.
func readArgv(pid int) ([]string, error) {
	file, err := os.Open("/proc/" + strconv.Itoa(pid) + "/cmdline")
	if err != nil {
		return nil, err
	}
	defer file.Close()
	line, err := io.ReadAll(io.LimitReader(file, maxShownBytes+1))
	if err != nil {
		return nil, err
	}
	cut := len(line) > maxShownBytes
	line = bytes.TrimRight(line[:min(len(line), maxShownBytes)], "\x00")
	if len(line) == 0 {
		return nil, nil
	}
	words := strings.Split(string(line), "\x00")
	if len(words) > maxShownWords {
		words, cut = words[:maxShownWords], true
	}
	if cut {
		words[len(words)-1] += "…"
	}
	return words, nil
}

// IsSupervisor reports whether the process looks like one of berth's own.
func (s External) IsSupervisor() bool {
	return s.Name == "berth-keep" || len(s.Argv) > 1 && s.Argv[1] == keepWord
}

// Within reports whether the process is root or one of its descendants.
func Within(pid int, root job.Process) bool {
	for range maxAncestors {
		p, err := keep.ReadProcess(pid)
		if err != nil {
			return false
		}
		if p.PID == root.PID && p.Start == root.Start {
			return true
		}
		if pid = p.Parent; pid <= 0 {
			return false
		}
	}
	return false
}

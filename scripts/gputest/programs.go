package main

import (
	"embed"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

//go:embed programs/*.py
var programFiles embed.FS

func unpackPrograms(dir string) error {
	if err := os.Mkdir(dir, 0o755); err != nil {
		return fmt.Errorf("unpack the GPU programs: %w", err)
	}
	names, err := fs.Glob(programFiles, "programs/*.py")
	if err != nil {
		return err
	}
	for _, name := range names {
		text, err := programFiles.ReadFile(name)
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, filepath.Base(name)), text, 0o644)
		}
		if err != nil {
			return fmt.Errorf("unpack the GPU programs: %w", err)
		}
	}
	return nil
}

// program is what a job does with its GPU: programs/job.py, or berth simjob
// with simulated GPUs.
type program struct {
	with      string // torch, jax, cupy, or cuda for the bare driver
	mib       int64
	hold      time.Duration
	compute   bool
	steps     bool  // hold counts the program's own work: time for which it is parked does not count
	endless   bool  // hang in a kernel
	growMiB   int64 // allocate piece by piece up to this and report how far it got
	spikes    int
	processes int
	setsid    bool
	exit      int
	ready     string // a file to create
}

// words are the command line of a program.
func (p program) words(h *host) ([]string, error) {
	seconds := strconv.FormatFloat(p.hold.Seconds(), 'f', -1, 64)
	if h.Sim {
		words := []string{h.program("berth"), "simjob", "--vram", strconv.FormatInt(p.mib, 10), "--hold", seconds, "--exit-code", strconv.Itoa(p.exit)}
		if p.processes > 1 || p.setsid || p.spikes > 0 || p.growMiB > 0 || p.endless {
			return nil, skipf("berth simjob cannot simulate this program")
		}
		return words, nil
	}
	if why := h.Missing[p.with]; why != "" {
		return nil, skipf("%s is not usable: %s", p.with, why)
	}
	words := []string{h.python, filepath.Join(h.dir, "programs", "job.py"), "--with", p.with, "--hold", seconds}
	number := func(flag string, n int64) {
		if n != 0 {
			words = append(words, flag, strconv.FormatInt(n, 10))
		}
	}
	number("--mib", p.mib)
	number("--grow", p.growMiB)
	number("--spikes", int64(p.spikes))
	number("--processes", int64(p.processes))
	number("--exit", int64(p.exit))
	for flag, set := range map[string]bool{"--compute": p.compute, "--steps": p.steps, "--endless": p.endless, "--setsid": p.setsid} {
		if set {
			words = append(words, flag)
		}
	}
	if p.ready != "" {
		words = append(words, "--ready", p.ready)
	}
	return words, nil
}

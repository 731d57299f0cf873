package cli

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"

	"berth/internal/cli/session"
	"berth/internal/machine/site"
	"berth/internal/queue/batch"
	"berth/internal/queue/config"
	"berth/internal/queue/daemon"
	"berth/internal/slurm/cluster"
	"berth/internal/text/problem"
)

// HostWord is the first argument of the process that has the own queue of a berth
// run.
const HostWord = "__queue"

// hostOrder is what such a process reads from its standard input, which stays open
// until the run that started it leaves.
type hostOrder struct {
	batch.HostOptions
	Slurm cluster.Config
}

// wordsFile is where a host writes its words.
const wordsFile = 3

// HostMain is the process of an own queue.
func HostMain() int {
	words := json.NewEncoder(os.NewFile(wordsFile, "words"))
	syscall.CloseOnExec(wordsFile)
	say := func(w batch.Word) { _ = words.Encode(w) } // the run may be gone
	if err := host(say); err != nil {
		p, ok := errors.AsType[*problem.Problem](err)
		if !ok {
			p = problem.Newf(problem.Unable, "is the disk full or the directory read-only?", "%v", err)
		}
		say(batch.Word{Problem: p, InUse: errors.Is(err, daemon.ErrInUse)})
		return 1
	}
	return 0
}

func host(say func(batch.Word)) error {
	var order hostOrder
	if err := json.NewDecoder(os.Stdin).Decode(&order); err != nil {
		return err
	}
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGTERM)
	signal.Notify(make(chan os.Signal, 1), os.Interrupt, syscall.SIGHUP, syscall.SIGPIPE)
	dir, err := os.Getwd()
	if err != nil {
		return problem.Newf(problem.Unable, "", "working directory: %w", err)
	}
	h, err := batch.NewHost(order.HostOptions, os.Environ(), dir, say)
	if err != nil {
		return err
	}
	defer h.Close()
	if log, err := os.OpenFile(h.Place().Log, os.O_APPEND|os.O_CREATE|os.O_WRONLY|unix.O_NOFOLLOW, 0o644); err == nil {
		_ = unix.Dup3(int(log.Fd()), int(os.Stderr.Fd()), 0) // a crash is told there
		log.Close()
	}
	left := make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin) // it ends with the run
		close(left)
	}()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var ready atomic.Bool
	heard := make(chan os.Signal, 4)
	go h.Hear(signals, func(sig os.Signal) {
		if heard <- sig; !ready.Load() {
			cancel() // what it is opening may hang
		}
	})
	place := h.Place()
	if !order.AsGpusched { // which writes nowhere else
		defer list(place.LogDir)()
	}
	return daemon.Serve(ctx, daemon.Options{
		Own: h, Left: left, RunDir: session.Resolved(place.LogDir), JobsDir: place.JobsDir, EndJobs: true, Signals: heard,
		Places:  site.Places{StateDir: place.StateDir, Socket: daemon.RunSocket(place.StateDir)},
		Version: session.Version, Env: os.Environ(), Sim: order.Sim,
		Override: hostConfig(&order),
		Ready:    func() { ready.Store(true); say(batch.Word{Ready: h.Ready()}) },
	})
}

// hostConfig is the config of an own queue.
func hostConfig(o *hostOrder) func(*config.Config) {
	return func(c *config.Config) {
		c.Rules, c.Poll, c.Tolerance, c.GPUs, c.LogFree, c.Slurm, c.LogLevel = o.Rules, o.Poll, o.Tolerance, o.GPUs, o.LogFree, o.Slurm, o.LogLevel
		c.Preempt, c.Parking = o.Preempt, o.Parking
	}
}

// list lets commands in other directories find the queue until unlist is called. If
// it cannot be listed, --log-dir still finds it.
func list(logDir string) (unlist func()) {
	runs, err := site.RunsOf(os.Getenv)
	if err == nil {
		unlist, err = runs.Add(logDir)
	}
	if err != nil {
		return func() {}
	}
	return unlist
}

package gpuscheduler

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"syscall"
	"time"

	"berth/internal/api"
	"berth/internal/compat/frontend"
	"berth/internal/machine/site"
	"berth/internal/queue"
	"berth/internal/queue/daemon"
	"berth/internal/text/problem"
)

// scheduler is `gpu-scheduler start`: a daemon in this process, and its client.
// The daemon keeps the jobs; everything here may be lost in a restart.
type scheduler struct {
	shared

	feed    feed
	mirror  mirror
	retries retries
	streams streams

	reasons  map[string]bool // jobs whose wait was explained
	reported map[string]bool // starts and ends that were logged
	began    time.Time
	looked   time.Time // for reasons
	ready    bool      // the daemon has listed its jobs
	stopping bool
}

func runStart(c call, stateFile string, args []string) int {
	opt, err := parseStart(stateFile, args)
	if err != nil {
		return c.Misuse(err.Error(), frontend.BadUsage)
	}
	if opt.screen {
		if err := screenReady(); err != nil {
			return c.fail(err)
		}
	}
	s, places, err := newScheduler(c, opt)
	if err != nil {
		return c.fail(err)
	}
	defer func() { _ = s.log.file.Close() }() // there is nowhere to report it
	return s.serve(c, places)
}

func newScheduler(c call, opt options) (*scheduler, site.Places, error) {
	s := &scheduler{shared: shared{opt: opt, index: newIndex()}, reasons: map[string]bool{}, reported: map[string]bool{}, began: time.Now()}
	places, err := placesOf(opt.stateFile)
	if err != nil {
		return nil, places, err
	}
	dir, err := os.Getwd()
	if err != nil {
		return nil, places, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, places, err
	}
	if s.log, err = openLog(c.Out); err != nil {
		return nil, places, problem.Newf(problem.Refused, "start it in a directory you can write to", "%v", err)
	}
	logDir, moved, err := outputDir()
	if err != nil {
		return nil, places, problem.Newf(problem.Refused, "set TMPDIR to another directory", "%v", err)
	}
	if moved {
		s.log.warn("the usual directory for job logs belongs to another user; using %s", logDir)
	}
	s.client = api.Dial(places.Socket)
	s.feed = feed{shared: s.shared, dir: dir, self: self, logDir: logDir, gone: map[string]int{}, refused: map[string]int{}}
	s.mirror = mirror{shared: s.shared}
	s.retries = retries{s.shared}
	s.streams = streams{shared: s.shared, open: map[string]chan struct{}{}}
	return s, places, nil
}

// serve runs the daemon until it ends, and the loop beside it once it is ready.
func (s *scheduler) serve(c call, places site.Places) int {
	typed, passed := make(chan os.Signal, 4), make(chan os.Signal, 4)
	signal.Notify(typed, os.Interrupt, syscall.SIGTERM)
	// Caught and dropped, not ignored: child processes would inherit an ignored
	// signal.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP, syscall.SIGPIPE)
	ready, done := make(chan struct{}), make(chan error, 1)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		done <- daemon.Serve(ctx, daemon.Options{
			Places: places, Version: c.Version, Override: s.opt.rules, TypedGPUs: s.opt.gpus > 0,
			Sim: s.opt.sim, SimVRAMMiB: frontend.SimVRAMMiB, NeedsGPUs: true, Env: os.Environ(),
			Signals: passed, EndJobs: !s.opt.screen, Ready: func() { close(ready) },
		})
	}()
	var err error
	select {
	case <-ready:
		err = s.follow(ctx, typed, passed, done)
	case err = <-done:
	case <-typed:
		cancel() // nothing was started yet
		<-done
		c.Complain("stopped before any job was started", "")
		return frontend.Interrupted
	}
	cancel()
	s.streams.wait.Wait()
	if s.ready {
		if err := s.mirror.lastSave(); err != nil {
			s.log.warn("cannot write the state file: %v", err)
		}
	}
	s.client.Close()
	switch {
	case err != nil:
		if s.ready { // someone may look for the reason in the log
			s.log.fail("%v", err)
		}
		return c.fail(refusal(err, s.opt))
	case s.stopping:
		return frontend.Interrupted
	}
	return 0
}

// refusal is why the daemon does not start, with this program's flags.
func refusal(err error, opt options) error {
	p, ok := errors.AsType[*problem.Problem](err)
	if !ok {
		return err
	}
	own := *p
	switch {
	case errors.Is(err, daemon.ErrInUse):
		own.What, own.Hint = "a scheduler is already running with the state file "+opt.stateFile, "gpu-scheduler status shows it; for a second one, choose another --state-file"
	case p.Hint == daemon.StateDirHint:
		own.Hint = "choose another place with --state-file"
	case p.Hint == queue.NoCardsHint:
		own.Hint = "without a GPU, try --sim 2: simulated GPUs, real processes"
	}
	return &own
}

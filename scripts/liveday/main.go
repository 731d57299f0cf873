// Liveday runs a day of jobs on a daemon with simulated GPUs, replays what that
// daemon remembers of it with berth simulate, and compares how long the jobs
// waited. The day lasts minutes and nothing is scaled: long jobs outlast the first
// service class (three minutes), and short ones come meanwhile. Two users submit
// gangs that save their work, gangs that do not, single jobs that can be parked, and
// single jobs that cannot, and the host has memory for two parked cards.
//
//	go run ./scripts/liveday -berth bin/berth -seed 1
//
// It needs root, for the two users.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"
)

func main() {
	if len(os.Args) > 1 && os.Args[1] == "job" {
		os.Exit(program(os.Args[2:]))
	}
	var o options
	flag.StringVar(&o.berth, "berth", "bin/berth", "the berth to run")
	flag.Uint64Var(&o.seed, "seed", 1, "which day")
	flag.IntVar(&o.gpus, "gpus", 8, "simulated GPUs")
	flag.DurationVar(&o.span, "span", 7*time.Minute, "how long jobs are submitted")
	flag.StringVar(&o.keep, "keep", "", "leave the daemon's directory and the figures of each job here")
	flag.IntVar(&o.show, "show", 10, "how many of the jobs that differ most to print")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := o.day(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "liveday:", err)
		os.Exit(1)
	}
}

// options are the flags.
type options struct {
	berth, keep string
	seed        uint64
	gpus, show  int
	span        time.Duration
}

// day runs the day live and replays it.
func (o *options) day(ctx context.Context) error {
	if os.Getuid() != 0 {
		return fmt.Errorf("it needs root, for jobs of two users")
	}
	berth, err := filepath.Abs(o.berth)
	if err != nil {
		return err
	}
	dir := o.keep
	if dir == "" {
		if dir, err = os.MkdirTemp("", "liveday-"); err != nil {
			return err
		}
		defer os.RemoveAll(dir)
	} else if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		return err
	}
	jobs := theDay(o.seed, o.gpus, o.span)
	d, err := serve(ctx, berth, dir, o.gpus)
	if err != nil {
		return err
	}
	defer d.stop()
	if err := d.warmUp(ctx); err != nil {
		return err
	}
	if err := d.submit(ctx, jobs); err != nil {
		return err
	}
	if err := d.drained(ctx); err != nil {
		return err
	}
	r, err := d.replay(ctx)
	if err != nil {
		return err
	}
	r.print(os.Stdout, jobs, o.show)
	return nil
}

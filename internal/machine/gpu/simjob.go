package gpu

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// A ramp takes at least rampSteps steps, none longer than rampStep.
const (
	rampSteps = 10
	rampStep  = 100 * time.Millisecond
)

// SimJobOptions describe a stand-in for a GPU program.
type SimJobOptions struct {
	Dir      string // the box; not needed without cards
	Cards    []int
	VRAMMiB  int64 // on each card
	Ramp     time.Duration
	Hold     time.Duration
	ExitCode int
	OOMOnce  string // fail half way, once: if this file does not exist yet
	UtilPct  float64
	Graphics bool
	Out, Err io.Writer
}

// simJob is a running stand-in.
type simJob struct {
	SimJobOptions
	process *simProcess // nil for a job without cards
	ctx     context.Context
	signals chan os.Signal
	wasAway time.Duration // how long it had been parked when it last looked
}

// errStopped ends a job with the exit status that a shell shows for its
// signal.
type errStopped struct{ status int }

func (e errStopped) Error() string { return "stopped" }

// SimJob runs a stand-in for a GPU program in the calling process and returns
// its exit status: it allocates its memory, holds it, and frees it. If a card
// is full, it fails like a PyTorch program.
func SimJob(ctx context.Context, opts SimJobOptions) int {
	j := &simJob{SimJobOptions: opts, ctx: ctx, signals: make(chan os.Signal, 2)}
	signal.Notify(j.signals, unix.SIGTERM, unix.SIGINT)
	defer signal.Stop(j.signals)

	err := j.run()
	var full *outOfMemoryError
	var stopped errStopped
	switch {
	case err == nil:
		return opts.ExitCode
	case errors.As(err, &stopped):
		return stopped.status
	case errors.As(err, &full):
		// This is PyTorch's message, which counts cards from 0 in the order the program
		// sees them.
		ordinal := max(0, slices.Index(j.Cards, full.Card))
		fmt.Fprintf(j.Err, "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate %s. GPU %d has a total capacity of %s of which %s is free.\n",
			sizeText(full.AskedMiB), ordinal, sizeText(full.TotalMiB), sizeText(full.FreeMiB))
	default:
		fmt.Fprintf(opts.Err, "simjob: %v\n", err)
	}
	return 1
}

func (j *simJob) run() (err error) {
	if len(j.Cards) > 0 {
		if j.process, err = joinSim(j.Dir); err != nil {
			return err
		}
		j.process.Graphics = j.Graphics
		defer func() { err = errors.Join(err, j.process.free()) }()
	}
	fmt.Fprintf(j.Out, "simjob: %d MiB on gpus %v, ramp %v, hold %v\n", j.VRAMMiB, j.Cards, j.Ramp, j.Hold)
	if err := j.set(0); err != nil {
		return err
	}
	if err := j.load(); err != nil {
		return err
	}
	if err := j.wait(j.Hold); err != nil {
		return err
	}
	fmt.Fprintf(j.Out, "simjob: done, exit %d\n", j.ExitCode)
	return nil
}

// load grows the job to its full size, and fails half way if OOMOnce asks for
// it.
func (j *simJob) load() error {
	if j.OOMOnce == "" {
		return j.ramp(0, j.VRAMMiB, j.Ramp)
	}
	if err := j.ramp(0, j.VRAMMiB/2, j.Ramp/2); err != nil {
		return err
	}
	marker, err := os.OpenFile(j.OOMOnce, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err == nil {
		marker.Close()
		return j.pretendedOOM()
	}
	if !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("record the simulated failure: %w", err)
	}
	return j.ramp(j.VRAMMiB/2, j.VRAMMiB, j.Ramp-j.Ramp/2)
}

// pretendedOOM is the failure that OOMOnce asks for: as if a neighbour had
// taken half of the memory still needed.
func (j *simJob) pretendedOOM() error {
	restMiB := j.VRAMMiB - j.VRAMMiB/2
	full := &outOfMemoryError{AskedMiB: restMiB, FreeMiB: restMiB / 2, TotalMiB: j.VRAMMiB}
	if j.process != nil {
		card, _ := j.process.box.card(j.Cards[0])
		full.Card, full.TotalMiB = card.Index, card.TotalMiB
	}
	return full
}

// ramp grows evenly from one size to another within the given time.
func (j *simJob) ramp(fromMiB, toMiB int64, over time.Duration) error {
	steps := int64(1)
	if over > 0 {
		steps = max(rampSteps, int64((over+rampStep-1)/rampStep))
	}
	begin, step := time.Now(), over/time.Duration(steps)
	for i := int64(1); i <= steps; i++ {
		if err := j.wait(time.Until(begin.Add(step * time.Duration(i)))); err != nil {
			return err
		}
		if err := j.set(fromMiB + (toMiB-fromMiB)*i/steps); err != nil {
			return err
		}
	}
	return nil
}

func (j *simJob) set(mib int64) error {
	if j.process == nil {
		return nil
	}
	return j.process.Set(j.Cards, mib, j.UtilPct)
}

// wait lets time pass unless the job is stopped. Time for which it was parked
// does not count.
func (j *simJob) wait(d time.Duration) error {
	begun := time.Now()
	for left := d; ; {
		if err := j.sleep(left); err != nil || j.process == nil {
			return err
		}
		away := j.process.away()
		if left = d + away - j.wasAway - time.Since(begun); left <= 0 {
			j.wasAway = away
			return nil
		}
	}
}

func (j *simJob) sleep(d time.Duration) error {
	timer := time.NewTimer(max(0, d))
	defer timer.Stop()
	select {
	case got := <-j.signals:
		if got == unix.SIGINT {
			return errStopped{130}
		}
		return errStopped{143}
	case <-j.ctx.Done():
		return errStopped{143}
	case <-timer.C:
		return nil
	}
}

func sizeText(mib int64) string {
	if mib >= 1024 {
		return fmt.Sprintf("%.2f GiB", float64(mib)/1024)
	}
	return fmt.Sprintf("%d.00 MiB", mib)
}

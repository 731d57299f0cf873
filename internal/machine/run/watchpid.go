package run

import (
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"berth/internal/job"
	"berth/internal/machine/keep"
)

// WatchWord is the hidden command under which berth watches a process.
const WatchWord = "__watch"

// watchStep is how often a process is checked if the kernel cannot report its
// end.
const watchStep = time.Second

// WatchArgs are the arguments that make berth watch a process.
func WatchArgs(p job.Process) []string {
	return []string{WatchWord, strconv.Itoa(p.PID), strconv.FormatUint(p.Start, 10)}
}

// WatchMain represents an external process for as long as it lives: it exits
// with 0 when the process is gone. It does nothing to the process, and a
// signal ends only the watching.
func WatchMain(args []string, out, errOut io.Writer) int {
	p, err := watched(args)
	if err != nil {
		fmt.Fprintf(errOut, "berth: %v\n", err)
		return 2
	}
	fmt.Fprintf(out, "berth: this job represents process %d, which berth did not start; its output is not in this log\n", p.PID)
	if err := watch(p, watchStep, openPidfd); err != nil {
		fmt.Fprintf(errOut, "berth: watch process %d: %v\n", p.PID, err)
		return 1
	}
	return 0
}

func watched(args []string) (p job.Process, err error) {
	if len(args) != 2 {
		return p, fmt.Errorf("%s: expected a process id and its start time", WatchWord)
	}
	if p.PID, err = strconv.Atoi(args[0]); err != nil || p.PID <= 0 {
		return p, fmt.Errorf("expected a process id, found %q", args[0])
	}
	if p.Start, err = strconv.ParseUint(args[1], 10, 64); err != nil {
		return p, fmt.Errorf("expected a start time in clock ticks, found %q", args[1])
	}
	return p, nil
}

func openPidfd(pid int) (int, error) { return unix.PidfdOpen(pid, 0) }

// watch returns when the process is gone. The descriptor is opened before the
// start time is checked: it cannot refer to another process afterwards.
func watch(p job.Process, step time.Duration, open func(pid int) (int, error)) error {
	fd, err := open(p.PID)
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	if err != nil { // an older kernel, or one that forbids it
		return watchByLooking(p, step)
	}
	defer unix.Close(fd)
	if !Alive(p) {
		return nil
	}
	for {
		_, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, -1)
		switch {
		case err == nil:
			return nil
		case !errors.Is(err, unix.EINTR):
			return err
		}
	}
}

func watchByLooking(p job.Process, step time.Duration) error {
	ticker := time.NewTicker(step)
	defer ticker.Stop()
	for Alive(p) {
		<-ticker.C
	}
	return nil
}

// Alive reports whether the process is alive, and not another one with its
// pid.
func Alive(p job.Process) bool {
	found, err := keep.ReadProcess(p.PID)
	return err == nil && found.Start == p.Start && !found.Dead()
}

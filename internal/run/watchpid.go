package run

import (
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"berth/internal/job"
	"berth/internal/keep"
)

// WatchWord is the first word with which berth becomes a watcher.
const WatchWord = "__watch"

// watchStep is how often a process is looked at where the kernel cannot say
// when it ends.
const watchStep = time.Second

// WatchArgs are the words after berth's own name that make it watch a process.
func WatchArgs(p job.Process) []string {
	return []string{WatchWord, strconv.Itoa(p.PID), strconv.FormatUint(p.Start, 10)}
}

// WatchMain stands for a process that berth did not start, for as long as that
// one lives: it ends with 0 when the other is gone. It does nothing to it, and
// a signal ends only the watching.
func WatchMain(args []string, out, errOut io.Writer) int {
	p, err := watched(args)
	if err != nil {
		fmt.Fprintf(errOut, "berth: %v\n", err)
		return 2
	}
	fmt.Fprintf(out, "berth: this job stands for process %d, which berth did not start; what it prints is not here\n", p.PID)
	if err := watch(p, watchStep, openPidfd); err != nil {
		fmt.Fprintf(errOut, "berth: watch process %d: %v\n", p.PID, err)
		return 1
	}
	return 0
}

func watched(args []string) (p job.Process, err error) {
	if len(args) != 2 {
		return p, fmt.Errorf("%s takes the number of a process and when it was started", WatchWord)
	}
	if p.PID, err = strconv.Atoi(args[0]); err != nil || p.PID <= 0 {
		return p, fmt.Errorf("%q is no number of a process", args[0])
	}
	if p.Start, err = strconv.ParseUint(args[1], 10, 64); err != nil {
		return p, fmt.Errorf("%q is no start of a process", args[1])
	}
	return p, nil
}

func openPidfd(pid int) (int, error) { return unix.PidfdOpen(pid, 0) }

// watch returns when the process is gone. The descriptor is opened before the
// start is looked at: what it names cannot become another process afterwards.
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

// Alive reports whether the process is there, and not another with its number.
func Alive(p job.Process) bool {
	found, err := keep.ReadProcess(p.PID)
	return err == nil && found.Start == p.Start && !found.Dead()
}

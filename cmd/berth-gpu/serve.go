//go:build cgo

package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"berth/internal/machine/gpu"
)

const (
	maxRequest = 1 << 20 // bytes of a line
	// leaveTime bounds shutting NVML down: berth waits a second after closing
	// the input before it sends a signal.
	leaveTime = 800 * time.Millisecond
)

// server answers requests one by one.
type server struct {
	driver  *driver
	out     io.Writer
	started bool
	ticker  *time.Ticker // of the watch
	until   time.Time    // when the watch ends
}

// serve answers until its input ends or it is asked to stop.
func serve(in io.Reader, out io.Writer, only int) int {
	signal.Ignore(syscall.SIGPIPE) // a closed output ends it properly, too
	told := make(chan os.Signal, 1)
	signal.Notify(told, syscall.SIGTERM, syscall.SIGINT)
	gone := make(chan struct{})
	lines := readLines(in, gone)
	leave := make(chan struct{})
	go func() {
		select {
		case <-told:
			close(leave)
		case <-gone:
		}
		time.AfterFunc(leaveTime, func() { os.Exit(0) }) // NVML may hang
	}()

	s := &server{driver: newDriver(nvml.New(), openPage(), only), out: out, ticker: time.NewTicker(time.Hour)}
	s.ticker.Stop()
	status := s.loop(lines, leave)
	if s.started {
		s.driver.stop()
	}
	return status
}

// loop is the one goroutine that calls NVML.
func (s *server) loop(lines <-chan request, leave <-chan struct{}) int {
	for {
		select {
		case <-leave:
			return 0
		case line, more := <-lines:
			if !more {
				return 0
			}
			reply, status := s.answer(line)
			if !s.write(reply) {
				return 0
			}
			if status >= 0 {
				return status
			}
		case now := <-s.ticker.C:
			if now.After(s.until) {
				s.ticker.Stop()
				continue
			}
			s.driver.look()
		}
	}
}

// request is a line of the input.
type request struct {
	text []byte
	err  error
}

// readLines returns the lines of the input, and closes gone when it ends.
func readLines(in io.Reader, gone chan<- struct{}) <-chan request {
	lines := make(chan request)
	go func() {
		defer close(gone)
		defer close(lines)
		scanner := bufio.NewScanner(in)
		scanner.Buffer(make([]byte, 0, 4096), maxRequest)
		for scanner.Scan() {
			if len(scanner.Bytes()) > 0 {
				lines <- request{text: append([]byte(nil), scanner.Bytes()...)}
			}
		}
		if err := scanner.Err(); errors.Is(err, bufio.ErrTooLong) {
			lines <- request{err: fmt.Errorf("expected a request of at most %d bytes", maxRequest)}
		}
	}()
	return lines
}

// goOn means that more requests follow, instead of an exit status.
const goOn = -1

// answer carries out a request. A panic becomes an answer, too, and ends the
// process: the state of NVML is then unknown.
func (s *server) answer(line request) (reply gpu.HelperReply, status int) {
	var ask gpu.HelperRequest
	defer func() {
		if bug := recover(); bug != nil {
			fmt.Fprintf(os.Stderr, "berth-gpu: %v\n%s", bug, debug.Stack())
			reply, status = gpu.HelperReply{ID: ask.ID, Error: fmt.Sprintf("bug in berth-gpu: %v", bug)}, exitFailed
		}
	}()
	if line.err != nil {
		return gpu.HelperReply{Error: line.err.Error()}, exitUsage
	}
	if err := json.Unmarshal(line.text, &ask); err != nil {
		return gpu.HelperReply{ID: ask.ID, Error: "read a request: " + err.Error()}, goOn
	}
	reply.ID = ask.ID
	if !s.started {
		if err := s.driver.start(); err != nil {
			reply.Error, reply.NoLib = err.Error(), errors.Is(err, errNoLibrary)
			return reply, exitNoNVML
		}
		s.started = true
	}
	if err := s.do(ask, &reply); err != nil {
		reply.Error = err.Error()
	}
	reply.CPU = cpuTime()
	return reply, goOn
}

func (s *server) do(ask gpu.HelperRequest, reply *gpu.HelperReply) error {
	switch ask.Do {
	case gpu.HelperHello:
		facts, err := s.driver.facts(ask.Skip)
		if err != nil {
			return err
		}
		reply.Hello = &gpu.HelperHi{Protocol: gpu.HelperProtocol, Facts: facts}
		return nil
	case gpu.HelperSample:
		sample, err := s.driver.sample(ask.Skip)
		reply.Sample = sample
		s.watchFor(ask.Watch, ask.WatchFor)
		return err
	case gpu.HelperLimit:
		return s.driver.limit(ask.Limit, ask.Skip)
	}
	return fmt.Errorf("unknown request %q", ask.Do)
}

// watchFor starts, renews or ends the watch, as every sample request says.
func (s *server) watchFor(every, length time.Duration) {
	if every <= 0 {
		s.ticker.Stop()
		return
	}
	if length <= 0 || length > maxWatch {
		length = maxWatch
	}
	s.until = time.Now().Add(length)
	s.ticker.Reset(max(every, minWatch))
}

// write sends a whole line at once, or nothing.
func (s *server) write(reply gpu.HelperReply) bool {
	line, err := json.Marshal(reply)
	if err != nil {
		line, _ = json.Marshal(gpu.HelperReply{ID: reply.ID, Error: "write a reply: " + err.Error()})
	}
	_, err = s.out.Write(append(line, '\n'))
	return err == nil
}

// cpuTime is the processor time that this process has used.
func cpuTime() time.Duration {
	var used syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &used) != nil {
		return 0
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

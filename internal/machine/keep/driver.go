package keep

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// driver is the program that makes the driver's checkpoint calls for a job. It
// may hang in them or die; killing it harms no job, because the driver finishes
// a checkpoint inside the job's process.
//
// A request is a line "ID VERB WORD...", and a reply "ID ok WORD..." or
// "ID no WHY...". Requests about different processes are carried out side by
// side.
type driver struct {
	self Process
	to   *os.File // its standard input: closing it ends the program

	mu      sync.Mutex
	last    int
	waiting map[int]chan string // replies by request; nil: the program is gone
	killed  bool                // it is about to be
}

// errDriverGone means that the program ended or was killed: the state of the
// job has to be asked again.
var errDriverGone = errors.New("the program that calls the driver ended")

// startDriver starts the program beside the job: it belongs to the supervisor,
// with its rights, and is not below the job's cgroup and device filter.
func startDriver(argv []string) (*driver, error) {
	var in, out [2]int
	if err := syscall.Pipe2(in[:], syscall.O_CLOEXEC); err != nil {
		return nil, err
	}
	defer syscall.Close(in[0])
	if err := syscall.Pipe2(out[:], syscall.O_CLOEXEC); err != nil {
		syscall.Close(in[1])
		return nil, err
	}
	defer syscall.Close(out[1])
	null, err := syscall.Open("/dev/null", syscall.O_RDWR|syscall.O_CLOEXEC, 0)
	if err == nil {
		defer syscall.Close(null)
		attr := &syscall.ProcAttr{
			Dir: "/", Env: withoutVariable(os.Environ(), "CUDA_VISIBLE_DEVICES"),
			Files: []uintptr{uintptr(in[0]), uintptr(out[1]), uintptr(null)},
			Sys:   &syscall.SysProcAttr{Setsid: true},
		}
		var pid int
		if pid, err = startProcess(argv[0], argv, attr); err == nil {
			// It has not been reaped, so it is still in the process table.
			start, _ := StartTicks(pid)
			d := &driver{self: Process{PID: pid, Start: start}, to: os.NewFile(uintptr(in[1]), "driver"), waiting: map[int]chan string{}}
			go d.hear(os.NewFile(uintptr(out[0]), "driver"))
			return d, nil
		}
	}
	syscall.Close(in[1])
	syscall.Close(out[0])
	return nil, fmt.Errorf("start %s: %w", argv[0], err)
}

// hear passes replies on until the program is gone.
func (d *driver) hear(from *os.File) {
	defer from.Close()
	lines := bufio.NewScanner(from)
	for lines.Scan() {
		number, reply, _ := strings.Cut(lines.Text(), " ")
		id, _ := strconv.Atoi(number)
		d.mu.Lock()
		if to := d.waiting[id]; to != nil {
			to <- reply
			delete(d.waiting, id)
		}
		d.mu.Unlock()
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, to := range d.waiting {
		close(to)
	}
	d.waiting = nil
}

// goneCheck is how often a call is held against the process that it is about.
const goneCheck = time.Second

// ask makes a request and waits for the reply, at most that long and until it is
// cancelled: then the program is killed.
func (d *driver) ask(cancel <-chan struct{}, most time.Duration, words ...string) (string, error) {
	return d.askAbout(Process{}, cancel, most, words...)
}

// askAbout is ask about a process. Once that is gone, a call that hangs is not
// waited for.
func (d *driver) askAbout(p Process, cancel <-chan struct{}, most time.Duration, words ...string) (string, error) {
	reply := make(chan string, 1)
	d.mu.Lock()
	if d.waiting == nil || d.killed {
		d.mu.Unlock()
		return "", errDriverGone
	}
	d.last++
	d.waiting[d.last] = reply
	line := strconv.Itoa(d.last) + " " + strings.Join(words, " ") + "\n"
	_, err := d.to.WriteString(line) // far smaller than a pipe's buffer
	d.mu.Unlock()
	if err != nil {
		d.kill()
		return "", errDriverGone
	}
	timer, check := time.NewTimer(most), time.NewTicker(goneCheck)
	defer timer.Stop()
	defer check.Stop()
	for {
		select {
		case text, heard := <-reply:
			if !heard {
				return "", errDriverGone
			}
			verdict, rest, _ := strings.Cut(text, " ")
			if verdict != "ok" {
				return "", errors.New(rest)
			}
			return rest, nil
		case <-cancel:
			d.kill()
			return "", errCancelled
		case <-check.C:
			if p.PID != 0 && !p.exists() {
				d.kill()
				return "", errors.New(cudaGone)
			}
		case <-timer.C:
			d.kill()
			return "", fmt.Errorf("%w: no reply to %s within %v", errDriverGone, words[0], most)
		}
	}
}

// kill ends the program.
func (d *driver) kill() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.killed = true
	_ = d.self.Signal(sigKILL)
}

func (d *driver) gone() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.waiting == nil || d.killed
}

// apart reports whether the process is this program and not the job's.
func (d *driver) apart(pid int) bool { return d != nil && pid == d.self.PID }

func withoutVariable(env []string, name string) []string {
	kept := make([]string, 0, len(env))
	for _, entry := range env {
		if !strings.HasPrefix(entry, name+"=") {
			kept = append(kept, entry)
		}
	}
	return kept
}

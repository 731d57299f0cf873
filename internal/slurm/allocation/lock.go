package allocation

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"berth/internal/text/problem"
)

const (
	// alone marks a front whose terminal was closed: it makes room for the next.
	alone = "without a terminal"
	// handoverTime is how long the next one waits for it.
	handoverTime = time.Minute
	handoverStep = 50 * time.Millisecond
)

// relief is a file with which the next front asks one without a terminal to leave.
func (f *front) relief() string { return filepath.Join(f.dir, "relief") }

// hold takes the lock of the run, which only one front has. One without a terminal
// leaves it to this one.
func (f *front) hold(patience time.Duration) (err error) {
	path := filepath.Join(f.dir, "lock")
	if f.lock, err = os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600); err != nil {
		return problem.Wrap(problem.Unable, "choose another place with --log-dir", err)
	}
	for deadline := time.Now().Add(patience); ; time.Sleep(handoverStep) {
		if syscall.Flock(int(f.lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil {
			break
		}
		raw, _ := os.ReadFile(path)
		holder := strings.TrimSpace(string(raw))
		if !strings.HasSuffix(holder, alone) || time.Now().After(deadline) {
			return problem.Newf(problem.Unable, "status.txt in it shows how far that is; for a second queue use another --log-dir", "another berth run is using %s (%s)", f.opt.LogDir, holder)
		}
		if err := os.WriteFile(f.relief(), nil, 0o600); err != nil {
			return problem.Wrap(problem.Unable, "", err)
		}
	}
	_ = os.Remove(f.relief())
	return f.sign("")
}

// sign writes into the lock who has it.
func (f *front) sign(more string) error {
	host, _ := os.Hostname()
	_, err := f.lock.WriteAt(fmt.Appendf(nil, "%-200s\n", strings.TrimSpace(fmt.Sprintf("pid %d on %s %s", os.Getpid(), host, more))), 0)
	return err
}

// hangUp takes in that the terminal was closed: the run goes on, until a berth run
// at another terminal wants it.
func (f *front) hangUp() {
	f.hungUp = true
	if err := f.sign(alone); err != nil {
		f.voice.warn(err.Error())
	}
}

// relieved reports whether another front wants the run.
func (f *front) relieved() bool {
	if !f.hungUp {
		return false
	}
	_, err := os.Stat(f.relief())
	return err == nil
}

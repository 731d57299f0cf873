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

// lock is held by the one front that has a log directory.
type lock struct {
	file   *os.File
	relief string // a file with which the next front asks one without a terminal to leave
	hungUp bool   // its terminal was closed
}

// newLock takes the lock in a directory. One without a terminal leaves it.
func newLock(dir, logDir string, patience time.Duration) (*lock, error) {
	path := filepath.Join(dir, "lock")
	l := &lock{relief: filepath.Join(dir, "relief")}
	var err error
	if l.file, err = os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600); err != nil {
		return nil, problem.Wrap(problem.Unable, "choose another place with --log-dir", err)
	}
	for deadline := time.Now().Add(patience); ; time.Sleep(handoverStep) {
		if syscall.Flock(int(l.file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil {
			break
		}
		raw, _ := os.ReadFile(path)
		holder := strings.TrimSpace(string(raw))
		if !strings.HasSuffix(holder, alone) || time.Now().After(deadline) {
			err = problem.Newf(problem.Unable, "status.txt in it shows how far that is; for a second queue use another --log-dir", "another berth run is using %s (%s)", logDir, holder)
		} else if err = os.WriteFile(l.relief, nil, 0o600); err != nil {
			err = problem.Wrap(problem.Unable, "", err)
		}
		if err != nil {
			l.close()
			return nil, err
		}
	}
	_ = os.Remove(l.relief)
	return l, l.sign("")
}

func (l *lock) close() { _ = l.file.Close() }

// sign writes into the lock who has it.
func (l *lock) sign(more string) error {
	host, _ := os.Hostname()
	_, err := l.file.WriteAt(fmt.Appendf(nil, "%-200s\n", strings.TrimSpace(fmt.Sprintf("pid %d on %s %s", os.Getpid(), host, more))), 0)
	return err
}

// hangUp takes in that the terminal was closed: the run goes on, until a berth run
// at another terminal wants it.
func (l *lock) hangUp() error {
	l.hungUp = true
	return l.sign(alone)
}

// wanted reports whether another front waits for this one to leave.
func (l *lock) wanted() bool {
	if !l.hungUp {
		return false
	}
	_, err := os.Stat(l.relief)
	return err == nil
}

package run

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"berth/internal/machine/keep"
	"berth/internal/tests/testkit"
)

// TestOrphansAreReapedAndNobodyElse: a job's rest becomes berth's child when its
// supervisor has ended, and ends later. Meanwhile many children of berth's own end,
// and each status reaches whoever waits for it.
func TestOrphansAreReapedAndNobodyElse(t *testing.T) {
	before := ownZombies()
	b := newBench(t)
	o := b.order("1", `i=0; while [ $i -lt 50 ]; do setsid sh -c 'while [ ! -e go ]; do sleep 0.1; done' & i=$((i+1)); done`)
	o.LeaveRest = true
	b.finish(o)
	testkit.Eventually(t, "the rest is berth's", func() bool { return ownOrphans() >= 50 })

	over, reaping := make(chan struct{}), sync.WaitGroup{}
	reaping.Go(func() {
		for {
			select {
			case <-over:
				return
			default:
				spawned.reap()
			}
		}
	})
	var children sync.WaitGroup
	slots := make(chan struct{}, 16)
	for i := range 400 {
		slots <- struct{}{}
		children.Go(func() {
			defer func() { <-slots }()
			cmd := exec.Command("/bin/sh", "-c", fmt.Sprintf("exit %d", 1+i%100))
			run := cmd.Run
			switch i % 3 {
			case 1: // with a session of its own
				run = func() error {
					wait, err := StartApart(cmd)
					if err != nil {
						return err
					}
					return wait()
				}
			case 2: // with a group of its own
				cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
			}
			var exit *exec.ExitError
			if err := run(); !errors.As(err, &exit) || exit.ExitCode() != 1+i%100 {
				t.Errorf("child %d: %v", i, err)
			}
		})
	}
	testkit.Write(t, b.work+"/go", "")
	children.Wait()
	testkit.Eventually(t, "the orphans have ended", func() bool { return ownOrphans() == 0 })
	close(over)
	reaping.Wait()
	spawned.reap()
	for p := range ownZombies() {
		if !before[p] {
			t.Errorf("not reaped: %+v", p)
		}
	}
}

// TestAStatusWaitsForItsReader: a child of berth's own that ended long ago is not
// reaped either.
func TestAStatusWaitsForItsReader(t *testing.T) {
	t.Parallel()
	plain, apart := exec.Command("/bin/sh", "-c", "exit 7"), exec.Command("/bin/sh", "-c", "exit 8")
	testkit.Must(t, plain.Start())
	wait, err := StartApart(apart)
	testkit.Must(t, err)
	for _, cmd := range []*exec.Cmd{plain, apart} {
		testkit.Eventually(t, "it has ended", func() bool {
			p, err := keep.ReadProcess(cmd.Process.Pid)
			return err == nil && p.Dead()
		})
	}
	spawned.reap()
	if err := plain.Wait(); err == nil || err.Error() != "exit status 7" {
		t.Error(err)
	}
	if err := wait(); err == nil || err.Error() != "exit status 8" {
		t.Error(err)
	}
}

// ownOrphans counts the living ones, and reaps none.
func ownOrphans() (living int) {
	session, _ := unix.Getsid(0)
	table, _ := keep.Processes()
	spawned.mu.Lock()
	defer spawned.mu.Unlock()
	for _, p := range table {
		if p.Parent == os.Getpid() && p.Session != session && !p.Dead() && spawned.known[p.PID] == nil {
			living++
		}
	}
	return living
}

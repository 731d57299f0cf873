package siege

import (
	"bufio"
	"fmt"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"berth/internal/job"
	"berth/internal/tests/testkit"
)

func init() {
	// trace seizes a process from outside its job, and never hears what becomes
	// of it.
	deeds["trace"] = func(args []string) error {
		runtime.LockOSThread()
		pid, err := strconv.Atoi(args[0])
		if err != nil {
			return err
		}
		options, err := strconv.Atoi(args[1])
		if err != nil {
			return err
		}
		const seize = 0x4206
		if _, _, errno := syscall.RawSyscall6(syscall.SYS_PTRACE, seize, uintptr(pid), 0, uintptr(options), 0, 0); errno != 0 {
			return fmt.Errorf("seize: %w", errno)
		}
		fmt.Println("seized")
		<-time.After(time.Hour)
		return nil
	}
}

// outliveUnderATracer keeps the processes of a job from a login: a tracer hears
// of an end before the parent does, and can stop a process at its exit.
func outliveUnderATracer(t *testing.T, c *camp) {
	for _, attempt := range []struct {
		name    string
		options int
		change  func(spec) spec
		end     func(id string)
		want    job.Outcome
	}{
		{"past an administrator's cancel", 0, func(s spec) spec { return s }, func(id string) { c.root.cancel(t, id) }, job.WasCancelled},
		{"past the time limit", 0, func(s spec) spec { return s.with("timeout", "5s").with("grace", "1s") }, func(string) {}, job.Timeout},
		{"stopped at its exit", unix.PTRACE_O_TRACEEXIT, func(s spec) spec { return s }, func(id string) { c.root.cancel(t, id) }, job.WasCancelled},
	} {
		mark := fmt.Sprintf("85%d", time.Now().UnixNano()%1e9)
		id := c.bob.submit(t, attempt.change(shell("exec sleep "+mark)))[0]
		testkit.Eventually(t, "it runs", func() bool { return len(marked(mark)) == 1 })
		tracer := c.bob.command(filepath.Join(programs, "attacker"), deedWord, "trace", strconv.Itoa(marked(mark)[0]), strconv.Itoa(attempt.options))
		out, err := tracer.StdoutPipe()
		testkit.Must(t, err)
		testkit.Must(t, tracer.Start())
		said, _ := bufio.NewReader(out).ReadString('\n')
		if strings.TrimSpace(said) != "seized" {
			t.Logf("%s: cannot trace here: %s", attempt.name, said)
		}
		attempt.end(id)
		if v := c.bob.ended(t, id); text(v.Outcome) != string(attempt.want) {
			t.Errorf("%s: it ended %s: %s", attempt.name, text(v.Outcome), text(v.Reason))
		}
		for _, pid := range marked(mark) {
			t.Errorf("%s: process %d lives", attempt.name, pid)
		}
		_ = tracer.Process.Kill()
		_ = tracer.Wait() // it was killed, if only by this test
	}
}

package siege

import (
	"bufio"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptrace"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"berth/internal/job"
	"berth/internal/tests/testkit"
)

func init() { privilegeAttacks = append(privilegeAttacks, processAttacks...) }

// What a process can do to whoever waits for it and counts it.
var processAttacks = []attack{
	{"make the supervisor its tracer", func(t *testing.T, c *camp) {
		// The kernel reports the stops of a traced process to the parent, even
		// where that only waits for an end.
		for _, who := range []string{"main", "orphan"} {
			mark := newMark()
			id := c.bob.submit(t, spec{"command": []string{filepath.Join(programs, "attacker"), deedWord, "traced", who, mark}, "gpus": "0.004"})[0]
			testkit.Eventually(t, who+" is stopped", func() bool {
				// Any of its threads: a process is not always on its first.
				return slices.ContainsFunc(marked(mark), func(pid int) bool {
					threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*", pid))
					return slices.ContainsFunc(threads, func(thread string) bool {
						text, _ := os.ReadFile(filepath.Join(thread, "stat"))
						return strings.Contains(string(text), ") t ")
					})
				})
			})
			c.bob.cancel(t, id)
			c.bob.mustEnd(t, id, job.WasCancelled)
			noneLeft(t, mark)
		}
		c.othersAreServed(t)
	}},
	{"outlive a cancel in namespaces of its own", func(t *testing.T, c *camp) {
		mark := newMark()
		id := c.bob.submit(t, shell("unshare -Urpf --mount-proc sh -c 'setsid env -i /bin/sleep "+mark+" & setsid unshare -pf env -i sh -c \"/bin/sleep "+mark+" & wait\" & wait' || exec sleep "+mark))[0]
		testkit.Eventually(t, "it has begun", func() bool { return len(marked("sleep\x00"+mark)) > 0 })
		c.bob.cancel(t, id)
		c.bob.mustEnd(t, id, job.WasCancelled)
		noneLeft(t, mark)
	}},
	{"outlive a cancel as the reaper of its own children", func(t *testing.T, c *camp) {
		mark := newMark()
		id := c.bob.submit(t, spec{"command": []string{filepath.Join(programs, "attacker"), deedWord, "reaper", mark}, "gpus": "0.004"})[0]
		testkit.Eventually(t, "its children are there", func() bool { return len(marked("sleep\x00"+mark)) >= 3 })
		c.bob.cancel(t, id)
		c.bob.mustEnd(t, id, job.WasCancelled)
		noneLeft(t, mark)
	}},
	{"work on in threads when the first has ended", func(t *testing.T, c *camp) {
		mark := newMark()
		id := c.bob.submit(t, spec{"command": []string{filepath.Join(programs, "attacker"), deedWord, "headless", mark}, "gpus": "0.004"})[0]
		testkit.Eventually(t, "its first thread has ended", func() bool {
			for _, pid := range marked(mark) {
				if strings.Contains(procFile(pid, "stat"), ") Z ") {
					return true
				}
			}
			return headless(c.bob.uid)
		})
		if d := c.bob.show(t, id); d.State != job.Running {
			t.Errorf("the job is %s while its threads work", d.State)
		}
		c.bob.cancel(t, id)
		c.bob.mustEnd(t, id, job.WasCancelled)
		// Any program with threads looks like that for a moment when it ends.
		testkit.Eventually(t, "no threads work on", func() bool { return !headless(c.bob.uid) })
	}},
	{"have a name that looks like the rest of its entry", func(t *testing.T, c *camp) {
		mark := newMark()
		name := filepath.Join(c.bob.home, ") Z 1 1 1 (")
		out, status := c.bob.sh(`cp /bin/sleep "$1"`, name)
		if status != 0 {
			t.Fatal(out)
		}
		id := c.bob.submit(t, spec{"command": []string{"/bin/sh", "-c", `"$1" $2 & sh -c 'setsid "$1" $2 &' sh "$1" $2; wait`, "sh", name, mark}, "gpus": "0.004"})[0]
		testkit.Eventually(t, "it has begun", func() bool { return len(named(") Z 1 1 1 (")) >= 2 })
		c.bob.cancel(t, id)
		c.bob.mustEnd(t, id, job.WasCancelled)
		if left := named(") Z 1 1 1 ("); len(left) > 0 {
			t.Errorf("processes %v live", left)
		}
	}},
	{"end as root, who may not be killed by the user", func(t *testing.T, c *camp) {
		mark := newMark()
		program := filepath.Join(c.dir, "setuid-root")
		testkit.Must(t, copySelf(program))
		testkit.Must(t, os.Chmod(program, 0o755|os.ModeSetuid))
		id := c.bob.submit(t, spec{"command": []string{program, deedWord, "as-root", mark}, "gpus": "0.004"})[0]
		testkit.Eventually(t, "it is root's", func() bool {
			for _, pid := range marked(mark) {
				if owner(pid) == 0 {
					return true
				}
			}
			return false
		})
		c.bob.cancel(t, id)
		c.bob.mustEnd(t, id, job.WasCancelled)
		noneLeft(t, mark)
	}},
	{"keep a job from ending with a pipe of its set-up", func(t *testing.T, c *camp) {
		mark := newMark()
		id := c.bob.submit(t, shell("true").with("setup", "sleep "+mark+"; exit 7"))[0]
		testkit.Eventually(t, "its set-up runs", func() bool { return len(marked("sleep\x00"+mark)) == 1 })
		// A login of the user takes the pipe from the shell, and outlives the job.
		_, rest, _ := strings.Cut(procFile(marked("sleep\x00" + mark)[0], "stat"), ") ")
		holder := c.bob.command(filepath.Join(programs, "attacker"), deedWord, "take-pipe", strings.Fields(rest)[1])
		said, err := holder.StdoutPipe()
		testkit.Must(t, err)
		testkit.Must(t, holder.Start())
		defer func() { _ = holder.Process.Kill(); _ = holder.Wait() }()
		line, _ := bufio.NewReader(said).ReadString('\n')
		t.Logf("the pipe: %s", strings.TrimSpace(line))
		c.bob.cancel(t, id)
		c.bob.mustEnd(t, id, job.WasCancelled)
	}},
	{"keep a job from ending with its terminal", func(t *testing.T, c *camp) {
		id := c.bob.submit(t, shell("tty; sleep 1000").with("pty", "yes"))[0]
		var tty string
		testkit.Eventually(t, "the terminal has a name", func() bool {
			tty, _, _ = strings.Cut(c.bob.log(t, id).body, "\r\n")
			return strings.HasPrefix(tty, "/dev/")
		})
		holder := c.bob.command("/bin/sh", "-c", "exec 9<>"+tty+"; echo held; while :; do echo noise >&9; sleep 0.1; done")
		said, err := holder.StdoutPipe()
		testkit.Must(t, err)
		testkit.Must(t, holder.Start())
		defer func() { _ = holder.Process.Kill(); _ = holder.Wait() }()
		_, _ = bufio.NewReader(said).ReadString('\n')
		c.bob.cancel(t, id)
		c.bob.mustEnd(t, id, job.WasCancelled)
	}},
	{"lock and lease the log that root opens", func(t *testing.T, c *camp) {
		id := c.bob.submit(t, shell("echo mine; sleep 1000"))[0]
		defer c.bob.cancel(t, id)
		c.bob.running(t, id)
		log := filepath.Join(c.stateDir, "jobs", id, "1.log")
		testkit.Eventually(t, "it has printed", func() bool { return c.bob.log(t, id).body == "mine\n" })
		holder := c.bob.command(filepath.Join(programs, "attacker"), deedWord, "lease", log)
		said, err := holder.StdoutPipe()
		testkit.Must(t, err)
		testkit.Must(t, holder.Start())
		defer func() { _ = holder.Process.Kill(); _ = holder.Wait() }()
		line, _ := bufio.NewReader(said).ReadString('\n')
		t.Logf("the log is %s", strings.TrimSpace(line))
		c.bob.mustAsk(t, "GET", "/v1/jobs/"+id+"/log", nil) // may be refused, and has to come
		c.bob.act(t, "requeue", map[string]any{"ids": []string{id}})
		testkit.Eventually(t, "it runs again", func() bool { d := c.bob.show(t, id); return d.Attempt == 2 && d.State == job.Running })
		c.othersAreServed(t)
	}},
	{"cut and punch the log under one who follows it", func(t *testing.T, c *camp) {
		release := filepath.Join(c.bob.home, "cut")
		id := c.bob.submit(t, shell("head -c 3000000 /dev/zero | tr '\\0' x; while [ ! -e "+release+" ]; do sleep 0.1; done; echo last"))[0]
		c.bob.running(t, id)
		log := filepath.Join(c.stateDir, "jobs", id, "1.log")
		begun, done := make(chan struct{}), make(chan reply, 1)
		go func() {
			r, _ := c.bob.askWith("GET", "/v1/jobs/"+id+"/log?follow=1", nil, func(r *http.Request) {
				*r = *r.WithContext(httptrace.WithClientTrace(r.Context(), &httptrace.ClientTrace{GotFirstResponseByte: func() { close(begun) }}))
			})
			done <- r
		}()
		<-begun
		for _, change := range []string{
			`truncate -s 0 "$1"`, `truncate -s 1T "$1"`, `truncate -s 4096 "$1"`, `truncate -s 100M "$1"; echo x >>"$1"`,
			`dd if=/dev/zero of="$1" bs=1 count=1 seek=8000000000000 2>/dev/null`, `truncate -s 0 "$1"`, `chmod 0 "$1"`, `chmod 600 "$1"`,
		} {
			c.bob.sh(change, log)
		}
		out, _ := c.bob.sh("touch " + release)
		c.bob.ended(t, id)
		timer := time.NewTimer(testkit.Patience)
		defer timer.Stop()
		select {
		case r := <-done:
			if r.status != http.StatusOK || len(r.body) > 32<<20 {
				t.Errorf("status %d, %d bytes", r.status, len(r.body))
			}
		case <-timer.C:
			t.Errorf("it is followed for ever: %s", out)
		}
	}},
	{"read by way of a log what only root may read", func(t *testing.T, c *camp) {
		// The kernel answers some questions by who reads, not by who opened.
		pid := c.daemon.cmd.Process.Pid
		for _, path := range []string{fmt.Sprintf("/proc/%d/stat", pid), "/proc/net/unix", "/proc/self/stat", "/proc/kallsyms"} {
			id := c.bob.submit(t, shell("true").with("output", path))[0]
			c.bob.ended(t, id)
			if r := c.bob.log(t, id); r.status == http.StatusOK && r.body != "" {
				t.Errorf("%s: %.200s", path, r.body)
			}
			if r := c.root.log(t, id); r.status == http.StatusOK && r.body != "" {
				t.Errorf("%s, to root: %.200s", path, r.body)
			}
		}
	}},
}

func newMark() string { return fmt.Sprintf("84%d", time.Now().UnixNano()%1e9) }

// noneLeft checks that no process with the mark lives.
func noneLeft(t *testing.T, mark string) {
	t.Helper()
	for _, pid := range marked(mark) {
		t.Errorf("process %d lives: %q", pid, procFile(pid, "cmdline"))
	}
}

// named lists living processes by the kernel's short name.
func named(name string) (pids []int) {
	for _, pid := range processes() {
		if strings.TrimSuffix(procFile(pid, "comm"), "\n") == name {
			pids = append(pids, pid)
		}
	}
	return pids
}

// headless reports whether a user has a process whose first thread has ended
// while others work.
func headless(uid int) bool {
	for _, pid := range processes() {
		if owner(pid) != uid || !strings.Contains(procFile(pid, "stat"), ") Z ") {
			continue
		}
		tasks, _ := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
		if len(tasks) > 1 {
			return true
		}
	}
	return false
}

func init() {
	deeds["traced"] = func(args []string) error {
		if args[0] == "orphan" {
			// The child stays behind when its parent ends, and so becomes the
			// supervisor's.
			middle, err := os.StartProcess("/proc/self/exe", []string{"attacker", deedWord, "traced", "waits", args[1]}, &os.ProcAttr{})
			if err != nil {
				return err
			}
			if _, err := middle.Wait(); err != nil {
				return err
			}
			_ = syscall.Exec("/bin/sleep", []string{"sleep", "1000"}, nil)
		}
		runtime.LockOSThread()
		if args[0] == "waits" {
			if _, err := os.StartProcess("/proc/self/exe", []string{"attacker", deedWord, "traced", "orphaned", args[1]}, &os.ProcAttr{}); err != nil {
				return err
			}
			return nil
		}
		if args[0] == "orphaned" {
			// A parent that is ending has no command any more, and the kernel takes
			// it for a tracer without making it one.
			for {
				if command := procFile(os.Getppid(), "cmdline"); command != "" && !strings.Contains(command, "attacker") {
					break
				}
				<-time.After(10 * time.Millisecond)
			}
		}
		if _, _, errno := syscall.RawSyscall(syscall.SYS_PTRACE, unix.PTRACE_TRACEME, 0, 0); errno != 0 {
			return errno
		}
		for {
			_ = unix.Tgkill(os.Getpid(), unix.Gettid(), unix.SIGUSR2)
			<-time.After(50 * time.Millisecond)
		}
	}
	deeds["reaper"] = func(args []string) error {
		if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
			return err
		}
		for range 3 {
			if _, err := os.StartProcess("/bin/sh", []string{"sh", "-c", "setsid env -i /bin/sleep " + args[0] + " & exit 0"}, &os.ProcAttr{}); err != nil {
				return err
			}
		}
		<-time.After(time.Hour)
		return nil
	}
	deeds["headless"] = func([]string) error {
		go func() { <-time.After(time.Hour) }()
		_, _, _ = syscall.RawSyscall(syscall.SYS_EXIT, 0, 0, 0) // of this thread alone, which is the first
		return nil
	}
	deeds["as-root"] = func([]string) error {
		if err := syscall.Setresuid(0, 0, 0); err != nil {
			return err
		}
		<-time.After(time.Hour)
		return nil
	}
	deeds["take-pipe"] = func(args []string) error {
		pid, err := strconv.Atoi(args[0])
		if err != nil {
			return err
		}
		process, err := unix.PidfdOpen(pid, 0)
		if err != nil {
			return err
		}
		for fd := range 64 {
			to, _ := os.Readlink(fmt.Sprintf("/proc/%d/fd/%d", pid, fd))
			if !strings.HasPrefix(to, "pipe:") {
				continue
			}
			if _, err := unix.PidfdGetfd(process, fd, 0); err != nil {
				return err
			}
			fmt.Println("taken")
			<-time.After(time.Hour)
		}
		return errors.New("it has no pipe")
	}
	deeds["lease"] = func(args []string) error {
		file, err := os.OpenFile(args[0], os.O_RDWR, 0)
		if err != nil {
			return err
		}
		locked := syscall.Flock(int(file.Fd()), syscall.LOCK_EX)
		_, _, leased := syscall.Syscall(syscall.SYS_FCNTL, file.Fd(), unix.F_SETLEASE, unix.F_WRLCK)
		fmt.Println("locked:", locked == nil, "leased:", strconv.Itoa(int(leased)))
		<-time.After(time.Hour)
		return nil
	}
}

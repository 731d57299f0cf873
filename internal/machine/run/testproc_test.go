package run

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"berth/internal/machine/keep"
)

func execShell(line string) (string, error) {
	out, err := exec.Command("/bin/sh", "-c", line).Output()
	return string(out), err
}

// leakOnExec opens a descriptor that children inherit, as a careless caller of
// berth's would leave it, above those that a supervisor is given.
func leakOnExec(t *testing.T) {
	t.Helper()
	file, err := os.Open("/dev/zero")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	fd, err := unix.FcntlInt(file.Fd(), unix.F_DUPFD, 50)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
}

// controller is a berth of its own, for tests that kill it. It starts the
// shell lines it is given in the environment, says so (before it has, when in
// haste), and waits for its end.
func controller(dir string) {
	fail := func(err error) {
		if err != nil {
			fmt.Println("controller:", err)
			os.Exit(1)
		}
	}
	r, err := Open(Options{KeepDir: filepath.Join(dir, "keep"), KeepCommand: []string{os.Getenv("BERTH_TEST_KEEP")}, CgroupParent: os.Getenv("BERTH_TEST_CGROUP")})
	fail(err)
	var devices *keep.Devices // without cards, a job is not kept from any
	for _, minor := range strings.FieldsFunc(os.Getenv("BERTH_TEST_CARDS"), func(r rune) bool { return r == ',' }) {
		if devices == nil {
			devices = &keep.Devices{}
		}
		n, err := strconv.Atoi(minor)
		fail(err)
		devices.Minors = append(devices.Minors, n)
	}
	haste := os.Getenv("BERTH_TEST_HASTE") != ""
	if haste {
		fmt.Println("ready")
	}
	for i, line := range strings.Split(os.Getenv("BERTH_TEST_LINES"), "\n") {
		token, err := r.Lease()
		fail(err)
		if line == "" {
			continue // a lease without a job
		}
		id := strconv.Itoa(i + 1)
		fail(r.Go(token, keep.Order{
			Job: id, Attempt: 1, Argv: []string{"/bin/sh", "-c", line}, Env: []string{"PATH=" + os.Getenv("PATH")},
			Dir: dir, Log: filepath.Join(dir, "logs", id+".log"), Grace: 10 * time.Second, Devices: devices,
		}))
		for !haste {
			if e := <-r.Events(); e.Kind == Started && e.Job == id {
				break
			}
		}
	}
	if os.Getenv("BERTH_TEST_ACK") != "" {
		for e := range r.Events() {
			if e.Kind == Ended {
				r.Ack(e.Token)
				break
			}
		}
	}
	if !haste {
		fmt.Println("ready")
	}
	select {}
}

// otherBerth starts a controller on the bench's directories and returns it
// once it has started its jobs.
func (b *bench) otherBerth(env []string, lines ...string) *exec.Cmd {
	b.t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "BERTH_TEST_CONTROLLER="+b.work, "BERTH_TEST_KEEP="+keepProgram,
		"BERTH_TEST_CGROUP=none", "BERTH_TEST_LINES="+strings.Join(lines, "\n"))
	cmd.Env = append(cmd.Env, env...)
	out, err := cmd.StdoutPipe()
	if err != nil {
		b.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	said, err := bufio.NewReader(out).ReadString('\n')
	if said != "ready\n" {
		b.t.Fatalf("the other berth said %q, %v", said, err)
	}
	return cmd
}

package soak

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"berth/internal/tests/testkit"
)

// site is one queue and everything its jobs leave behind.
type site struct {
	t      *testing.T
	dir    string // of the jobs' own records
	logDir string
	file   string
	flags  []string
	env    []string
	uid    uint32 // who runs berth; 0: whoever runs the test
	toll   *toll
}

// newSite makes a place for a queue of simulated cards.
func newSite(t *testing.T, cards int, lines []line) *site {
	t.Helper()
	dir := t.TempDir()
	s := &site{
		toll: &toll{},
		t:    t, dir: dir, logDir: filepath.Join(dir, "logs"), file: filepath.Join(dir, "jobs.txt"),
		flags: []string{"--sim", fmt.Sprint(cards), "--poll", "0.1", "--json", "--log-level", "debug"},
	}
	// Each site has a ledger of its own: other berths on this machine are not
	// to be seen by the tests, nor to see them.
	s.env = []string{"SOAK=" + dir, "BERTH_LEDGER_DIR=" + filepath.Join(dir, "reservations")}
	testkit.Write(t, filepath.Join(dir, "job.sh"), jobScript)
	testkit.Write(t, filepath.Join(dir, "ledger"), "")
	s.write(lines)
	t.Cleanup(s.sweep)
	return s
}

func (s *site) write(lines []line) {
	s.t.Helper()
	var text strings.Builder
	for _, l := range lines {
		text.WriteString(l.text() + "\n")
	}
	testkit.Write(s.t, s.file, text.String())
}

// sweep ends what a failed test left, and shows what berth had to say.
func (s *site) sweep() {
	for _, p := range s.processes() {
		s.t.Logf("ending what was left: %s", p)
		syscall.Kill(p.pid, syscall.SIGKILL)
	}
	if s.t.Failed() {
		for _, name := range []string{"berth.log", "status.txt"} {
			text, _ := os.ReadFile(filepath.Join(s.logDir, name))
			s.t.Logf("%s:\n%s", name, text[max(0, len(text)-6000):])
		}
	}
}

// berth is a `berth run` or `berth serve` of a site.
type berth struct {
	t      *testing.T
	cmd    *exec.Cmd
	done   chan struct{}
	stderr testkit.Buffer

	mu     sync.Mutex
	stdout bytes.Buffer
	onLine func(n int) // called with how many lines there are now
}

// Write takes in what berth prints.
func (b *berth) Write(text []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	n, err := b.stdout.Write(text)
	if b.onLine != nil {
		b.onLine(bytes.Count(b.stdout.Bytes(), []byte("\n")))
	}
	return n, err
}

// said is what berth has printed so far.
func (b *berth) said() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.stdout.String()
}

func (s *site) command(more ...string) *exec.Cmd {
	args := append([]string{"run", s.file, "--log-dir", s.logDir}, s.flags...)
	cmd := exec.Command(berthProgram(), append(args, more...)...)
	cmd.Dir, cmd.Env = s.dir, append(os.Environ(), s.env...)
	if s.uid != 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: s.uid, Gid: s.uid}}
	}
	return cmd
}

// nobody is a user that every machine has, and that may do nothing.
const nobody = 65534

// asPlainUser has berth run by somebody who may do nothing: no cgroups then,
// so that a job's processes are known by session, token and descent alone.
func (s *site) asPlainUser() {
	s.t.Helper()
	if os.Getuid() != 0 {
		return // that is what the test's own user is
	}
	s.uid = nobody
	for _, dir := range []string{programs, filepath.Dir(s.dir), s.dir} {
		if err := os.Chmod(dir, 0o755); err != nil {
			s.t.Fatal(err)
		}
	}
	for _, path := range []string{s.dir, filepath.Join(s.dir, "ledger")} {
		if err := os.Chown(path, int(s.uid), int(s.uid)); err != nil {
			s.t.Fatal(err)
		}
	}
}

// start runs berth on the site.
func (s *site) start(more ...string) *berth {
	s.t.Helper()
	return s.startWith(nil, more...)
}

// startWith also has a function called for each line that berth prints.
func (s *site) startWith(onLine func(b *berth, n int), more ...string) *berth {
	s.t.Helper()
	return s.launch(s.command(more...), onLine)
}

// launch runs a berth of the site, whatever it was asked to do.
func (s *site) launch(cmd *exec.Cmd, onLine func(b *berth, n int)) *berth {
	s.t.Helper()
	b := &berth{t: s.t, cmd: cmd, done: make(chan struct{})}
	if onLine != nil {
		b.onLine = func(n int) { onLine(b, n) }
	}
	b.cmd.Stdout, b.cmd.Stderr = b, &b.stderr
	// Jobs do not hold berth's output open, but a bug that made them should
	// fail a test, not hang it.
	b.cmd.WaitDelay = testkit.Patience
	if err := b.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	go func() {
		b.cmd.Wait()
		close(b.done)
	}()
	return b
}

func (b *berth) signal(sig syscall.Signal) { b.cmd.Process.Signal(sig) }

// kill ends berth with -9 unless it was faster, and waits until it is gone.
func (b *berth) kill() (killed bool) {
	b.signal(syscall.SIGKILL)
	b.wait()
	return b.killed()
}

func (b *berth) killed() bool {
	status := b.cmd.ProcessState.Sys().(syscall.WaitStatus)
	return status.Signaled() && status.Signal() == syscall.SIGKILL
}

// wait is berth's exit status; -1 where a signal ended it.
func (b *berth) wait() int {
	b.t.Helper()
	limit := time.NewTimer(testkit.Patience)
	defer limit.Stop()
	select {
	case <-b.done:
	case <-limit.C:
		b.signal(syscall.SIGQUIT)
		<-b.done
		b.t.Fatalf("berth did not end; it said\n%s\n%s", b.said(), b.stderr.String())
	}
	return b.cmd.ProcessState.ExitCode()
}

// running reports whether berth has not ended yet.
func (b *berth) running() bool {
	select {
	case <-b.done:
		return false
	default:
		return true
	}
}

// mustEnd waits for berth and holds its exit status against what it should be.
func (b *berth) mustEnd(status int) {
	b.t.Helper()
	if got := b.wait(); got != status {
		b.t.Fatalf("berth ended with %d, not %d; it said\n%s\n%s", got, status, b.said(), b.stderr.String())
	}
}

package testkit

import (
	_ "embed"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

//go:embed slurm.sh
var slurmScript string

// SlurmSetup is what a Slurm for tests has. Zero: one node with 2 GPUs and 4 CPUs.
type SlurmSetup struct {
	Nodes, GPUs, CPUs int      // GPUs and CPUs are those of one node
	Shards            int      // of one GPU; 0: none
	Types             []string // the GPUs of each node in equal parts, in this order; nil: no types
	Accounts          bool     // with slurmdbd, so that sacct works
	MinJobAge         int      // seconds until squeue forgets an ended job; 0: an hour
	Conf              []string // more lines of slurm.conf, which win over the usual ones
}

// Slurm is a real Slurm on this machine for one test. Device files stand for
// GPUs: its jobs get CUDA_VISIBLE_DEVICES, and nothing to compute on.
type Slurm struct {
	Dir  string // everything of it; every user can reach it
	Conf string // its slurm.conf
}

// NewSlurm starts one, which ends with the test. It skips the test where that is
// not possible.
func NewSlurm(t testing.TB, setup SlurmSetup) *Slurm {
	t.Helper()
	programs := []string{"slurmctld", "slurmd", "munged", "mknod"}
	if setup.Accounts {
		programs = append(programs, "slurmdbd", "mariadbd", "mariadb", "mariadb-install-db")
	}
	for _, program := range programs {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("a real Slurm needs %s", program)
		}
	}
	if os.Getuid() != 0 {
		t.Skip("a real Slurm needs root")
	}
	dir, err := os.MkdirTemp("/var/tmp", "berth-slurm-") // other users reach it
	Must(t, err)
	script := filepath.Join(dir, "slurm.sh")
	Write(t, script, slurmScript)
	s := &Slurm{Dir: dir, Conf: filepath.Join(dir, "etc", "slurm.conf")}
	t.Cleanup(func() {
		if out, err := exec.Command("sh", script, "down", dir).CombinedOutput(); err != nil {
			t.Errorf("Slurm does not end: %v\n%s", err, out)
		}
		_ = os.RemoveAll(dir) // a process that is just ending may write once more
		_ = os.RemoveAll(dir)
	})
	up := exec.Command("sh", script, "up", dir)
	up.Env = append(os.Environ(), append(setup.environ(), "port="+strconv.Itoa(ports(t)))...)
	if out, err := output(up, dir); err != nil {
		t.Fatalf("Slurm does not come up: %v\n%s", err, out)
	}
	return s
}

// How many ports a Slurm has, and from where on they are looked for: below those
// that the kernel gives to connections.
const (
	portsEach  = 20
	firstPort  = 17000
	beyondPort = 30000
)

// ports takes ports that no other Slurm of a test has, until the test ends. Tests of
// several packages run at the same time, and a controller that a test killed wants
// its port again, so free ports alone are not enough.
func ports(t testing.TB) int {
	t.Helper()
	dir := filepath.Join(os.TempDir(), "berth-slurm-ports")
	Must(t, os.MkdirAll(dir, 0o755))
	for first := firstPort; first < beyondPort; first += portsEach {
		lock, err := os.OpenFile(filepath.Join(dir, strconv.Itoa(first)), os.O_RDWR|os.O_CREATE, 0o600)
		Must(t, err)
		if syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil && free(first) {
			t.Cleanup(func() { _ = lock.Close() })
			return first
		}
		Must(t, lock.Close())
	}
	t.Fatal("no ports are free for a Slurm")
	return 0
}

// free reports whether nobody uses a Slurm's ports.
func free(first int) bool {
	for port := first; port < first+portsEach; port++ {
		listener, err := net.Listen("tcp4", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			return false
		}
		_ = listener.Close()
	}
	return true
}

// environ is a setup as slurm.sh reads it.
func (s *SlurmSetup) environ() []string {
	count := func(name string, n, otherwise int) string {
		if n == 0 {
			n = otherwise
		}
		return name + "=" + strconv.Itoa(n)
	}
	conf := append([]string{count("MinJobAge", s.MinJobAge, 3600)}, s.Conf...)
	accounts := "accounts=no"
	if s.Accounts {
		accounts = "accounts=yes"
	}
	return []string{
		count("nodes", s.Nodes, 1), count("gpus", s.GPUs, 2), count("cpus", s.CPUs, 4), count("shards", s.Shards, 0),
		"types=" + strings.Join(s.Types, " "), accounts, "conf=" + strings.Join(conf, "\n"),
	}
}

// output runs a command and returns what it printed. Its output is a file: a
// daemon that it leaves behind would keep a pipe open.
func output(cmd *exec.Cmd, dir string) (string, error) {
	f, err := os.CreateTemp(dir, "output-*")
	if err != nil {
		return "", err
	}
	defer os.Remove(f.Name())
	defer f.Close()
	cmd.Stdout, cmd.Stderr = f, f
	failed := cmd.Run()
	text, err := os.ReadFile(f.Name())
	if err != nil {
		return "", err
	}
	return strings.TrimSpace(string(text)), failed
}

// Env is the environment in which Slurm's programs speak to this Slurm.
func (s *Slurm) Env() []string { return append(os.Environ(), "SLURM_CONF="+s.Conf) }

// Run runs a command in its directory, and returns what it printed.
func (s *Slurm) Run(name string, args ...string) (string, error) {
	cmd := exec.Command(name, args...)
	cmd.Env, cmd.Dir = s.Env(), s.Dir
	return output(cmd, s.Dir)
}

// Must is Run for a command that has to work.
func (s *Slurm) Must(t testing.TB, name string, args ...string) string {
	t.Helper()
	out, err := s.Run(name, args...)
	if err != nil {
		t.Fatalf("%s %q: %v: %s", name, args, err, out)
	}
	return out
}

// KillController ends slurmctld as a crash would. The commands of Slurm fail until
// StartController.
func (s *Slurm) KillController(t testing.TB) {
	t.Helper()
	s.end(t, "slurmctld", syscall.SIGKILL)
}

// StopController ends slurmctld as an administrator would: it saves its state.
func (s *Slurm) StopController(t testing.TB) {
	t.Helper()
	s.end(t, "slurmctld", syscall.SIGTERM)
}

// StartController starts slurmctld again, and waits until it answers.
func (s *Slurm) StartController(t testing.TB) {
	t.Helper()
	s.Must(t, "slurmctld", "-f", s.Conf)
	Eventually(t, "slurmctld answers", func() bool { _, err := s.Run("timeout", "5", "squeue", "-h"); return err == nil })
}

// ForgetState removes what slurmctld saved, while it is down: it comes back
// without jobs and gives their ids to others.
func (s *Slurm) ForgetState(t testing.TB) {
	t.Helper()
	Must(t, os.RemoveAll(filepath.Join(s.Dir, "state")))
	s.Must(t, "install", "-d", "-o", "slurm", filepath.Join(s.Dir, "state"))
}

// KillNode ends slurmd of the n-th node, from 1, as a crash would. Its jobs go on.
func (s *Slurm) KillNode(t testing.TB, n int) {
	t.Helper()
	s.end(t, fmt.Sprintf("slurmd-n%d", n), syscall.SIGKILL)
}

// StartNode starts slurmd of the n-th node again.
func (s *Slurm) StartNode(t testing.TB, n int) {
	t.Helper()
	s.Must(t, "slurmd", "-N", fmt.Sprintf("n%d", n), "-f", s.Conf)
}

// end ends one of its processes and waits until it is gone.
func (s *Slurm) end(t testing.TB, name string, with syscall.Signal) {
	t.Helper()
	path := filepath.Join(s.Dir, "run", name+".pid")
	raw, err := os.ReadFile(path)
	Must(t, err)
	pid, err := strconv.Atoi(strings.TrimSpace(string(raw)))
	Must(t, err)
	Must(t, syscall.Kill(pid, with))
	Eventually(t, name+" is gone", func() bool { return gone(pid) })
	_ = os.Remove(path) // its number may soon be another process's
}

// gone reports that a process runs no more. Nobody may have waited for it yet.
func gone(pid int) bool {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return true
	}
	_, state, _ := strings.Cut(string(raw), ") ")
	return strings.HasPrefix(state, "Z")
}

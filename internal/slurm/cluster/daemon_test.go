package cluster_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"berth/internal/slurm/cluster"
	"berth/internal/tests/testkit"
)

// berth is a private daemon of the built program, with two simulated GPUs and a real
// Slurm to hand over to.
type berth struct {
	t      *testing.T
	slurm  *testkit.Slurm
	dir    string // its home; everything of it
	socket string
	env    []string
	http   *http.Client
	daemon *exec.Cmd
	faults string // where it dies, in a build that can
	config string // its first lines
}

// newBerth starts a Slurm and a daemon beside it.
func newBerth(t *testing.T, setup testkit.SlurmSetup) *berth {
	t.Helper()
	b := pitch(t, testkit.NewSlurm(t, setup))
	b.start()
	return b
}

// pitch prepares a daemon, which start starts.
func pitch(t *testing.T, s *testkit.Slurm) *berth {
	t.Helper()
	dir, err := os.MkdirTemp("/var/tmp", "berth-verbs-") // its path must be short enough for sockets
	testkit.Must(t, err)
	b := &berth{t: t, slurm: s, dir: dir, socket: filepath.Join(dir, "sock")}
	b.env = append(os.Environ(), "SLURM_CONF="+s.Conf, "HOME="+dir, "BERTH_SOCKET="+b.socket, "BERTH_LEDGER_DIR="+filepath.Join(dir, "ledger"),
		"BERTH_NO_AUTOSTART=1", "NO_COLOR=1")
	b.http = clientOf(t, b.socket)
	t.Cleanup(func() {
		if t.Failed() {
			b.tellAll()
		}
		b.end()
		_ = os.RemoveAll(dir)
	})
	return b
}

// clientOf speaks to a daemon without a process for each question.
func clientOf(t *testing.T, socket string) *http.Client {
	c := &http.Client{Transport: &http.Transport{
		DialContext: func(context.Context, string, string) (net.Conn, error) { return net.Dial("unix", socket) },
	}}
	t.Cleanup(c.CloseIdleConnections)
	return c
}

// start starts the daemon and waits until it answers.
func (b *berth) start() {
	b.t.Helper()
	programs := cluster.Programs()
	if b.faults != "" {
		programs = faulty(b.t)
	}
	config := b.file("config.toml")
	testkit.Write(b.t, config, b.config+"[slurm]\npatience = \"5s\"\n")
	b.daemon = exec.Command(filepath.Join(programs, "berth"), "serve", "--config", config, "--private", "--sim", "2", "--poll", "0.2", "--socket", b.socket, "--state-dir", filepath.Join(b.dir, "state"))
	b.daemon.Env, b.daemon.Dir = append(b.env, "BERTH_FAULT="+b.faults), b.dir
	testkit.Must(b.t, b.daemon.Start())
	testkit.Eventually(b.t, "the daemon answers", func() bool {
		r, err := b.http.Get("http://berth/v1/status")
		if err != nil {
			return false
		}
		return r.Body.Close() == nil && r.StatusCode == http.StatusOK
	})
}

// faulty is the programs in the build that dies where BERTH_FAULT says.
func faulty(t *testing.T) string {
	t.Helper()
	dir, err := builtWithFaults()
	testkit.Must(t, err)
	return dir
}

var builtWithFaults = sync.OnceValues(func() (string, error) {
	dir := filepath.Join(cluster.Programs(), "faults")
	return dir, errors.Join(os.Mkdir(dir, 0o755), testkit.Build(dir, "berthfault", "cmd/berth", "cmd/berth-keep"))
})

// dies waits until the daemon has died where it should.
func (b *berth) dies() {
	b.t.Helper()
	done := make(chan struct{})
	go func() { _ = b.daemon.Wait(); close(done) }() // it kills itself
	select {
	case <-done:
	case <-time.After(testkit.Patience):
		b.t.Fatalf("the daemon did not get to %q", b.faults)
	}
	b.http.CloseIdleConnections()
}

// kill ends the daemon as a crash would.
func (b *berth) kill() {
	b.t.Helper()
	testkit.Must(b.t, b.daemon.Process.Kill())
	_ = b.daemon.Wait() // it was killed
	b.http.CloseIdleConnections()
}

// end stops everything, so that nothing of the test goes on after it.
func (b *berth) end() {
	if b.daemon == nil {
		return
	}
	_, _ = b.run("cancel", "all", "--grace", "0")
	_, _ = b.slurm.Run("timeout", "5", "scancel", "-u", "root")
	_ = b.daemon.Process.Signal(syscall.SIGTERM)
	_ = b.daemon.Wait() // how it ends does not matter here
	// What the jobs' wrappers write goes away with the directory.
	testkit.Holds(testkit.Patience/2, func() bool { return !b.anyProcess() })
}

// anyProcess reports whether a process of a job is left.
func (b *berth) anyProcess() bool {
	all, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, path := range all {
		if line, err := os.ReadFile(path); err == nil && bytes.Contains(line, []byte("__node")) && bytes.Contains(line, []byte(b.dir)) {
			return true
		}
	}
	return false
}

// tellAll says what there is to say about a failure.
func (b *berth) tellAll() {
	out, _ := b.run("list", "--all", "--tasks", "--limit", "30")
	b.t.Logf("berth list: %s", out)
	queue, _ := b.slurm.Run("timeout", "5", "squeue", "--array", "--states=all", "--format=%i %T %r %k %j")
	b.t.Logf("squeue: %.3000s", queue)
	for _, pattern := range []string{"state/*.log", ".local/state/berth/slurm/*/*/slurm.out"} {
		files, _ := filepath.Glob(filepath.Join(b.dir, pattern))
		for _, file := range files {
			if raw, err := os.ReadFile(file); err == nil && len(raw) > 0 {
				b.t.Logf("%s:\n%s", file, raw[max(0, len(raw)-3000):])
			}
		}
	}
}

// command is a command of berth in its directory.
func (b *berth) command(args ...string) *exec.Cmd {
	cmd := exec.Command(filepath.Join(cluster.Programs(), "berth"), args...)
	cmd.Env, cmd.Dir = b.env, b.dir
	return cmd
}

// run runs a command, and returns all that it printed and its exit status.
func (b *berth) run(args ...string) (string, int) { return outcome(b.command(args...)) }

func outcome(cmd *exec.Cmd) (string, int) {
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	status := 0
	if exit, failed := errors.AsType[*exec.ExitError](err); failed {
		status = exit.ExitCode()
	} else if err != nil {
		return err.Error(), -1
	}
	return strings.TrimSpace(out.String()), status
}

// must is run for a command that has to work.
func (b *berth) must(args ...string) string {
	b.t.Helper()
	out, status := b.run(args...)
	if status != 0 {
		b.t.Fatalf("berth %q: status %d: %s", args, status, out)
	}
	return out
}

// submit queues a job for Slurm that needs no GPU, unless the arguments say
// otherwise, and returns its id.
func (b *berth) submit(args ...string) string {
	b.t.Helper()
	cmd := b.command(append([]string{"submit", "--quiet", "--to", "slurm", "--gpus", "0"}, args...)...)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		b.t.Fatalf("berth submit %q: %v: %s", args, err, errs.String())
	}
	return strings.TrimSpace(string(out))
}

// view is what a test wants to know of a job.
type view struct {
	ID       string                        `json:"id"`
	Name     string                        `json:"name"`
	State    string                        `json:"state"`
	Outcome  *string                       `json:"outcome"`
	Reason   *string                       `json:"reason"`
	Attempt  int                           `json:"attempt"`
	ExitCode *int                          `json:"exit_code"`
	Signal   *string                       `json:"signal"`
	Log      *string                       `json:"log"`
	Held     bool                          `json:"held"`
	Command  *string                       `json:"command"`
	Slurm    *struct{ ID, Node *string }   `json:"slurm"`
	Stopping string                        `json:"stopping"`
	Events   []struct{ Kind, Text string } `json:"events"`
}

func (v *view) outcome() string { return word(v.Outcome) }
func (v *view) slurm() string {
	if v.Slurm == nil {
		return ""
	}
	return word(v.Slurm.ID)
}
func (v *view) reason() string { return word(v.Reason) }
func (v *view) over() bool {
	return v.State == "finished" || v.State == "failed" || v.State == "cancelled"
}

func word(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

func (v view) String() string {
	return fmt.Sprintf("job %s: %s %s (%s), attempt %d", v.ID, v.State, v.outcome(), v.reason(), v.Attempt)
}

// show asks for one job.
func (b *berth) show(id string) (v view) {
	b.t.Helper()
	r, err := b.http.Get("http://berth/v1/jobs/" + id)
	testkit.Must(b.t, err)
	defer r.Body.Close()
	testkit.Must(b.t, json.NewDecoder(r.Body).Decode(&v))
	if r.StatusCode != http.StatusOK {
		b.t.Fatalf("show %s: %s", id, r.Status)
	}
	return v
}

// until waits until something is true of a job.
func (b *berth) until(id, what string, holds func(v *view) bool) view {
	b.t.Helper()
	var v view
	pause := time.NewTicker(50 * time.Millisecond)
	defer pause.Stop()
	ok := testkit.Holds(4*testkit.Patience, func() bool {
		<-pause.C
		v = b.show(id)
		return holds(&v)
	})
	if !ok {
		b.t.Fatalf("job %s is not %s: %s", id, what, v)
	}
	return v
}

func (b *berth) running(id string) view {
	b.t.Helper()
	return b.until(id, "running", func(v *view) bool { return v.State == "running" })
}

func (b *berth) over(id string) view {
	b.t.Helper()
	return b.until(id, "over", func(v *view) bool { return v.over() })
}

// ends waits for the end of a job and says how it must be.
func (b *berth) ends(id, outcome string) view {
	b.t.Helper()
	v := b.over(id)
	if v.outcome() != outcome {
		b.t.Errorf("%s; it should be %s", v, outcome)
	}
	return v
}

// waits waits until the reason why a job waits contains a text.
func (b *berth) waits(id, text string) view {
	b.t.Helper()
	return b.until(id, fmt.Sprintf("waiting because %q", text), func(v *view) bool { return v.State == "queued" && strings.Contains(v.reason(), text) })
}

// file is the path of a file in its directory.
func (b *berth) file(name string) string { return filepath.Join(b.dir, name) }

func itoa(n int) string { return strconv.Itoa(n) }

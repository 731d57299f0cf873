package siege

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"berth/internal/job"
	"berth/internal/tests/testkit"
)

// mgpuSocket is where everybody looks for the mgpu programs' server, and where
// everybody may put something.
const mgpuSocket = "/tmp/mgpu_scheduler.sock"

// mgpuTown is a server of all users at its usual place, and two of them.
type mgpuTown struct {
	t        *testing.T
	dir      string
	server   *served
	eve, fay *person
}

func newMgpuTown(t *testing.T) *mgpuTown {
	t.Helper()
	needsRoot(t)
	if _, err := os.Lstat(mgpuSocket); !errors.Is(err, os.ErrNotExist) {
		t.Skipf("%s is in use", mgpuSocket)
	}
	t.Cleanup(func() { _ = os.Remove(mgpuSocket) }) // it was not there before
	dir, err := os.MkdirTemp(programs, "mgpu-")
	testkit.Must(t, err)
	testkit.Must(t, os.Chmod(dir, 0o755))
	homes := filepath.Join(dir, "home")
	testkit.Must(t, os.Mkdir(homes, 0o755))
	return &mgpuTown{t: t, dir: dir, eve: enlist(t, "eve", homes, ""), fay: enlist(t, "fay", homes, "")}
}

// up starts the server as root, with nothing said about where it listens.
func (m *mgpuTown) up() {
	m.t.Helper()
	m.server = m.begin()
	testkit.Eventually(m.t, "the server serves", func() bool {
		if !m.server.running() {
			m.t.Fatalf("the server ended; it said %s", m.server.said.String())
		}
		return strings.Contains(m.server.said.String(), "state ")
	})
}

func (m *mgpuTown) begin() *served {
	state := filepath.Join(m.dir, "state")
	testkit.Must(m.t, os.MkdirAll(state, 0o711))
	testkit.Write(m.t, filepath.Join(state, "config.toml"), "[scheduling]\npoll = 0.1\n", 0o644)
	s := &served{t: m.t, done: make(chan struct{})}
	s.cmd = exec.Command(filepath.Join(programs, "berth"), "compat", "mgpu_scheduler_server", "--state-dir", state)
	s.cmd.Dir = "/"
	s.cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", "BERTH_SIM=2", "BERTH_LEDGER_DIR=" + filepath.Join(m.dir, "ledger")}
	s.cmd.Stdout, s.cmd.Stderr, s.cmd.WaitDelay = &s.said, &s.said, testkit.Patience
	testkit.Must(m.t, s.cmd.Start())
	go func() { _ = s.cmd.Wait(); close(s.done) }()
	m.t.Cleanup(s.stop)
	return s
}

// mgpu is one of the client programs, typed by a user with these variables.
func (p *person) mgpu(env []string, program string, args ...string) (out string, status int) {
	cmd := p.command(filepath.Join(programs, "berth"), append([]string{"compat", program}, args...)...)
	cmd.Env = append(cmd.Env, "BERTH_SOCKET=") // nothing but the usual place
	cmd.Env = append(cmd.Env, env...)
	return outcome(cmd)
}

var submittedForm = regexp.MustCompile(`(?m)^Job submitted\. ID: ([A-Z0-9]{8}) \(priority=0\)$`)

// queue submits in the background and returns the id.
func (m *mgpuTown) queue(p *person, env []string, args ...string) string {
	m.t.Helper()
	out, status := p.mgpu(env, "mgpu_srun", args...)
	found := submittedForm.FindStringSubmatch(out)
	if status != 0 || found == nil {
		m.t.Errorf("mgpu_srun %v exits with %d: %s", args, status, out)
		return ""
	}
	return found[1]
}

// says is what is in a file, once it is there and whole.
func (m *mgpuTown) says(path, form string) string {
	m.t.Helper()
	text := ""
	testkit.Eventually(m.t, path+" matches "+form, func() bool {
		data, err := os.ReadFile(path)
		text = string(data)
		return err == nil && regexp.MustCompile(form).MatchString(text)
	})
	return text
}

// TestManyUsersOfOneMgpuServer: users who are not root submit at the same
// time, and each job is its user's, whatever the environment says.
//
// seeds: M2 M3 M13 M14 M22 R23 R24
func TestManyUsersOfOneMgpuServer(t *testing.T) {
	m := newMgpuTown(t)
	m.up()
	for _, p := range []*person{m.eve, m.fay} {
		// One of the two has the first job of this queue, and of an earlier one.
		left := filepath.Join(p.home, ".mgpu_job_"+job.Code("1")+".log")
		testkit.Write(t, left, "of another queue\n", 0o644)
		testkit.Must(t, os.Chown(left, p.uid, p.gid))
	}
	var all sync.WaitGroup
	ids := map[*person][]string{}
	var mu sync.Mutex
	for _, p := range []*person{m.eve, m.fay} {
		for range 4 {
			all.Go(func() {
				id := m.queue(p, []string{"USER=root", "LOGNAME=root", "HOME=/root"}, "--gpu-ids", "1", "--mem", "10", "--", `id -un; id -gn; pwd; sed -n "s/^CapEff:\t//p" /proc/self/status`)
				mu.Lock()
				defer mu.Unlock()
				ids[p] = append(ids[p], id)
			})
		}
	}
	all.Wait()
	for p, own := range ids {
		for _, id := range own {
			log := filepath.Join(p.home, ".mgpu_job_"+id+".log")
			want := fmt.Sprintf("%s\n%[1]s\n%s\n0000000000000000\n", p.name, p.home)
			if got := m.says(log, `\n[0-9a-f]{16}\n`); got != want {
				t.Errorf("%s's job printed %q, want %q", p.name, got, want)
			}
			if number, _ := job.FromCode(id); number == "" {
				t.Errorf("%s is not an id", id)
			}
		}
	}
	for _, p := range []*person{m.eve, m.fay} {
		if len(ids[p]) != 4 {
			t.Errorf("%s has %d jobs", p.name, len(ids[p]))
		}
	}
}

// TestMgpuUsersEndOnlyTheirOwnJobs, see only their own commands, and take
// turns: the user with more usage waits.
//
// seeds: M21 M23 M30 R23
func TestMgpuUsersEndOnlyTheirOwnJobs(t *testing.T) {
	m := newMgpuTown(t)
	m.up()
	gate, order := filepath.Join(m.dir, "gate"), filepath.Join(m.dir, "order")
	testkit.Write(t, order, "", 0o666)
	running := m.queue(m.eve, nil, "--gpu-ids", "0", "--", "echo eve1 >>"+order+"; until [ -e "+gate+" ]; do sleep 0.05; done")
	m.says(order, "eve1")
	queued := m.queue(m.eve, nil, "--gpu-ids", "0", "--", "echo eve2 >>"+order)
	own := m.queue(m.fay, nil, "--gpu-ids", "0", "--", "echo fay1 >>"+order)
	for _, id := range []string{running, queued} {
		out, status := m.fay.mgpu([]string{"USER=" + m.eve.name, "LOGNAME=" + m.eve.name}, "mgpu_cancel", id)
		if status != 1 || !strings.Contains(out, "Cancel failed.") || !strings.Contains(out, "belongs to "+m.eve.name) {
			t.Errorf("fay's mgpu_cancel of %s exits with %d: %s", id, status, out)
		}
	}
	list, status := m.fay.mgpu(nil, "mgpu_queue")
	wants := []string{
		"ID: " + running + " | User: " + m.eve.name + " | GPUs: 1 | Mem: none | CMD: (not shown) | Status: running\n",
		"ID: " + own + " | User: " + m.fay.name + " | GPUs: 1 | Mem: none | CMD: echo fay1",
	}
	for _, want := range wants {
		if status != 0 || !strings.Contains(list, want) {
			t.Errorf("fay's queue has no %q:\n%s", want, list)
		}
	}
	if out, status := m.fay.mgpu(nil, "mgpu_srun", "--attach", running); status != 1 || !strings.Contains(out, "belongs to") {
		t.Errorf("fay looks on: %d, %s", status, out)
	}
	testkit.Write(t, gate, "", 0o644)
	if got, want := m.says(order, "eve2"), "eve1\nfay1\neve2\n"; got != want {
		t.Errorf("they ran as %q, want %q", got, want)
	}
	last := m.queue(m.eve, nil, "--gpu-ids", "0", "--", "sleep 1000")
	if out, status := m.eve.mgpu(nil, "mgpu_cancel", last); status != 0 || out != "Job cancelled.\n" {
		t.Errorf("eve's own: %d, %s", status, out)
	}
}

// TestNobodyTakesTheMgpuServersPlace: in /tmp anyone can be first. Neither a
// server nor a client has anything to do with what another user put there.
//
// seeds: M2
func TestNobodyTakesTheMgpuServersPlace(t *testing.T) {
	m := newMgpuTown(t)
	var listener net.Listener
	testkit.Must(t, m.fay.as(func() (err error) {
		listener, err = net.Listen("unix", mgpuSocket)
		if err == nil {
			err = os.Chmod(mgpuSocket, 0o777)
		}
		return err
	}))
	heard := make(chan string, 16)
	go func() {
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				text := make([]byte, 1<<16)
				n, _ := c.Read(text) // an end is what it should be
				heard <- string(text[:n])
				_ = c.Close() // whoever trusted it is not kept waiting
			}()
		}
	}()
	for _, args := range [][]string{{"mgpu_srun", "--gpu-ids", "0", "--", "true"}, {"mgpu_queue"}, {"mgpu_cancel", "ZQFFY52C"}} {
		out, status := m.eve.mgpu([]string{"SECRET=of-eve"}, args[0], args[1:]...)
		if status != 1 || !strings.Contains(out, "cannot be trusted: user "+fmt.Sprint(m.fay.uid)) {
			t.Errorf("%s exits with %d: %s", args[0], status, out)
		}
		if got := <-heard; got != "" {
			t.Errorf("%s told fay %.100q", args[0], got)
		}
	}
	if said := m.begin().refuses(); !strings.Contains(said, "belongs to user "+fmt.Sprint(m.fay.uid)) {
		t.Errorf("with fay there, the server says %s", said)
	}
	testkit.Must(t, listener.Close())
	for _, trap := range []func() error{
		func() error { return os.Symlink("/etc/passwd", mgpuSocket) },
		func() error { return os.WriteFile(mgpuSocket, []byte("x"), 0o666) },
	} {
		testkit.Must(t, m.fay.as(trap))
		if said := m.begin().refuses(); !strings.Contains(said, "belongs to user "+fmt.Sprint(m.fay.uid)) {
			t.Errorf("with a trap there, the server says %s", said)
		}
		testkit.Must(t, os.Remove(mgpuSocket))
	}
	m.up()
	if out, status := m.eve.mgpu(nil, "mgpu_queue"); status != 0 {
		t.Errorf("with the right server: %d, %s", status, out)
	}
}

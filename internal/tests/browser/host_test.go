package browser

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"berth/internal/api"
	"berth/internal/job"
	"berth/internal/tests/testkit"
)

// host is a machine with a daemon and two simulated GPUs.
type host struct {
	t       *testing.T
	dir     string // everybody may write here
	socket  string
	address string // host:port of the page
	args    []string
	client  *api.Client // as whoever runs the test

	cmd  *exec.Cmd
	said *testkit.Buffer
	done chan struct{}
}

// newHost starts a daemon, for its user alone.
func newHost(t *testing.T, more ...string) *host {
	t.Helper()
	return startHost(t, append(more, "--private"))
}

// newSharedHost starts a daemon for all users.
func newSharedHost(t *testing.T, more ...string) *host {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("a daemon for all users needs root")
	}
	return startHost(t, more)
}

func startHost(t *testing.T, more []string) *host {
	t.Helper()
	needsBrowser(t)
	dir := t.TempDir()
	testkit.Must(t, os.Chmod(dir, 0o777|os.ModeSticky), os.Chmod(filepath.Dir(dir), 0o755))
	h := &host{t: t, dir: dir, socket: filepath.Join(dir, "sock"), address: freePort(t)}
	testkit.Write(t, filepath.Join(dir, "config.toml"), "[limits]\ngpus = 0\nrunning_jobs = 0\n")
	h.args = append([]string{
		"serve", "--state-dir", filepath.Join(dir, "state"), "--socket", h.socket, "--config", filepath.Join(dir, "config.toml"),
		"--sim", "2", "--poll", "0.2", "--http", h.address,
	}, more...)
	h.client = api.Dial(h.socket)
	h.up()
	t.Cleanup(func() {
		h.cancelAll()
		h.client.Close()
		h.down()
	})
	return h
}

func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	testkit.Must(t, err)
	defer l.Close()
	return l.Addr().String()
}

// up starts the daemon and waits until it answers.
func (h *host) up() {
	h.t.Helper()
	h.cmd = exec.Command(filepath.Join(programs, "berth"), h.args...)
	h.cmd.Dir = h.dir
	h.cmd.Env = append(os.Environ(), "HOME="+h.dir, "XDG_CONFIG_HOME="+h.dir, "XDG_STATE_HOME="+h.dir, "BERTH_LEDGER_DIR="+filepath.Join(h.dir, "ledger"))
	h.said, h.done = &testkit.Buffer{}, make(chan struct{})
	h.cmd.Stdout, h.cmd.Stderr, h.cmd.WaitDelay = h.said, h.said, testkit.Patience
	testkit.Must(h.t, h.cmd.Start())
	go func(cmd *exec.Cmd, done chan struct{}) { _ = cmd.Wait(); close(done) }(h.cmd, h.done)
	testkit.Eventually(h.t, "the daemon answers", func() bool {
		select {
		case <-h.done:
			h.t.Fatalf("the daemon ended; it said %s", h.said)
		default:
		}
		_, err := api.Call(h.ctx(), h.client, api.GetStatus, api.None{})
		return err == nil
	})
}

// down stops the daemon, which leaves its jobs alone.
func (h *host) down() {
	_ = h.cmd.Process.Signal(syscall.SIGTERM)
	timer := time.AfterFunc(testkit.Patience, func() { _ = h.cmd.Process.Kill() })
	defer timer.Stop()
	<-h.done
}

// cancelAll leaves no process behind.
func (h *host) cancelAll() {
	now, left := 0.0, 0
	if !testkit.Holds(testkit.Patience, func() bool {
		page, err := api.Call(h.ctx(), h.client, api.ListJobs, api.Query{})
		if left = page.Total; err != nil || left == 0 {
			return err == nil
		}
		var ids []string
		for _, v := range page.Jobs {
			ids = append(ids, v.ID)
		}
		_, err = api.Call(h.ctx(), h.client, api.Act, api.ActRequest{Action: "cancel", Select: api.Select{Words: ids}, GraceS: &now})
		return err == nil && left == 0
	}) {
		h.t.Errorf("%d jobs are left; the daemon said %s", left, h.said)
	}
}

// ctx bounds one request.
func (h *host) ctx() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), testkit.Patience)
	time.AfterFunc(testkit.Patience, cancel)
	return ctx
}

// person is a user of the machine; nil is whoever runs the test.
type person struct {
	name string
	uid  *syscall.Credential
}

// somebody is an account that every system has.
func somebody(t *testing.T, name string) *person {
	t.Helper()
	entry, err := user.Lookup(name)
	if err != nil {
		t.Skipf("this system has no user %s", name)
	}
	uid, _ := strconv.ParseUint(entry.Uid, 10, 32)
	gid, _ := strconv.ParseUint(entry.Gid, 10, 32)
	return &person{name: name, uid: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}
}

// berth runs a verb as somebody, who must not be refused.
func (h *host) berth(who *person, args ...string) string {
	h.t.Helper()
	cmd := exec.Command(filepath.Join(programs, "berth"), args...)
	cmd.Dir = h.dir
	cmd.Env = []string{"PATH=" + filepath.Join(h.dir, "bin") + ":/usr/bin:/bin", "HOME=" + h.dir, "BERTH_SOCKET=" + h.socket, "BERTH_NO_AUTOSTART=1", "LC_ALL=C.UTF-8"}
	if who != nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: who.uid}
	}
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = &out, &errOut, testkit.Patience
	if err := cmd.Run(); err != nil {
		h.t.Fatalf("berth %s: %v: %s%s", strings.Join(args, " "), err, out.String(), errOut.String())
	}
	return out.String()
}

// submit hands a job in and returns its id.
func (h *host) submit(who *person, args ...string) string {
	h.t.Helper()
	id := strings.TrimSpace(h.berth(who, append([]string{"submit", "--quiet"}, args...)...))
	if id == "" {
		h.t.Fatalf("berth submit %v printed no id", args)
	}
	return id
}

// login is an address that logs a browser in once.
func (h *host) login(who *person) string {
	h.t.Helper()
	address := strings.TrimSpace(h.berth(who, "web", "--no-open", "--plain-http")) // the test may run as root
	if !strings.HasPrefix(address, h.origin()+"/#login=") {
		h.t.Fatalf("berth web printed %q", address)
	}
	return address
}

func (h *host) origin() string { return "http://" + h.address }

func (h *host) job(id string) api.Detail {
	h.t.Helper()
	d, err := api.Call(h.ctx(), h.client, api.GetJob, api.JobID{ID: id})
	testkit.Must(h.t, err)
	return d
}

// becomes waits for a job's state.
func (h *host) becomes(id string, state job.State) {
	h.t.Helper()
	var d api.Detail
	if !testkit.Holds(testkit.Patience, func() bool { d = h.job(id); return d.State == state }) {
		h.t.Fatalf("job %s is %s, want %s", id, d.State, state)
	}
}

// running submits a job that takes a whole GPU until it is stopped, and waits
// until it uses it: from then on, it can be parked.
func (h *host) running(who *person, name string, options ...string) string {
	h.t.Helper()
	id := h.submit(who, append(options, "-n", name, "--", fmt.Sprintf("echo %s has begun, attempt $BERTH_ATTEMPT; exec %s/berth simjob --vram 4000 --hold 3600", name, programs))...)
	h.eventually("uses its GPU", id, func(d api.Detail) bool {
		return len(d.GPUIDs) > 0 && d.PeakVRAMMiB[strconv.Itoa(d.GPUIDs[0])] > 0
	})
	return id
}

package siege

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"berth/internal/api"
	"berth/internal/job"
	"berth/internal/tests/testkit"
)

// The bounds the daemon under siege is configured with, small enough to be
// reached.
const (
	queuedJobs = 1500
	adminGroup = "admins"
)

// camp is a shared daemon and the users around it.
type camp struct {
	t        *testing.T
	dir      string // everybody may look in
	stateDir string
	socket   string
	config   string
	tcp      string // host:port
	scrapes  string // likewise, for metrics
	gpus     int    // simulated ones
	mails    string // the file that sendmail writes to
	daemon   *served

	root          *person
	ann, bob, cat *person // owner of what is wanted, attacker, and one who floods
	dan           *person // of the administrators' group

	watch *watch
}

// served is a running berth serve.
type served struct {
	t   *testing.T
	cmd *exec.Cmd

	said testkit.Buffer
	done chan struct{}
}

func (s *served) running() bool {
	select {
	case <-s.done:
		return false
	default:
		return true
	}
}

// serve starts a daemon as root.
func serve(t *testing.T, env []string, args ...string) *served {
	t.Helper()
	s := &served{t: t, done: make(chan struct{})}
	s.cmd = exec.Command(filepath.Join(programs, "berth"), append([]string{"serve"}, args...)...)
	s.cmd.Dir = "/"
	s.cmd.Env = append([]string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root"}, env...)
	s.cmd.Stdout, s.cmd.Stderr, s.cmd.WaitDelay = &s.said, &s.said, testkit.Patience
	testkit.Must(t, s.cmd.Start())
	go func() { _ = s.cmd.Wait(); close(s.done) }()
	t.Cleanup(s.stop)
	return s
}

func (s *served) stop() {
	_ = s.cmd.Process.Signal(syscall.SIGTERM)
	timer := time.AfterFunc(testkit.Patience, func() { _ = s.cmd.Process.Signal(syscall.SIGQUIT) })
	defer timer.Stop()
	<-s.done
}

// refuses waits for a daemon that must not start, and returns what it said.
func (s *served) refuses() string {
	s.t.Helper()
	timer := time.NewTimer(testkit.Patience)
	defer timer.Stop()
	select {
	case <-s.done:
	case <-timer.C:
		s.t.Fatalf("the daemon goes on; it said %s", s.said.String())
	}
	if s.cmd.ProcessState.ExitCode() == 0 {
		s.t.Errorf("the daemon ended well; it said %s", s.said.String())
	}
	return s.said.String()
}

// newCamp starts a daemon for everybody, and makes the users.
func newCamp(t *testing.T) *camp {
	t.Helper()
	needsRoot(t)
	testkit.Accounts(t, "groupadd", account(adminGroup))
	t.Cleanup(func() { testkit.Accounts(t, "groupdel", account(adminGroup)) })
	tcp, scrapes := freePort(t), freePort(t)
	c := pitch(t, fmt.Sprintf("[limits]\nqueued_jobs = %d\ngpus = 0\ncpus = 0\nmemory_total = 0\nrunning_jobs = 0\nmax_priority = 100\n[access]\nadmin_group = %q\n[http]\nlisten = %q\n[metrics]\nlisten = %q\n[scheduling]\npoll = \"0.2s\"\n",
		queuedJobs, account(adminGroup), tcp, scrapes))
	c.tcp, c.scrapes = tcp, scrapes
	c.mails = c.postbox(t, "mails")
	sendmail := filepath.Join(c.dir, "sendmail")
	testkit.Write(t, sendmail, "#!/bin/sh\numask 0\ncat >>"+c.mails+"\n", 0o755)
	testkit.Write(t, c.config, testkit.Read(t, c.config)+fmt.Sprintf("[notify]\nsendmail = %q\n", sendmail), 0o644)
	c.ann = c.enlist("ann")
	c.bob = c.enlist("bob")
	c.cat = c.enlist("cat")
	c.dan = c.enlist("dan", account(adminGroup))
	c.up()
	return c
}

// pitch prepares a place for a daemon with this config, which up starts. Apart
// from root there are no users yet.
func pitch(t *testing.T, config string) *camp {
	t.Helper()
	needsRoot(t)
	removeStale(t)
	dir, err := os.MkdirTemp(programs, "camp-")
	testkit.Must(t, err)
	testkit.Must(t, os.Chmod(dir, 0o755), os.Mkdir(filepath.Join(dir, "home"), 0o755))
	c := &camp{
		t: t, dir: dir, stateDir: filepath.Join(dir, "state"), socket: filepath.Join(dir, "run", "berth.sock"),
		config: filepath.Join(dir, "config.toml"), gpus: 2,
	}
	c.root = &person{name: "root", home: "/root", socket: c.socket, http: &http.Client{Transport: &http.Transport{
		DialContext: func(context.Context, string, string) (net.Conn, error) { return net.Dial("unix", c.socket) },
	}}}
	t.Cleanup(c.root.http.CloseIdleConnections)
	testkit.Write(t, c.config, config, 0o644)
	return c
}

// enlist makes a user with a home in the camp.
func (c *camp) enlist(who string, groups ...string) *person {
	c.t.Helper()
	return enlist(c.t, who, filepath.Join(c.dir, "home"), c.socket, groups...)
}

func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	testkit.Must(t, err)
	defer l.Close()
	return l.Addr().String()
}

// up starts the daemon and waits until it answers.
func (c *camp) up() {
	c.t.Helper()
	// A hostile daemon's environment is part of the attack: nothing of it may
	// reach a job, and no program of the system be found by it.
	env := []string{"BERTH_LEDGER_DIR=" + filepath.Join(c.dir, "ledger"), "SECRET_OF_ROOT=" + rootCanary}
	c.daemon = serve(c.t, env, "--state-dir", c.stateDir, "--socket", c.socket, "--sim", strconv.Itoa(c.gpus), "--config", c.config)
	testkit.Eventually(c.t, "the daemon answers", func() bool {
		if !c.daemon.running() {
			c.t.Fatalf("the daemon ended; it said %s", c.daemon.said.String())
		}
		r, err := c.root.ask("GET", "/v1/status", nil)
		return err == nil && r.status == http.StatusOK
	})
}

// rootCanary is in the daemon's own environment.
const rootCanary = "canary-of-root-4711"

// spec is a job in words, as JSON takes it.
type spec map[string]any

// submit hands jobs in and returns their ids.
func (p *person) submit(t *testing.T, specs ...spec) []string {
	t.Helper()
	return p.submitFrom(t, map[string]any{"jobs": specs, "dir": p.home})
}

func (p *person) submitFrom(t *testing.T, request map[string]any) []string {
	t.Helper()
	var r api.SubmitReply
	p.mustAsk(t, "POST", "/v1/jobs", request).into(t, &r)
	var ids []string
	for _, s := range r.Jobs {
		ids = append(ids, s.ID)
	}
	return ids
}

// shell is a job that runs a line of shell. It asks for so little of a card
// that hundreds run side by side.
func shell(line string) spec { return spec{"command": line, "gpus": "0.004"} }

func (s spec) with(key string, value any) spec {
	s[key] = value
	return s
}

func (p *person) show(t *testing.T, id string) api.Detail {
	t.Helper()
	var d api.Detail
	p.mustAsk(t, "GET", "/v1/jobs/"+id, nil).into(t, &d)
	return d
}

// ended waits for a job's end.
func (p *person) ended(t *testing.T, id string) job.View {
	t.Helper()
	var v job.View
	testkit.Eventually(t, "job "+id+" is over", func() bool {
		var r api.WaitReply
		p.mustAsk(t, "POST", "/v1/jobs/wait", map[string]any{"select": map[string]any{"ids": []string{id}}, "timeout_s": 10}).into(t, &r)
		if r.Done {
			v = r.Jobs[0]
		}
		return r.Done
	})
	return v
}

func (p *person) running(t *testing.T, id string) {
	t.Helper()
	var d api.Detail
	if !testkit.Holds(testkit.Patience, func() bool { d = p.show(t, id); return d.State == job.Running }) {
		t.Fatalf("job %s is %s: %s", id, d.State, text(d.Reason))
	}
}

func (p *person) log(t *testing.T, id string) reply {
	t.Helper()
	return p.mustAsk(t, "GET", "/v1/jobs/"+id+"/log", nil)
}

// does runs one line of shell as a job, to its end, and returns what it
// printed.
func (p *person) does(t *testing.T, line string) string {
	t.Helper()
	id := p.submit(t, shell(line))[0]
	v := p.ended(t, id)
	if v.Outcome == nil || *v.Outcome != job.OK {
		t.Fatalf("job %s ended %v: %s", id, text(v.Outcome), text(v.Reason))
	}
	return p.log(t, id).body
}

func text[T any](value *T) string {
	if value == nil {
		return "null"
	}
	return fmt.Sprint(*value)
}

func (p *person) act(t *testing.T, action string, selection map[string]any) api.ActReply {
	t.Helper()
	r := p.mustAsk(t, "POST", "/v1/jobs/act", map[string]any{"action": action, "select": selection})
	var done api.ActReply
	if r.status == http.StatusOK {
		r.into(t, &done)
	}
	return done
}

func (p *person) cancel(t *testing.T, ids ...string) {
	t.Helper()
	p.mustAsk(t, "POST", "/v1/jobs/act", map[string]any{"action": "cancel", "select": map[string]any{"ids": ids}, "grace_s": 0.0})
}

// entry is a line of the audit.
type entry struct {
	UID    int      `json:"uid"`
	User   string   `json:"user"`
	Action string   `json:"action"`
	Jobs   []string `json:"jobs"`
	Detail string   `json:"detail"`
	Result string   `json:"result"`

	Requests int `json:"requests"`
}

func (c *camp) audit(t *testing.T) []entry {
	t.Helper()
	var all []entry
	for line := range strings.Lines(testkit.Read(t, filepath.Join(c.stateDir, "audit.jsonl"))) {
		var e entry
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Errorf("the audit holds %.200q: %v", line, err)
		}
		all = append(all, e)
	}
	return all
}

// mustBeDenied checks that the audit tells of a refusal.
func (c *camp) mustBeDenied(t *testing.T, p *person, action, id string) {
	t.Helper()
	for _, e := range c.audit(t) {
		if e.UID == p.uid && e.Action == action && e.Result != "ok" && (id == "" || slices.Contains(e.Jobs, id)) {
			return
		}
	}
	t.Errorf("the audit does not tell that %s was refused to %s job %s", p.name, action, id)
}

// watch asks the daemon how it is, all the while, as a user who does nothing
// else.
type watch struct {
	stop chan struct{}
	done chan struct{}

	times  []time.Duration
	failed []string
}

func (c *camp) keepWatch() {
	c.watch = &watch{stop: make(chan struct{}), done: make(chan struct{})}
	go c.watch.run(c.ann)
}

func (w *watch) run(p *person) {
	defer close(w.done)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-w.stop:
			return
		case <-tick.C:
		}
		begun := time.Now()
		r, err := p.askWith("GET", "/v1/status", nil, func(r *http.Request) { r.Close = true }) // a new connection each time
		w.times = append(w.times, time.Since(begun))
		if err != nil || r.status != http.StatusOK {
			w.failed = append(w.failed, fmt.Sprintf("status %d: %v", r.status, err))
		}
	}
}

// responsive ends the watch and holds the daemon to answering throughout.
func (w *watch) responsive(t *testing.T) {
	t.Helper()
	close(w.stop)
	<-w.done
	slices.Sort(w.times)
	at := func(part float64) time.Duration {
		return w.times[int(part*float64(len(w.times)-1))].Round(100 * time.Microsecond)
	}
	t.Logf("status, %d times under siege: p50 %s, p99 %s, most %s", len(w.times), at(0.5), at(0.99), at(1))
	if at(0.99) > 2*time.Second {
		t.Errorf("p99 of status is %s", at(0.99))
	}
	for _, failure := range w.failed[:min(3, len(w.failed))] {
		t.Errorf("one of %d answers that did not come: %s", len(w.failed), failure)
	}
}

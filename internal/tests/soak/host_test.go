package soak

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"berth/internal/api"
	"berth/internal/job"
	"berth/internal/tests/testkit"
)

// host is a site with a daemon instead of a jobs file.
type host struct {
	*site
	socket  string
	program string // the directory of the berth that serves
	shared  bool   // it serves all users
	guest   uint32 // who types; 0: whoever runs the test
	client  *api.Client
}

// newHost makes a place for a daemon with simulated cards.
func newHost(t *testing.T, cards int) *host {
	t.Helper()
	s := newSite(t, cards, nil)
	h := &host{site: s, socket: filepath.Join(s.dir, "sock"), program: programs}
	s.logDir = filepath.Join(s.dir, "state")
	s.flags = []string{"--sim", fmt.Sprint(cards), "--poll", "0.1"}
	// No config of the user's, and no daemon that anybody else could reach.
	s.env = append(s.env, "HOME="+s.dir, "XDG_CONFIG_HOME="+s.dir, "XDG_STATE_HOME="+s.dir, "BERTH_NO_AUTOSTART=1")
	if err := syscall.Mkfifo(filepath.Join(s.dir, "until"), 0o666); err != nil {
		t.Fatal(err)
	}
	h.client = api.Dial(h.socket)
	t.Cleanup(h.client.Close)
	return h
}

// serve starts the daemon.
func (h *host) serve(more ...string) *berth {
	h.t.Helper()
	return h.launch(h.serving(more...), nil)
}

func (h *host) serving(more ...string) *exec.Cmd {
	args := append([]string{"serve", "--state-dir", h.logDir, "--socket", h.socket}, h.flags...)
	if !h.shared {
		args = append(args, "--private")
	}
	cmd := exec.Command(filepath.Join(h.program, "berth"), append(args, more...)...)
	cmd.Dir, cmd.Env = h.dir, append(os.Environ(), h.env...)
	if h.uid != 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: h.uid, Gid: h.uid}}
	}
	return cmd
}

// open has the daemon serve all users, of whom one is at the keyboard.
func (h *host) open(cards int) {
	h.t.Helper()
	if os.Getuid() != 0 {
		h.t.Skip("a daemon for all users needs root")
	}
	h.shared, h.guest = true, nobody
	for i := range cards {
		testkit.Write(h.t, filepath.Join(h.dir, fmt.Sprintf("card%d", i)), "")
	}
	for path, mode := range map[string]os.FileMode{
		programs: 0o755, filepath.Dir(h.dir): 0o755, h.dir: 0o777 | os.ModeSticky,
		"ledger": 0o666, "card*": 0o666,
	} {
		paths := []string{path}
		if !filepath.IsAbs(path) {
			paths, _ = filepath.Glob(filepath.Join(h.dir, path))
		}
		for _, path := range paths {
			if err := os.Chmod(path, mode); err != nil {
				h.t.Fatal(err)
			}
		}
	}
}

// up starts the daemon and waits until it answers.
func (h *host) up(more ...string) *berth {
	h.t.Helper()
	b := h.serve(more...)
	h.awaitAnswer(b)
	return b
}

func (h *host) awaitAnswer(b *berth) {
	h.t.Helper()
	testkit.Eventually(h.t, "the daemon answers", func() bool {
		if !b.running() {
			h.t.Fatalf("the daemon ended with %d; it said\n%s%s", b.wait(), b.said(), b.stderr.String())
		}
		_, err := api.Call(h.ctx(), h.client, api.GetStatus, api.None{})
		return err == nil
	})
}

// down tells the daemon to stop, which leaves the jobs alone.
func (h *host) down(b *berth) {
	h.t.Helper()
	b.signal(syscall.SIGTERM)
	b.mustEnd(0)
}

// ctx bounds one request.
func (h *host) ctx() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), testkit.Patience)
	time.AfterFunc(testkit.Patience, cancel)
	return ctx
}

// cli runs a verb against the daemon.
func (h *host) cli(args ...string) (stdout, stderr string, status int) {
	cmd := h.verb(args...)
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = &out, &errOut, testkit.Patience
	err := cmd.Run()
	var failed *exec.ExitError
	if err != nil && !errors.As(err, &failed) {
		h.t.Errorf("run berth %s: %v", strings.Join(args, " "), err)
	}
	return out.String(), errOut.String(), cmd.ProcessState.ExitCode()
}

func (h *host) verb(args ...string) *exec.Cmd {
	cmd := exec.Command(berthProgram(), args...)
	cmd.Dir = h.dir
	cmd.Env = append(append(os.Environ(), h.env...), "BERTH_SOCKET="+h.socket)
	if h.guest != 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: h.guest, Gid: h.guest}}
	}
	return cmd
}

// environ is what jobs inherit.
func (h *host) environ() []string { return []string{"SOAK=" + h.dir, "PATH=" + os.Getenv("PATH")} }

// spec is a line as a request to the daemon.
func (l line) spec() api.Spec {
	spec := api.Spec{Name: api.Text(l.name())}
	for _, word := range strings.Fields(l.block) {
		key, value, given := strings.Cut(word, "=")
		if !given {
			value = "true"
		}
		if !spec.Set(key, value) {
			panic("no such key: " + key)
		}
	}
	bare := l
	bare.block = ""
	spec.Command = api.Command{Shell: bare.text()}
	return spec
}

func (l line) name() string { return fmt.Sprintf("line%d", l.number) }

// submit hands lines in, in one request, and returns their ids.
func (h *host) submit(lines ...line) []string {
	h.t.Helper()
	request := api.SubmitRequest{Dir: h.dir, Environ: h.environ()}
	for _, l := range lines {
		request.Jobs = append(request.Jobs, l.spec())
	}
	reply, err := api.Call(h.ctx(), h.client, api.Submit, request)
	if err != nil {
		h.t.Fatalf("submit: %v", err)
	}
	var ids []string
	for _, s := range reply.Jobs {
		ids = append(ids, s.ID)
	}
	return ids
}

// all is every job the daemon knows, by id.
func (h *host) all() map[string]job.View {
	h.t.Helper()
	jobs := map[string]job.View{}
	_, err := h.client.JobsAll(h.ctx(), api.Query{Over: true, Select: api.Select{All: true}}, func(v job.View) error {
		if earlier, twice := jobs[v.ID]; twice {
			h.t.Errorf("job %s is listed twice: %s and %s", v.ID, earlier.Name, v.Name)
		}
		jobs[v.ID] = v
		return nil
	})
	if err != nil {
		h.t.Fatalf("list: %v", err)
	}
	return jobs
}

func (h *host) job(id string) job.View {
	h.t.Helper()
	detail, err := api.Call(h.ctx(), h.client, api.GetJob, api.JobID{ID: id})
	if err != nil {
		h.t.Fatalf("job %s: %v", id, err)
	}
	return detail.View
}

func outcome(v job.View) string {
	if v.Outcome == nil {
		return ""
	}
	return string(*v.Outcome)
}

// drain waits until nothing is queued or running.
func (h *host) drain() {
	h.t.Helper()
	testkit.Within(h.t, 2*testkit.Patience, "everything is over", func() bool {
		status, err := api.Call(h.ctx(), h.client, api.GetStatus, api.None{})
		return err == nil && status.Counts["queued"]+status.Counts["running"] == 0
	})
}

// mustEndAs checks how the jobs of lines ended.
func (h *host) mustEndAs(ids []string, lines []line) {
	h.t.Helper()
	for i, l := range lines {
		v := h.job(ids[i])
		if outcome(v) != l.outcome() || v.Attempt != l.attempts() {
			h.t.Errorf("job %s ended %q in attempt %d, not %s in attempt %d", ids[i], outcome(v), v.Attempt, l.outcome(), l.attempts())
		}
		if wrong := statusFault(v, l); wrong != "" {
			h.t.Errorf("job %s: %s", ids[i], wrong)
		}
	}
}

// statusFault says what is wrong with the exit status of a job that ended by
// itself.
func statusFault(v job.View, l line) string {
	switch {
	case strings.HasPrefix(l.outcome(), "signal:"):
		if want := strings.TrimPrefix(l.outcome(), "signal:"); v.Signal == nil || *v.Signal != want || v.ExitCode != nil {
			return fmt.Sprintf("it died of %s, but has signal %s and exit code %s", want, text(v.Signal), text(v.ExitCode))
		}
	case v.ExitCode == nil || *v.ExitCode != l.code || v.Signal != nil:
		return fmt.Sprintf("it exited with %d, but has exit code %s and signal %s", l.code, text(v.ExitCode), text(v.Signal))
	}
	return ""
}

func text[T any](value *T) string {
	if value == nil {
		return "none"
	}
	return fmt.Sprint(*value)
}

// letGo lets the jobs of the kind until go on, until there is proof of it.
func (h *host) letGo(what string, done func() bool) {
	h.t.Helper()
	testkit.Eventually(h.t, what, func() bool {
		// It can be opened only while a job reads, which is told by this.
		gate, err := os.OpenFile(filepath.Join(h.dir, "until"), os.O_WRONLY|syscall.O_NONBLOCK, 0)
		if err == nil {
			gate.Close()
		}
		return done()
	})
}

// count is how many entries of the ledger begin with a word.
func (s *site) count(word string) (n int) {
	text, err := os.ReadFile(filepath.Join(s.dir, "ledger"))
	if err != nil {
		s.t.Fatal(err)
	}
	for row := range strings.Lines(string(text)) {
		if strings.HasPrefix(row, word+" ") {
			n++
		}
	}
	return n
}

// since is a measured time for the log of a test.
func since(begun time.Time) time.Duration { return time.Since(begun).Round(time.Millisecond) }

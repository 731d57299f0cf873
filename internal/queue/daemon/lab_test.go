package daemon

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"berth/internal/api"
	"berth/internal/job"
	"berth/internal/machine/keep"
	"berth/internal/machine/run"
	"berth/internal/machine/site"
	"berth/internal/queue/config"
	"berth/internal/queue/send"
	"berth/internal/tests/testkit"
	"berth/internal/text/problem"
)

// The tests' own program is every other that a daemon starts.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case "__keep":
			os.Exit(keep.Main(os.Args[2:]))
		case site.HoldWord:
			os.Exit(site.Hold(os.Args[2:]))
		case send.Word:
			os.Exit(send.Main(os.Args[2:], os.Stdin, os.Stdout))
		case run.WatchWord:
			os.Exit(run.WatchMain(os.Args[2:], os.Stdout, os.Stderr))
		case callWord:
			os.Exit(callStatus(os.Args[2]))
		}
	}
	if os.Getenv(lockedEnv) != "" {
		os.Exit(m.Run()) // a child that needs no daemon
	}
	testkit.Parallel(6)
	os.Exit(runTests(m))
}

func runTests(m *testing.M) int {
	dir, err := os.MkdirTemp("", "berth-daemon")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	os.Setenv("BERTH_LEDGER_DIR", filepath.Join(dir, "ledger"))
	// The small supervisor starts much faster than this program, which
	// carries the tests and perhaps the race detector.
	self, err := os.Executable()
	if err != nil {
		panic(err)
	}
	if err := testkit.Build(filepath.Dir(self), "", "cmd/berth-keep"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	code := m.Run()
	if code == 0 {
		// The process that held a port may take a moment to end.
		if err := goleak.Find(goleak.IgnoreAnyFunction("berth/internal/machine/site.awaitHolder")); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	return code
}

// lab is a daemon with simulated cards, and a caller at its socket.
type lab struct {
	*api.Client
	t       *testing.T
	ctx     context.Context
	d       *Daemon
	opt     Options
	signals chan os.Signal
	over    chan error
	running bool
}

// newLab starts a private daemon with two cards of 24576 MiB.
func newLab(t *testing.T, change ...func(*Options)) *lab {
	t.Helper()
	// A socket's path is short, and a test's directory may not be.
	dir, err := os.MkdirTemp("", "lab")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	l := &lab{t: t, ctx: context.Background()}
	l.opt = Options{
		Places:  site.Places{StateDir: filepath.Join(dir, "state"), Socket: filepath.Join(dir, "sock"), Config: filepath.Join(dir, "config.toml")},
		Version: "test", Sim: 2, SimVRAMMiB: 24576, Env: []string{"HOME=" + dir, "PATH=" + os.Getenv("PATH")},
		Override: func(c *config.Config) { c.Poll = 20 * time.Millisecond },
	}
	for _, f := range change {
		f(&l.opt)
	}
	t.Cleanup(func() {
		l.endAll()
		l.stop()
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	l.start()
	return l
}

// with changes the config beyond what the file says.
func with(change func(*config.Config)) func(*Options) {
	return func(o *Options) {
		before := o.Override
		o.Override = func(c *config.Config) { before(c); change(c) }
	}
}

// start serves until stop, and returns once the daemon can be reached.
func (l *lab) start() {
	l.t.Helper()
	serving := make(chan *Daemon, 1)
	l.signals, l.over = make(chan os.Signal, 1), make(chan error, 1)
	opt := l.opt
	opt.Signals = l.signals
	go func() { l.over <- serve(context.Background(), opt, func(d *Daemon) { serving <- d }) }()
	select {
	case l.d = <-serving:
	case err := <-l.over:
		l.t.Fatalf("the daemon ended at once: %v", err)
	case <-time.After(testkit.Patience):
		l.t.Fatal("the daemon does not come up")
	}
	l.running = true
	l.Client = api.Dial(l.opt.Places.Socket)
}

// stop is SIGTERM. Jobs go on.
func (l *lab) stop() {
	l.t.Helper()
	if !l.running {
		return
	}
	l.signals <- syscall.SIGTERM
	if err := l.ended(); err != nil {
		l.t.Errorf("the daemon ended with %v", err)
	}
}

// ended waits for the daemon to end by itself.
func (l *lab) ended() error {
	l.t.Helper()
	l.Client.Close()
	select {
	case err := <-l.over:
		l.running = false
		return err
	case <-time.After(testkit.Patience):
		l.t.Fatal("the daemon does not end")
		return nil
	}
}

// restart is berth restart, which keeps the page's port.
func (l *lab) restart() {
	l.t.Helper()
	hold, err := site.KeepPort(l.opt.Places.StateDir)
	if err != nil {
		l.t.Fatal(err)
	}
	l.stop()
	l.start()
	if hold != nil {
		hold.Close()
	}
}

// endAll leaves no job behind.
func (l *lab) endAll() {
	if !l.running {
		return
	}
	none := 0.0
	admin := api.Caller{Name: "root", Admin: true}
	_, err := l.d.actions.Act(l.ctx, admin, api.ActRequest{Action: api.ActCancel, Select: api.Select{All: true, User: everyone}, GraceS: &none})
	if err != nil {
		l.t.Errorf("end all jobs: %v", err)
	}
	l.until("all jobs are over", func() bool {
		s, err := l.d.admin.Status(l.ctx, admin)
		return err != nil || s.Counts["queued"]+s.Counts["running"] == 0
	})
}

// until waits for a condition, and looks at it often.
func (l *lab) until(what string, holds func() bool) {
	l.t.Helper()
	testkit.Eventually(l.t, what, holds)
}

// sh is a spec with a shell line and keys.
func sh(line string, pairs ...string) api.Spec {
	s := api.Spec{Command: api.Command{Shell: line}}
	for i := 0; i < len(pairs); i += 2 {
		if !s.Set(pairs[i], pairs[i+1]) {
			panic("no key " + pairs[i])
		}
	}
	return s
}

// submit takes jobs in from the lab's directory and returns their ids.
func (l *lab) submit(specs ...api.Spec) []string {
	l.t.Helper()
	reply, err := api.Call(l.ctx, l.Client, api.Submit, api.SubmitRequest{Jobs: specs, Dir: filepath.Dir(l.opt.Places.Socket), Environ: l.opt.Env})
	if err != nil {
		l.t.Fatalf("submit: %v", err)
	}
	ids := make([]string, len(reply.Jobs))
	for i, s := range reply.Jobs {
		ids[i] = s.ID
	}
	return ids
}

func (l *lab) one(spec api.Spec) string {
	l.t.Helper()
	return l.submit(spec)[0]
}

// refused is a submission that must be, with words that its problem must have.
func (l *lab) refused(r api.SubmitRequest, kind problem.Kind, words ...string) {
	l.t.Helper()
	reply, err := api.Call(l.ctx, l.Client, api.Submit, r)
	if err == nil {
		l.t.Errorf("accepted as %+v", reply.Jobs)
		return
	}
	wantProblem(l.t, err, kind, words...)
}

func wantProblem(t *testing.T, err error, kind problem.Kind, words ...string) {
	t.Helper()
	var p *problem.Problem
	if !errors.As(err, &p) {
		t.Errorf("%v is not a problem", err)
		return
	}
	if p.Kind != kind {
		t.Errorf("%q is of the kind %s, want %s", p.What, p.Kind, kind)
	}
	for _, word := range words {
		if !strings.Contains(p.What+" "+p.Hint, word) {
			t.Errorf("%q (%q) does not say %q", p.What, p.Hint, word)
		}
	}
}

func (l *lab) job(id string) api.Detail {
	l.t.Helper()
	j, err := api.Call(l.ctx, l.Client, api.GetJob, api.JobID{ID: id})
	if err != nil {
		l.t.Fatalf("job %s: %v", id, err)
	}
	return j
}

func (l *lab) untilState(id string, state job.State) api.Detail {
	l.t.Helper()
	var j api.Detail
	l.until("job "+id+" is "+string(state), func() bool {
		j = l.job(id)
		if j.State.Terminal() && state != j.State {
			l.t.Fatalf("job %s is %s (%s), want %s", id, j.State, value(j.Reason), state)
		}
		return j.State == state
	})
	return j
}

// end waits for a job's end and returns how it ended.
func (l *lab) end(id string) api.Detail {
	l.t.Helper()
	l.until("job "+id+" is over", func() bool { return l.job(id).State.Terminal() })
	return l.job(id)
}

// finished waits for a job that must end well, and returns what it printed.
func (l *lab) finished(id string) string {
	l.t.Helper()
	if j := l.end(id); j.State != job.Finished {
		l.t.Errorf("job %s ended %s: %s\n%s", id, value(j.Outcome), value(j.Reason), l.log(id))
	}
	return l.log(id)
}

func (l *lab) log(id string) string {
	l.t.Helper()
	r, err := l.Log(l.ctx, api.LogQuery{ID: id})
	if err != nil {
		return "(" + err.Error() + ")"
	}
	defer r.Close()
	text, err := io.ReadAll(r)
	if err != nil {
		l.t.Errorf("log of %s: %v", id, err)
	}
	return string(text)
}

func (l *lab) act(action string, words ...string) api.ActReply {
	l.t.Helper()
	return l.actOn(action, api.Select{Words: words})
}

func (l *lab) actOn(action string, sel api.Select) api.ActReply {
	l.t.Helper()
	reply, err := api.Call(l.ctx, l.Client, api.Act, api.ActRequest{Action: action, Select: sel})
	if err != nil {
		l.t.Fatalf("%s %+v: %v", action, sel, err)
	}
	return reply
}

// did is an answer as "1:done 2:not it has ended (ok)".
func did(r api.ActReply) string {
	words := make([]string, len(r.Jobs))
	for i, a := range r.Jobs {
		words[i] = a.ID + ":not " + a.What
		if a.Done {
			words[i] = a.ID + ":done"
		}
	}
	return strings.Join(words, ", ")
}

// gate is a command that runs until its file is there.
func (l *lab) gate(name string) (line string, open func()) {
	path := filepath.Join(filepath.Dir(l.opt.Places.Socket), name)
	return "while [ ! -e " + path + " ]; do sleep 0.02; done", func() { l.write(path, "") }
}

func (l *lab) write(path, text string) {
	l.t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		l.t.Fatal(err)
	}
}

// dir is where jobs are submitted from.
func (l *lab) dir() string { return filepath.Dir(l.opt.Places.Socket) }

func value[T any](p *T) T {
	if p == nil {
		var zero T
		return zero
	}
	return *p
}

// callWord is the program as a caller of its own: it says what the daemon at a
// socket makes of it.
const callWord = "__call"

func callStatus(socket string) int {
	client := api.Dial(socket)
	defer client.Close()
	status, err := api.Call(context.Background(), client, api.GetStatus, api.None{})
	if err != nil {
		fmt.Println("problem:", err)
		return 1
	}
	fmt.Printf("%d %s admin=%v\n", status.You.UID, status.You.Name, status.You.Admin)
	return 0
}

// callAs calls the daemon as another user.
func (l *lab) callAs(uid, gid int) string {
	l.t.Helper()
	cmd := exec.Command("/proc/self/exe", callWord, l.opt.Places.Socket)
	cmd.Env = []string{}
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		l.t.Fatal(err)
	}
	return string(bytes.TrimSpace(out))
}

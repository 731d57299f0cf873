package run

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"berth/internal/job"
	"berth/internal/machine/keep"
	"berth/internal/tests/testkit"
)

func TestHowACommandEndsIsWrittenDown(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	rows := []struct {
		name, line   string
		code, signal int
	}{
		{"success", "exit 0", 0, 0},
		{"a failure", "exit 3", 3, 0},
		{"the largest status", "exit 255", 255, 0},
		{"no such command", "berth-no-such-command", 127, 0},
		{"a signal", "kill -TERM $$", -1, 15},
		{"a crash", "kill -SEGV $$", -1, 11},
		{"a status that looks like a signal's", "exit 137", 137, 0},
	}
	for i, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			r := b.finish(b.order(strconv.Itoa(i), row.line))
			if r.ExitCode != row.code || r.Signal != row.signal || r.Stop != "" || r.Launch != "" || r.SetupFailed {
				t.Errorf("got %+v", r)
			}
			if r.State != keep.Ended || r.PID == 0 || r.Session != r.PID || r.PIDStart == 0 || r.BootID != keep.BootID() {
				t.Errorf("identity is not whole: %+v", r)
			}
			if r.EndedAt.Before(r.StartedAt) || time.Since(r.EndedAt) > testkit.Patience {
				t.Errorf("from %v to %v", r.StartedAt, r.EndedAt)
			}
		})
	}
}

func TestWhyACommandDidNotStart(t *testing.T) {
	b := newBench(t)
	file := filepath.Join(b.work, "file")
	os.WriteFile(file, []byte("no program"), 0o600)
	os.Symlink("/no/such/place/x.log", filepath.Join(b.work, "link.log"))
	rows := []struct {
		name  string
		spoil func(o *keep.Order)
		want  string
	}{
		{"its directory is missing", func(o *keep.Order) { o.Dir = "/no/such/dir" }, "working directory: stat /no/such/dir: no such file"},
		{"its directory is a file", func(o *keep.Order) { o.Dir = file }, "is not a directory"},
		{"no such program", func(o *keep.Order) { o.Argv = []string{"/no/such/program"} }, "exec /no/such/program: no such file"},
		{"no such word in PATH", func(o *keep.Order) { o.Argv = []string{"berth-no-such-command"} }, `command "berth-no-such-command" not found`},
		{"a file that may not be executed", func(o *keep.Order) { o.Argv = []string{file} }, "permission denied"},
		{"a log that cannot be made", func(o *keep.Order) { o.Log = filepath.Join(file, "x.log") }, "log"},
		{"a log that is a link to nowhere", func(o *keep.Order) { o.Log = filepath.Join(b.work, "link.log") }, "open log"},
		{"a log that is a directory", func(o *keep.Order) { o.Log = b.work }, "open log"},
	}
	for i, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			o := b.order("x"+strconv.Itoa(i), "exit 0")
			row.spoil(&o)
			token := b.start(o)
			r := b.next(Ended).Record
			b.Ack(token)
			if !strings.Contains(r.Launch, row.want) || r.PID != 0 || r.ExitCode != -1 {
				t.Errorf("got %q, pid %d, code %d", r.Launch, r.PID, r.ExitCode)
			}
		})
	}
	if text, _ := os.ReadFile(file); string(text) != "no program" {
		t.Errorf("a file was written to through a link: %q", text)
	}
}

func TestAJobGetsExactlyWhatItWasGiven(t *testing.T) {
	b := newBench(t)
	o := b.order("env", "")
	o.Argv = []string{"env", "-0"}
	o.Env = []string{"PATH=" + os.Getenv("PATH"), "EMPTY=", "LINES=a\nb", "BERTH_TOKEN=an outer one"}
	token := b.start(o)
	b.next(Started)
	b.next(Ended)
	b.Ack(token)
	got := strings.Split(strings.TrimSuffix(b.logText("env"), "\x00"), "\x00")
	want := append(o.Env[:3:3], "BERTH_TOKEN="+token+":env:1")
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("environment: %s", diff)
	}

	o = b.order("dir", "")
	o.Argv = []string{"printf", "%s|", "a b", "", "$HOME", "*"}
	b.finish(o)
	if got := b.logText("dir"); got != "a b||$HOME|*|" {
		t.Errorf("arguments: %q", got)
	}

	o = b.order("pwd", "pwd; readlink /proc/self/fd/0; echo to stderr >&2; ulimit -n; umask")
	o.Dir = t.TempDir()
	b.finish(o)
	limit, mask := shell(t, "ulimit -n"), shell(t, "umask")
	if got, want := b.logText("pwd"), o.Dir+"\n/dev/null\nto stderr\n"+limit+mask; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// shell runs a line as a plain child of the tests would.
func shell(t *testing.T, line string) string {
	t.Helper()
	out, err := execShell(line)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestAJobInheritsNothingElse(t *testing.T) {
	leakOnExec(t)
	b := newBench(t)
	// ls adds the descriptor it reads the directory with.
	o := b.order("fds", "")
	o.Argv = []string{"ls", "/proc/self/fd"}
	b.finish(o)
	if text := b.logText("fds"); text != "0\n1\n2\n3\n" {
		t.Errorf("descriptors: %q", text)
	}
	o = b.order("signals", "")
	o.Argv = []string{"grep", "-E", "^Sig(Ign|Blk)", "/proc/self/status"}
	b.finish(o)
	if text := b.logText("signals"); strings.Count(text, "0000000000000000") != 2 {
		t.Errorf("signals: %q", text)
	}
	o = b.order("session", "")
	o.Argv = []string{"cut", "-d ", "-f1,5,6", "/proc/self/stat"}
	pid := strconv.Itoa(b.finish(o).PID)
	if text := b.logText("session"); text != pid+" "+pid+" "+pid+"\n" {
		t.Errorf("not the leader of its own session: %q", text)
	}
}

func TestALogIsAppendedToAndComplete(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	os.MkdirAll(filepath.Dir(b.log("big")), 0o755)
	os.WriteFile(b.log("big"), []byte("CUDA out of memory, said another attempt\n"), 0o644)
	token := b.start(b.order("big", "head -c 3000000 /dev/zero; printf end; exit 1"))
	b.next(Started)
	e := b.next(Ended)
	b.Ack(token)
	text := b.logText("big")
	if len(text) != 41+3000000+3 || !strings.HasSuffix(text, "\x00end") {
		t.Errorf("%d bytes", len(text))
	}
	if e.Record.LogFrom != 41 || e.OOM {
		t.Errorf("another attempt's text was taken for this one's: from %d, OOM %v", e.Record.LogFrom, e.OOM)
	}
}

func TestOutOfMemoryIsRead(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	token := b.start(b.order("oom", "echo 'torch.OutOfMemoryError: CUDA out of memory.'; exit 1"))
	b.next(Started)
	if e := b.next(Ended); !e.OOM {
		t.Errorf("not seen: %+v", e)
	}
	b.Ack(token)
	token = b.start(b.order("fine", "echo 'caught: CUDA out of memory'"))
	b.next(Started)
	if e := b.next(Ended); e.OOM {
		t.Error("a job that succeeded is not out of memory")
	}
	b.Ack(token)
}

func TestALargeEnvironmentArrives(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	o := b.order("large", "")
	o.Argv = []string{"env", "-0"}
	for i := range 10 {
		o.Env = append(o.Env, "BIG"+strconv.Itoa(i)+"="+strings.Repeat("x", 100<<10))
	}
	r := b.finish(o)
	if r.ExitCode != 0 || len(b.logText("large")) < 1000<<10 {
		t.Errorf("%+v, %d bytes", r, len(b.logText("large")))
	}
}

func TestAPathMayBeLong(t *testing.T) {
	b := &bench{t: t, work: t.TempDir(), dir: filepath.Join(t.TempDir(), strings.Repeat("long/", 60), "keep")}
	b.open()
	token := b.start(b.order("1", "sleep 1000"))
	b.next(Started)
	b.Close()
	b.open()
	found, err := b.Scan()
	if err != nil || len(found) != 1 || found[0].Kind != FoundRunning {
		t.Fatalf("found %+v, %v", found, err)
	}
	b.Stop(token, job.StopCancel, time.Minute)
	b.next(Ended)
}

func TestAScriptWithoutAFirstLineIsAShells(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	script := filepath.Join(b.work, "script")
	os.WriteFile(script, []byte("echo \"$1\"; exit 4\n"), 0o755)
	o := b.order("script", "")
	o.Argv = []string{"./script", "a b"}
	if r := b.finish(o); r.ExitCode != 4 || b.logText("script") != "a b\n" {
		t.Errorf("%+v, %q", r, b.logText("script"))
	}
}

func TestWhatTheTreeUsedIsCounted(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	r := b.finish(b.order("busy", "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done"))
	if r.User+r.Sys < 10*time.Millisecond || r.MaxRSSKiB < 100 {
		t.Errorf("user %v, system %v, %d KiB", r.User, r.Sys, r.MaxRSSKiB)
	}
}

func TestOneSupervisorHoldsManyJobsInTurn(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	first := ""
	for i := range 200 {
		id := strconv.Itoa(i)
		token := b.start(b.order(id, "echo "+id+"; exit "+strconv.Itoa(i%7)))
		if first == "" {
			first = token
		}
		b.next(Started)
		e := b.next(Ended)
		if token != first || e.Job != id || e.Record.ExitCode != i%7 {
			t.Fatalf("job %d under %s: %+v", i, token, e)
		}
		b.Ack(token)
	}
	if got := b.logText("199"); got != "199\n" {
		t.Errorf("%q", got)
	}
	b.Close()
	if left, _ := os.ReadDir(b.dir); len(left) != 0 {
		t.Errorf("%d directories are left", len(left))
	}
}

func TestThePoolIsBounded(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.set.maxIdle = 2
	var tokens []string
	for range 5 {
		token, err := b.Lease()
		if err != nil {
			t.Fatal(err)
		}
		tokens = append(tokens, token)
	}
	for _, token := range tokens {
		b.Release(token)
	}
	testkit.Eventually(t, "three supervisors leave", func() bool {
		left, _ := os.ReadDir(b.dir)
		return len(left) == 2
	})
}

func TestOrdersThatCannotBeGiven(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	token, err := b.Lease()
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Go(token, keep.Order{Job: "1"}); err == nil {
		t.Error("no command")
	}
	o := b.order("1", "exit 0")
	o.Env = append(o.Env, "X="+strings.Repeat("x", keep.MaxFrame))
	if err := b.Go(token, o); err == nil {
		t.Error("an endless environment")
	}
	if err := b.Go("nobody", b.order("1", "exit 0")); err == nil {
		t.Error("no such supervisor")
	}
	if err := b.Go(token, b.order("1", "exit 0")); err != nil {
		t.Fatal(err)
	}
	if err := b.Go(token, b.order("2", "exit 0")); err == nil {
		t.Error("two jobs at once")
	}
	b.next(Started)
	b.next(Ended)
	if bytes.Contains([]byte(b.logText("1")), []byte("x")) {
		t.Error("it ran something else")
	}
}

func TestBerthItselfIsASupervisorWhereTheSmallProgramIsMissing(t *testing.T) {
	b := newBench(t, func(o *Options) {
		o.KeepCommand = findKeep()
		if len(o.KeepCommand) != 2 || o.KeepCommand[1] != "__keep" {
			t.Fatalf("found %q", o.KeepCommand)
		}
	})
	o := b.order("1", "exec ls /proc/self/fd /no/such/file 2>/dev/null")
	if r := b.finish(o); r.ExitCode != 2 || !strings.HasSuffix(b.logText("1"), "0\n1\n2\n3\n") {
		t.Errorf("got %+v, %q", r, b.logText("1"))
	}
}

func TestASupervisorThatCannotBeStarted(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(o *Options) { o.KeepCommand = []string{"/no/such/berth-keep"} })
	if _, err := b.Lease(); err == nil {
		t.Error("leased")
	}
	if left, _ := os.ReadDir(b.dir); len(left) != 0 {
		t.Errorf("%d directories left", len(left))
	}
	// One that starts and is something else runs nothing.
	b = newBench(t, func(o *Options) { o.KeepCommand = []string{"/bin/false"} })
	token := b.start(b.order("1", "touch ran"))
	if e := b.next(NeverRan); e.Token != token || e.Job != "1" {
		t.Errorf("got %+v", e)
	}
}

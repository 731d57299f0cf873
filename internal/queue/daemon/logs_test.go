package daemon

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"berth/internal/api"
	"berth/internal/job"
	"berth/internal/machine/keep"
	"berth/internal/queue/engine/launch"
	"berth/internal/tests/testkit"
	"berth/internal/text/problem"
)

// read is a part of a log, or the problem with it.
func (l *lab) read(q api.LogQuery) (string, error) {
	l.t.Helper()
	ctx, cancel := context.WithTimeout(l.ctx, testkit.Patience)
	defer cancel()
	r, err := l.Client.Log(ctx, q)
	if err != nil {
		return "", err
	}
	defer r.Close()
	text, err := io.ReadAll(r)
	return string(text), err
}

// TestALogOfAnotherQueueIsNotShown, though it has the job's name and whoever
// follows the job is there before it begins. What never ran says why.
func TestALogOfAnotherQueueIsNotShown(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	dir := t.TempDir()
	for n := range 20 {
		old := filepath.Join(dir, job.Code(strconv.Itoa(n+1))+".log")
		if err := os.WriteFile(old, []byte("of another queue\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		spec, want := sh("echo own", "gpus", "0", "output", dir+"/%c.log"), "own\n"
		if n%2 == 1 {
			spec.Command, want = api.Command{Argv: []string{"berth-has-no-such", "x"}}, "berth: command \"berth-has-no-such\" not found in PATH\n"
		}
		if got, err := l.read(api.LogQuery{ID: l.one(spec), Follow: true}); err != nil || got != want {
			t.Errorf("job %d: %q, %v", n+1, got, err)
		}
		if kept, err := os.ReadFile(old + ".old"); string(kept) != "of another queue\n" {
			t.Errorf("the old log of job %d: %q, %v", n+1, kept, err)
		}
	}
	for output, want := range map[string]bool{"%c": true, "%%c": false, "%%%c": true, "log": false} {
		if got := launch.LogAlone(&job.Spec{Output: output}); got != want {
			t.Errorf("%s: %v", output, got)
		}
	}
}

// TestALogThatCannotBeReadNowIsNotRefused: who follows a job through a restart
// of the daemon would give up.
func TestALogThatCannotBeReadNowIsNotRefused(t *testing.T) {
	t.Parallel()
	stopped, stop := context.WithCancel(t.Context())
	stop()
	for _, row := range []struct {
		ctx  context.Context
		err  error
		kind problem.Kind
	}{
		{stopped, io.ErrUnexpectedEOF, problem.Unable}, {stopped, os.ErrDeadlineExceeded, problem.Unable}, {t.Context(), os.ErrDeadlineExceeded, problem.Unable},
		{t.Context(), os.ErrNotExist, problem.NotFound}, {t.Context(), os.ErrPermission, problem.Refused},
	} {
		wantProblem(t, noLog(row.ctx, "7", "log", fmt.Errorf("open: %w", row.err)), row.kind)
	}
}

func TestPartsOfALog(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	id := l.one(sh("seq 1 9; printf ten", "gpus", "0"))
	whole := "1\n2\n3\n4\n5\n6\n7\n8\n9\nten"
	if got := l.finished(id); got != whole {
		t.Fatalf("log: %q", got)
	}
	for _, row := range []struct {
		query api.LogQuery
		want  string
	}{
		{api.LogQuery{}, whole},
		{api.LogQuery{Attempt: 1}, whole},
		{api.LogQuery{Lines: 1}, "ten"},
		{api.LogQuery{Lines: 3}, "8\n9\nten"},
		{api.LogQuery{Lines: 100}, whole},
		{api.LogQuery{Offset: 4}, whole[4:]},
		{api.LogQuery{Offset: -5}, "9\nten"},
		{api.LogQuery{Offset: -500}, whole},
		{api.LogQuery{Offset: 500}, ""},
		{api.LogQuery{Follow: true}, whole},
		{api.LogQuery{Follow: true, Lines: 2}, "9\nten"},
	} {
		row.query.ID = id
		if got, err := l.read(row.query); err != nil || got != row.want {
			t.Errorf("%+v: %q, %v; want %q", row.query, got, err, row.want)
		}
	}
	if got := l.finished(l.one(sh("true", "gpus", "0"))); got != "" {
		t.Errorf("an empty log: %q", got)
	}
}

func TestLogsThatAreNotThere(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	queued := l.one(sh("true", "hold", "yes"))
	_, err := l.read(api.LogQuery{ID: queued})
	wantProblem(t, err, problem.Refused, "has not started")
	_, err = l.read(api.LogQuery{ID: "99"})
	wantProblem(t, err, problem.NotFound, "99")
	done := l.one(sh("echo x", "gpus", "0"))
	l.finished(done)
	_, err = l.read(api.LogQuery{ID: done, Attempt: 2})
	wantProblem(t, err, problem.NotFound, "1 attempt")
	if err := os.Remove(value(l.job(done).Log)); err != nil {
		t.Fatal(err)
	}
	_, err = l.read(api.LogQuery{ID: done, Follow: true})
	wantProblem(t, err, problem.NotFound, "removed")
	l.act(api.ActCancel, queued)
	_, err = l.read(api.LogQuery{ID: queued, Follow: true})
	wantProblem(t, err, problem.Refused, "never started")
}

func TestAttemptsKeepTheirLogs(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	for _, output := range []string{"", filepath.Join(l.dir(), "out.%j")} {
		spec := sh("echo attempt $BERTH_ATTEMPT; exit 1", "gpus", "0", "retries", "1", "retry_on", "fail")
		if output != "" {
			spec.Set("output", output)
		}
		id := l.one(spec)
		l.end(id)
		for attempt := range 3 {
			got, err := l.read(api.LogQuery{ID: id, Attempt: attempt})
			want := fmt.Sprintf("attempt %d\n", attempt)
			if attempt == 0 {
				want = "attempt 2\n"
			}
			if err != nil || got != want {
				t.Errorf("%q, attempt %d: %q, %v; want %q", output, attempt, got, err, want)
			}
		}
	}
}

// TestAFollowedLogIsWhole: from before the start to the last byte before the
// exit, for many readers of many jobs.
func TestAFollowedLogIsWhole(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	type reading struct {
		text string
		err  error
	}
	const jobs, readers = 6, 3
	lines, want := "i=0; while [ $i -lt 300 ]; do echo line $i; i=$((i+1)); done; printf end", ""
	for i := range 300 {
		want += fmt.Sprintf("line %d\n", i)
	}
	want += "end"
	results := make(chan reading, jobs*readers)
	var ids []string
	for range jobs {
		ids = append(ids, l.one(sh(lines, "gpus", "0", "hold", "yes")))
	}
	for _, id := range ids {
		for range readers {
			go func() {
				text, err := l.read(api.LogQuery{ID: id, Follow: true})
				results <- reading{text, err}
			}()
		}
	}
	l.until("all listen", func() bool { return l.d.svc.hub.count() == jobs*readers })
	l.act(api.ActRelease, ids...)
	for range jobs * readers {
		if r := <-results; r.err != nil || r.text != want {
			t.Errorf("read %d of %d bytes, ending %q: %v", len(r.text), len(want), r.text[max(0, len(r.text)-30):], r.err)
		}
	}
	l.until("nobody listens", func() bool { return l.d.svc.hub.count() == 0 })
}

// TestAFollowerOutlivesTheDaemon: the client goes on where it was.
func TestAFollowerOutlivesTheDaemon(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	line, open := l.gate("gate")
	id := l.one(sh("echo before; "+line+"; echo after", "gpus", "0"))
	l.untilState(id, job.Running)
	r, err := l.Client.Log(l.ctx, api.LogQuery{ID: id, Follow: true})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	first := make([]byte, 7)
	if _, err := io.ReadFull(r, first); err != nil || string(first) != "before\n" {
		t.Fatalf("%q, %v", first, err)
	}
	rest := make(chan string, 1)
	go func() {
		text, err := io.ReadAll(r)
		rest <- fmt.Sprint(string(text), err)
	}()
	l.restart()
	open()
	l.finished(id)
	if got := <-rest; got != "after\n<nil>" {
		t.Errorf("the rest: %q", got)
	}
}

// TestTailOffset holds the search for the last lines to a simple one.
func TestTailOffset(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", tailBlock-1)
	for _, text := range []string{"", "\n", "a", "a\n", "a\nb", "a\nb\n", "\n\n\n", "a\n\nb\n", long + "\nend\n", long + "\n" + long + "\n", long + long + "\nb\nc"} {
		path := filepath.Join(t.TempDir(), "log")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		file, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		for lines := 1; lines < 5; lines++ {
			all := strings.SplitAfter(text, "\n")
			if all[len(all)-1] == "" {
				all = all[:len(all)-1]
			}
			want := strings.Join(all[max(0, len(all)-lines):], "")
			at, err := tailOffset(file, lines)
			if err != nil || text[at:] != want {
				t.Errorf("the last %d lines of %.20q (%d bytes) begin at %d, want %d; %v", lines, text, len(text), at, len(text)-len(want), err)
			}
		}
		file.Close()
	}
}

func TestAttach(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	plain := l.one(sh("sleep 60", "gpus", "0"))
	l.untilState(plain, job.Running)
	_, err := l.Attach(l.ctx, plain)
	wantProblem(t, err, problem.Refused, "no terminal", "--pty")
	id := l.one(sh(`[ -t 0 ] && echo ready; read word; echo "got $word"`, "gpus", "0", "pty", "yes"))
	l.untilState(id, job.Running)
	conn, err := l.Attach(l.ctx, id)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for _, frame := range []keep.Frame{keep.AttachFrame(24, 80), keep.InputFrame([]byte("hello\n"))} {
		data, err := frame.Encode()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Write(data); err != nil {
			t.Fatal(err)
		}
	}
	seen := make(chan string, 1)
	go func() {
		text, _ := io.ReadAll(conn)
		seen <- string(text)
	}()
	if got := l.finished(id); !strings.Contains(got, "ready") || !strings.Contains(got, "got hello") {
		t.Errorf("log: %q", got)
	}
	select {
	case got := <-seen:
		if !strings.Contains(got, "got hello") {
			t.Errorf("the terminal showed %q", got)
		}
	case <-time.After(testkit.Patience):
		t.Error("the terminal stays open")
	}
	_, err = l.Attach(l.ctx, id)
	wantProblem(t, err, problem.Refused, "finished")
}

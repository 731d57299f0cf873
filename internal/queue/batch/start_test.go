package batch

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"berth/internal/api"
	"berth/internal/job"
	"berth/internal/tests/testkit"
	"berth/internal/text/problem"
)

// signalled runs a file, and sends a signal once it waits.
func signalled(t *testing.T, opt Options, sig os.Signal, waits func()) (status int, err error) {
	t.Helper()
	signals := make(chan os.Signal, 1)
	opt.HostOptions = HostOptions{LogDir: t.TempDir(), Poll: time.Hour}
	opt.Out, opt.Signals, opt.Dir = &testkit.Buffer{}, signals, t.TempDir()
	go func() {
		waits()
		signals <- sig
	}()
	over := make(chan struct{})
	go func() {
		defer close(over)
		status, err = Run(t.Context(), opt)
	}()
	select {
	case <-over:
	case <-time.After(testkit.Patience):
		t.Fatal("it does not hear the signal")
	}
	return status, err
}

func TestASignalIsObeyedBeforeAnythingRuns(t *testing.T) {
	t.Parallel()
	opening := make(chan struct{}, 1)
	tests := []struct {
		name string
		file func(t *testing.T, dir string) (path string, waits func())
		open func(ctx context.Context) error // the queue; nil: it must not be
	}{
		{"while the last line of the file may be in the making", func(t *testing.T, dir string) (string, func()) {
			testkit.Write(t, filepath.Join(dir, "jobs.txt"), "true")
			return filepath.Join(dir, "jobs.txt"), func() {}
		}, nil},
		{"while nobody writes the pipe", func(t *testing.T, dir string) (string, func()) {
			mkfifo(t, filepath.Join(dir, "pipe"))
			return filepath.Join(dir, "pipe"), func() {}
		}, nil},
		{"while the pipe is not at its end", func(t *testing.T, dir string) (string, func()) {
			path := filepath.Join(dir, "pipe")
			mkfifo(t, path)
			return path, func() {
				file, err := os.OpenFile(path, os.O_WRONLY, 0) // berth has it open then
				if err != nil {
					t.Error(err)
					return
				}
				t.Cleanup(func() { file.Close() })
				file.WriteString("true\n")
			}
		}, nil},
		{"while the queue is being opened", func(t *testing.T, dir string) (string, func()) {
			testkit.Write(t, filepath.Join(dir, "jobs.txt"), "true\n")
			return filepath.Join(dir, "jobs.txt"), func() { <-opening }
		}, func(ctx context.Context) error { opening <- struct{}{}; <-ctx.Done(); return context.Cause(ctx) }},
		{"while opening the queue hangs", func(t *testing.T, dir string) (string, func()) {
			testkit.Write(t, filepath.Join(dir, "jobs.txt"), "true\n")
			return filepath.Join(dir, "jobs.txt"), func() { <-opening }
		}, func(context.Context) error { opening <- struct{}{}; <-t.Context().Done(); return t.Context().Err() }},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			file, waits := test.file(t, t.TempDir())
			_, err := signalled(t, Options{File: file, Open: func(ctx context.Context, _ *Options, _ func(string)) (*Link, error) {
				if test.open == nil {
					t.Error("it went on, to the queue")
					return nil, errors.New("unexpected")
				}
				return nil, test.open(ctx)
			}}, os.Interrupt, waits)
			if problem.KindOf(err) != problem.Interrupted || !errors.Is(err, errInterrupted) {
				t.Errorf("it says %v", err)
			}
		})
	}
}

// TestATerminalThatClosesLeavesTheJobsToTheQueue, also while it is being opened.
func TestATerminalThatClosesLeavesTheJobsToTheQueue(t *testing.T) {
	t.Parallel()
	for _, early := range []bool{true, false} {
		file := filepath.Join(t.TempDir(), "jobs.txt")
		testkit.Write(t, file, "true\n")
		opened := make(chan struct{})
		status, err := signalled(t, Options{File: file, Open: func(_ context.Context, o *Options, _ func(string)) (*Link, error) {
			if early {
				opened <- struct{}{}
			} else {
				defer close(opened)
			}
			return (&fakeQueue{}).link(t, o), nil
		}}, syscall.SIGHUP, func() { <-opened })
		if status != 0 || err != nil {
			t.Errorf("early %v: %d, %v", early, status, err)
		}
	}
}

func TestWhatAnEarlierRunLeft(t *testing.T) {
	t.Parallel()
	const file = "a\nb\nc\nd\n"
	tests := []struct {
		name   string
		retry  string
		gone   bool // the line of b is not in the file any more
		marked bool // the line of b is marked cancel
		code   int
		counts tally
		says   []string
	}{
		{
			name: "finished work is skipped, old failures are named and count",
			code: 3, counts: tally{ok: 1, failed: 1, cancelled: 1, queued: 1, earlier: 3},
			says: []string{"skipping 1 job that finished in an earlier run (--retry all runs them again): 1", "skipping 1 job cancelled in an earlier run (--retry all runs them again): 3", "job 2 failed in an earlier run [exit:3] — b", "1 old failure"},
		},
		{
			name: "with --retry-failed they run again", retry: api.RetryFailed, counts: tally{ok: 1, queued: 3, earlier: 1},
			says: []string{"skipping 1 job", "retrying 2 jobs"},
		},
		{
			name: "with --retry all those that finished, too", retry: api.RetryAll, counts: tally{queued: 4},
			says: []string{"running 3 jobs of an earlier run again"},
		},
		{
			name: "but not one that is marked cancel", retry: api.RetryFailed, marked: true,
			code: 3, counts: tally{ok: 1, failed: 1, queued: 2, earlier: 2},
			says: []string{"skipping 1 job", "retrying 1 job", "job 2 failed", "1 old failure"},
		},
		{
			name: "what failed in a line that is gone does not count", gone: true, counts: tally{ok: 1, cancelled: 1, queued: 1, earlier: 2},
			says: []string{"skipping 1 job", "skipping 1 job cancelled"},
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			f, out := following(t, file, job.OK, "exit:3", job.WasCancelled, "")
			f.opt.Retry = test.retry
			f.source.file.Lines[1].Spec.CancelMarked = test.marked
			if test.gone {
				f.source.file.Lines = slices.Delete(f.source.file.Lines, 1, 2)
			}
			testkit.Must(t, f.enter(t.Context()))
			lines, says := said(f, out), append(test.says, "in a queue of its own, logs in ")
			if len(lines) != len(says) {
				t.Fatalf("it says %q", lines)
			}
			for i, says := range says {
				if !strings.Contains(lines[i], says) {
					t.Errorf("it says %q, want %q", lines[i], says)
				}
			}
			if code, _ := f.jobs.status(); code != test.code || f.jobs.counts != test.counts {
				t.Errorf("exit status %d, want %d, with %+v", code, test.code, f.jobs.counts)
			}
		})
	}
}

func TestOldFailuresAreNamedUpToABound(t *testing.T) {
	t.Parallel()
	var text strings.Builder
	outcomes := make([]job.Outcome, 50)
	for i := range outcomes {
		fmt.Fprintf(&text, "job %d\n", i)
		outcomes[i] = "exit:1"
	}
	f, out := following(t, text.String(), outcomes...)
	testkit.Must(t, f.enter(t.Context()))
	lines := said(f, out)
	if len(lines) != maxNamed+3 || !strings.HasSuffix(lines[maxNamed], "and 30 more") {
		t.Errorf("%d lines, the last %q", len(lines), lines[len(lines)-3:])
	}
}

// TestTheNameOfAJobsFile: the same file has the same name however it is written.
func TestTheNameOfAJobsFile(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	testkit.Must(t, os.Mkdir("a", 0o700), os.Symlink("a", "link"), os.WriteFile("a/jobs.txt", nil, 0o600))
	for _, test := range []struct {
		file string
		own  bool
		want string
	}{
		{"a/jobs.txt", true, "a/jobs.txt"},
		{"a/jobs.txt", false, "a/jobs.txt"},
		{dir + "/a/jobs.txt", true, "a/jobs.txt"},
		{"link/jobs.txt", true, "a/jobs.txt"},
		{"/dev/null", true, "berth_logs/-"},
		{"/dev/null", false, "-"},
		{"berth_logs/" + pipedName, true, "berth_logs/-"},
	} {
		o := Options{File: test.file, Dir: dir, HostOptions: HostOptions{LogDir: "berth_logs"}}
		if name := o.Batch(test.own); name != filepath.Join(dir, test.want) {
			t.Errorf("%s, own %v, is %q, want %q", test.file, test.own, name, test.want)
		}
	}
}

package tgpu

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"berth/internal/compat/frontend"
	"berth/internal/job"
)

// asTgpu runs tgpu over a berth that only notes how it was called.
func asTgpu(args ...string) (calls [][]string, errOut string, code int) {
	var said bytes.Buffer
	reached := func(context.Context, bool) (string, error) { return "", nil }
	code = Program.Main(&frontend.Call{Name: "tgpu", Args: args, Out: io.Discard, Err: &said, Daemon: reached, Berth: func(words []string, _, errOut io.Writer) int {
		calls = append(calls, words)
		fmt.Fprint(errOut, "berth: no\nhint: try berth submit\n")
		return 1
	}})
	return calls, said.String(), code
}

func TestTgpuSubmitIsBerthSubmitAloneOnItsCards(t *testing.T) {
	// seeds: T1 T9
	for _, c := range []struct{ typed, want []string }{
		{[]string{"--gpus", "2", "--priority", "5", "--", "cmd=python train.py"}, []string{"--gpus=2", "--priority=5", "--", "python train.py"}},
		{[]string{"--gpus", "2", "cmd=python train.py"}, []string{"--gpus=2", "--", "python train.py"}},
		{[]string{"--", "cmd=python", "train.py"}, []string{"--", "python", "train.py"}},
		{[]string{"--", "python", "train.py", "--gpus", "9"}, []string{"--", "python", "train.py", "--gpus", "9"}},
		{[]string{"--", "cmd=python a.py | tee b", "it's", "2"}, []string{"--", `python a.py | tee b 'it'\''s' '2'`}},
		{[]string{"--preemptible", "--", "x"}, []string{"--preemptible=requeue", "--", "x"}},
		{[]string{"--preemptible=park", "--cpus=4", "--mem", "16G", "--name", "a", "--", "x"}, []string{"--cpus=4", "--mem=16G", "--name=a", "--preemptible=park", "--", "x"}},
		{[]string{"job.yaml", "--priority=-2"}, []string{"--priority=-2", "--file", "job.yaml"}},
		{[]string{"-f", "-"}, []string{"--file", "-"}},
	} {
		calls, errOut, code := asTgpu(append([]string{"submit"}, c.typed...)...)
		want := append([]string{"submit", "--exclusive"}, c.want...)
		if len(calls) != 1 || !slices.Equal(calls[0], want) {
			t.Errorf("tgpu submit %q calls berth with %q, want %q", c.typed, calls, want)
		}
		if code != 1 || errOut != "tgpu: no\nhint: try tgpu submit\n" {
			t.Errorf("tgpu submit %q says %q and exits %d", c.typed, errOut, code)
		}
	}
}

func TestTgpuCallsNothingOnBadUsage(t *testing.T) {
	for _, typed := range []string{
		"", "jobs", "submit", "submit --", "submit -- cmd=", "submit a b", "submit a -- b", "submit -f a b", "submit --gpus x -- a",
		"submit --gpus -1 -- a", "submit --gpus 0.5 -- a", "submit --time 3 -- a", "cancel", "cancel all", "cancel 1 x", "logs", "logs 1 2",
		"list @", "metrics now",
	} {
		calls, errOut, code := asTgpu(strings.Fields(typed)...)
		if len(calls) > 0 || code != 2 || errOut == "" {
			t.Errorf("tgpu %s: calls %q, exits %d, says %q", typed, calls, code, errOut)
		}
	}
}

func TestTgpuListShowsWhatRunsThenWhatWaitsByPriority(t *testing.T) {
	// seeds: T2 T8
	view := func(id string, state job.State, priority int) job.View {
		return job.View{ID: id, State: state, Priority: priority, GPUs: 1}
	}
	jobs := []job.View{view("1", job.Queued, 0), view("2", job.Parked, 5), view("3", job.Running, 0), view("4", job.Queued, 5), view("5", job.Running, 9)}
	slices.SortStableFunc(jobs, before)
	var out bytes.Buffer
	if err := writeTable(&out, jobs, time.Now()); err != nil {
		t.Fatal(err)
	}
	var got []string
	for line := range strings.Lines(out.String()) {
		got = append(got, strings.Join(strings.Fields(line)[:2], " "))
	}
	want := []string{"ID STATE", "3 running", "5 running", "2 queued", "4 queued", "1 queued"}
	if !slices.Equal(got, want) {
		t.Errorf("lists %q, want %q", got, want)
	}
}

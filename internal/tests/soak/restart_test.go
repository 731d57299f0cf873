package soak

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"berth/internal/api"
	"berth/internal/job"
	"berth/internal/tests/testkit"
)

// TestRestartUnderLoad kills a daemon that holds 200 running jobs and 10,000
// queued ones. The next one answers, and has lost none.
func TestRestartUnderLoad(t *testing.T) {
	live, queued := 200, 10_000
	if testing.Short() {
		live, queued = 40, 2000
	}
	h := newHost(t, 1+(live+9)/10)
	b := h.up()
	var running []line
	for n := range live {
		running = append(running, tenthUntil(n+1, n%5))
	}
	ids := h.submit(running...)
	// These wait for all the cards at once.
	waiting := api.Spec{Name: "waiting", Command: api.Command{Shell: "true"}, GPUs: api.Text(fmt.Sprint(1 + (live+9)/10)), Array: api.Text(fmt.Sprintf("0-%d", queued-1))}
	if _, err := api.Call(h.ctx(), h.client, api.Submit, api.SubmitRequest{Jobs: []api.Spec{waiting}, Dir: h.dir}); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, "all run", func() bool { return h.count("ready") == live })
	before := h.keeps()

	b.kill()
	begun := time.Now()
	b = h.serve()
	h.awaitAnswer(b)
	answered := since(begun)
	views := h.all()
	listed := since(begun)
	t.Logf("status after %s, the whole list of %d jobs after %s", answered, len(views), listed)
	counts := map[job.State]int{}
	for _, v := range views {
		counts[v.State]++
	}
	if counts[job.Running] != live || counts[job.Queued] != queued {
		t.Errorf("after the restart there are %v", counts)
	}
	after := h.keeps()
	for token, keep := range before {
		if after[token].pid != keep.pid {
			t.Errorf("supervisor %s is gone", token)
		}
	}

	if _, err := api.Call(h.ctx(), h.client, api.Act, api.ActRequest{Action: api.ActCancel, Select: api.Select{Name: "waiting"}}); err != nil {
		t.Errorf("cancel the queue: %v", err)
	}
	h.letGo("all end", func() bool { return h.live() == 0 })
	h.mustEndAs(ids, running)
	h.mustBeSound(running)
	h.down(b)
	h.mustBeClean()
}

// tenthUntil is a tenth of a card until it is let go.
func tenthUntil(number, code int) line {
	l := tenth.but("", "until")
	l.number, l.code = number, code
	return l
}

// TestStopAndUpgrade stops the daemon under its jobs, and starts another copy
// of the program on the same state.
func TestStopAndUpgrade(t *testing.T) {
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
		t.Run(sig.String(), func(t *testing.T) { stopAndUpgrade(t, sig) })
	}
}

func stopAndUpgrade(t *testing.T, sig syscall.Signal) {
	h := newHost(t, 2)
	b := h.up()
	lines := []line{tenthUntil(1, 0), tenthUntil(2, 7), {number: 3, cards: 1, alone: true, kind: "gated", code: 5}, {number: 4, cards: 2, block: "gpus=2", alone: true, code: 3, kind: "plain"}}
	ids := h.submit(lines...)
	testkit.Eventually(t, "three run", func() bool { return h.count("ready") == 3 })
	b.signal(sig)
	b.mustEnd(0)
	if _, err := os.Lstat(h.socket); err == nil {
		t.Error("the socket is still there")
	}
	if n := len(h.jobProcesses("")); n < 3 {
		t.Errorf("of three running jobs there are %d processes", n)
	}
	// One ends while nobody looks.
	h.openGate()
	testkit.Eventually(t, "it ends", func() bool { return h.wrote("end 3 1 5") })

	upgraded := t.TempDir()
	for _, name := range []string{"berth", "berth-keep"} {
		copyProgram(t, filepath.Join(programs, name), filepath.Join(upgraded, name))
	}
	h.program = upgraded
	b = h.up()
	if v := h.job(ids[0]); v.State != job.Running || v.Attempt != 1 {
		t.Errorf("the first job is %s in attempt %d", v.State, v.Attempt)
	}
	h.letGo("all end", func() bool { return h.live() == 0 })
	h.mustEndAs(ids, lines)
	h.mustBeSound(lines)
	h.down(b)
	h.mustBeClean()
}

// TestSecondDaemonRefuses: one daemon per state directory and one per socket.
func TestSecondDaemonRefuses(t *testing.T) {
	h := newHost(t, 1)
	b := h.up()
	id := h.submit(tenthUntil(1, 0))[0]
	testkit.Eventually(t, "the job runs", func() bool { return h.wrote("ready 1 1") })
	for what, place := range map[string][2]string{
		"the same state":  {h.logDir, filepath.Join(h.dir, "other.sock")},
		"the same socket": {filepath.Join(h.dir, "other"), h.socket},
		"both":            {h.logDir, h.socket},
	} {
		second := h.serve("--state-dir", place[0], "--socket", place[1])
		second.mustEnd(1)
		said := second.stderr.String()
		if !strings.Contains(said, "another") || !strings.Contains(said, "hint: ") {
			t.Errorf("a second daemon with %s said %q", what, said)
		}
		if _, err := api.Call(h.ctx(), h.client, api.GetStatus, api.None{}); err != nil || h.job(id).State != job.Running {
			t.Errorf("a second daemon with %s disturbed the first: %v", what, err)
		}
	}
	h.letGo("it ends", func() bool { return h.live() == 0 })
	h.mustEndAs([]string{id}, []line{tenthUntil(1, 0)})
	h.down(b)
	h.mustBeClean()
}

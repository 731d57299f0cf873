package node

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"berth/internal/job"
	"berth/internal/machine/keep"
	"berth/internal/slurm/handover"
	"berth/internal/tests/testkit"
)

// TestAJobEndsThereAsItWouldHere: its outcome, exit status and signal come back.
func TestAJobEndsThereAsItWouldHere(t *testing.T) {
	limited := func(s *job.Spec) { s.TimeLimit, s.Grace = time.Second, 200*time.Millisecond }
	tests := []struct {
		name, shell string
		change      func(*job.Spec)
		outcome     job.Outcome
		signal      string
		status      int
		detail      string
	}{
		{name: "well", shell: "true", outcome: job.OK},
		{name: "with an exit code", shell: "exit 3", outcome: "exit:3", status: 3},
		{name: "by a signal", shell: "kill -SEGV $$", outcome: "signal:SEGV", signal: "SEGV", status: 139},
		{name: "out of GPU memory", shell: "echo 'torch.OutOfMemoryError: CUDA out of memory.' >&2; exit 1", outcome: job.OOM, status: 1},
		{name: "without a program", change: func(s *job.Spec) { s.Shell, s.Argv = "", []string{"no-such-program-anywhere"} }, outcome: job.Launch, status: 1, detail: "no-such-program"},
		{name: "without its directory", change: func(s *job.Spec) { s.Dir = "/no/such/dir" }, outcome: job.Launch, status: 1, detail: "/no/such/dir"},
		{name: "in its set-up", shell: "true", change: func(s *job.Spec) { s.Setup = "exit 4" }, outcome: job.Launch, status: 4, detail: "set-up failed"},
		{name: "at its time limit", shell: "sleep 300", change: limited, outcome: job.Timeout, signal: "TERM", status: 143, detail: "time limit of 1s"},
		{name: "at its time limit, deaf", shell: "trap '' TERM; sleep 300 & wait; wait", change: limited, outcome: job.Timeout, signal: "KILL", status: 137},
		{name: "whatever its retries", shell: "exit 5", change: func(s *job.Spec) { s.Retries, s.RetryOn = 3, job.RetryFail }, outcome: "exit:5", status: 5},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			o := order(test.shell)
			if test.change != nil {
				test.change(&o.Job.Spec)
			}
			r, status := newWorld(t, o).run(0)
			if r.Outcome != test.outcome || r.Signal != test.signal || status != test.status || !strings.Contains(r.Detail, test.detail) || r.Stopped != "" {
				t.Errorf("exited with %d: %+v", status, r)
			}
			if r.StartedAt.IsZero() || r.EndedAt.Before(r.StartedAt) {
				t.Errorf("from %v to %v", r.StartedAt, r.EndedAt)
			}
		})
	}
}

// TestWhatTheJobIsGiven: environment, directory, umask and log.
func TestWhatTheJobIsGiven(t *testing.T) {
	o := order(`env; echo "umask $(umask)"; echo "in $PWD"; echo complaint >&2`)
	o.Job.ID, o.Job.Umask, o.Job.Attempt.Number = "17_4", 0o027, 3
	o.Job.Spec.Name = "train"
	o.Job.Spec.SlurmEnv, o.Job.Spec.ArrayShape = true, job.ArrayShape{Tasks: 5, Min: 0, Max: 8, Step: 2}
	o.Job.Spec.Env = []job.EnvVar{{Key: "OWN", Value: "1"}, {Key: "FROM", Value: "spec"}}
	o.Environ = append(o.Environ, "KEPT=yes", "BERTH_HOST=gpubox", "SLURM_JOB_ID=9", "SLURM_STALE=1", "CUDA_VISIBLE_DEVICES=5", "BERTH_JOB_ID=4", "TMPDIR=/elsewhere")
	o.Job.Spec.Output = "x"
	w := newWorld(t, order("true"), o)
	orders, err := handover.Orders(w.batch)
	testkit.Must(t, err)
	orders[1].Log = w.file("deep/out.txt")
	testkit.Must(t, handover.Create(w.batch, orders, nil))
	if r, status := w.run(1, "SLURM_ARRAY_JOB_ID=120", "SLURM_ARRAY_TASK_ID=1", "SLURM_CPUS_ON_NODE=2", "SLURM_JOB_NAME=berth-17-train.0b", "SLURM_SUBMIT_DIR=/", "OTHER=slurm's"); status != 0 {
		t.Fatalf("%d %+v", status, r)
	}
	lines := strings.Split(testkit.Read(t, w.file("deep/out.txt")), "\n")
	for _, want := range []string{
		"KEPT=yes", "BERTH_HOST=gpubox", "OWN=1", "FROM=spec", "SLURM_JOB_ID=120", "SLURM_CPUS_ON_NODE=2", "TMPDIR=" + w.place, "USER=ann",
		"BERTH_JOB_ID=17_4", "BERTH_ATTEMPT=3", "BERTH_ARRAY_INDEX=4", "BERTH_JOB_NAME=train", "umask 0027", "in " + w.home, "complaint",
		"SLURM_ARRAY_JOB_ID=2000000017", "SLURM_ARRAY_TASK_ID=4", "SLURM_RESTART_COUNT=2", "SLURM_ARRAY_TASK_MAX=8", "SLURM_JOB_NAME=train", "SLURM_SUBMIT_DIR=" + w.home, "CUDA_VISIBLE_DEVICES=",
	} {
		if !slices.Contains(lines, want) {
			t.Errorf("no %q", want)
		}
	}
	for _, line := range lines {
		if strings.HasPrefix(line, "SLURM_STALE") || strings.HasPrefix(line, "OTHER=") || line == "CUDA_VISIBLE_DEVICES=5" {
			t.Errorf("found %q", line)
		}
	}
	begun, err := handover.ReadBegun(w.batch, 1)
	if err != nil || begun == nil || begun.Slurm != "120_1" || begun.Node != "n7" || begun.Dir == "" {
		t.Errorf("marker: %+v %v", begun, err)
	}
}

// TestAJobWithoutADirectory runs where it was submitted.
func TestAJobWithoutADirectory(t *testing.T) {
	w := newWorld(t, order("pwd"))
	orders, err := handover.Orders(w.batch)
	testkit.Must(t, err)
	orders[0].Job.Spec.Dir, orders[0].Environ = "", append(orders[0].Environ, "PWD="+w.place)
	testkit.Must(t, handover.Create(w.batch, orders, nil))
	if w.run(0); w.log(0) != w.place+"\n" {
		t.Errorf("it ran in %s", w.log(0))
	}
}

// TestCardsThatBerthCannotSee: the job runs, with what Slurm said.
func TestCardsThatBerthCannotSee(t *testing.T) {
	for _, setup := range []string{"", "true"} {
		w := newWorld(t, order(`echo "see $CUDA_VISIBLE_DEVICES, ${NVIDIA_VISIBLE_DEVICES-unset}, has $BERTH_GPUS"`, func(s *job.Spec) { s.GPUs, s.VRAMMiB, s.Setup = 2, 4000, setup }))
		r, status := w.run(0, "CUDA_VISIBLE_DEVICES=0,1", "SLURM_JOB_GPUS=2,3")
		if got := w.log(0); status != 0 || !strings.Contains(got, "see 0,1, unset, has 2,3") {
			t.Errorf("set-up %q: exit %d %+v, log %s", setup, status, r, got)
		}
		if begun, err := handover.ReadBegun(w.batch, 0); err != nil || len(begun.GPUs) != 2 || begun.GPUs[1].Index != 3 {
			t.Errorf("marker: %+v %v", begun, err)
		}
	}
}

// TestOneOfManyRunsIt: wrappers at the same time for one job, and a job that berth
// took back.
func TestOneOfManyRunsIt(t *testing.T) {
	w := newWorld(t, order("echo ran >>ran; sleep 1"), order("echo ran >>taken"))
	var all []*wrapper
	for range 4 {
		all = append(all, w.start(0))
	}
	refused := 0
	for _, r := range all {
		if status := r.status(); status != 0 {
			t.Errorf("exited with %d: %s", status, r.out)
		}
		if strings.Contains(r.out.String(), "job 17 has begun elsewhere, or berth took it back") {
			refused++
		} else if r.out.String() != "" {
			t.Errorf("all is well, but it said %q", r.out)
		}
	}
	if got := testkit.Read(t, w.file("ran")); got != "ran\n" || refused != 3 {
		t.Errorf("ran %q, %d refused", got, refused)
	}
	testkit.Must(t, handover.Begin(w.batch, 1, handover.Begun{Taken: true}))
	if r := w.start(1); r.status() != 0 || !strings.Contains(r.out.String(), "has begun elsewhere") {
		t.Errorf("taken: %s", r.out)
	}
	if _, err := os.Stat(w.file("taken")); err == nil {
		t.Error("a job that berth took back ran")
	}
	if r, _ := handover.ReadRecord(w.batch, 1); r != nil {
		t.Errorf("it has a record: %+v", r)
	}
}

// TestANodeThatCannotRunItLeavesIt: no start marker, and a reason.
func TestANodeThatCannotRunItLeavesIt(t *testing.T) {
	w := newWorld(t, order("echo ran >ran", func(s *job.Spec) { s.GPUs = 1 }))
	check := func(r *wrapper, want string) {
		t.Helper()
		status := r.status()
		begun, err := handover.ReadBegun(w.batch, 0)
		if status != 1 || begun != nil || err != nil || !strings.Contains(r.out.String(), want) {
			t.Errorf("exited with %d, marker %v %v: %s", status, begun, err, r.out)
		}
	}
	usual := programs
	broken := filepath.Join(t.TempDir(), "bin")
	testkit.Write(t, filepath.Join(broken, "berth"), testkit.Read(t, filepath.Join(usual, "berth")), 0o755)
	testkit.Write(t, filepath.Join(broken, "berth-keep"), "not a program", 0o755)
	check(w.startProgram(broken, 0), "no supervisor can be started here")
	check(w.start(0, "BERTH_SIM_DIR=/no/such/box"), "/no/such/box")
	check(w.start(7), "expected a job of this batch, which has 1, found the index 7")
	if _, err := os.Stat(w.file("ran")); err == nil {
		t.Error("the job ran")
	}
}

// TestSlurmStopsIt: TERM gives the job its grace period, and the record says so.
func TestSlurmStopsIt(t *testing.T) {
	tests := []struct {
		name, shell string
		grace       time.Duration
		sig         syscall.Signal
		signal      string
		status      int
	}{
		{"it ends", "echo $$ >up; exec sleep 300", 10 * second, syscall.SIGTERM, "TERM", 143},
		{"it saves its work", "trap 'echo saved >saved; exit 0' TERM; echo $$ >up; while :; do sleep 0.05; done", 10 * second, syscall.SIGTERM, "", 1},
		{"it does not listen", "trap '' TERM INT; echo $$ >up; while :; do sleep 0.05; done", second / 2, syscall.SIGINT, "KILL", 137},
		{"its grace is longer than Slurm's", "trap '' TERM; echo $$ >up; while :; do sleep 0.05; done", time.Hour, syscall.SIGTERM, "KILL", 137},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, order(test.shell, func(s *job.Spec) { s.Grace = test.grace }))
			testkit.Write(t, w.file("slurm.conf"), "# the cluster\nKillWait=12 # seconds\n")
			r := w.start(0, "SLURM_CONF="+w.file("slurm.conf"))
			pid := strings.TrimSpace(w.awaitFile("up"))
			testkit.Must(t, r.Process.Signal(test.sig))
			status := r.status()
			got := w.record(0, r)
			if got.Stopped != job.StopInterrupt || got.Outcome != job.WasCancelled || got.Signal != test.signal || status != test.status || !strings.Contains(got.Detail, "stopped by Slurm (SIG") {
				t.Errorf("exited with %d: %+v", status, got)
			}
			if alive(pid) {
				t.Error("the job goes on")
			}
			if test.name == "it saves its work" && testkit.Read(t, w.file("saved")) != "saved\n" {
				t.Error("it could not save its work")
			}
		})
	}
}

// TestBerthStopsIt: a job that must not go on is stopped although Slurm says nothing.
func TestBerthStopsIt(t *testing.T) {
	w := newWorld(t, order("echo $$ >up; exec sleep 300"), order("echo $$ >other; exec sleep 300"))
	r, other := w.start(0), w.start(1)
	pid := strings.TrimSpace(w.awaitFile("up"))
	w.awaitFile("other")
	testkit.Must(t, handover.Stop(w.batch, 0))
	status := r.status()
	if got := w.record(0, r); got.Stopped != job.StopInterrupt || got.Outcome != job.WasCancelled || status != 143 {
		t.Errorf("exited with %d: %+v", status, got)
	}
	if alive(pid) {
		t.Error("the job goes on")
	}
	if ended, err := handover.ReadRecord(w.batch, 1); ended != nil || err != nil {
		t.Errorf("the other one ended: %+v %v", ended, err)
	}
	testkit.Must(t, other.Process.Signal(syscall.SIGTERM))
	other.status()
}

// TestAWarningComesBeforeTheLimit.
func TestAWarningComesBeforeTheLimit(t *testing.T) {
	w := newWorld(t, order("trap 'echo warned >warned' USR1; while :; do sleep 0.05; done", func(s *job.Spec) {
		s.TimeLimit, s.WarnBefore, s.WarnSignal, s.Grace = 3*second, 2*second, "USR1", second
	}))
	if r, _ := w.run(0); r.Outcome != job.Timeout || testkit.Read(t, w.file("warned")) != "warned\n" {
		t.Errorf("%+v", r)
	}
}

// TestItsOwnLimitCountsFirst: Slurm's comes while the job uses its grace period.
func TestItsOwnLimitCountsFirst(t *testing.T) {
	w := newWorld(t, order("trap 'echo term >term' TERM; while :; do sleep 0.05; done", func(s *job.Spec) { s.TimeLimit, s.Grace = second, 5*second }))
	r := w.start(0)
	w.awaitFile("term")
	testkit.Must(t, r.Process.Signal(syscall.SIGTERM))
	r.status()
	if got := w.record(0, r); got.Outcome != job.Timeout || got.Stopped != "" {
		t.Errorf("%+v", got)
	}
}

// TestTheSupervisorIsKilled: nothing of the job is left, and its end is not known.
func TestTheSupervisorIsKilled(t *testing.T) {
	w := newWorld(t, order("echo $PPID $$ >up; sleep 300"))
	r := w.start(0)
	pids := strings.Fields(w.awaitFile("up"))
	supervisor, err := strconv.Atoi(pids[0])
	testkit.Must(t, err, syscall.Kill(supervisor, syscall.SIGKILL))
	if status := r.status(); status != 1 {
		t.Errorf("exited with %d", status)
	}
	if got := w.record(0, r); got.Outcome != job.Lost || got.Stopped != "" {
		t.Errorf("%+v", got)
	}
	if alive(pids[1]) {
		t.Error("the job goes on")
	}
}

// TestTheBatchIsRemoved: nobody wants the record, and the wrapper ends.
func TestTheBatchIsRemoved(t *testing.T) {
	w := newWorld(t, order("rm -r $BATCH", func(s *job.Spec) { s.Output = "x" }))
	orders, err := handover.Orders(w.batch)
	testkit.Must(t, err)
	orders[0].Log, orders[0].Job.Spec.Env = "/dev/null", []job.EnvVar{{Key: "BATCH", Value: w.batch}}
	testkit.Must(t, handover.Create(w.batch, orders, nil))
	if r := w.start(0); r.status() != 0 || !strings.Contains(r.out.String(), "cannot write its record") {
		t.Errorf("%s", r.out)
	}
}

// TestItsTerminal: what is typed reaches the job, and what it prints comes back.
func TestItsTerminal(t *testing.T) {
	w := newWorld(t, order(`echo up >up; read word; echo "got $word"; read end`, func(s *job.Spec) { s.Pty = true }), order("true"))
	attached := func(index string) (*exec.Cmd, io.WriteCloser, *testkit.Buffer) {
		cmd, out := exec.Command(filepath.Join(programs, "berth"), Word, attachWord, w.batch, index), &testkit.Buffer{}
		cmd.Stdout, cmd.Stderr = out, out
		in, err := cmd.StdinPipe()
		testkit.Must(t, err, cmd.Start())
		return cmd, in, out
	}
	early, _, said := attached("0")
	if early.Wait() == nil || !strings.Contains(said.String(), "job 17 has not started") {
		t.Errorf("too early: %s", said)
	}
	r := w.start(0)
	w.awaitFile("up")
	left, in, said := attached("0")
	testkit.Must(t, typeIn(in, "hello\n"))
	testkit.Eventually(t, "the job answers", func() bool { return strings.Contains(said.String(), "got hello") })
	testkit.Must(t, in.Close(), left.Wait())
	again, in, said := attached("0")
	testkit.Eventually(t, "the screen is repeated", func() bool { return strings.Contains(said.String(), "got hello") })
	testkit.Must(t, typeIn(in, "bye\n"), again.Wait())
	if status := r.status(); status != 0 {
		t.Errorf("exited with %d: %s", status, r.out)
	}
	late, _, said := attached("0")
	if late.Wait() == nil || !strings.Contains(said.String(), "terminal of job 17 cannot be reached") {
		t.Errorf("too late: %s", said)
	}
}

// typeIn is what `berth attach` sends.
func typeIn(to io.Writer, text string) error {
	frame, err := keep.InputFrame([]byte(text)).Encode()
	if err == nil {
		_, err = to.Write(frame)
	}
	return err
}

// TestTheWrapperIsKilled: the job ends with it, and there is a record.
func TestTheWrapperIsKilled(t *testing.T) {
	w := newWorld(t, order("echo $$ >up; sleep 300"))
	r := w.start(0)
	pid := strings.TrimSpace(w.awaitFile("up"))
	testkit.Must(t, r.Process.Kill())
	r.status()
	testkit.Eventually(t, "there is a record", func() bool { got, _ := handover.ReadRecord(w.batch, 0); return got != nil })
	if got := w.record(0, r); got.Stopped != job.StopInterrupt || got.Outcome != job.WasCancelled || !strings.Contains(got.Detail, "killed") {
		t.Errorf("%+v", got)
	}
	if alive(pid) {
		t.Error("the job goes on")
	}
}

// TestTheRecordComesLate: on a full disk it is written once there is room.
func TestTheRecordComesLate(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to make a small disk")
	}
	w := newWorld(t, order("head -c 3000000 /dev/zero >$BATCH/filler 2>/dev/null; true", func(s *job.Spec) {}))
	disk := filepath.Join(t.TempDir(), "disk")
	testkit.Must(t, os.Mkdir(disk, 0o700), syscall.Mount("none", disk, "tmpfs", 0, "size=256k,mode=700"))
	t.Cleanup(func() { _ = syscall.Unmount(disk, syscall.MNT_DETACH) })
	orders, err := handover.Orders(w.batch)
	testkit.Must(t, err)
	w.batch = filepath.Join(disk, "batch")
	orders[0].Log = "/dev/null"
	orders[0].Job.Spec.Output = "/dev/null"
	orders[0].Job.Spec.Env = []job.EnvVar{{Key: "BATCH", Value: w.batch}}
	testkit.Must(t, handover.Create(w.batch, orders, nil))
	r := w.start(0)
	testkit.Eventually(t, "the wrapper says that it cannot write", func() bool { return strings.Contains(r.out.String(), "cannot write its record") })
	testkit.Must(t, os.Remove(filepath.Join(w.batch, "filler")))
	if status := r.status(); status != 0 {
		t.Errorf("exited with %d", status)
	}
	if got := w.record(0, r); got.Outcome != job.OK {
		t.Errorf("%+v", got)
	}
}

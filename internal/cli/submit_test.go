package cli_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"berth/internal/api"
	"berth/internal/job"
	"berth/internal/tests/testkit"
	"berth/internal/text/problem"
)

// lastSubmission is what the daemon was last asked to take.
func (f *fakeDaemon) lastSubmission(t *testing.T) api.SubmitRequest {
	t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.submitted) == 0 {
		t.Fatal("nothing was submitted")
	}
	return f.submitted[len(f.submitted)-1]
}

func TestEveryFlagOfSubmitHasItsKey(t *testing.T) {
	f := startFake(t)
	dir := t.TempDir()
	t.Chdir(dir)
	t.Setenv("CONDA_EXE", "/opt/conda/bin/conda")
	for _, place := range []string{"sub", ".venv/bin/activate"} {
		if err := os.MkdirAll(filepath.Join(dir, place), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	tests := []struct {
		flags string
		want  api.Spec
	}{
		{"-n train", api.Spec{Name: "train"}},
		{"--name=train", api.Spec{Name: "train"}},
		{"-g 2", api.Spec{GPUs: "2"}},
		{"--gpus 0.5", api.Spec{GPUs: "0.5"}},
		{"--gpu-type A100", api.Spec{Type: "A100"}},
		{"--vram 18G", api.Spec{VRAM: "18G"}},
		{"--vram auto", api.Spec{VRAM: "auto"}},
		{"--gpu-ids 1,3", api.Spec{IDs: "1,3"}},
		{"--allow 0-3,5", api.Spec{Allow: "0-3,5"}},
		{"--exclusive", api.Spec{Exclusive: "true"}},
		{"-c 4", api.Spec{CPUs: "4"}},
		{"--cpus 4 --mem 32G", api.Spec{CPUs: "4", Mem: "32G"}},
		{"--pin", api.Spec{Pin: "true"}},
		{"--inject-gpus=--cuda=physical", api.Spec{InjectGPUs: "--cuda=physical"}},
		{"--inject-gpus -g=local", api.Spec{InjectGPUs: "-g=local"}},
		{"-p -3", api.Spec{Priority: "-3"}},
		{"--priority 5", api.Spec{Priority: "5"}},
		{"-t 1:30:00", api.Spec{Timeout: "1:30:00"}},
		{"--time 2h --signal USR1@60", api.Spec{Timeout: "2h", Signal: "USR1@60"}},
		{"--time 2h --on-timeout requeue --max-requeues 3", api.Spec{Timeout: "2h", OnTimeout: "requeue", MaxRequeues: "3"}},
		{"--retries 2 --retry-on fail", api.Spec{Retries: "2", RetryOn: "fail"}},
		{"--after 12:ok,13:any,@", api.Spec{After: "12:ok,13:any,@"}},
		{"--array 0-9%4", api.Spec{Array: "0-9%4"}},
		{"--begin now+2h", api.Spec{Begin: "now+2h"}},
		{"--hold", api.Spec{Hold: "true"}},
		{"--hold=no", api.Spec{Hold: "no"}},
		{"-C /srv", api.Spec{Dir: "/srv"}},
		{"--chdir sub", api.Spec{Dir: "sub"}},
		{"-e A=1 -e B=x=y -e C=", api.Spec{Env: map[string]string{"A": "1", "B": "x=y", "C": ""}}},
		{"--export none", api.Spec{Export: "none"}},
		{"--venv .venv", api.Spec{Venv: ".venv"}},
		{"--conda torch", api.Spec{Conda: "torch"}},
		{"--setup make", api.Spec{Setup: "make"}},
		{"-o out/%j.log", api.Spec{Output: "out/%j.log"}},
		{"--pty", api.Spec{Pty: "true"}},
		{"--dedup", api.Spec{Dedup: "true"}},
		{"--requeue", api.Spec{Requeue: "true"}},
		{"--grace 30s", api.Spec{Grace: "30s"}},
		{"--preemptible", api.Spec{Preemptible: "park"}},
		{"--preemptible=requeue", api.Spec{Preemptible: "requeue"}},
		{"--cap soft", api.Spec{Cap: "soft"}},
		{"--vram 8G --cap mps", api.Spec{VRAM: "8G", Cap: "mps"}},
	}
	for _, test := range tests {
		args := append([]string{"submit"}, strings.Fields(test.flags)...)
		berth(append(args, "--", "python", "train.py", "--gpus", "9")...).wants(t, 0, "submitted ", "")
		test.want.Command.Argv = []string{"python", "train.py", "--gpus", "9"}
		got := f.lastSubmission(t).Jobs
		if diff := cmp.Diff([]api.Spec{test.want}, got); diff != "" {
			t.Errorf("%s:\n%s", test.flags, diff)
		}
	}
}

func TestASubmissionCarriesWhereItComesFrom(t *testing.T) {
	f := startFake(t)
	t.Setenv("COLOUR", "blue")
	dir := t.TempDir()
	t.Chdir(dir)
	berth("submit", "--", "true").wants(t, 0, "submitted job 1\n", "")
	r := f.lastSubmission(t)
	if r.Dir != dir || r.Umask == nil || *r.Umask < 0 || *r.Umask > 0o777 || !strings.Contains(strings.Join(r.Environ, "\n"), "COLOUR=blue") {
		t.Errorf("directory %s, umask %v, %d variables", r.Dir, r.Umask, len(r.Environ))
	}
	if got := r.Jobs[0].Command; got.Shell != "true" || got.Argv != nil {
		t.Errorf("one word became %+v, not a shell line", got)
	}
	berth("submit", "--export", "none", "--", "true").wants(t, 0, "", "")
	if r := f.lastSubmission(t); r.Environ != nil {
		t.Errorf("nothing was to be exported, and %d variables were sent", len(r.Environ))
	}
	berth("submit", "--export", "COLOUR,NONE", "--", "true").wants(t, 0, "", "")
	if r := f.lastSubmission(t); !cmp.Equal(r.Environ, []string{"COLOUR=blue"}) {
		t.Errorf("one variable was to be exported, and %q was sent", r.Environ)
	}
}

func TestTheSameNoteOnSeveralJobsIsSaidOnce(t *testing.T) {
	startFake(t)
	file := filepath.Join(t.TempDir(), "jobs.yaml")
	if err := os.WriteFile(file, []byte("- {command: a, dedup: true}\n- {command: b, dedup: true}\n- {command: c}\n- {command: d, dedup: true}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	berth("submit", "-f", file).wants(t, 0, "submitted jobs 1-4\n", "berth: note: jobs 1-2,4: no such job was there\n")
}

func TestWhatSubmitPrints(t *testing.T) {
	startFake(t)
	file := filepath.Join(t.TempDir(), "jobs.yaml")
	if err := os.WriteFile(file, []byte("- command: a\n- command: b\n  array: 0-2\n- command: c\n- command: d\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	berth("submit", "-n", "x", "--", "true").wants(t, 0, "submitted job 1\n", "")
	berth("submit", "-q", "--", "true").wants(t, 0, "2\n", "")
	berth("submit", "--array", "0-99%4", "--", "true").wants(t, 0, "submitted array 3 (100 tasks)\n", "")
	berth("submit", "--dedup", "--", "true").wants(t, 0, "submitted job 103\n", "berth: note: job 103: no such job was there\n")
	berth("submit", "-f", file).wants(t, 0, "submitted jobs 104, 105 (3 tasks), 108-109\n", "")
	berth("submit", "-q", "-f", file).wants(t, 0, "110\n111\n114\n115\n", "")

	var one struct{ ID string }
	said := berth("submit", "--json", "--", "true")
	if err := json.Unmarshal([]byte(said.out), &one); err != nil || one.ID != "116" {
		t.Errorf("--json says %q: %v", said.out, err)
	}
	var many []struct{ ID string }
	said = berth("submit", "--json", "-f", file)
	if err := json.Unmarshal([]byte(said.out), &many); err != nil || len(many) != 4 || many[3].ID != "122" {
		t.Errorf("--json of several says %q: %v", said.out, err)
	}
}

func TestADryRunSaysWhatWouldHappen(t *testing.T) {
	f := startFake(t)
	// The fake answers with the type as the state and the set-up as the reason.
	dry := func(state, reason string) said {
		return berth("submit", "--dry-run", "-n", "x", "--gpu-type", state, "--setup", reason, "--", "true")
	}
	dry("starts", "now").wants(t, 0, "x: would start now on gpu 0: now\n", "")
	dry("waits", "needs 2 GPUs").wants(t, 0, "x: would wait: needs 2 GPUs\n", "")
	dry("infeasible", "this machine has 1").wants(t, 1, "x: cannot run on this machine: this machine has 1\n", "")
	if r := f.lastSubmission(t); !r.DryRun {
		t.Error("it was submitted")
	}
}

func TestWhatSubmitRefuses(t *testing.T) {
	f := startFake(t)
	empty := filepath.Join(t.TempDir(), "empty.yaml")
	if err := os.WriteFile(empty, []byte("[]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name, args, says string
	}{
		{"nothing at all", "", "expected a command, a script or -f FILE"},
		{"a command without --", "python train.py", "hint: to run a command, put it after --: berth submit -- python train.py\n"},
		{"a value without =", "--preemptible requeue -- true", "hint: a value of --preemptible follows =: --preemptible=requeue\n"},
		{"a directory", ".", "expected a script, found the directory"},
		{"a flag with a bad value", "--time soon -- true", `found "soon"`},
		{"an empty value", "--name= -- true", "--name: expected a value"},
		{"a variable without a value", "-e HOME -- true", "--env: expected NAME=VALUE"},
		{"a file and a command", "-f jobs.yaml -- true", "found both"},
		{"a file that is not there", "-f /nonexistent.yaml", "berth: there is no file /nonexistent.yaml\n"},
		{"a file without jobs", "-f " + empty, "jobs"},
		{"an interactive array", "-i --array 0-3 -- true", "-i: expected one job, found several"},
		{"an unknown flag", "--gpu 2 -- true", "did you mean --gpus?"},
		{"a key as a flag", "--dir /tmp -- true", "did you mean --chdir?"},
	} {
		t.Run(test.name, func(t *testing.T) {
			berth(append([]string{"submit"}, strings.Fields(test.args)...)...).wants(t, 2, "", test.says)
		})
	}
	if len(f.submitted) > 0 {
		t.Errorf("%d of them were submitted", len(f.submitted))
	}
	f.refusal = problem.Newf(problem.Refused, "lower --gpus", "job asks for 12 GPUs; this machine has 8")
	berth("submit", "-g", "12", "--", "true").wants(t, 1, "", "berth: job asks for 12 GPUs; this machine has 8\nhint: lower --gpus\n")
	f.refusal = problem.Newf(problem.Invalid, "", "after: no job 99")
	berth("submit", "--after", "99", "--", "true").wants(t, 2, "", "berth: --after: no job 99\n")
	berth("submit", "--", "true").wants(t, 2, "", "berth: after: no job 99\n")
}

func TestAScriptIsReadForItsDirectives(t *testing.T) {
	f := startFake(t)
	dir := t.TempDir()
	t.Chdir(dir)
	testkit.Write(t, "train.sh", "#!/bin/bash -e\n#BERTH --gpus 2 --name directed\n#SBATCH --time=90 --no-requeue\n#SBATCH -p gpu --nice=5\n#SBATCH --exclusive\n#BERTH --exclusive\necho hello\n#BERTH --vram 3G\n", 0o755)
	said := berth("submit", "--name", "typed", "--slurm", "--qos=long", "train.sh", "--epochs", "3")
	said.wants(t, 0, "submitted job 1\n", "berth: train.sh:4: ignored, no equivalent in berth: --nice=5\n")
	got := f.lastSubmission(t).Jobs[0]
	want := api.Spec{
		Command: api.Command{Argv: []string{filepath.Join(dir, "train.sh"), "--epochs", "3"}},
		Name:    "typed", GPUs: "2", Timeout: got.Timeout, Exclusive: got.Exclusive, SlurmEnv: "yes", Slurm: "--no-requeue -p gpu --exclusive --qos=long", Requeue: "no",
	}
	if diff := cmp.Diff(want, got); diff != "" || got.Timeout == "" || got.Exclusive == "" {
		t.Errorf("time %q, exclusive %q\n%s", got.Timeout, got.Exclusive, diff)
	}

	for _, test := range []struct {
		name, text string
		mode       os.FileMode
		want       []string
	}{
		{"not executable, with an interpreter and its argument", "#! /usr/bin/env  python3\nprint()\n", 0o644, []string{"/usr/bin/env", "python3", "SCRIPT", "x"}},
		{"not executable, a bare interpreter", "#!/bin/bash\n", 0o644, []string{"/bin/bash", "SCRIPT", "x"}},
		{"without an interpreter", "echo hello\n", 0o644, []string{"/bin/sh", "SCRIPT", "x"}},
		{"executable without an interpreter", "echo hello\n", 0o755, []string{"/bin/sh", "SCRIPT", "x"}},
		{"a program", "\x7fELF\x00#BERTH --nonsense\n", 0o755, []string{"SCRIPT", "x"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			testkit.Write(t, "s", test.text, test.mode)
			if err := os.Chmod("s", test.mode); err != nil {
				t.Fatal(err)
			}
			berth("submit", "s", "x").wants(t, 0, "submitted", "")
			for i, word := range test.want {
				if word == "SCRIPT" {
					test.want[i] = filepath.Join(dir, "s")
				}
			}
			if got := f.lastSubmission(t).Jobs[0].Command.Argv; !cmp.Equal(got, test.want) {
				t.Errorf("it runs %q, want %q", got, test.want)
			}
		})
	}
	testkit.Write(t, "bad.sh", "#!/bin/sh\n#BERTH --gpsu 2\n", 0o755)
	berth("submit", "bad.sh").wants(t, 2, "", "bad.sh:2")
}

func TestAFileOfJobsGoesInOneRequest(t *testing.T) {
	f := startFake(t)
	file := filepath.Join(t.TempDir(), "jobs.yaml")
	text := "- command: python a.py | tee x\n  gpus: 2\n  env: {A: 1}\n- command: [python, b.py]\n  num_gpus: 1\n  exclusive: true\n  time: 2h\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	berth("submit", "-f", file, "--priority", "5", "--gpus", "4", "-e", "B=2").wants(t, 0, "submitted jobs 1-2\n", "")
	r := f.lastSubmission(t)
	want := []api.Spec{
		{Command: api.Command{Shell: "python a.py | tee x"}, GPUs: "2", Priority: "5", Env: map[string]string{"A": "1", "B": "2"}},
		{Command: api.Command{Argv: []string{"python", "b.py"}}, GPUs: "1", Priority: "5", Exclusive: "true", Timeout: "2h", Env: map[string]string{"B": "2"}},
	}
	if diff := cmp.Diff(want, r.Jobs); diff != "" || len(f.submitted) != 1 {
		t.Errorf("%d requests\n%s", len(f.submitted), diff)
	}
}

func TestSubmitWaitReturnsTheJobsStatus(t *testing.T) {
	f := startFake(t)
	for _, test := range []struct {
		outcome job.Outcome
		status  int
	}{
		{job.OK, 0}, {job.Exited(3), 3}, {job.Signalled("KILL"), 137}, {job.Signalled("40"), 168}, {job.Timeout, 124}, {job.OOM, 1}, {job.Lost, 1}, {job.WasCancelled, 1},
	} {
		f.mu.Lock()
		id := len(f.jobs) + 1
		f.mu.Unlock()
		done := make(chan said)
		go func() { done <- berth("submit", "--wait", "-n", "x", "--", "true") }()
		if err := f.until(t.Context(), func() bool { return len(f.jobs) >= id }); err != nil {
			t.Fatal(err)
		}
		name := f.jobs[id-1].ID
		f.end(name, test.outcome)
		(<-done).wants(t, test.status, "submitted job "+name+"\njob "+name+" (x) "+string(test.outcome.State()), "")
	}
}

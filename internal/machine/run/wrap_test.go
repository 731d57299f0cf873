package run

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"berth/internal/job"
)

func TestACommandWithoutSetupIsLeftAsItIs(t *testing.T) {
	t.Parallel()
	rows := []struct {
		spec job.Spec
		want []string
	}{
		{job.Spec{Shell: "a | b > 'c d'"}, []string{"/bin/sh", "-c", "a | b > 'c d'"}},
		{job.Spec{Argv: []string{"python", "a b", ""}}, []string{"python", "a b", ""}},
	}
	for _, row := range rows {
		argv, setup := Wrap(row.spec, []string{"CUDA_VISIBLE_DEVICES=0"})
		if diff := cmp.Diff(row.want, argv); diff != "" || setup {
			t.Errorf("%s, setup %v", diff, setup)
		}
	}
}

// fakeVenv makes a virtual environment that leaves a mark.
func fakeVenv(t *testing.T, dir, script string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Join(dir, "bin"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "bin", "activate"), []byte(script), 0o644); err != nil {
		t.Fatal(err)
	}
}

// fakeConda makes an installation whose activation leaves a mark.
func fakeConda(t *testing.T, base string) {
	t.Helper()
	dir := filepath.Join(base, "etc", "profile.d")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	script := `conda() { [ "$2" = good ] || { echo "no environment $2" >&2; return 1; }; export CONDA_DEFAULT_ENV="$2"; }` + "\n"
	if err := os.WriteFile(filepath.Join(dir, "conda.sh"), []byte(script), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestSetups(t *testing.T) {
	b := newBench(t)
	fakeVenv(t, filepath.Join(b.work, "my venv"), "export VENV=on ARGS=$#\n")
	fakeVenv(t, filepath.Join(b.work, "broken"), "false\n")
	fakeConda(t, filepath.Join(b.work, "miniconda3"))
	os.WriteFile(filepath.Join(b.work, "x.sh"), []byte("export FROM_X=1; declare -x OUTSIDE=2; shift 2>/dev/null; true\n"), 0o644)
	const show = `printf '%s ' "$VENV" "$ARGS" "$CONDA_DEFAULT_ENV" "$FROM_X" "$OUTSIDE" "$CUDA_VISIBLE_DEVICES"; exec ls /proc/self/fd`
	rows := []struct {
		name   string
		spec   job.Spec
		code   int
		failed bool
		log    string
	}{
		{"none fails", job.Spec{Shell: show, Venv: "my venv", Conda: "good", Setup: "source ./x.sh; export CUDA_VISIBLE_DEVICES=7"}, 0, false, "on 0 good 1 2 0,1 0\n1\n2\n3\n"},
		{"a venv in the home directory", job.Spec{Shell: `echo "$VENV"`, Venv: "~/my venv/"}, 0, false, "on\n"},
		{"the command's words are kept", job.Spec{Argv: []string{"printf", "%s|", "a b", "", "it's", "$HOME"}, Setup: "true"}, 0, false, "a b||it's|$HOME|"},
		{"the command's own status", job.Spec{Shell: "exit 9", Setup: "true"}, 9, false, ""},
		{"the command's own exit 1", job.Spec{Argv: []string{"false"}, Setup: "true"}, 1, false, ""},
		{"set-up leaves no trap behind", job.Spec{Shell: "true", Setup: "X=1"}, 0, false, ""},
		{"no such venv", job.Spec{Shell: "echo ran", Venv: "nowhere"}, 1, true, "berth: no virtual environment: cannot read nowhere/bin/activate\nberth: set-up failed: venv nowhere (status 1)\n"},
		{"a venv that fails", job.Spec{Shell: "echo ran", Venv: "broken"}, 1, true, "berth: set-up failed: venv broken (status 1)\n"},
		{"no such conda environment", job.Spec{Shell: "echo ran", Conda: "bad"}, 1, true, "no environment bad\nberth: set-up failed: conda bad (status 1)\n"},
		{"a set-up that activates conda", job.Spec{Shell: `echo "$CONDA_DEFAULT_ENV $CUDA_VISIBLE_DEVICES"`, Setup: "export CUDA_VISIBLE_DEVICES=7 && conda activate good"}, 0, false, "good 0,1\n"},
		{"a set-up that activates what is not there", job.Spec{Shell: "echo ran", Setup: "conda activate bad"}, 1, true, "no environment bad\nberth: set-up failed: conda activate bad (status 1)\n"},
		{"a set-up that fails", job.Spec{Shell: "echo ran", Setup: "(exit 7)"}, 7, true, "berth: set-up failed: (exit 7) (status 7)\n"},
		{"a set-up that exits", job.Spec{Shell: "echo ran", Setup: "exit 4"}, 4, true, "berth: set-up failed: exit 4 (status 4)\n"},
		{"a set-up that exits well", job.Spec{Shell: "echo ran", Setup: "exit 0"}, 1, true, "berth: set-up failed: exit 0 (status 0)\n"},
		{"a set-up that cannot forge success", job.Spec{Shell: "echo ran", Setup: "printf ok >&3; exit 0"}, 1, true, ""},
		{"a set-up's children do not get the descriptor", job.Spec{Shell: "true", Setup: "ls /proc/self/fd"}, 0, false, "0\n1\n2\n3\n"},
	}
	for i, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			id := strconv.Itoa(i)
			o := b.order(id, "")
			o.Argv, o.Setup = Wrap(row.spec, []string{"CUDA_VISIBLE_DEVICES=0,1", "not a name=1"})
			if !o.Setup {
				t.Fatal("no set-up")
			}
			r := b.finish(o)
			if r.ExitCode != row.code || r.SetupFailed != row.failed {
				t.Errorf("got %d, set-up failed %v; log %q", r.ExitCode, r.SetupFailed, b.logText(id))
			}
			if got := b.logText(id); row.log != "" && got != row.log {
				t.Errorf("log %q, want %q", got, row.log)
			}
			if strings.Contains(b.logText(id), "ran\n") {
				t.Error("the command ran without its set-up")
			}
		})
	}
}

func TestWhereCondaIsFound(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	base := filepath.Join(b.work, "else where")
	fakeConda(t, base)
	o := b.order("1", "")
	o.Argv, o.Setup = Wrap(job.Spec{Shell: `echo "$CONDA_DEFAULT_ENV"`, Conda: "good"}, nil)
	o.Env = append(o.Env, "CONDA_EXE="+base+"/bin/conda")
	if r := b.finish(o); r.ExitCode != 0 || b.logText("1") != "good\n" {
		t.Errorf("got %+v, %q", r, b.logText("1"))
	}
	o.Job, o.Log = "2", b.log("2")
	o.Env = []string{"PATH=/usr/bin:/bin", "HOME=/no/where"}
	if _, err := os.Stat("/opt/conda"); err == nil {
		t.Skip("this machine has a conda of its own")
	}
	r := b.finish(o)
	if want := "berth: conda not found; set CONDA_EXE to its path\nberth: set-up failed: conda good (status 1)\n"; !r.SetupFailed || b.logText("2") != want {
		t.Errorf("got %+v, %q", r, b.logText("2"))
	}
}

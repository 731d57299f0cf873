package queue

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"berth/internal/job"
)

func TestPlacesThatCannotWorkAreListed(t *testing.T) {
	dir, home := t.TempDir(), t.TempDir()
	for _, made := range []string{"sub", "venv/bin", "closed"} {
		if err := os.MkdirAll(filepath.Join(dir, made), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, made := range []string{"file", "venv/bin/activate"} {
		if err := os.WriteFile(filepath.Join(dir, made), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(filepath.Join(dir, "closed"), 0); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", t.TempDir())
	there := func(path string) string { return filepath.Join(dir, path) }
	for _, test := range []struct {
		name string
		spec job.Spec
		env  []string
		want []string // nothing: it may work
		user bool     // root may do it
	}{
		{name: "nothing is asked for"},
		{name: "a directory", spec: job.Spec{Dir: "sub"}},
		{name: "home", spec: job.Spec{Dir: "~"}},
		{name: "below home", spec: job.Spec{Dir: "~/x"}, want: []string{"dir: there is no directory " + filepath.Join(home, "x")}},
		{name: "no directory", spec: job.Spec{Dir: "none"}, want: []string{"dir: there is no directory " + there("none")}},
		{name: "a file", spec: job.Spec{Dir: "file"}, want: []string{"dir: expected a directory, found the file " + there("file")}},
		{name: "below a file", spec: job.Spec{Dir: "file/x"}, want: []string{"dir: " + there("file/x") + ": not a directory"}},
		{name: "a closed one", spec: job.Spec{Dir: "closed"}, want: []string{"dir: you may not enter " + there("closed")}, user: true},
		{name: "one that another job may make", spec: job.Spec{Dir: "none", Venv: "none", After: []job.Dependency{{Job: "1"}}}},
		{name: "a virtual environment, wherever the job runs", spec: job.Spec{Venv: "./venv/", Dir: "/"}},
		{name: "no virtual environment", spec: job.Spec{Venv: "sub"}, want: []string{"venv: expected a virtual environment, found no bin/activate in " + there("sub")}},
		{name: "both are wrong", spec: job.Spec{Dir: "none", Venv: "none", Output: "x"}, want: []string{"dir: there is no directory " + there("none"), "venv: there is no directory " + there("none")}},
		{name: "an output in directories that are made", spec: job.Spec{Output: "a/b/%j.log"}},
		{name: "an output below a placeholder", spec: job.Spec{Output: "%u/x/file/%j"}},
		{name: "an output in the job's directory", spec: job.Spec{Dir: "sub", Output: "file"}},
		{name: "an output that is a device", spec: job.Spec{Output: "/dev/null"}},
		{name: "an output that is a directory", spec: job.Spec{Output: "sub"}, want: []string{"output: expected a file, found the directory " + there("sub")}},
		{name: "an output below a file", spec: job.Spec{Output: "file/x/%j.log"}, want: []string{"output: expected a directory, found the file " + there("file")}},
		{name: "an output in a closed directory", spec: job.Spec{Output: "closed/%j.log"}, want: []string{"output: you may not write to " + there("closed")}, user: true},
		{name: "no conda", spec: job.Spec{Conda: "torch"}, env: []string{"A=1"}, want: []string{"conda: conda is neither in PATH nor in a usual place; CONDA_EXE can name it"}},
		{name: "an environment that is not known", spec: job.Spec{Conda: "torch"}},
		{name: "one that is not exported", spec: job.Spec{Conda: "torch", Export: "none"}, env: []string{"A=1"}},
		{name: "conda by its variable", spec: job.Spec{Conda: "torch"}, env: []string{"CONDA_EXE=/x/bin/conda"}},
		{name: "conda by the job's own variable", spec: job.Spec{Conda: "torch", Env: []job.EnvVar{{Key: "PATH", Value: "/x"}}}, env: []string{"A=1"}},
		{name: "conda by its directory", spec: job.Spec{Conda: "./none"}, want: []string{"conda: there is no directory " + there("none")}},
	} {
		t.Run(test.name, func(t *testing.T) {
			if test.user && os.Geteuid() == 0 {
				t.Skip("root may do everything")
			}
			var got []string
			for _, err := range Unusable(&test.spec, Origin{Dir: dir, Home: home, Env: test.env}) {
				got = append(got, err.Error())
			}
			if strings.Join(got, "\n") != strings.Join(test.want, "\n") {
				t.Errorf("found %q, want %q", got, test.want)
			}
		})
	}
}

package keep

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

func shellOrder(dir, line string, env ...string) Order {
	return Order{Job: "1", Argv: []string{"/bin/sh", "-c", line}, Dir: dir, Env: append([]string{"PATH=" + os.Getenv("PATH"), "PWD=" + dir}, env...)}
}

func TestWhichLinesNeedAShell(t *testing.T) {
	for line, words := range map[string][]string{
		"python3  train.py --lr=0.1 ": {"python3", "train.py", "--lr=0.1"},
		"/opt/a/run x:y":              {"/opt/a/run", "x:y"},
		"":                            nil,
		" ":                           nil,
		"A=1 env":                     nil,
		"cd /tmp":                     nil,
		"echo x":                      nil,
		"touch x; touch y":            nil,
		"touch x #1":                  nil,
		"ls *":                        nil,
		"ls ~":                        nil,
		"ls $HOME":                    nil,
		"ls 'a b'":                    nil,
		"ls\tx":                       nil,
		"ls\nls":                      nil,
		"ls \\x":                      nil,
		"ls é":                        nil,
	} {
		if got := shellOrder("/tmp", line).plainWords(); !slices.Equal(got, words) {
			t.Errorf("%q: expected %q, found %q", line, words, got)
		}
	}
	for name, o := range map[string]Order{
		"another directory": {Argv: []string{"/bin/sh", "-c", "ls"}, Dir: "/tmp", Env: []string{"PWD=/"}},
		"a function":        shellOrder("/tmp", "ls", "BASH_FUNC_ls%%=() { :; }"),
		"words":             {Argv: []string{"ls", "-c", "ls"}, Dir: "/tmp", Env: []string{"PWD=/tmp"}},
	} {
		if got := o.plainWords(); got != nil {
			t.Errorf("%s: found %q", name, got)
		}
	}
}

// Every command in the PATH that a shell has inside needs the shell.
func TestWhatAShellHasInsideNeedsIt(t *testing.T) {
	same := []string{"true", "false", "getconf", "sleep"} // the programs do the same
	for _, shell := range []string{"sh", "dash", "bash"} {
		path, err := exec.LookPath(shell)
		if err != nil {
			continue
		}
		said, err := exec.Command(path, "-c", `for w in `+strings.Join(inPath(), " ")+`; do case $(command -V "$w") in *builtin*|*keyword*|*"reserved word"*) echo "$w";; esac; done`).Output()
		if err != nil {
			t.Fatal(err)
		}
		for _, word := range strings.Fields(string(said)) {
			if !slices.Contains(shellWords, word) && !slices.Contains(same, word) {
				t.Errorf("%s has %s inside", shell, word)
			}
		}
	}
}

func inPath() (names []string) {
	for _, dir := range filepath.SplitList(os.Getenv("PATH")) {
		entries, _ := os.ReadDir(dir)
		for _, e := range entries {
			if len(e.Name()) <= 10 && strings.IndexFunc(e.Name(), notPlain) < 0 {
				names = append(names, e.Name())
			}
		}
	}
	return append(names, "time")
}

func TestACommandOfPlainWordsIsLookedUpAsTheShellWould(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "own"), []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "unfit"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for line, path := range map[string]string{"touch x": "", filepath.Join(dir, "own") + " x": filepath.Join(dir, "own"), "no-such-command": "/bin/sh", filepath.Join(dir, "unfit"): "/bin/sh", "./own": "./own", "./unfit": "/bin/sh", dir: "/bin/sh"} {
		got, argv, err := shellOrder(dir, line).command()
		if err != nil || path != "" && got != path || (got == "/bin/sh") != (len(argv) == 3) {
			t.Errorf("%q: %s %q %v", line, got, argv, err)
		}
	}
}

// The shell says what is wrong with a program that the kernel does not execute.
func TestAProgramThatCannotBeExecutedIsTheShells(t *testing.T) {
	const shell = "/bin/sh"
	line := []string{shell, "-c", "tool x"}
	for _, row := range []struct {
		argv []string // of the order
		path string
		err  error
		want []string
	}{
		{line, "/opt/tool", nil, nil},
		{line, "/opt/tool", syscall.ENOENT, line}, // its interpreter is missing
		{line, "/opt/tool", syscall.EACCES, line},
		{line, "/opt/tool", syscall.ENOEXEC, []string{"sh", "/opt/tool", "x"}},
		{line, "/opt/tool", syscall.EAGAIN, nil}, // no process left
		{line, shell, syscall.ENOENT, nil},
		{[]string{"tool", "x"}, "/opt/tool", syscall.ENOENT, nil},
	} {
		if got := (Order{Argv: row.argv}).shellInstead(row.path, []string{"tool", "x"}, row.err); !slices.Equal(got, row.want) {
			t.Errorf("%q at %s, %v: expected %q, found %q", row.argv, row.path, row.err, row.want, got)
		}
	}
}

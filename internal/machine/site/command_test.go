package site

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"berth/internal/tests/testkit"
)

func script(t *testing.T, path, text string) string {
	t.Helper()
	testkit.Write(t, path, "#!/bin/sh\n"+text)
	if err := os.Chmod(path, 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestAProgramIsAsked(t *testing.T) {
	t.Setenv("BERTH_SECRET", "x")
	path := script(t, filepath.Join(t.TempDir(), "p"), `echo "$# $1 $LC_ALL $MORE $(pwd)"; env | grep -c SECRET >&2; exit 7`)
	said, err := runPath(t.Context(), path, call{name: "p", args: []string{"a b"}, env: []string{"MORE=more"}})
	if err != nil || said.exit != 7 || said.stdout != "1 a b C more /\n" || said.stderr != "0\n" {
		t.Errorf("%+v, %v", said, err)
	}
}

func TestAProgramThatGivesNoAnswer(t *testing.T) {
	tests := []struct {
		name string
		text string
		want error
	}{
		{"it hangs", "exec sleep 1000", errNoAnswer},
		{"it hangs and will not be asked to end", "trap '' TERM; sleep 1000 & wait; sleep 1000", errNoAnswer},
		{"its child holds the output open and hangs", "sleep 20 & exit 0", nil},
		{"it is killed", "kill -9 $$", nil},
		{"it prints without end", "yes | head -c 3000000", nil},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			path := script(t, filepath.Join(t.TempDir(), "p"), test.text)
			deadline := testkit.Patience
			if test.want != nil {
				deadline = 200 * time.Millisecond
			}
			late := time.AfterFunc(testkit.Patience, func() { t.Error("it is waited for") })
			said, err := runPath(t.Context(), path, call{name: "p", deadline: deadline})
			late.Stop()
			if err == nil || test.want != nil && !errors.Is(err, test.want) {
				t.Errorf("%.200s, %v", said.stdout, err)
			}
			allCommandsEnd(t)
		})
	}
}

// A hanging program's whole group is ended.
func TestNothingOfALateProgramStays(t *testing.T) {
	dir := t.TempDir()
	path := script(t, filepath.Join(dir, "p"), "sleep 1000 & echo $! >"+dir+"/pid.new; mv "+dir+"/pid.new "+dir+"/pid; wait")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() {
		for ctx.Err() == nil {
			if _, err := os.Stat(filepath.Join(dir, "pid")); err == nil {
				cancel()
			}
		}
	}()
	if _, err := runPath(ctx, path, call{name: "p", deadline: testkit.Patience}); !errors.Is(err, errNoAnswer) {
		t.Fatal(err)
	}
	allCommandsEnd(t)
	pid, err := strconv.Atoi(strings.TrimSpace(testkit.Read(t, filepath.Join(dir, "pid"))))
	if err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(testkit.Patience); unix.Kill(pid, 0) == nil && !isZombie(pid); {
		if time.Now().After(deadline) {
			t.Fatal("its child lives")
		}
		<-time.After(5 * time.Millisecond)
	}
}

func isZombie(pid int) bool {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	return err != nil || strings.Contains(string(stat), ") Z ")
}

func TestHangingProgramsAreBounded(t *testing.T) {
	for range maxCommands {
		commandSlots <- struct{}{}
	}
	defer func() {
		for range maxCommands {
			<-commandSlots
		}
	}()
	_, err := runPath(t.Context(), "/bin/true", call{name: "true", deadline: 50 * time.Millisecond})
	if !errors.Is(err, errNoAnswer) || !strings.Contains(err.Error(), "still hang") {
		t.Errorf("it says %v", err)
	}
}

func TestOnlySystemDirectoriesHavePrograms(t *testing.T) {
	dir := t.TempDir()
	script(t, filepath.Join(dir, "berth-no-such-program"), "true")
	t.Setenv("PATH", dir)
	if _, err := runCommand(t.Context(), call{name: "berth-no-such-program"}); !errors.Is(err, errNotInstalled) {
		t.Errorf("it says %v", err)
	}
	f := newFake(t)
	f.file("/usr/bin/plain", "")
	if path, err := f.command("plain"); err == nil {
		t.Errorf("%s cannot be executed", path)
	}
}

package cli_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"berth/internal/tests/testkit"
)

// stories is where the product is told as stories: one file per behaviour,
// run through the real binary with real processes. Which sentence each of
// them proves is in stories_test.go.
const stories = "../../testdata/script"

// binaries is the directory that stands first in every story's PATH.
var binaries string

func TestMain(m *testing.M) {
	// The daemon that autostart begins in the tests is this program again.
	if how := os.Getenv(fakeServeVariable); how != "" {
		os.Exit(fakeServe(how))
	}
	testkit.Parallel(6)
	os.Exit(buildAndRun(m))
}

func buildAndRun(m *testing.M) int {
	return testkit.RunWith(m, func(dir string) {
		binaries = dir
		// As they are installed, so that every story begins with the small program.
		if err := errors.Join(os.Rename(filepath.Join(dir, "berth"), filepath.Join(dir, "berth-main")), os.Rename(filepath.Join(dir, "berth-front"), filepath.Join(dir, "berth")), writeHelpers(dir)); err != nil {
			panic(err)
		}
	}, "cmd/berth", "cmd/berth-front", "cmd/berth-keep")
}

func writeHelpers(dir string) error {
	var errs []error
	for name, text := range helperScripts {
		errs = append(errs, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o755))
	}
	return errors.Join(errs...)
}

// helperScripts are commands for the jobs of the stories.
var helperScripts = map[string]string{
	// await FILE: run until the story makes that file, so that nothing
	// depends on how fast the machine is.
	"await": `#!/bin/sh
tries=0
until [ -e "$1" ]; do
	tries=$((tries + 1))
	[ "$tries" -lt 1800 ] || { echo "await: no $1" >&2; exit 99; }
	sleep 0.05
done
`,
	// use MIB FILE: take that much memory, and give it back when the file
	// is there.
	"use": `#!/bin/sh
berth simjob --vram "$1" --hold 600 &
await "$2"; status=$?
kill $!
wait $! 2>/dev/null
exit $status
`,
}

func TestStories(t *testing.T) {
	testscript.Run(t, storyParams(testscript.Params{Dir: stories}, binaries))
}

// TestSomeStoriesWithTheRaceDetector has the real programs built with it: the tests
// of packages have their daemons in the process of the test.
func TestSomeStoriesWithTheRaceDetector(t *testing.T) {
	if _, err := exec.LookPath("cc"); err != nil || testing.Short() {
		t.Skip("needs a C compiler, and a minute")
	}
	dir := t.TempDir()
	if err := errors.Join(testkit.Build(dir, "race", "cmd/berth", "cmd/berth-keep"), writeHelpers(dir)); err != nil {
		t.Fatal(err)
	}
	reports := t.TempDir()
	t.Cleanup(func() { // after the subtests, which are parallel
		found, err := filepath.Glob(filepath.Join(reports, "*"))
		for _, path := range found {
			t.Error(testkit.Read(t, path))
		}
		testkit.Must(t, err)
	})
	params := storyParams(testscript.Params{}, dir)
	params.Setup = func(env *testscript.Env) error {
		env.Setenv("GORACE", "log_path="+filepath.Join(reports, "race"))
		return setupStory(env, dir)
	}
	for _, story := range []string{
		"daemon-kill-9-of-the-daemon-loses-no-job-and-no-status",
		"daemon-a-preemptible-job-makes-room-and-runs-again",
		"daemon-an-array-is-many-tasks-some-at-a-time",
		"run-goes-to-the-queue-of-the-daemon",
	} {
		params.Files = append(params.Files, filepath.Join(stories, story+".txtar"))
	}
	testscript.Run(t, params)
}

// storyParams are how stories are run with the programs of a directory.
func storyParams(params testscript.Params, programs string) testscript.Params {
	params.Setup = func(env *testscript.Env) error { return setupStory(env, programs) }
	params.Cmds, params.Condition = storyCommands, storyCondition
	params.RequireExplicitExec, params.RequireUniqueNames = true, true
	return params
}

// storyCondition is what a story can ask of the machine beside what
// testscript brings.
func storyCondition(name string) (bool, error) {
	if name == "small-disk" {
		return canMount(), nil
	}
	if name == "nvidia" {
		return hasNVIDIA(), nil
	}
	return false, fmt.Errorf("unknown condition %q", name)
}

// hasNVIDIA reports whether the machine has an NVIDIA driver, or its remains.
func hasNVIDIA() bool {
	for _, path := range []string{"/proc/driver/nvidia", "/dev/nvidiactl", "/dev/dxg", "/usr/bin/nvidia-smi", "/bin/nvidia-smi"} {
		if _, err := os.Stat(path); err == nil {
			return true
		}
	}
	return false
}

// canMount reports whether stories can mount a small disk of their own.
func canMount() bool {
	dir, err := os.MkdirTemp("", "berth-disk-")
	if err != nil {
		return false
	}
	defer os.Remove(dir)
	if err := syscall.Mount("berth-story", dir, "tmpfs", 0, "size=1m"); err != nil {
		return false
	}
	return syscall.Unmount(dir, 0) == nil
}

// setupStory gives a story a home, a state directory and a ledger of its own,
// so that it neither sees nor disturbs another berth on this machine.
func setupStory(env *testscript.Env, programs string) error {
	repository, err := filepath.Abs("../..")
	if err != nil {
		return err
	}
	home := filepath.Join(env.WorkDir, "home")
	if err := os.MkdirAll(home, 0o755); err != nil {
		return err
	}
	env.Setenv("PATH", programs+":"+os.Getenv("PATH"))
	env.Setenv("BIN", programs)
	env.Setenv("REPO", repository)
	env.Setenv("HOME", home)
	env.Setenv("XDG_STATE_HOME", filepath.Join(env.WorkDir, "state"))
	env.Setenv("BERTH_LEDGER_DIR", filepath.Join(env.WorkDir, "ledger"))
	env.Setenv("TZ", "UTC")
	cast := &cast{workDir: env.WorkDir, actors: map[string]*actor{}}
	env.Values[castKey{}] = cast
	env.Defer(cast.leave)
	return nil
}

// leave ends what a story left running: the processes it began, jobs that
// outlived a berth it killed, and their supervisors. They are known by the
// story's directory, which is in their environment or which they are in.
func (c *cast) leave() {
	for range 20 {
		found := false
		for _, pid := range processes() {
			if pid == os.Getpid() || !c.owns(pid) {
				continue
			}
			if process, err := os.FindProcess(pid); err == nil && process.Kill() == nil {
				found = true
			}
		}
		for _, a := range c.actors {
			<-a.over
		}
		if !found {
			return
		}
	}
}

func (c *cast) owns(pid int) bool {
	environ, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
	if err == nil && strings.Contains(string(environ), c.workDir+"/") {
		return true
	}
	dir, err := os.Readlink(fmt.Sprintf("/proc/%d/cwd", pid))
	return err == nil && strings.HasPrefix(dir+"/", c.workDir+"/")
}

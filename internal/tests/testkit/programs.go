package testkit

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// builtDir names a directory that keeps what Build builds, so that the tests of all
// packages link each program once. scripts/test.sh makes a new one for each run:
// nothing here notices that the sources have changed.
const builtDir = "BERTH_TEST_BIN"

// Build builds programs, cmd/berth and others, into a directory as they are
// shipped, or with build tags. With the tag race they have the race detector.
func Build(dir, tags string, programs ...string) error {
	return build(dir, tags, "", programs)
}

// BuildVersion builds berth and its supervisor as another version.
func BuildVersion(dir, version string) error {
	return build(dir, "", version, []string{"cmd/berth", "cmd/berth-keep"})
}

func build(dir, tags, version string, programs []string) error {
	kept := os.Getenv(builtDir)
	if kept == "" {
		return link(dir, tags, version, programs)
	}
	kept = filepath.Join(kept, strings.ReplaceAll(tags, " ", "+")+"@"+version)
	if err := os.MkdirAll(kept, 0o755); err != nil {
		return err
	}
	lock, err := os.Open(kept) // two packages may want the same program at once
	if err != nil {
		return err
	}
	defer lock.Close()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return err
	}
	copies := []string{}
	for _, program := range programs {
		path := filepath.Join(kept, filepath.Base(program))
		if _, err := os.Stat(path); err != nil {
			if err := link(kept, tags, version, []string{program}); err != nil {
				return err
			}
		}
		copies = append(copies, path)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	// Another process writes the copies: a child that a test starts meanwhile could
	// hold a file of this one open, and the kernel runs no program that is open for
	// writing.
	if out, err := exec.Command("cp", append(copies, dir)...).CombinedOutput(); err != nil {
		return fmt.Errorf("copy %v: %w: %s", copies, err, out)
	}
	return nil
}

func link(dir, tags, version string, programs []string) error {
	for _, program := range programs {
		args, cgo, flags := []string{"build", "-trimpath", "-tags", tags}, "0", "-s -w -X berth/internal/machine/site.elsewhere=/nonexistent"
		if version != "" {
			flags += " -X berth/internal/cli/front.Version=" + version
		}
		switch {
		case tags == "race":
			args, cgo = append(args, "-race", "-gcflags=modernc.org/sqlite/lib=-race=false", "-gcflags=modernc.org/libc=-race=false"), "1" // as in scripts/test.sh
		case program == "cmd/berth-gpu":
			// The driver's library is looked for when it is used.
			cgo, flags = "1", "-extldflags=-Wl,-z,lazy"
		}
		build := exec.Command("go", append(args, "-ldflags", flags, "-o", filepath.Join(dir, filepath.Base(program)), "berth/"+program)...)
		build.Env = append(os.Environ(), "CGO_ENABLED="+cgo)
		if out, err := build.CombinedOutput(); err != nil {
			return fmt.Errorf("build %s: %w\n%s", program, err, out)
		}
	}
	return nil
}

// RunWith builds programs, runs the tests of a package with their directory, and
// returns the exit status.
func RunWith(m *testing.M, use func(dir string), programs ...string) int {
	dir, err := os.MkdirTemp("", "berth-test-")
	if err == nil {
		defer os.RemoveAll(dir)
		err = Build(dir, "", programs...)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	use(dir)
	return m.Run()
}

package testkit

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// Build builds programs, cmd/berth and others, into a directory as they are
// shipped, or with build tags.
func Build(dir, tags string, programs ...string) error {
	return build(dir, tags, "", programs)
}

// BuildVersion builds berth and its supervisor as another version.
func BuildVersion(dir, version string) error {
	return build(dir, "", " -X berth/internal/cli.Version="+version, []string{"cmd/berth", "cmd/berth-keep"})
}

func build(dir, tags, more string, programs []string) error {
	for _, program := range programs {
		cgo, flags := "0", "-s -w"+more
		if program == "cmd/berth-gpu" {
			// The driver's library is looked for when it is used.
			cgo, flags = "1", "-extldflags=-Wl,-z,lazy"
		}
		build := exec.Command("go", "build", "-trimpath", "-tags", tags, "-ldflags", flags, "-o", filepath.Join(dir, filepath.Base(program)), "berth/"+program)
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

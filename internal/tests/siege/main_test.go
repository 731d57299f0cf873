package siege

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"

	"berth/internal/tests/testkit"
)

// programs is the directory of the berth under test and of this program
// itself, which jobs and attackers run. Every user can read it.
var programs string

func init() {
	// The first thread stays out of it: people act on threads of their own,
	// which end with what they did, and the first cannot.
	runtime.LockOSThread()
}

func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == deedWord {
		os.Exit(deed(os.Args[2], os.Args[3:]))
	}
	testkit.Parallel(8)
	os.Exit(besiege(m))
}

func besiege(m *testing.M) int {
	if os.Getuid() != 0 {
		return m.Run() // its tests skip
	}
	// The usual place for temporary files may be closed to other users.
	dir, err := os.MkdirTemp("/var/tmp", "berth-siege-")
	if err == nil {
		err = os.Chmod(dir, 0o755)
	}
	if err == nil {
		err = testkit.Build(dir, "", "cmd/berth", "cmd/berth-keep")
	}
	if err == nil {
		err = copySelf(filepath.Join(dir, "attacker"))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	programs = dir
	return m.Run()
}

// copySelf has another process write the copy: a child that a test starts in the
// meantime could hold a file of this one open, and the kernel runs no program that
// is open for writing.
func copySelf(path string) error {
	out, err := exec.Command("cp", fmt.Sprintf("/proc/%d/exe", os.Getpid()), path).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return os.Chmod(path, 0o755)
}

func needsRoot(t *testing.T) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("only root can make users and serve them")
	}
	for _, program := range []string{"useradd", "userdel", "groupadd", "groupdel"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("there is no %s", program)
		}
	}
}

// long is whether there is time for the long form of a race.
func long() bool { return os.Getenv("BERTH_SIEGE") != "" }

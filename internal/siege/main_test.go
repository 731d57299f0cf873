package siege

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"
	"time"
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
	// The attacks wait more than they work.
	flag.Parse()
	_ = flag.Set("test.parallel", "8") // it is there in every test
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
		err = build(dir)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	programs = dir
	return m.Run()
}

func build(dir string) error {
	build := exec.Command("go", "build", "-trimpath", "-o", dir+"/", "berth/cmd/berth", "berth/cmd/berth-keep")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build berth: %w\n%s", err, out)
	}
	self, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "attacker"), self, 0o755)
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

// patience is how long a test waits for what must happen, on a slow machine
// under load.
const patience = 60 * time.Second

// eventually waits until a condition holds.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-tick.C:
		case <-deadline.C:
			t.Fatalf("after %s still not: %s", patience, what)
		}
	}
}

// long is whether there is time for the long form of a race.
func long() bool { return os.Getenv("BERTH_SIEGE") != "" }

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func writeFile(t *testing.T, path, text string, mode os.FileMode) {
	t.Helper()
	must(t, os.WriteFile(path, []byte(text), mode))
	must(t, os.Chmod(path, mode))
}

func readFile(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	must(t, err)
	return string(data)
}

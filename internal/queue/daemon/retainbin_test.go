package daemon

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"berth/internal/tests/testkit"
)

// binIn makes a directory of jobs and its bin.
func binIn(t *testing.T) (jobs string, b *bin) {
	t.Helper()
	jobs = t.TempDir()
	dir, err := os.Open(jobs)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dir.Close() })
	if b, err = openBin(dir); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.close)
	return jobs, b
}

// expectEmpty fails if anything but the bin is left.
func expectEmpty(t *testing.T, jobs string) {
	t.Helper()
	for _, dir := range []string{jobs, filepath.Join(jobs, binName)} {
		entries, err := os.ReadDir(dir)
		testkit.Must(t, err)
		for _, e := range entries {
			if e.Name() != binName {
				t.Errorf("%s is left in %s", e.Name(), dir)
			}
		}
	}
}

func TestWhatLinksPointToStays(t *testing.T) {
	t.Parallel()
	jobs, b := binIn(t)
	outside := t.TempDir()
	secret := filepath.Join(outside, "dir", "secret")
	testkit.Must(t, os.MkdirAll(filepath.Dir(secret), 0o755), os.WriteFile(secret, []byte("mine"), 0o644))
	tree := filepath.Join(jobs, "17")
	testkit.Must(t,
		os.MkdirAll(filepath.Join(tree, "sub"), 0o755),
		os.Symlink(outside, filepath.Join(tree, "to a directory")),
		os.Symlink(secret, filepath.Join(tree, "sub", "to a file")),
		os.Symlink("../../..", filepath.Join(tree, "sub", "up")),
		os.Symlink("/", filepath.Join(tree, "1.log")),
		os.Symlink("nowhere", filepath.Join(tree, "broken")),
		os.Link(secret, filepath.Join(tree, "hard link")),
		unix.Mkfifo(filepath.Join(tree, "fifo"), 0o600),
		os.Symlink(outside, filepath.Join(jobs, "18")), // the job's own directory is a link
	)
	testkit.Must(t, b.throw("17"), b.throw("18"), b.empty())
	expectEmpty(t, jobs)
	if text, err := os.ReadFile(secret); err != nil || string(text) != "mine" {
		t.Errorf("outside: %q, %v", text, err)
	}
	if info, err := os.Stat(secret); err != nil || info.Mode().Perm() != 0o644 {
		t.Errorf("outside: %v, %v", info.Mode(), err)
	}
}

// deepen makes directories inside one another, one more than a path can name.
func deepen(t *testing.T, at string, levels int) {
	t.Helper()
	fd, err := unix.Open(at, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	testkit.Must(t, err)
	for range levels {
		testkit.Must(t, unix.Mkdirat(fd, "deeper", 0o700))
		next, err := unix.Openat(fd, "deeper", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		testkit.Must(t, err)
		file, err := unix.Openat(next, "file", unix.O_CREAT|unix.O_WRONLY|unix.O_CLOEXEC, 0o600)
		testkit.Must(t, err, unix.Close(file), unix.Close(fd))
		fd = next
	}
	testkit.Must(t, unix.Close(fd))
}

func openFiles(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	testkit.Must(t, err)
	return len(entries)
}

func TestATreeOfAnyDepthTakesThreeOpenFiles(t *testing.T) {
	jobs, b := binIn(t)
	tree := filepath.Join(jobs, "17")
	testkit.Must(t, os.Mkdir(tree, 0o700))
	deepen(t, tree, 3000)
	testkit.Must(t, b.throw("17"))
	// With hardly a file left to open it has to work all the same.
	var limit unix.Rlimit
	testkit.Must(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &limit))
	tight := limit
	tight.Cur = uint64(openFiles(t) + 8)
	testkit.Must(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: tight.Cur, Max: limit.Max}))
	err := b.empty()
	testkit.Must(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: limit.Cur, Max: limit.Max}), err)
	expectEmpty(t, jobs)
}

func TestWhatSomebodyElseRemovedFirstIsRemoved(t *testing.T) {
	t.Parallel()
	_, b := binIn(t)
	testkit.Must(t, unlink(b.dir, "gone"), b.move(b.dir, "gone", "17"))
	b.waiting = []string{"gone"}
	testkit.Must(t, b.empty())
}

func TestABroadTreeGoes(t *testing.T) {
	t.Parallel()
	jobs, b := binIn(t)
	for i := range 60 {
		dir := filepath.Join(jobs, "17", fmt.Sprint(i%7), fmt.Sprint(i))
		testkit.Must(t, os.MkdirAll(dir, 0o700))
		for k := range 60 {
			testkit.Must(t, os.WriteFile(filepath.Join(dir, fmt.Sprint(k)), nil, 0o400))
		}
	}
	testkit.Must(t, os.MkdirAll(filepath.Join(jobs, "18"), 0o700))
	for i := range 2500 {
		testkit.Must(t, os.Mkdir(filepath.Join(jobs, "18", fmt.Sprint(i)), 0o700))
	}
	testkit.Must(t, b.throw("17"), b.throw("18"), b.empty())
	expectEmpty(t, jobs)
}

func TestOneEmptyingIsBounded(t *testing.T) {
	t.Parallel()
	jobs, b := binIn(t)
	tree := filepath.Join(jobs, "17")
	testkit.Must(t, os.Mkdir(tree, 0o700))
	for i := range 100 {
		testkit.Must(t, os.WriteFile(filepath.Join(tree, fmt.Sprint(i)), nil, 0o600))
	}
	b.left = 30
	testkit.Must(t, b.throw("17"))
	if err := b.empty(); err == nil || !strings.Contains(err.Error(), "next time") {
		t.Errorf("got %v", err)
	}
	b.left = maxRemovals
	testkit.Must(t, b.empty())
	expectEmpty(t, jobs)
}

// TestASwapDuringRemoval has the owner put links to the outside in the place
// of directories, as fast as possible, while they are removed.
func TestASwapDuringRemoval(t *testing.T) {
	t.Parallel()
	outside := t.TempDir()
	secret := filepath.Join(outside, "a", "b")
	testkit.Must(t, os.MkdirAll(secret, 0o755))
	for range 30 {
		jobs, b := binIn(t)
		tree := filepath.Join(jobs, "17")
		testkit.Must(t, os.MkdirAll(filepath.Join(tree, "a", "b"), 0o755))
		// The owner still has the directory open, as after a `cd`.
		fd, err := unix.Open(tree, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		testkit.Must(t, err)
		var stop atomic.Bool
		swapping, ended := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(ended)
			for n := 0; !stop.Load(); n++ {
				if n == 1 {
					close(swapping)
				}
				// Whatever of this fails, the removal was quicker.
				_ = unix.Mkdirat(fd, "a", 0o755)
				_ = unix.Mkdirat(fd, "a/b", 0o755)
				_ = unix.Symlinkat(outside, fd, "link")
				_ = unix.Renameat2(fd, "a", fd, "link", unix.RENAME_EXCHANGE)
				_ = unix.Unlinkat(fd, "link", unix.AT_REMOVEDIR)
			}
		}()
		<-swapping
		testkit.Must(t, b.throw("17"))
		b.left = 2000
		_ = b.empty() // it may have to leave something for the next time
		stop.Store(true)
		<-ended
		testkit.Must(t, unix.Close(fd))
		b.left, b.failed = maxRemovals, nil
		names, err := os.ReadDir(filepath.Join(jobs, binName))
		testkit.Must(t, err)
		b.waiting = nil
		for _, e := range names {
			b.waiting = append(b.waiting, e.Name())
		}
		testkit.Must(t, b.empty())
		expectEmpty(t, jobs)
		if _, err := os.Stat(secret); err != nil {
			t.Fatalf("outside: %v", err)
		}
	}
}

func TestWhatIsMountedInATreeStays(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("needs root: a mount")
	}
	jobs, b := binIn(t)
	mounted, precious := filepath.Join(jobs, "17", "mounted"), t.TempDir()
	testkit.Must(t, os.MkdirAll(mounted, 0o755), os.WriteFile(filepath.Join(precious, "file"), nil, 0o600))
	if err := unix.Mount(precious, mounted, "", unix.MS_BIND, ""); err != nil {
		t.Skipf("no mount: %v", err)
	}
	testkit.Must(t, b.throw("17"))
	entries, err := os.ReadDir(filepath.Join(jobs, binName))
	testkit.Must(t, err)
	t.Cleanup(func() {
		testkit.Must(t, unix.Unmount(filepath.Join(jobs, binName, entries[0].Name(), "mounted"), unix.MNT_DETACH))
	})
	if err := b.empty(); err == nil {
		t.Error("nothing was said")
	}
	if _, err := os.Stat(filepath.Join(precious, "file")); err != nil {
		t.Errorf("what was mounted there: %v", err)
	}
}

// lockedEnv tells a child to remove, as an ordinary user, a tree nobody may
// enter.
const lockedEnv = "BERTH_TEST_LOCKED_TREE"

func TestDirectoriesNobodyMayEnterGo(t *testing.T) {
	if jobs := os.Getenv(lockedEnv); jobs != "" {
		removeLocked(t, jobs)
		return
	}
	jobs := filepath.Join(t.TempDir(), "jobs")
	testkit.Must(t, os.Mkdir(jobs, 0o700))
	if os.Getuid() != 0 {
		removeLocked(t, jobs)
		return
	}
	removeLocked(t, jobs) // as root, and then as somebody else
	testkit.Must(t, os.Remove(filepath.Join(jobs, binName)), os.Chown(jobs, 65534, 65534))
	for dir := filepath.Dir(jobs); dir != "/tmp" && dir != "/"; dir = filepath.Dir(dir) {
		testkit.Must(t, os.Chmod(dir, 0o755))
	}
	self, err := os.ReadFile("/proc/self/exe")
	testkit.Must(t, err)
	program := filepath.Join(filepath.Dir(jobs), "daemon.test")
	testkit.Must(t, os.WriteFile(program, self, 0o755))
	cmd := exec.CommandContext(t.Context(), program, "-test.run", "^"+t.Name()+"$", "-test.v")
	cmd.Env, cmd.Dir = []string{lockedEnv + "=" + jobs, "TMPDIR=" + jobs}, "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	if output, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(output), "--- PASS: "+t.Name()) {
		t.Errorf("as an ordinary user: %v\n%s", err, output)
	}
}

func removeLocked(t *testing.T, jobs string) {
	tree := filepath.Join(jobs, "17")
	outside := filepath.Join(jobs, "outside")
	testkit.Must(t,
		os.MkdirAll(filepath.Join(tree, "a", "b", "c"), 0o700),
		os.MkdirAll(outside, 0o700),
		os.Symlink(outside, filepath.Join(tree, "a", "link")),
		os.WriteFile(filepath.Join(tree, "a", "b", "file"), nil, 0),
		os.Chmod(outside, 0o500),
		os.Chmod(filepath.Join(tree, "a", "b", "c"), 0),
		os.Chmod(filepath.Join(tree, "a", "b"), 0),
		os.Chmod(filepath.Join(tree, "a"), 0o500),
		os.Chmod(tree, 0),
	)
	dir, err := os.Open(jobs)
	testkit.Must(t, err)
	defer dir.Close()
	b, err := openBin(dir)
	testkit.Must(t, err)
	defer b.close()
	testkit.Must(t, b.throw("17"), b.empty())
	if info, err := os.Stat(outside); err != nil || info.Mode().Perm() != 0o500 {
		t.Errorf("what a link points to was changed: %v, %v", info.Mode(), err)
	}
	testkit.Must(t, os.Remove(outside))
	expectEmpty(t, jobs)
}

package site

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"berth/internal/testkit"
)

// opener plays the process that opens the file, which its user can manipulate.
func opener(t *testing.T, deadline time.Duration, play func(conn *os.File, over <-chan struct{})) (*os.File, error) {
	t.Helper()
	conn, theirs, err := openerPair()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	over, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		defer theirs.Close()
		_, _ = theirs.Read(make([]byte, maxPath))
		play(theirs, over)
	}()
	defer func() { close(over); <-done }()
	if err := conn.SetDeadline(time.Now().Add(deadline)); err != nil {
		t.Fatal(err)
	}
	return ask(conn, "/some/log")
}

func send(conn *os.File, text string, fds ...int) {
	var rights []byte
	if len(fds) > 0 {
		rights = unix.UnixRights(fds...)
	}
	_ = unix.Sendmsg(int(conn.Fd()), []byte(text), rights, nil, 0)
}

func TestAnOpenerThatIsBentOpensNothingElse(t *testing.T) {
	file, err := os.Create(filepath.Join(t.TempDir(), "file"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	var pipe [2]int
	if err := unix.Pipe2(pipe[:], unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	defer unix.Close(pipe[0])
	defer unix.Close(pipe[1])
	dir, err := os.Open("/")
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	fd := int(file.Fd())
	rows := []struct {
		name string
		play func(conn *os.File, over <-chan struct{})
		ok   bool
	}{
		{"it does as it was told", func(c *os.File, _ <-chan struct{}) { send(c, "0", fd) }, true},
		{"two files come instead of one", func(c *os.File, _ <-chan struct{}) { send(c, "0", fd, fd) }, false},
		{"a file comes with an error", func(c *os.File, _ <-chan struct{}) { send(c, "13", fd) }, false},
		{"a pipe comes, on which a reader waits for ever", func(c *os.File, _ <-chan struct{}) { send(c, "0", pipe[0]) }, false},
		{"a directory comes", func(c *os.File, _ <-chan struct{}) { send(c, "0", int(dir.Fd())) }, false},
		{"something other than a number comes", func(c *os.File, _ <-chan struct{}) { send(c, "nothing", fd) }, false},
		{"a negative number comes", func(c *os.File, _ <-chan struct{}) { send(c, "-1", fd) }, false},
		{"a file comes in a word too long to read", func(c *os.File, _ <-chan struct{}) { send(c, strings.Repeat("0", 100), fd) }, true},
		{"nothing comes", func(*os.File, <-chan struct{}) {}, false},
		{"no file comes with its success", func(c *os.File, _ <-chan struct{}) { send(c, "0") }, false},
	}
	before := openFiles(t)
	for _, row := range rows {
		got, err := opener(t, testkit.Patience, row.play)
		if (err == nil) != row.ok {
			t.Errorf("%s: %v, %v", row.name, got, err)
		}
		if got != nil {
			got.Close()
		}
	}
	if after := openFiles(t); after > before {
		t.Errorf("%d files were open, and now %d", before, after)
	}
}

// TestAnOpenerThatIsHeldIsNotWaitedFor: another process has the other end of
// the socket and never writes.
func TestAnOpenerThatIsHeldIsNotWaitedFor(t *testing.T) {
	_, err := opener(t, 50*time.Millisecond, func(_ *os.File, over <-chan struct{}) { <-over })
	var late net.Error
	if !errors.As(err, &late) || !late.Timeout() {
		t.Errorf("%v", err)
	}
}

func TestOpenAsOpensWithTheRightsOfAUser(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can become somebody else")
	}
	dir := t.TempDir()
	for parent := dir; parent != "/tmp" && parent != "/"; parent = filepath.Dir(parent) {
		if err := os.Chmod(parent, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	nobody := User{Name: "nobody", UID: 65534, GID: 65534, Groups: []int{65534}}
	open, shut := filepath.Join(dir, "open"), filepath.Join(dir, "shut")
	for path, mode := range map[string]os.FileMode{open: 0o644, shut: 0o600} {
		if err := os.WriteFile(path, []byte("text"), mode); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(open, filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(filepath.Join(dir, "pipe"), 0o666); err != nil {
		t.Fatal(err)
	}
	file, err := OpenAs(t.Context(), nobody, open)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if text, err := io.ReadAll(file); err != nil || string(text) != "text" {
		t.Errorf("%q, %v", text, err)
	}
	for path, want := range map[string]error{
		shut: os.ErrPermission, filepath.Join(dir, "link"): syscall.ELOOP, filepath.Join(dir, "pipe"): syscall.EINVAL, dir: syscall.EINVAL,
		filepath.Join(dir, "none"): os.ErrNotExist, "/" + strings.Repeat("a", 5000): syscall.ENAMETOOLONG,
	} {
		if file, err := OpenAs(t.Context(), nobody, path); !errors.Is(err, want) {
			t.Errorf("%.60s: %v, %v", path, file, err)
		}
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if file, err := OpenAs(over, nobody, open); err == nil {
		t.Errorf("%v although nobody wants it any more", file)
	}
}

func openFiles(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

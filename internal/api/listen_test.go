package api

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"berth/internal/tests/testkit"
)

func TestASocketAtItsPlace(t *testing.T) {
	long := strings.Repeat("d/", 80)
	for _, test := range []struct {
		name, below string
		mode, dir   os.FileMode
	}{
		{"a private socket in a private directory", "state/berth.sock", 0o600, 0o700},
		{"an open socket in an open directory", "run/berth.sock", 0o666, 0o755},
		{"a path longer than an address", long + "berth.sock", 0o600, 0o700},
		{"a long name at the end of it", long + strings.Repeat("n", 60), 0o600, 0o700},
	} {
		t.Run(test.name, func(t *testing.T) {
			socket := filepath.Join(t.TempDir(), test.below)
			s := serveAtMode(t, socket, test.mode)
			for path, want := range map[string]os.FileMode{socket: test.mode, filepath.Dir(socket): test.dir} {
				info, err := os.Stat(path)
				testkit.Must(t, err)
				if info.Mode().Perm() != want {
					t.Errorf("%s has %s, want %s", path, info.Mode().Perm(), want)
				}
			}
			c := Dial(socket)
			defer c.Close()
			if _, err := Call(background(t), c, GetStatus, None{}); err != nil {
				t.Error(err)
			}
			if _, err := Listen(socket, test.mode); !errors.Is(err, errInUse) {
				t.Errorf("a second daemon: %v", err)
			}
			if _, err := Call(background(t), c, GetStatus, None{}); err != nil {
				t.Errorf("the first was disturbed: %v", err)
			}
			s.end(t)
			entries, err := os.ReadDir(filepath.Dir(socket))
			if err != nil || len(entries) != 0 {
				t.Errorf("left behind: %v, %v", entries, err)
			}
		})
	}
}

func serveAtMode(t *testing.T, socket string, mode os.FileMode) *running {
	t.Helper()
	l, err := Listen(socket, mode)
	testkit.Must(t, err)
	if l.Addr().String() != socket {
		t.Errorf("it listens at %s", l.Addr())
	}
	r := &running{socket: socket, client: Dial(socket), done: make(chan error, 1), Server: newFake().server(ServerOptions{})}
	go func() { r.done <- r.ServeUnix(l) }()
	t.Cleanup(func() { r.end(t) })
	return r
}

func TestWhatIsAtTheSocketsPlace(t *testing.T) {
	dir := t.TempDir()
	victim := filepath.Join(dir, "victim")
	testkit.Must(t, os.WriteFile(victim, []byte("precious"), 0o600))

	file := filepath.Join(dir, "file.sock")
	testkit.Must(t, os.WriteFile(file, []byte("mine"), 0o600))
	if _, err := Listen(file, 0o600); err == nil || !strings.Contains(err.Error(), "expected a socket or nothing") {
		t.Errorf("a file: %v", err)
	}
	link := filepath.Join(dir, "link.sock")
	testkit.Must(t, os.Symlink(victim, link))
	if _, err := Listen(link, 0o600); err == nil {
		t.Error("a symbolic link was followed or replaced")
	}
	testkit.Must(t, os.Symlink(filepath.Join(dir, "nowhere"), link+"2"))
	if _, err := Listen(link+"2", 0o600); err == nil {
		t.Error("a link to nowhere was followed or replaced")
	}
	for _, path := range []string{victim, file} {
		if text, err := os.ReadFile(path); err != nil || len(text) == 0 {
			t.Errorf("%s: %q, %v", path, text, err)
		}
	}

	stale := filepath.Join(dir, "stale.sock")
	dead, err := Listen(stale, 0o666)
	testkit.Must(t, err)
	dead.(*listener).inode = 0
	dead.Close()
	l, err := Listen(stale, 0o600)
	if err != nil {
		t.Fatalf("a dead daemon's socket: %v", err)
	}
	defer l.Close()
	info, err := os.Stat(stale)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
}

// TestADaemonThatWasReplacedLeavesTheOtherAlone closes a listener whose place
// another one has.
func TestADaemonThatWasReplacedLeavesTheOtherAlone(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "berth.sock")
	first, err := Listen(socket, 0o600)
	testkit.Must(t, err)
	testkit.Must(t, os.Remove(socket))
	second, err := Listen(socket, 0o600)
	testkit.Must(t, err)
	defer second.Close()
	first.Close()
	c, err := net.Dial("unix", socket)
	if err != nil {
		t.Fatalf("the second is gone: %v", err)
	}
	c.Close()
}

func TestANameThatIsTooLong(t *testing.T) {
	socket := filepath.Join(t.TempDir(), strings.Repeat("n", 200))
	if _, err := Listen(socket, 0o600); err == nil {
		t.Error("it cannot be dialled")
	}
}

func TestACallerThatSendsJSONGetsAReplyItCanRead(t *testing.T) {
	const reply = `{"status": "fail", "msg": "speak HTTP"}`
	socket := filepath.Join(t.TempDir(), "s")
	l, err := Listen(socket, 0o600)
	testkit.Must(t, err)
	r := &running{Server: newFake().server(ServerOptions{NotHTTP: reply}), socket: socket, client: Dial(socket), done: make(chan error, 1)}
	go func() { r.done <- r.ServeUnix(l) }()
	defer r.end(t)
	// Without a newline and without an end, as the clients of mgpu send it.
	if got := raw(t, socket, `{"cmd": "queue"}`); got != reply {
		t.Errorf("it got %q", got)
	}
	if _, err := Call(background(t), r.client, GetStatus, None{}); err != nil {
		t.Errorf("a caller with HTTP: %v", err)
	}
	if got := raw(t, socket, "GET /v1/status HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n{"); !strings.HasPrefix(got, "HTTP/1.1 200 ") {
		t.Errorf("a request that has a brace later got %q", got)
	}
}

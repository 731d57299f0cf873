package site

import (
	"bytes"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"berth/internal/tests/testkit"
)

func listenTCP(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	testkit.Must(t, err)
	t.Cleanup(func() { l.Close() })
	return l
}

func isFree(address string) bool {
	l, err := net.Listen("tcp", address)
	if err == nil {
		l.Close()
	}
	return err == nil
}

// cookie is the kernel's number of a socket.
func cookie(t *testing.T, l net.Listener) (number uint64) {
	t.Helper()
	raw, err := l.(syscall.Conn).SyscallConn()
	testkit.Must(t, err)
	testkit.Must(t, raw.Control(func(fd uintptr) {
		number, err = unix.GetsockoptUint64(int(fd), unix.SOL_SOCKET, unix.SO_COOKIE)
	}), err)
	return number
}

// holderPID is the process at the other end.
func holderPID(t *testing.T, h *PortHold) (pid int) {
	t.Helper()
	// The socket was bound by this process, and the kernel names the one that
	// listened. The holder is the only child of this process with these words.
	entries, err := os.ReadDir("/proc")
	testkit.Must(t, err)
	for _, e := range entries {
		words, _ := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline"))
		stat, _ := os.ReadFile(filepath.Join("/proc", e.Name(), "stat"))
		if bytes.HasSuffix(words, []byte(HoldWord+"\x00"+holdPort+"\x00")) && strings.Contains(string(stat), " "+strconv.Itoa(os.Getpid())+" ") {
			pid, err = strconv.Atoi(e.Name())
			testkit.Must(t, err)
			return pid
		}
	}
	t.Fatal("no process holds the port")
	return 0
}

func TestAPortOutlivesItsDaemon(t *testing.T) {
	dir := t.TempDir() + "/" + strings.Repeat("long", 40) // longer than a socket's address
	testkit.Must(t, os.Mkdir(dir, 0o700))
	t.Setenv("SECRET_OF_THE_DAEMON", "4711")
	if h, err := KeepPort(dir); h != nil || err != nil {
		t.Fatalf("nobody holds anything: %v, %v", h, err)
	}
	first := listenTCP(t)
	address, number := first.Addr().String(), cookie(t, first)
	h, err := HoldPort(dir, []net.Listener{first})
	testkit.Must(t, err)
	pid := holderPID(t, h)
	environ := testkit.Read(t, "/proc/"+strconv.Itoa(pid)+"/environ")
	if environ != "" {
		t.Errorf("it inherited %q", environ)
	}
	if adjusted := testkit.Read(t, "/proc/"+strconv.Itoa(pid)+"/oom_score_adj"); adjusted != "0\n" {
		t.Errorf("its oom_score_adj is %s", adjusted)
	}
	h.Close() // as if the daemon was killed
	first.Close()
	if isFree(address) {
		t.Error("the port is free")
	}
	waiting, err := net.Dial("tcp", address)
	testkit.Must(t, err)
	defer waiting.Close()
	h, again, err := TakePort(dir)
	testkit.Must(t, err)
	if len(again) != 1 || again[0].Addr().String() != address || cookie(t, again[0]) != number {
		t.Fatalf("another socket: %v", again)
	}
	conn, err := again[0].Accept()
	if err != nil || conn.RemoteAddr().String() != waiting.LocalAddr().String() {
		t.Errorf("the connection that waited: %v, %v", conn, err)
	}
	conn.Close()
	other, err := KeepPort(dir) // as berth restart does
	testkit.Must(t, err)
	again[0].Close()
	h.LetGo()
	if isFree(address) {
		t.Error("the port is free in the middle of a restart")
	}
	h, again, err = TakePort(dir)
	testkit.Must(t, err)
	other.Close()
	again[0].Close()
	h.LetGo()
	testkit.Eventually(t, "the port is free after a stop", func() bool { return isFree(address) })
	testkit.Eventually(t, "the process and its socket are gone", func() bool {
		_, err := os.Lstat(filepath.Join(dir, holdSocket))
		return errors.Is(err, os.ErrNotExist) && syscall.Kill(pid, 0) != nil
	})
}

func TestAPortIsFreeWhenItsStateDirectoryIsGone(t *testing.T) {
	dir, l := t.TempDir(), listenTCP(t)
	address := l.Addr().String()
	h, err := HoldPort(dir, []net.Listener{l})
	testkit.Must(t, err)
	l.Close()
	testkit.Must(t, os.RemoveAll(dir))
	if isFree(address) {
		t.Error("the port is free under a daemon")
	}
	h.Close()
	testkit.Eventually(t, "the port is free", func() bool { return isFree(address) })
}

func TestAPortIsNotHeldForEver(t *testing.T) {
	h := &holder{came: make(chan struct{}), left: make(chan bool), hold: time.Millisecond, look: time.Millisecond}
	over := make(chan struct{})
	go func() { h.wait(func() bool { return true }); close(over) }()
	<-over
}

// TestAListenerStaysUsableWhileItIsHeld: passing a descriptor on must not make
// the listener block, or nobody could close it.
func TestAListenerStaysUsableWhileItIsHeld(t *testing.T) {
	dir, l := t.TempDir(), listenTCP(t)
	h, err := HoldPort(dir, []net.Listener{l})
	testkit.Must(t, err)
	defer h.LetGo()
	for range 2 {
		more, err := KeepPort(dir)
		testkit.Must(t, err)
		more.Close()
	}
	done := make(chan error, 1)
	go func() {
		_, err := l.Accept()
		done <- err
	}()
	l.Close()
	select {
	case err := <-done:
		if !errors.Is(err, net.ErrClosed) {
			t.Error(err)
		}
	case <-time.After(testkit.Patience):
		t.Fatal("the listener blocks")
	}
}

func TestTheOwnerOfAListener(t *testing.T) {
	f := newFake(t)
	f.file("/proc/net/tcp", `  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:1EC6 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1002        0 1145 1 00000000235a29c4 100 0 0 10 0
   1: 00000000:1EC7 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1003        0 1146 1 00000000235a29c4 100 0 0 10 0
   2: 0100007F:1EC8 0100007F:1EC6 01 00000000:00000000 00:00000000 00000000  1004        0 1147 1 00000000235a29c4 100 0 0 10 0
 nonsense
`)
	f.file("/proc/net/tcp6", `  sl  local_address                         remote_address                        st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 00000000000000000000000001000000:1EC9 00000000000000000000000000000000:0000 0A 00000000:00000000 00:00000000 00000000  1005        0 1 1
`)
	for address, want := range map[string]int{"127.0.0.1:7878": 1002, "127.0.0.2:7878": -1, "127.0.0.1:7879": 1003, "127.0.0.1:7880": -1, "[::1]:7881": 1005, "127.0.0.1:7881": -1, "nonsense": -1} {
		uid, found := listenerOwner(f.machine, address)
		if !found {
			uid = -1
		}
		if uid != want {
			t.Errorf("%s belongs to %d, want %d", address, uid, want)
		}
	}
	l := listenTCP(t)
	if uid, found := ListenerOwner(l.Addr().String()); !found || uid != os.Getuid() {
		t.Errorf("this process's own belongs to %d, %v", uid, found)
	}
}

// helperPort is a daemon under a service manager, whose port it keeps.
func helperPort() {
	sockets, page, err := ActivationListeners()
	if err != nil {
		os.Stdout.WriteString("refused: " + err.Error() + "\n")
		return
	}
	os.Stdout.WriteString(strconv.Itoa(len(sockets)) + " sockets\n")
	if len(page) == 0 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			panic(err)
		}
		page = []net.Listener{l}
		if err := StorePort(page); err != nil {
			panic(err)
		}
	}
	os.Stdout.WriteString(page[0].Addr().String() + "\n")
	_ = http.Serve(page[0], http.NotFoundHandler()) // until it is killed
}

// TestTheServiceManagerKeepsThePort: the protocol of systemd's descriptor store,
// with a manager of the test's own.
func TestTheServiceManagerKeepsThePort(t *testing.T) {
	f := newFake(t)
	manager, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: f.path("/notify"), Net: "unixgram"})
	testkit.Must(t, err)
	defer manager.Close()
	api, err := net.ListenUnix("unix", &net.UnixAddr{Name: f.path("/berth.sock"), Net: "unix"})
	testkit.Must(t, err)
	defer api.Close()
	socket, err := api.File()
	testkit.Must(t, err)
	defer socket.Close()
	self, err := os.Executable()
	testkit.Must(t, err)
	start := func(names string, files ...*os.File) (*exec.Cmd, *bytes.Buffer, io.Reader) {
		t.Helper()
		cmd := exec.Command("/bin/sh", "-c", `LISTEN_PID=$$ exec "$0"`, self)
		cmd.Env = []string{"SITE_TEST_HELPER=port", "LISTEN_FDS=" + strconv.Itoa(len(files)), "LISTEN_FDNAMES=" + names, "NOTIFY_SOCKET=" + f.path("/notify")}
		cmd.Env = append(cmd.Env, "LISTEN_PID=")
		cmd.ExtraFiles = files
		var errors bytes.Buffer
		cmd.Stderr = &errors
		out, err := cmd.StdoutPipe()
		testkit.Must(t, err)
		testkit.Must(t, cmd.Start())
		t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
		return cmd, &errors, out
	}
	lines := func(out io.Reader, count int) string {
		t.Helper()
		text, buffer := "", make([]byte, 4096)
		for strings.Count(text, "\n") < count {
			n, err := out.Read(buffer)
			text += string(buffer[:n])
			if err != nil {
				break
			}
		}
		return text
	}
	cmd, complaints, out := start("berth.socket", socket)
	first := lines(out, 2)
	if !strings.HasPrefix(first, "1 sockets\n127.0.0.1:") {
		t.Fatalf("it says %q, %s", first, complaints)
	}
	address := strings.TrimSpace(strings.TrimPrefix(first, "1 sockets\n"))
	said, oob := make([]byte, 100), make([]byte, 100)
	_ = manager.SetReadDeadline(time.Now().Add(testkit.Patience))
	n, rights, _, _, err := manager.ReadMsgUnix(said, oob)
	fds := receivedFDs(oob[:rights])
	if err != nil || string(said[:n]) != "FDSTORE=1\nFDNAME=http" || len(fds) != 1 {
		t.Fatalf("the manager hears %q with %d descriptors, %v", said[:n], len(fds), err)
	}
	stored := os.NewFile(uintptr(fds[0]), "stored")
	defer stored.Close()
	testkit.Must(t, cmd.Process.Kill())
	_ = cmd.Wait()
	if isFree(address) {
		t.Error("the port is free after a crash")
	}
	_, complaints, out = start("http:berth.socket", stored, socket)
	if got := lines(out, 2); got != first {
		t.Errorf("the next daemon says %q, want %q; %s", got, first, complaints)
	}
	reply, err := http.Get("http://" + address)
	if err != nil || reply.StatusCode != http.StatusNotFound {
		t.Errorf("the next daemon answers %v, %v", reply, err)
	} else {
		reply.Body.Close()
	}
	http.DefaultClient.CloseIdleConnections()
	for names, file := range map[string]*os.File{"berth.socket": stored, "http": socket} {
		_, _, out = start(names, file)
		if got := lines(out, 1); !strings.HasPrefix(got, "refused: expected a ") {
			t.Errorf("a socket of the other kind as %s: %q", names, got)
		}
	}
}

package site

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"berth/internal/tests/testkit"
)

func TestNotify(t *testing.T) {
	f := newFake(t)
	for _, address := range []string{f.path("/notify"), fmt.Sprintf("@berth-test-%d", os.Getpid())} {
		conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: address, Net: "unixgram"})
		if err != nil {
			t.Fatal(err)
		}
		hear := func() string {
			t.Helper()
			buffer := make([]byte, 4096)
			conn.SetReadDeadline(time.Now().Add(testkit.Patience))
			n, err := conn.Read(buffer)
			if err != nil {
				t.Fatal(err)
			}
			return string(buffer[:n])
		}
		for _, state := range []string{ready, stopping, watchdog, "STATUS=3 jobs"} {
			if err := notify(address, state); err != nil {
				t.Fatal(err)
			}
			if got := hear(); got != state {
				t.Errorf("%s: heard %q", state, got)
			}
		}
		if err := notify(address, reloading); err != nil {
			t.Fatal(err)
		}
		var microseconds int64
		if _, err := fmt.Sscanf(hear(), "RELOADING=1\nMONOTONIC_USEC=%d", &microseconds); err != nil || microseconds <= 0 {
			t.Errorf("%d, %v", microseconds, err)
		}
		conn.Close()
		if err := notify(address, ready); err == nil {
			t.Errorf("%s: nobody listens any more", address)
		}
	}
	if err := notify("vsock:2:1", ready); err == nil {
		t.Error("an address that is not known")
	}
}

// helperService does what a daemon does, and tells.
func helperService() {
	listeners, page, err := ActivationListeners()
	fmt.Println(len(listeners), len(page), err)
	for _, l := range listeners {
		fmt.Println(l.Addr().Network(), filepath.Base(l.Addr().String()))
		conn, err := l.Accept()
		if err == nil {
			conn.Close()
		}
		fmt.Println(err)
	}
	fmt.Println(WatchdogInterval(), Notify(ready))
	for _, variable := range os.Environ() {
		for _, prefix := range []string{"NOTIFY_", "WATCHDOG_", "LISTEN_"} {
			if strings.HasPrefix(variable, prefix) {
				fmt.Println("left:", variable)
			}
		}
	}
	again, _, err := ActivationListeners()
	fmt.Println(len(again), err)
	// What a daemon starts has none of the sockets.
	child, err := exec.Command("ls", "-l", "/proc/self/fd").Output()
	fmt.Println(strings.Count(string(child), "socket:"), err)
}

func TestAServiceManagerStartsIt(t *testing.T) {
	f := newFake(t)
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: f.path("/berth.sock"), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	conn, err := net.Dial("unix", f.path("/berth.sock"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	manager, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: f.path("/notify"), Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer manager.Close()
	socket, err := listener.File()
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	env := []string{"SITE_TEST_HELPER=service", "PATH=/usr/bin:/bin", "LISTEN_FDS=1", "LISTEN_FDNAMES=berth.socket", "WATCHDOG_USEC=30000000", "NOTIFY_SOCKET=" + f.path("/notify")}
	start := func(lead string) string {
		t.Helper()
		cmd := exec.Command("/bin/sh", "-c", lead+` exec "$0"`, self)
		cmd.Env, cmd.ExtraFiles = env, []*os.File{socket}
		var out bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &out
		if err := cmd.Run(); err != nil {
			t.Fatalf("%v: %s", err, out.String())
		}
		return out.String()
	}
	if got, want := start("LISTEN_PID=$$ WATCHDOG_PID=$$; export LISTEN_PID WATCHDOG_PID;"), "1 0 <nil>\nunix berth.sock\n<nil>\n30s <nil>\n0 <nil>\n0 <nil>\n"; got != want {
		t.Errorf("it says\n%s\nwant\n%s", got, want)
	}
	buffer := make([]byte, 100)
	manager.SetReadDeadline(time.Now().Add(testkit.Patience))
	if n, err := manager.Read(buffer); err != nil || string(buffer[:n]) != ready {
		t.Errorf("the manager hears %q, %v", buffer[:n], err)
	}
	if _, err := os.Stat(f.path("/berth.sock")); err != nil {
		t.Errorf("the manager's socket went with the daemon: %v", err)
	}
	// What was meant for another process is left alone.
	if got, want := start("LISTEN_PID=1 WATCHDOG_PID=1; export LISTEN_PID WATCHDOG_PID;"), "0 0 <nil>\n0s <nil>\n0 <nil>\n"; !strings.HasPrefix(got, want) {
		t.Errorf("it says\n%s\nwant\n%s", got, want)
	}
}

func TestDescriptorsThatAreNotListeners(t *testing.T) {
	file, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	fd := int(file.Fd())
	if listeners, err := listenersFrom(fd, 1); err == nil || len(listeners) > 0 {
		t.Errorf("%v, %v", listeners, err)
	}
	file.Close() // has been closed already; its number was given away
}

package siege

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"berth/internal/api"
	"berth/internal/machine/site"
	"berth/internal/tests/testkit"
)

func init() {
	// squat listens on the first of some addresses that it can have, by every
	// means, and keeps it. Each round without success is a dot.
	deeds["squat"] = func(addresses []string) error {
		for range time.Tick(time.Millisecond) {
			for _, address := range addresses {
				for _, option := range []int{0, unix.SO_REUSEADDR, unix.SO_REUSEPORT} {
					if squat(address, option) == nil {
						fmt.Println("got", address)
						_ = unix.Pause() // Go ends a program in which nothing can happen any more
					}
				}
			}
			fmt.Print(".")
		}
		return nil
	}
}

var squatted []net.Listener // kept from the collector

func squat(address string, option int) error {
	config := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) (err error) {
		if option != 0 {
			_ = raw.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, option, 1) })
		}
		return err
	}}
	l, err := config.Listen(context.Background(), "tcp", address)
	if err == nil {
		squatted = append(squatted, l)
	}
	return err
}

// squats has a user try to listen on an address until it is stopped. tried waits
// until the user has failed many more times.
func (p *person) squats(t *testing.T, addresses ...string) (said *testkit.Buffer, tried func(), stop func()) {
	t.Helper()
	cmd := p.command(filepath.Join(programs, "attacker"), append([]string{deedWord, "squat"}, addresses...)...)
	said = &testkit.Buffer{}
	cmd.Stdout, cmd.Stderr = said, said
	testkit.Must(t, cmd.Start())
	over := make(chan struct{})
	go func() { _ = cmd.Wait(); close(over) }()
	stop = func() { _ = cmd.Process.Kill(); <-over }
	t.Cleanup(stop)
	tried = func() {
		t.Helper()
		before := len(said.String())
		testkit.Eventually(t, p.name+" tries", func() bool { return len(said.String()) >= before+20 || strings.Contains(said.String(), "got") })
		if text := said.String(); strings.Contains(text, "got") {
			t.Fatalf("%s listens in the daemon's place: %s", p.name, strings.Trim(text, "."))
		}
	}
	return said, tried, stop
}

// places are the addresses with a port at which a browser may look for the page.
func places(address string) []string {
	_, port, _ := net.SplitHostPort(address)
	return []string{"127.0.0.1:" + port, "[::1]:" + port, "0.0.0.0:" + port, "[::]:" + port}
}

// sockets are the kernel's numbers of the sockets that are held for a daemon.
func sockets(t *testing.T, stateDir string) (numbers []uint64) {
	t.Helper()
	hold, listeners, err := site.TakePort(stateDir)
	testkit.Must(t, err)
	if hold == nil {
		t.Fatal("nobody holds the port")
	}
	defer hold.Close()
	for _, l := range listeners {
		raw, err := l.(syscall.Conn).SyscallConn()
		testkit.Must(t, err, raw.Control(func(fd uintptr) {
			number, err := unix.GetsockoptUint64(int(fd), unix.SOL_SOCKET, unix.SO_COOKIE)
			testkit.Must(t, err)
			numbers = append(numbers, number)
		}))
		l.Close()
	}
	return numbers
}

// TestThePortBetweenTwoDaemons: bob waits for the daemon's port to be free, to
// answer ann's page in the daemon's place. The daemon is killed, and stopped and
// started again.
func TestThePortBetweenTwoDaemons(t *testing.T) {
	needsRoot(t)
	t.Parallel()
	tcp := freePort(t)
	c := pitch(t, fmt.Sprintf("[http]\nlisten = %q\n", tcp))
	c.tcp = tcp
	bob := c.enlist("ria")
	c.up()
	answers := func() {
		t.Helper()
		if r := c.remote(t, "GET", "/v1/status", "", nil); r.status != http.StatusUnauthorized {
			t.Errorf("the daemon answers %d: %s", r.status, r.body)
		}
	}
	answers()
	const unsafe = "without TLS: any user of this machine could listen there"
	if said := c.daemon.said.String(); !strings.Contains(said, "warning: http.listen is "+tcp+", "+unsafe) {
		t.Errorf("the daemon says %s", said)
	}
	if out, code := c.root.berth("config", "check", c.config); code != 0 || !strings.Contains(out, unsafe) {
		t.Errorf("the check of the config says %s", out)
	}
	if out, _ := c.root.berth("doctor", "--socket", c.socket); !strings.Contains(out, unsafe) {
		t.Errorf("doctor says %s", out)
	}
	before := sockets(t, c.stateDir)
	_, tried, _ := bob.squats(t, places(tcp)...)
	tried()
	for range 3 {
		testkit.Must(t, c.daemon.cmd.Process.Kill())
		<-c.daemon.done
		tried()
		c.up()
		answers()
	}
	c.daemon.stop() // a shared daemon may come back
	tried()
	c.holderIsClosedTo(t, bob)
	c.up()
	answers()
	if after := sockets(t, c.stateDir); !slices.Equal(before, after) {
		t.Errorf("other sockets than before: %d, %d", before, after)
	}
	tried()
}

// holderIsClosedTo has a user ask for the sockets that are held.
func (c *camp) holderIsClosedTo(t *testing.T, p *person) {
	t.Helper()
	socket := filepath.Join(c.stateDir, "port.sock")
	dial := func() (conn net.Conn, err error) {
		doing := p.as(func() error {
			conn, err = net.Dial("unix", socket)
			return err
		})
		return conn, doing
	}
	if conn, err := dial(); !errors.Is(err, syscall.EACCES) {
		t.Errorf("%s connects: %v, %v", p.name, conn, err)
	}
	testkit.Must(t, os.Chmod(socket, 0o666)) // what if?
	defer func() { testkit.Must(t, os.Chmod(socket, 0o600)) }()
	conn, err := dial()
	testkit.Must(t, err)
	defer conn.Close()
	_, _ = conn.Write([]byte("e")) // as a daemon that wants the port free
	said, oob := make([]byte, 10), make([]byte, 100)
	n, rights, _, _, _ := conn.(*net.UnixConn).ReadMsgUnix(said, oob)
	if n > 0 || rights > 0 {
		t.Errorf("%s receives %d bytes and %d of descriptors", p.name, n, rights)
	}
}

// TestAPortInOtherHands: bob has the port before the daemon starts. The daemon
// says so to everybody concerned, and takes it when bob is gone.
func TestAPortInOtherHands(t *testing.T) {
	needsRoot(t)
	t.Parallel()
	tcp := freePort(t)
	c := pitch(t, "")
	box := c.postbox(t, "alerts")
	testkit.Write(t, c.config, fmt.Sprintf("[http]\nlisten = %q\n[notify]\nadmin = [%q]\n", tcp, "exec:cat >>"+box), 0o644)
	c.tcp = tcp
	bob := c.enlist("sam")
	said, _, stop := bob.squats(t, tcp)
	testkit.Eventually(t, "bob listens", func() bool { return strings.Contains(said.String(), "got "+tcp) })
	c.up()
	status := func() (s api.Status) {
		t.Helper()
		c.root.mustAsk(t, "GET", "/v1/status", nil).into(t, &s)
		return s
	}
	whose := fmt.Sprintf("by a process of user %s (uid %d)", bob.name, bob.uid)
	if s := status(); s.HTTP != "" || !strings.Contains(strings.Join(s.Warnings, "\n"), whose) {
		t.Errorf("it listens at %q and warns %q", s.HTTP, s.Warnings)
	}
	if text := arrives(t, box, tcp); !strings.Contains(text, whose) {
		t.Errorf("administrators are told %s", text)
	}
	if !slices.ContainsFunc(c.audit(t), func(e entry) bool { return e.Action == "port taken" && strings.Contains(e.Result, whose) }) {
		t.Error("the audit does not tell")
	}
	stop()
	testkit.Eventually(t, "the daemon listens", func() bool { return status().HTTP == tcp })
}

// TestThePortOfAPrivateDaemon: bob waits for the port of ann's own daemon. Only
// a stop frees it.
func TestThePortOfAPrivateDaemon(t *testing.T) {
	needsRoot(t)
	t.Parallel()
	tcp := freePort(t)
	c := pitch(t, "")
	ann, bob := c.enlist("rae"), c.enlist("sue")
	state := filepath.Join(ann.home, ".local/state/berth")
	ann.socket = filepath.Join(state, "berth.sock")
	serves := func() int {
		t.Helper()
		cmd := ann.command(filepath.Join(programs, "berth"), "serve", "--private", "--sim", "1", "--http", tcp)
		cmd.Env = append(cmd.Env, "BERTH_LEDGER_DIR="+filepath.Join(ann.home, "ledger"))
		testkit.Must(t, cmd.Start())
		go func() { _ = cmd.Wait() }()
		testkit.Eventually(t, "ann's daemon answers", func() bool {
			r, err := ann.ask("GET", "/v1/status", nil)
			return err == nil && r.status == http.StatusOK && strings.Contains(r.body, `"pid":`+strconv.Itoa(cmd.Process.Pid)+",")
		})
		return cmd.Process.Pid
	}
	t.Cleanup(func() { ann.berth("stop") })
	pid := serves()
	said, tried, stop := bob.squats(t, places(tcp)...)
	testkit.Must(t, syscall.Kill(pid, syscall.SIGKILL))
	tried()
	serves()
	if out, code := ann.berth("restart"); code != 0 {
		t.Errorf("restart: %s", out)
	}
	tried()
	if r, err := ann.ask("GET", "/v1/status", nil); err != nil || !strings.Contains(r.body, `"http":"`+tcp+`"`) {
		t.Errorf("after a restart: %s, %v", r.body, err)
	}
	if out, code := ann.berth("stop"); code != 0 {
		t.Errorf("stop: %s", out)
	}
	testkit.Eventually(t, "the port is free after a stop", func() bool { return strings.Contains(said.String(), "got ") })
	stop()
	testkit.Eventually(t, "no process of ann's is left", func() bool {
		out, _ := ann.run("pgrep", "-u", ann.name, "-f", "__hold port")
		return out == ""
	})
}

package cli_test

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"berth/internal/api"
	"berth/internal/cli"
	"berth/internal/cli/session"
	"berth/internal/machine/site"
	"berth/internal/tests/testkit"
)

// fakeServeVariable makes the test program a daemon, and says how it fares.
const fakeServeVariable = "BERTH_FAKE_SERVE"

// fakeServe is what autostart begins. It writes down how it was begun.
func fakeServe(how string) int {
	places, err := site.PrivatePlaces(os.Getenv)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	dir, _ := os.Getwd()
	leader, _ := unix.Getsid(0)
	stdin, _ := os.Readlink("/proc/self/fd/0")
	stdout, _ := os.Readlink("/proc/self/fd/1")
	begun := fmt.Sprintf("%d leader=%v dir=%s in=%s out=%s args=%s\n", os.Getpid(), leader == os.Getpid(), dir, stdin, stdout, strings.Join(os.Args[1:], " "))
	file, err := os.OpenFile(filepath.Join(places.StateDir, "begun"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err == nil {
		_, err = file.WriteString(begun)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	switch how {
	case "dies":
		fmt.Fprintln(os.Stderr, "berth: the cards cannot be read\nhint: is the driver loaded?")
		return 3
	case "hangs":
		fmt.Fprintln(os.Stderr, "looking at the cards")
		<-ctx.Done()
		return 0
	}
	listener, err := api.Listen(places.Socket, 0o600)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	server := newFakeDaemon().server(session.Version)
	go func() { _ = server.ServeUnix(listener) }()
	<-ctx.Done()
	return 0
}

// ownMachine is a home without any daemon, on a machine without one, where
// autostart begins the fake.
func ownMachine(t *testing.T, how string, patience time.Duration) (stateDir string) {
	t.Helper()
	home := t.TempDir()
	stateDir = filepath.Join(home, "berth")
	t.Setenv("XDG_STATE_HOME", home)
	t.Setenv("BERTH_SOCKET", "")
	t.Setenv("BERTH_NO_AUTOSTART", "")
	t.Setenv(fakeServeVariable, how)
	cli.MachineAt(t, filepath.Join(home, "machine.sock"), false)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cli.AutostartWith(t, self, patience)
	t.Cleanup(func() {
		for _, line := range begun(stateDir) {
			if pid, err := strconv.Atoi(strings.Fields(line)[0]); err == nil {
				_ = syscall.Kill(pid, syscall.SIGKILL)
			}
		}
	})
	return stateDir
}

// begun are the daemons that were, one line each.
func begun(stateDir string) []string {
	text, _ := os.ReadFile(filepath.Join(stateDir, "begun"))
	return strings.FieldsFunc(string(text), func(r rune) bool { return r == '\n' })
}

func TestTheFirstSubmitStartsAPrivateDaemon(t *testing.T) {
	state := ownMachine(t, "well", time.Minute)
	said := berth("submit", "--", "true")
	said.wants(t, 0, "submitted job 1\n", "berth: started a private daemon (pid ")
	if !strings.HasSuffix(strings.SplitN(said.err, "\n", 2)[0], "), which exits after an hour without jobs") {
		t.Errorf("it says %q", said.err)
	}
	daemons := begun(state)
	if len(daemons) != 1 || !strings.HasSuffix(daemons[0], " leader=true dir=/ in=/dev/null out=/dev/null args=serve --private --idle-exit 1h") {
		t.Errorf("it was begun as %q", daemons)
	}
	if info, err := os.Stat(state); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("its state directory is %v, %v", info.Mode(), err)
	}
	said = berth("submit", "--", "true")
	if said.err != "" || said.out != "submitted job 2\n" || len(begun(state)) != 1 {
		t.Errorf("the second says %q and %q", said.out, said.err)
	}
	berth("list").wants(t, 0, "2 queued\n", "")
}

func TestTwoFirstSubmitsStartOneDaemon(t *testing.T) {
	state := ownMachine(t, "well", time.Minute)
	var all sync.WaitGroup
	results := make([]said, 6)
	for i := range results {
		all.Go(func() { results[i] = berth("submit", "-q", "--", "true") })
	}
	all.Wait()
	ids, told := map[string]bool{}, 0
	for _, said := range results {
		said.wants(t, 0, "\n", "")
		ids[said.out] = true
		told += strings.Count(said.err, "started a private daemon")
	}
	if len(ids) != len(results) || told != 1 || len(begun(state)) != 1 {
		t.Errorf("%d ids, %d daemons, told %d times", len(ids), len(begun(state)), told)
	}
}

func TestADaemonThatDoesNotComeUpIsExplained(t *testing.T) {
	t.Run("it dies", func(t *testing.T) {
		ownMachine(t, "dies", time.Minute)
		said := berth("submit", "--", "true")
		said.wants(t, 1, "", "berth: the private daemon exited at once (exit status 3):\nberth:   berth: the cards cannot be read\nberth:   hint: is the driver loaded?\nhint: ")
		berth("submit", "--", "true") // and only its own last words are shown
		if n := strings.Count(berth("submit", "--", "true").err, "cannot be read"); n != 1 {
			t.Errorf("its words are shown %d times", n)
		}
	})
	t.Run("it hangs", func(t *testing.T) {
		ownMachine(t, "hangs", 2*time.Second)
		berth("submit", "--", "true").wants(t, 1, "", "does not answer")
	})
}

// withState puts the file of a store where a daemon's would be.
func withState(t *testing.T, stateDir string) {
	t.Helper()
	testkit.Write(t, filepath.Join(stateDir, "store", "berth.db"), "")
}

func TestWhoStartsNoDaemon(t *testing.T) {
	state := ownMachine(t, "well", time.Minute)
	for _, args := range everyVerb[1:] {
		if said := berth(strings.Fields(args)...); said.code > 1 || said.code == 1 && !strings.Contains(said.err, "\nhint: berth submit queues a job") {
			t.Errorf("%s: exit status %d, it says %q", args, said.code, said.err)
		}
	}
	berth("submit", "--no-autostart", "--", "true").wants(t, 1, "", "hint: autostart is off; start a daemon with berth start\n")
	t.Setenv("BERTH_NO_AUTOSTART", "1")
	berth("submit", "--", "true").wants(t, 1, "", "hint: autostart is off")
	if _, err := os.Lstat(state); err == nil {
		t.Error("they made a state directory")
	}
	withState(t, state)
	berth("list").wants(t, 1, "", "hint: autostart is off")
	t.Setenv("BERTH_NO_AUTOSTART", "")
	berth("submit", "--time", "soon", "--", "true").wants(t, 2, "", "--time")
	berth("wait").wants(t, 2, "", "wait: expected at least one job")
	named := filepath.Join(t.TempDir(), "named.sock")
	berth("submit", "--socket", named, "--", "true").wants(t, 1, "", "no daemon answers at "+named)
	berth("list", "--socket", named).wants(t, 1, "", "no daemon answers at "+named)
	berth("status").wants(t, 1, "not running", "")
	berth("doctor")
	berth("__complete", "show", "")
	cli.MachineAt(t, filepath.Join(t.TempDir(), "none"), true)
	berth("submit", "--", "true").wants(t, 1, "", "hint: the berth service is installed but not running: systemctl start berth\n")
	berth("list").wants(t, 1, "", "hint: the berth service is installed but not running: systemctl start berth\n")
	berth("start").wants(t, 1, "", "hint: sudo systemctl start berth\n")
	if daemons := begun(state); len(daemons) > 0 {
		t.Errorf("%q were started", daemons)
	}
}

// TestEveryVerbStartsTheDaemonWhereThereIsState: whatever the verb then answers,
// it has asked a daemon.
func TestEveryVerbStartsTheDaemonWhereThereIsState(t *testing.T) {
	for _, args := range everyVerb {
		t.Run(args, func(t *testing.T) {
			state := ownMachine(t, "well", time.Minute)
			withState(t, state)
			said := berth(strings.Fields(args)...)
			if !strings.HasPrefix(said.err, "berth: started a private daemon (pid ") || len(begun(state)) != 1 {
				t.Errorf("exit status %d, it says %q", said.code, said.err)
			}
		})
	}
}

func TestADaemonOfAnotherVersionIsMentioned(t *testing.T) {
	ownMachine(t, "dies", time.Second)
	places, err := site.PrivatePlaces(os.Getenv)
	if err != nil {
		t.Fatal(err)
	}
	newFakeDaemon().serve(t, places.Socket) // of version "test"
	const said = "berth: this is berth 0.2.0, and the daemon is berth test\n"
	berth("list").wants(t, 0, "no jobs\n", said+"hint: berth restart replaces it; jobs keep running\n")
	if named := berth("list", "--socket", places.Socket); named.err != "" {
		t.Errorf("to a daemon that was named it says %q", named.err)
	}
	if failed := berth("show", "77", "--socket", places.Socket); failed.code != 1 || !strings.Contains(failed.err, said) {
		t.Errorf("it fails with %q", failed.err)
	}
}

func TestAnOlderDaemonIsListed(t *testing.T) {
	ownMachine(t, "dies", time.Second)
	places, err := site.PrivatePlaces(os.Getenv)
	if err != nil {
		t.Fatal(err)
	}
	f := newFakeDaemon()
	f.older = true
	f.add(api.Detail{})
	f.jobs[0].Name = "waits"
	f.serve(t, places.Socket)
	if said := berth("list"); said.code != 0 || !strings.Contains(said.out, "waits") {
		t.Errorf("exit status %d: %s%s", said.code, said.out, said.err)
	}
}

func TestWhichDaemonIsTalkedTo(t *testing.T) {
	ownMachine(t, "dies", time.Second)
	places, err := site.PrivatePlaces(os.Getenv)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	serveNamed := func(socket, name string) {
		f := newFakeDaemon()
		f.add(api.Detail{})
		f.jobs[0].Name = name
		f.serve(t, socket)
	}
	wants := func(name string, args ...string) {
		t.Helper()
		berth(append([]string{"list"}, args...)...).wants(t, 0, name, "")
	}
	serveNamed(places.Socket, "own")
	wants("own")
	machine := filepath.Join(dir, "machine.sock")
	cli.MachineAt(t, machine, true)
	wants("own") // the service does not run, but the user's own does
	serveNamed(machine, "machine")
	wants("machine")
	serveNamed(filepath.Join(dir, "env.sock"), "environment")
	t.Setenv("BERTH_SOCKET", filepath.Join(dir, "env.sock"))
	wants("environment")
	serveNamed(filepath.Join(dir, "flag.sock"), "flagged")
	wants("flagged", "--socket", filepath.Join(dir, "flag.sock"))
}

package site

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// HoldWord is the hidden command under which berth keeps a scope alive, or with
// an argument a port; main calls Hold for it.
const HoldWord = "__hold"

// Jobs must not be in the daemon's own cgroup: systemd could not restart the
// daemon into a cgroup that has children, and would remove theirs. So berth
// asks systemd once for a scope with delegation.
const (
	scopeUnit  = "berth-jobs.scope"
	scopeSlice = "berth.slice"
	// holdDir is the cgroup of the process that keeps the scope alive: a
	// cgroup that passes controllers on may not contain processes itself.
	holdDir       = "hold"
	scopeDeadline = 15 * time.Second
)

// JobScope is the directory of a cgroup that systemd delegated to berth, for
// the shared daemon or a user's own. It outlives the daemon, and the next
// daemon finds it again. self is the command line of this program that keeps
// the scope alive: it must call Hold. If there is no such scope, dir is "" and
// reason says why.
func JobScope(ctx context.Context, user bool, self []string) (dir, reason string, err error) {
	return jobScope(ctx, here(), user, self)
}

func jobScope(ctx context.Context, m machine, user bool, self []string) (dir, reason string, err error) {
	ctx, cancel := context.WithTimeout(ctx, scopeDeadline)
	defer cancel()
	if err := mayHaveScope(m, user); err != nil {
		return "", err.Error(), nil
	}
	if dir := findScope(ctx, m, user); dir != "" {
		return dir, "", nil
	}
	self, err = findSelf(self)
	if err != nil {
		return "", "", err
	}
	path, err := m.command("systemd-run")
	if err != nil {
		return "", err.Error(), nil
	}
	dir, err = makeScope(ctx, m, path, user, self)
	if err != nil {
		// Another daemon may have just made it.
		if dir := findScope(ctx, m, user); dir != "" {
			return dir, "", nil
		}
		return "", "", fmt.Errorf("ask systemd for a scope: %w", err)
	}
	return dir, "", nil
}

// findSelf resolves the path of this program for systemd-run, whose own
// /proc/self/exe differs.
func findSelf(self []string) ([]string, error) {
	if len(self) == 0 {
		panic("a scope needs a keeper")
	}
	if self[0] != "/proc/self/exe" {
		return self, nil
	}
	path, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program: %w", err)
	}
	return append([]string{path}, self[1:]...), nil
}

// mayHaveScope returns why systemd cannot be asked for a scope.
func mayHaveScope(m machine, user bool) error {
	_, unified := unified(m, m.pid)
	switch {
	case !m.hasSystemd():
		return errors.New("this machine does not run systemd")
	case !unified:
		return errors.New("cgroup version 2 is not mounted")
	case user && !lingers(m, m.uid):
		// The user's own systemd ends at logout, with everything it runs.
		return errors.New("without `loginctl enable-linger`, the user's systemd and its scopes end at logout")
	case !user && m.uid != 0:
		return errors.New("only root may ask systemd for a scope")
	}
	return nil
}

// findScope is the directory of an existing scope, or "".
func findScope(ctx context.Context, m machine, user bool) string {
	args := []string{"show", "--property=ControlGroup", "--value", scopeUnit}
	said, err := m.run(ctx, call{name: "systemctl", args: append(managerFlag(user), args...), env: managerEnv(m, user)})
	path := strings.TrimSpace(said.stdout)
	h, unified := unified(m, m.pid)
	if err != nil || said.exit != 0 || !unified || filepath.Base(path) != scopeUnit {
		return ""
	}
	dir := filepath.Join(h.mount, path)
	if !strings.Contains(m.read(filepath.Join(dir, "cgroup.events")), "populated 1") {
		return ""
	}
	return m.path(dir)
}

func managerFlag(user bool) []string {
	if user {
		return []string{"--user"}
	}
	return nil
}

// managerEnv is the environment in which the user's own systemd is found.
func managerEnv(m machine, user bool) []string {
	if !user {
		return nil
	}
	dir := "/run/user/" + strconv.Itoa(m.uid)
	return []string{"XDG_RUNTIME_DIR=" + dir, "DBUS_SESSION_BUS_ADDRESS=unix:path=" + dir + "/bus"}
}

// makeScope starts the keeper in a scope and waits until it reports that it is
// ready. systemd-run executes the keeper, so the process id stays the same.
func makeScope(ctx context.Context, m machine, path string, user bool, self []string) (string, error) {
	args := append(managerFlag(user), "--scope", "--quiet", "--collect", "--slice="+scopeSlice, "--unit="+scopeUnit,
		"--property=Delegate=yes", "--property=TasksMax=infinity", "--")
	cmd := exec.Command(path, slices.Concat(args, self)...)
	cmd.Dir = "/"
	cmd.Env = append([]string{"PATH=/usr/bin:/bin:/usr/sbin:/sbin", "LC_ALL=C"}, managerEnv(m, user)...)
	// A process group of its own, so that no terminal signal reaches it. Not
	// a session: berth would take it for a process that a job left behind.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	ready, theirs, err := os.Pipe()
	if err != nil {
		return "", err
	}
	defer ready.Close()
	cmd.Stdout, cmd.Stderr = theirs, theirs
	err = cmd.Start()
	theirs.Close()
	if err != nil {
		return "", err
	}
	go func() { _ = cmd.Wait() }() // it lives as long as the scope
	deadline, _ := ctx.Deadline()
	_ = ready.SetReadDeadline(deadline) // pipes support deadlines
	said := make([]byte, 4096)
	text := ""
	for !strings.HasSuffix(text, holdReady) && len(text) < len(said) {
		n, err := ready.Read(said)
		text += string(said[:n])
		if err != nil {
			_ = cmd.Process.Kill()
			return "", fmt.Errorf("systemd-run: %s (%w)", answer{stderr: text}.firstLine(), err)
		}
	}
	return scopeOf(m, cmd.Process.Pid)
}

// scopeOf is the scope that a keeper is in.
func scopeOf(m machine, pid int) (string, error) {
	h, ok := unified(m, pid)
	if !ok {
		return "", errors.New("the keeper is not in a version 2 cgroup")
	}
	dir := h.dir
	if filepath.Base(dir) == holdDir {
		dir = filepath.Dir(dir)
	}
	if filepath.Base(dir) != scopeUnit {
		return "", fmt.Errorf("the keeper is in %s, not in a scope of its own", dir)
	}
	return m.path(dir), nil
}

// holdReady is what the keeper prints when it is ready.
const holdReady = "berth: holding\n"

// Hold keeps a scope alive until the process is killed, or holds a port. It
// returns an exit status.
func Hold(args []string) int {
	if slices.Equal(args, []string{holdPort}) {
		return holdPortMain()
	}
	return holdScope(here(), os.Stdout)
}

func holdScope(m machine, out *os.File) int {
	signal.Ignore(syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGPIPE)
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, syscall.SIGTERM)
	if err := takePlace(m); err != nil {
		fmt.Fprintf(out, "%v\n", err)
		return 1
	}
	fmt.Fprint(out, holdReady)
	// The daemon has stopped reading, and its files must not stay open here.
	if null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0); err == nil {
		for fd := range 3 {
			_ = syscall.Dup3(int(null.Fd()), fd, 0)
		}
		null.Close()
	}
	<-ended
	return 0
}

// takePlace moves this process into holdDir, so that the scope can pass its
// controllers on.
func takePlace(m machine) error {
	h, ok := unified(m, m.pid)
	if !ok || filepath.Base(h.dir) != scopeUnit {
		return fmt.Errorf("this process is not in %s", scopeUnit)
	}
	dir := m.path(filepath.Join(h.dir, holdDir))
	if err := os.Mkdir(dir, 0o755); err != nil && !os.IsExist(err) {
		return fmt.Errorf("make the keeper's cgroup: %w", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(m.pid)), 0o644); err != nil {
		return fmt.Errorf("move the keeper into its cgroup: %w", err)
	}
	return nil
}

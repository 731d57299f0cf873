package siege

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"berth/internal/tests/testkit"
)

// person is a user of the machine, with a home that only they may enter.
type person struct {
	name     string
	uid, gid int
	groups   []uint32
	home     string
	socket   string

	http *http.Client // over the socket, as this user
}

// accounts are the names of all users these tests make: who, and the process
// of the test that made them.
var accounts = regexp.MustCompile(`^bsg-[a-z]+-([0-9]+)$`)

func account(who string) string { return fmt.Sprintf("bsg-%s-%d", who, os.Getpid()) }

// numbers is held while a number is given to a new user, who would otherwise get
// the one that another test has just taken from a user to give it to a second.
var numbers sync.Mutex

// removeStale removes the accounts of tests that are gone.
func removeStale(t *testing.T) {
	t.Helper()
	for _, kind := range []struct{ file, remove string }{{"/etc/passwd", "userdel"}, {"/etc/group", "groupdel"}} {
		for line := range strings.Lines(testkit.Read(t, kind.file)) {
			name, _, _ := strings.Cut(line, ":")
			match := accounts.FindStringSubmatch(name)
			if match == nil {
				continue
			}
			if _, err := os.Stat("/proc/" + match[1]); errors.Is(err, os.ErrNotExist) {
				t.Logf("removing %s, which an earlier test left", name)
				_ = exec.Command(kind.remove, name).Run() // the group may have gone with its user
			}
		}
	}
}

// enlist makes a user, in further groups if any are named.
func enlist(t *testing.T, who, homes, socket string, groups ...string) *person {
	t.Helper()
	p := &person{name: account(who), home: filepath.Join(homes, who), socket: socket}
	args := []string{"--no-create-home", "--user-group", "--home-dir", p.home, "--shell", "/bin/sh"}
	if len(groups) > 0 {
		args = append(args, "--groups", strings.Join(groups, ","))
	}
	func() {
		numbers.Lock()
		defer numbers.Unlock()
		testkit.Accounts(t, "useradd", append(args, p.name)...)
	}()
	t.Cleanup(func() {
		if _, err := user.Lookup(p.name); err == nil { // an attack may have removed it
			// A process that was killed may take a moment to be gone.
			testkit.Holds(testkit.Patience, func() bool {
				return !slices.ContainsFunc(processes(), func(pid int) bool { return owner(pid) == p.uid })
			})
			testkit.Accounts(t, "userdel", p.name)
		}
	})
	entry, err := user.Lookup(p.name)
	testkit.Must(t, err)
	p.uid, _ = strconv.Atoi(entry.Uid)
	p.gid, _ = strconv.Atoi(entry.Gid)
	ids, err := entry.GroupIds()
	testkit.Must(t, err)
	for _, id := range ids {
		n, _ := strconv.Atoi(id)
		p.groups = append(p.groups, uint32(n))
	}
	testkit.Must(t, os.Mkdir(p.home, 0o700))
	testkit.Must(t, os.Chown(p.home, p.uid, p.gid))
	p.http = &http.Client{Transport: &http.Transport{
		MaxIdleConnsPerHost: 2,
		DialContext:         func(context.Context, string, string) (net.Conn, error) { return p.dial() },
	}}
	t.Cleanup(p.http.CloseIdleConnections)
	return p
}

// dial connects to the daemon: the kernel will say that this user did.
func (p *person) dial() (conn net.Conn, err error) {
	doing := p.as(func() error {
		conn, err = net.Dial("unix", p.socket)
		return err
	})
	return conn, doing
}

// as does something with the user's rights to files and sockets, on a thread
// of its own that ends with it. Rights over processes take a real process of
// the user's: run.
func (p *person) as(do func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: nobody else gets this thread
		done <- func() error {
			const asIs = ^uintptr(0)
			if _, _, errno := syscall.RawSyscall(syscall.SYS_SETGROUPS, 0, 0, 0); errno != 0 {
				return errno
			}
			if _, _, errno := syscall.RawSyscall(syscall.SYS_SETRESGID, asIs, uintptr(p.gid), asIs); errno != 0 {
				return errno
			}
			if _, _, errno := syscall.RawSyscall(syscall.SYS_SETRESUID, asIs, uintptr(p.uid), asIs); errno != 0 {
				return errno
			}
			return do()
		}()
	}()
	return <-done
}

// command is a process of the user's.
func (p *person) command(name string, args ...string) *exec.Cmd {
	cmd := exec.Command(name, args...)
	cmd.Dir = p.home
	cmd.Env = []string{
		"HOME=" + p.home, "USER=" + p.name, "LOGNAME=" + p.name, "PATH=/usr/local/bin:/usr/bin:/bin",
		"BERTH_SOCKET=" + p.socket, "BERTH_NO_AUTOSTART=1", "LC_ALL=C.UTF-8",
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(p.uid), Gid: uint32(p.gid), Groups: p.groups}}
	cmd.WaitDelay = testkit.Patience
	return cmd
}

// run is a process of the user's, to its end.
func (p *person) run(name string, args ...string) (out string, status int) {
	return outcome(p.command(name, args...))
}

func (p *person) sh(script string, args ...string) (out string, status int) {
	return p.run("/bin/sh", append([]string{"-c", script, "sh"}, args...)...)
}

func (p *person) berth(args ...string) (out string, status int) {
	return p.run(filepath.Join(programs, "berth"), args...)
}

func outcome(cmd *exec.Cmd) (out string, status int) {
	var all bytes.Buffer
	cmd.Stdout, cmd.Stderr = &all, &all
	timer := time.AfterFunc(testkit.Patience, func() { _ = cmd.Process.Kill() })
	defer timer.Stop()
	if err := cmd.Start(); err != nil {
		return err.Error(), -1
	}
	_ = cmd.Wait() // the status says it
	return all.String(), cmd.ProcessState.ExitCode()
}

// reply is an answer of the daemon.
type reply struct {
	status int
	header http.Header
	body   string
}

// ask makes one request. What is not a string or nil goes as JSON.
func (p *person) ask(method, path string, body any) (reply, error) {
	return p.askWith(method, path, body, nil)
}

func (p *person) askWith(method, path string, body any, change func(*http.Request)) (reply, error) {
	var reader io.Reader
	switch b := body.(type) {
	case nil:
	case io.Reader:
		reader = b
	case string:
		reader = strings.NewReader(b)
	default:
		data, err := json.Marshal(b)
		if err != nil {
			return reply{}, err
		}
		reader = bytes.NewReader(data)
	}
	ctx, cancel := context.WithTimeout(context.Background(), testkit.Patience)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, "http://berth"+path, reader)
	if err != nil {
		return reply{}, err
	}
	if long, ok := body.(interface{ length() int64 }); ok {
		r.ContentLength = long.length()
	}
	if change != nil {
		change(r)
	}
	answer, err := p.http.Do(r)
	if err != nil {
		return reply{}, err
	}
	defer answer.Body.Close()
	data, err := io.ReadAll(io.LimitReader(answer.Body, 64<<20))
	return reply{answer.StatusCode, answer.Header, string(data)}, err
}

// mustAsk is ask where the daemon has to answer, whatever it says.
func (p *person) mustAsk(t *testing.T, method, path string, body any) reply {
	t.Helper()
	r, err := p.ask(method, path, body)
	if err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	return r
}

// into reads a reply's JSON.
func (r reply) into(t *testing.T, value any) {
	t.Helper()
	if r.status != http.StatusOK {
		t.Fatalf("status %d: %.500s", r.status, r.body)
	}
	if err := json.Unmarshal([]byte(r.body), value); err != nil {
		t.Fatalf("%v in %.200s", err, r.body)
	}
}

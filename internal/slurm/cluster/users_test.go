package cluster_test

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"berth/internal/slurm/cluster"
	"berth/internal/tests/testkit"
)

// shared is a daemon for all users.
type shared struct {
	*berth
}

// person is a user of the machine.
type person struct {
	*berth     // as this user sees it
	name, home string
	uid, gid   int
	program    string
}

// newShared starts a shared daemon beside a Slurm.
func newShared(t *testing.T, setup testkit.SlurmSetup) *shared {
	t.Helper()
	b := pitch(t, testkit.NewSlurm(t, setup))
	testkit.Must(t, os.Chmod(b.dir, 0o755), os.Mkdir(b.file("bin"), 0o755), os.Mkdir(b.file("home"), 0o755))
	for _, name := range []string{"berth", "berth-keep"} { // where they were built, only root can read them
		if out, err := exec.Command("cp", filepath.Join(cluster.Programs(), name), b.file("bin")).CombinedOutput(); err != nil {
			t.Fatalf("%s", out)
		}
	}
	testkit.Write(t, b.file("config.toml"), "[scheduling]\npoll = \"0.2s\"\n")
	b.daemon = exec.Command(b.file("bin/berth"), "serve", "--sim", "2", "--socket", b.socket, "--state-dir", b.file("state"), "--config", b.file("config.toml"))
	b.daemon.Env, b.daemon.Dir = append(b.env, "SECRET_OF_ROOT=1"), "/"
	testkit.Must(t, b.daemon.Start())
	testkit.Eventually(t, "the daemon answers", func() bool {
		r, err := b.http.Get("http://berth/v1/status")
		if err != nil {
			return false
		}
		return r.Body.Close() == nil && r.StatusCode == http.StatusOK
	})
	return &shared{berth: b}
}

// enlist makes a user, who goes with the test.
func (s *shared) enlist(who string) *person {
	t := s.t
	t.Helper()
	name := fmt.Sprintf("bcl-%s-%d", who, os.Getpid())
	p := &person{name: name, home: s.file("home/" + who), program: s.file("bin/berth")}
	testkit.Accounts(t, "useradd", "--no-create-home", "--user-group", "--home-dir", p.home, "--shell", "/bin/sh", name)
	entry, err := user.Lookup(name)
	testkit.Must(t, err)
	p.uid, _ = strconv.Atoi(entry.Uid) // it is a number on Linux
	p.gid, _ = strconv.Atoi(entry.Gid)
	t.Cleanup(func() {
		testkit.Holds(testkit.Patience, func() bool { return !hasProcess(p.uid) })
		testkit.Accounts(t, "userdel", name)
	})
	testkit.Must(t, os.Mkdir(p.home, 0o700), os.Chown(p.home, p.uid, p.gid))
	own := *s.berth
	own.dir = p.home
	own.env = []string{"HOME=" + p.home, "USER=" + name, "LOGNAME=" + name, "PATH=/usr/bin:/bin", "BERTH_SOCKET=" + s.socket, "BERTH_NO_AUTOSTART=1", "NO_COLOR=1"}
	p.berth = &own
	return p
}

func hasProcess(uid int) bool {
	return len(find(func(pid string) bool {
		info, err := os.Stat("/proc/" + pid)
		return err == nil && int(info.Sys().(*syscall.Stat_t).Uid) == uid
	})) > 0
}

// as is a process of the user's.
func (p *person) as(name string, args ...string) *exec.Cmd {
	cmd := exec.Command(name, args...)
	cmd.Env, cmd.Dir = p.env, p.home
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(p.uid), Gid: uint32(p.gid)}}
	return cmd
}

func (p *person) does(args ...string) (string, int) { return outcome(p.as(p.program, args...)) }

func (p *person) submits(args ...string) string {
	p.t.Helper()
	out, status := p.does(append([]string{"submit", "--quiet", "--to", "slurm", "--gpus", "0"}, args...)...)
	if status != 0 {
		p.t.Fatalf("submit %q: %s", args, out)
	}
	return out
}

// TestManyUsers: each user's jobs run as that user, with files in that user's home,
// which no other user can read.
func TestManyUsers(t *testing.T) {
	t.Parallel()
	s := newShared(t, testkit.SlurmSetup{CPUs: 8})
	if _, err := exec.LookPath("useradd"); err != nil {
		t.Skip("there is no useradd")
	}
	ann, bob := s.enlist("ann"), s.enlist("bob")
	for _, p := range []*person{ann, bob} {
		id := p.submits("--", "id -u; id -g; echo $HOME; touch made; echo ${SECRET_OF_ROOT-none}")
		v := p.ends(id, "ok")
		p.printed(v, fmt.Sprintf("%d\n%d\n%s\nnone\n", p.uid, p.gid, p.home))
		if !strings.HasPrefix(word(v.Log), p.home+"/") {
			t.Errorf("its log is %s", word(v.Log))
		}
	}
	secret := ann.submits("-e", "TOKEN=hidden", "--", "echo private; exec sleep 1000")
	v := ann.running(secret)
	batch := filepath.Dir(word(v.Log))
	ann.owns(batch)
	for _, file := range []string{word(v.Log), filepath.Join(batch, "orders"), filepath.Join(batch, "script")} {
		if out, status := outcome(bob.as("cat", file)); status == 0 {
			t.Errorf("another user reads %s: %s", file, out)
		}
	}
	for _, verb := range [][]string{{"cancel", secret}, {"requeue", secret}, {"hold", secret}, {"logs", secret}, {"edit", secret, "--time", "3"}} {
		if out, status := bob.does(verb...); status == 0 {
			t.Errorf("%q of another user's job: %s", verb, out)
		}
	}
	if v := ann.show(secret); v.State != "running" {
		t.Errorf("%s", v)
	}
	contains(t, first(bob.does("list")), ann.name)
	if out := first(bob.does("show", secret)); strings.Contains(out, "hidden") {
		t.Errorf("another user sees its environment: %s", out)
	}
	if out, status := ann.does("cancel", secret); status != 0 {
		t.Errorf("cancel: %s", out)
	}
	ann.ends(secret, "cancelled")
}

func first(out string, _ int) string { return out }

// owns checks that everything in a batch's directory is the user's alone.
func (p *person) owns(dir string) {
	p.t.Helper()
	testkit.Must(p.t, filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		if uid := int(info.Sys().(*syscall.Stat_t).Uid); uid != p.uid {
			p.t.Errorf("%s belongs to user %d", path, uid)
		}
		if info.Mode().Perm()&0o077 != 0 && filepath.Ext(path) != ".log" {
			p.t.Errorf("%s can be used by others: %v", path, info.Mode())
		}
		return nil
	}))
}

// TestASnareInAHome: berth does nothing in a home as root, so a link to a directory of
// root's gains nothing, and says why the job waits.
func TestASnareInAHome(t *testing.T) {
	t.Parallel()
	s := newShared(t, testkit.SlurmSetup{})
	if _, err := exec.LookPath("useradd"); err != nil {
		t.Skip("there is no useradd")
	}
	eve, bob := s.enlist("eve"), s.enlist("rob")
	target := s.file("of-root")
	testkit.Must(t, os.Mkdir(target, 0o700))
	if out, status := outcome(eve.as("sh", "-c", "mkdir -p .local/state/berth && ln -s "+target+" .local/state/berth/slurm")); status != 0 {
		t.Fatal(out)
	}
	id := eve.submits("--", "echo snared")
	eve.waits(id, "files cannot be written")
	bob.printed(bob.ends(bob.submits("--", "echo free"), "ok"), "free\n")
	if other := bob.submits("--begin", "now+1h", "--", "true"); strings.Contains(first(bob.does("why", other)), "files cannot be written") {
		t.Error("one user's trouble is told of another's job")
	}
	left, err := os.ReadDir(target)
	if err != nil || len(left) > 0 {
		t.Errorf("root wrote %v, %v", left, err)
	}
	if out, status := eve.does("cancel", id); status != 0 {
		t.Errorf("cancel: %s", out)
	}
	eve.ends(id, "cancelled")
}

package run

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"berth/internal/machine/keep"
	"berth/internal/tests/testkit"
)

// Two users who have no name here.
const (
	otherUser = 12345
	neighbour = 12346
)

// newLab is a bench whose jobs can be other users'.
func newLab(t *testing.T, change ...func(*Options)) *bench {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root can run jobs of other users")
	}
	b := newBench(t, change...)
	if err := os.Chmod(filepath.Dir(b.work), 0o711); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(b.work, 0o777); err != nil {
		t.Fatal(err)
	}
	return b
}

// ordered is a job of the other user.
func (b *bench) ordered(id, line string) keep.Order {
	o := b.order(id, line)
	o.Credential = &keep.Credential{UID: otherUser, GID: otherUser, Groups: []int{otherUser, 4711}, Umask: -1, Home: "/home/other"}
	return o
}

// proc reads one of the kernel's files about a process.
func proc(t *testing.T, pid int, name string) string {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", pid, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// lines are the values of "key: value" or columns, blanks made single.
func lines(text string) map[string]string {
	values := map[string]string{}
	for line := range strings.Lines(text) {
		if key, value, found := strings.Cut(line, ":"); found {
			values[key] = strings.Join(strings.Fields(value), " ")
		}
	}
	return values
}

// favoured is a supervisor that is treated better than any job may be.
func favoured(o *Options) {
	o.KeepCommand = []string{"sh", "-c", `umask 077; choom -n -500 -p $$ > /dev/null 2>&1 || echo 300 > /proc/self/oom_score_adj; exec nice -n -5 "$0" "$@"`, keepProgram}
}

func descriptors(t *testing.T, pid int) map[string]string {
	t.Helper()
	dir := fmt.Sprintf("/proc/%d/fd", pid)
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	fds := map[string]string{}
	for _, entry := range entries {
		fds[entry.Name()], _ = os.Readlink(filepath.Join(dir, entry.Name()))
	}
	return fds
}

// Everything the kernel tells of a process is compared with what it should be.
func TestAJobOfAnotherUserIsThatUserAndNothingMore(t *testing.T) {
	leakOnExec(t)
	for _, host := range cgroupHosts(t) {
		t.Run(host.name, func(t *testing.T) {
			b := newLab(t, host.option, favoured)
			o := b.ordered("1", "")
			o.Argv = []string{"sleep", "1000"}
			o.Env = []string{"PATH=/usr/bin:/bin", "COLOUR=blue"}
			o.Credential.Umask = 0o027
			o.Credential.Rlimits = []keep.Rlimit{
				{Resource: unix.RLIMIT_CORE, Soft: 0, Hard: 4096}, {Resource: unix.RLIMIT_NOFILE, Soft: 100, Hard: 200},
				{Resource: unix.RLIMIT_NPROC, Soft: 5000, Hard: 6000}, {Resource: unix.RLIMIT_MEMLOCK, Soft: 4096, Hard: keep.Infinity},
			}
			token := b.start(o)
			r := b.next(Started).Record
			status := lines(proc(t, r.PID, "status"))
			none := strings.Repeat("0", 16)
			want := map[string]string{
				"Name": "sleep", "Umask": "0027", "Threads": "1", "NoNewPrivs": "0",
				"Uid": "12345 12345 12345 12345", "Gid": "12345 12345 12345 12345", "Groups": "4711 12345",
				"CapInh": none, "CapPrm": none, "CapEff": none, "CapAmb": none,
				"SigBlk": none, "SigIgn": none, "SigCgt": none, "PPid": strconv.Itoa(r.KeepPID),
			}
			for key, value := range want {
				if status[key] != value {
					t.Errorf("%s is %q, want %q", key, status[key], value)
				}
			}
			log := o.Log
			// A program that begins has its libraries open for a moment.
			testkit.Eventually(t, "it holds nothing open but the log", func() bool {
				return maps.Equal(descriptors(t, r.PID), map[string]string{"0": "/dev/null", "1": log, "2": log})
			})
			if cwd, _ := os.Readlink(fmt.Sprintf("/proc/%d/cwd", r.PID)); cwd != o.Dir {
				t.Errorf("directory %q", cwd)
			}
			env := strings.Split(strings.TrimSuffix(proc(t, r.PID, "environ"), "\x00"), "\x00")
			wantEnv := []string{"PATH=/usr/bin:/bin", "COLOUR=blue", "BERTH_TOKEN=" + token + ":1:1", "HOME=/home/other"}
			sort.Strings(env)
			sort.Strings(wantEnv)
			if diff := cmp.Diff(wantEnv, env); diff != "" {
				t.Errorf("environment: %s", diff)
			}
			limits := proc(t, r.PID, "limits")
			for _, limit := range []string{"Max core file size 0 4096", "Max open files 100 200", "Max processes 5000 6000", "Max locked memory 4096 " + hardMemlock(t)} {
				if !strings.Contains(strings.Join(strings.Fields(limits), " "), limit) {
					t.Errorf("limits lack %q:\n%s", limit, limits)
				}
			}
			stat := strings.Fields(proc(t, r.PID, "stat"))
			pid := strconv.Itoa(r.PID)
			if nice := stat[18]; nice != "0" || stat[4] != pid || stat[5] != pid || stat[6] != "0" {
				t.Errorf("nice %s, group %s, session %s, terminal %s of process %s", nice, stat[4], stat[5], stat[6], pid)
			}
			if adj := strings.TrimSpace(proc(t, r.PID, "oom_score_adj")); adj != "0" {
				t.Errorf("oom_score_adj %s", adj)
			}
			if in := strings.Contains(proc(t, r.PID, "cgroup"), token); in != host.cgroup {
				t.Errorf("in its cgroup: %v, want %v", in, host.cgroup)
			}
			b.auditKeep(r.KeepPID)
			info, err := os.Stat(log)
			if err != nil || info.Sys().(*syscall.Stat_t).Uid != otherUser || info.Mode().Perm() != 0o640 {
				t.Errorf("log: %v, %v", info, err)
			}
			b.Stop(token, "cancel", testkit.Patience)
			b.next(Ended)
		})
	}
}

// hardMemlock is how far root can raise that limit here.
func hardMemlock(t *testing.T) string {
	t.Helper()
	return strings.Fields(shell(t, "ulimit -Hl unlimited 2> /dev/null; grep locked /proc/self/limits"))[4]
}

// auditKeep looks at the supervisor itself: nobody else may look into it, and
// nothing of berth's own is in it.
func (b *bench) auditKeep(pid int) {
	b.t.Helper()
	info, err := os.Stat(fmt.Sprintf("/proc/%d/environ", pid))
	if err != nil || info.Sys().(*syscall.Stat_t).Uid != 0 {
		b.t.Errorf("supervisor: %v, %v", info, err)
	}
	for entry := range strings.SplitSeq(proc(b.t, pid, "environ"), "\x00") {
		name, _, _ := strings.Cut(entry, "=")
		if !slices.Contains([]string{"GOMAXPROCS", "PATH", "KEEP_TIMER_SLACK", keep.TokenVariable, "PWD", "SHLVL", "_", "OLDPWD", ""}, name) {
			b.t.Errorf("the supervisor inherited %s", name)
		}
	}
	err = filepath.WalkDir(b.dir, func(path string, d os.DirEntry, err error) error {
		info, statErr := d.Info()
		if err != nil || statErr != nil {
			return err
		}
		if d.IsDir() && info.Mode().Perm() != 0o700 {
			b.t.Errorf("%s is %v", path, info.Mode())
		}
		return nil
	})
	if err != nil {
		b.t.Error(err)
	}
}

// What is not privileged is not taken away: a supervisor that was started
// humbly has humble jobs.
func TestPrioritiesOfJobsThatStayTheirSupervisors(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can be treated better than others")
	}
	rows := []struct {
		name, nice, adj string
		wantNice, want  string
	}{
		{"favoured ones do not hand that on", "-5", "0", "0", "0"},
		{"humble ones do", "5", "500", "5", "500"},
		{"one of each", "-5", "500", "0", "500"},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			b := newBench(t, func(o *Options) {
				o.KeepCommand = []string{"sh", "-c", `echo ` + row.adj + ` > /proc/self/oom_score_adj; exec nice -n ` + row.nice + ` "$0" "$@"`, keepProgram}
			})
			b.finish(b.order("1", "nice; cat /proc/self/oom_score_adj; umask; ls -l /proc/self/fd | wc -l"))
			want := row.wantNice + "\n" + row.want + "\n" + shell(t, "umask") + "5\n"
			if got := b.logText("1"); got != want {
				t.Errorf("got %q, want %q", got, want)
			}
		})
	}
}

// Each step of the drop is left out in turn. What is proved afterwards does not
// hold then, and nothing runs.
func TestADropThatFailsRunsNothing(t *testing.T) {
	t.Parallel()
	for _, step := range []string{"setgroups", "setresgid", "setresuid", "clear capabilities"} {
		t.Run(step, func(t *testing.T) {
			b := newLab(t, func(o *Options) {
				o.KeepCommand = []string{"env", "BERTH_KEEP_FAULT=skip " + step, faultyKeep}
			})
			token := b.start(b.ordered("1", "touch ran"))
			r := b.next(Ended).Record
			b.Ack(token)
			if !strings.Contains(r.Launch, "become user 12345") || r.PID != 0 || r.ExitCode != -1 {
				t.Errorf("got %+v", r)
			}
			if _, err := os.Stat(filepath.Join(b.work, "ran")); err == nil {
				t.Error("it ran")
			}
			if _, err := os.Stat(b.log("1")); err == nil {
				t.Error("the log was opened")
			}
		})
	}
}

// A supervisor that is not root's can make nobody somebody else.
func TestOnlyRootCanDrop(t *testing.T) {
	t.Parallel()
	b := newLab(t)
	os.Chmod(filepath.Dir(filepath.Dir(b.dir)), 0o711)
	b = newLab(t, func(o *Options) {
		o.KeepCommand = []string{"setpriv", "--reuid=12346", "--regid=12346", "--clear-groups", keepProgram}
	})
	if _, err := execShell("setpriv --version"); err != nil {
		t.Skip("no setpriv here")
	}
	os.Chmod(filepath.Dir(keepProgram), 0o755)
	token := b.start(b.ordered("1", "touch ran"))
	r := b.next(Ended).Record
	b.Ack(token)
	if !strings.Contains(r.Launch, "not permitted") || r.PID != 0 {
		t.Errorf("got %+v", r)
	}
	if _, err := os.Stat(filepath.Join(b.work, "ran")); err == nil {
		t.Error("it ran")
	}
}

// Capabilities that berth was started with do not reach a job.
func TestInheritedCapabilitiesAreDropped(t *testing.T) {
	if _, err := execShell("setpriv --inh-caps +chown,+setuid true"); err != nil {
		t.Skip("cannot set capabilities here")
	}
	b := newLab(t, func(o *Options) {
		o.KeepCommand = []string{"setpriv", "--inh-caps", "+chown,+setuid", keepProgram}
	})
	o := b.ordered("1", "")
	o.Argv = []string{"grep", "^Cap[IPEA]", "/proc/self/status"}
	r := b.finish(o)
	if text := b.logText("1"); r.ExitCode != 0 || strings.Count(text, strings.Repeat("0", 16)) != 4 {
		t.Errorf("got %+v, %q", r, text)
	}
}

func TestAJobOfRootsOwnMayHaveACredentialToo(t *testing.T) {
	t.Parallel()
	b := newLab(t)
	o := b.ordered("1", "id -u; id -G; umask")
	*o.Credential = keep.Credential{Groups: []int{0, 7}, Umask: 0o022}
	if r := b.finish(o); r.ExitCode != 0 || b.logText("1") != "0\n0 7\n0022\n" {
		t.Errorf("got %+v, %q", r, b.logText("1"))
	}
}

func TestASetUpOfAnotherUser(t *testing.T) {
	b := newLab(t)
	for id, row := range map[string]struct {
		line   string
		failed bool
	}{
		"good": {"printf ok >&3; exec 3>&-; exec ls /proc/self/fd", false},
		"bad":  {"exit 0", true},
	} {
		o := b.ordered(id, row.line)
		o.Setup = true
		r := b.finish(o)
		if r.SetupFailed != row.failed || r.ExitCode != 0 {
			t.Errorf("%s: %+v", id, r)
		}
	}
	if got := b.logText("good"); got != "0\n1\n2\n3\n" {
		t.Errorf("descriptors %q", got)
	}
}

// A stop reaches a job that has not got as far as its command.
func TestAStopWhileAJobBegins(t *testing.T) {
	t.Parallel()
	b := newLab(t)
	for round := range 20 {
		id := strconv.Itoa(round)
		token := b.start(b.ordered(id, "sleep 1000"))
		b.Stop(token, "cancel", testkit.Patience)
		if e := b.last(Ended); e.Record.Stop != "cancel" {
			t.Fatalf("round %d: %+v", round, e.Record)
		}
		b.Ack(token)
	}
}

// An order waits until the supervisor has said what it knows, and a stop must
// not come before it.
func TestAStopWhileASupervisorIsBorn(t *testing.T) {
	t.Parallel()
	b := newLab(t, func(o *Options) {
		o.KeepCommand = []string{"sh", "-c", `sleep 0.2; exec "$0" "$@"`, keepProgram}
	})
	token := b.start(b.ordered("1", "sleep 1000"))
	b.Stop(token, "cancel", testkit.Patience)
	if e := b.last(Ended); e.Record.Stop != "cancel" {
		t.Errorf("got %+v", e)
	}
	b.Ack(token)
}

// last waits for a job's final event, whether it was heard to start or not.
func (b *bench) last(kind EventKind) Event {
	b.t.Helper()
	select {
	case e := <-b.Events():
		if e.Kind == Started {
			return b.next(kind)
		}
		if e.Kind != kind {
			b.t.Fatalf("got %s, want %s: %+v", e.Kind, kind, e)
		}
		return e
	case <-time.After(testkit.Patience):
		b.t.Fatalf("no %s event came", kind)
	}
	return Event{}
}

// The record names the process before it is given the order, so a supervisor
// that dies between the two has started nothing.
func TestASupervisorThatDiesBeforeTheStageHasItsOrder(t *testing.T) {
	t.Parallel()
	b := newLab(t, func(o *Options) {
		o.KeepCommand = []string{"env", "BERTH_KEEP_FAULT=after fork", faultyKeep}
	})
	token := b.start(b.ordered("1", "touch ran"))
	e := b.next(Lost)
	b.Ack(token)
	if _, err := os.Stat(filepath.Join(b.work, "ran")); err == nil || e.Job != "1" {
		t.Errorf("it ran: %+v", e)
	}
}

func TestAKilledSupervisorsJobOfAnotherUserIsHunted(t *testing.T) {
	for _, host := range cgroupHosts(t) {
		t.Run(host.name, func(t *testing.T) {
			b := newLab(t, host.option)
			token := b.start(b.ordered("1", escaped+`; env -i setsid sh -c 'sleep 1000 & echo $! > bare; wait' & sleep 1000 & echo $! > child; wait`))
			b.next(Started)
			tree := []keep.Process{b.pidFrom("child"), b.pidFrom("escaped"), b.pidFrom("bare")}
			b.keepOf(token).Signal(9)
			b.next(Lost)
			b.gone(tree...)
			b.Ack(token)
		})
	}
}

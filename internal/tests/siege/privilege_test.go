package siege

import (
	"bufio"
	"fmt"
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

	"berth/internal/job"
	"berth/internal/machine/keep"
	"berth/internal/tests/testkit"
)

// Getting more than a job should have.
var privilegeAttacks = []attack{
	{"have anything that a login would not give", auditProcess},
	{"become root, look into and end root's processes", func(t *testing.T, c *camp) {
		out := c.bob.does(t, fmt.Sprintf("%s/attacker %s pry $PPID %d", programs, deedWord, c.daemon.cmd.Process.Pid))
		if !strings.Contains(out, "tried ") || strings.Contains(out, "could") {
			t.Error(out)
		}
		if !c.daemon.running() {
			t.Error("the daemon is gone")
		}
	}},
	{"read and write the daemon's files from a job", func(t *testing.T, c *camp) {
		victim := c.annSleeps(t)
		out := c.bob.does(t, fmt.Sprintf(`cd %s || exit 1
for path in store/berth.db store/berth.db-wal store/lock audit.jsonl berth.log keep keep/* jobs jobs/%s jobs/%s/1.log store; do
	head -c1 $path >/dev/null 2>&1 && echo read $path
	ls $path >/dev/null 2>&1 && [ -d $path ] && echo listed $path
	(echo x >>$path) 2>/dev/null && echo wrote $path
	mv $path $path.x 2>/dev/null && echo moved $path
	rm -rf $path 2>/dev/null && [ ! -e $path ] && [ "$path" != "keep/*" ] && echo removed $path
	chmod 777 $path 2>/dev/null && echo opened $path
done
for dir in . store keep jobs jobs/%s; do touch $dir/new 2>/dev/null && echo made $dir/new; done
ls . >/dev/null 2>&1 && echo listed the state
true`, c.stateDir, victim, victim, victim))
		if out != "" {
			t.Error(out)
		}
		for _, name := range []string{"store/berth.db", "audit.jsonl", "berth.log", "keep", "jobs/" + victim + "/1.log"} {
			if _, err := os.Stat(filepath.Join(c.stateDir, name)); err != nil {
				t.Error(err)
			}
		}
	}},
	{"speak to a supervisor, and forge an exit record", func(t *testing.T, c *camp) {
		id := c.annSleeps(t)
		sockets, err := filepath.Glob(filepath.Join(c.stateDir, "keep", "*", "sock"))
		if err != nil || len(sockets) == 0 {
			t.Fatalf("no supervisor is to be found: %v", err)
		}
		for _, socket := range sockets {
			other := *c.bob
			other.socket = socket
			if conn, err := other.dial(); err == nil {
				conn.Close()
				t.Errorf("bob reaches %s", socket)
			}
			record := filepath.Join(filepath.Dir(socket), "record")
			if err := c.bob.as(func() error { return os.WriteFile(record, []byte("x"), 0o600) }); err == nil {
				t.Errorf("bob writes %s", record)
			}
		}
		// Nothing of berth's listens where permissions mean nothing. Steps of srun have
		// names there that nobody reads, as locks.
		for line := range strings.Lines(testkit.Read(t, "/proc/net/unix")) {
			if fields := strings.Fields(line); len(fields) == 8 && strings.HasPrefix(fields[7], "@") && strings.Contains(fields[7], "berth") && !strings.HasPrefix(fields[7], "@berth-step-") {
				t.Errorf("an abstract socket: %s", fields[7])
			}
		}
		c.stillRuns(t, id)
	}},
	{"remove the job's own directory under it", func(t *testing.T, c *camp) {
		id := c.bob.submit(t, shell(fmt.Sprintf("cd %s/jobs/$BERTH_JOB_ID; rm -rf ../$BERTH_JOB_ID; rm -f 1.log; mv 1.log x; chmod 777 .; echo on; exit 3", c.stateDir)))[0]
		if v := c.bob.ended(t, id); v.Outcome == nil || *v.Outcome != job.Exited(3) {
			t.Errorf("it ended %s: %s", text(v.Outcome), text(v.Reason))
		}
		if r := c.bob.log(t, id); r.status != http.StatusOK || !strings.HasSuffix(r.body, "\non\n") {
			t.Errorf("its log: status %d: %s", r.status, r.body)
		}
	}},
	{"outlive a cancel", func(t *testing.T, c *camp) {
		mark := fmt.Sprintf("86%d", time.Now().UnixNano()%1e9)
		script := `trap "" TERM HUP INT QUIT
setsid sh -c 'setsid sh -c "exec env -i /bin/sleep $1 </dev/null >/dev/null 2>&1" sh $1 & sleep 0.1' sh $1 &
(nohup setsid env -i sh -c "cd /; exec 0<&- 1>&- 2>&-; exec /bin/sleep $1" >/dev/null 2>&1 &) &
unset BERTH_TOKEN; (setsid /bin/sleep $1 &)
cp /bin/sleep ./innocent-$1; (exec -a kworker setsid ./innocent-$1 $1 &)
sh -c 'kill -STOP $$; sleep '$1 &
while :; do setsid /bin/sleep $1 & sleep 0.05; done`
		id := c.bob.submit(t, spec{"command": []string{"/bin/bash", "-c", script, "bash", mark}, "gpus": "0.004"})[0]
		testkit.Eventually(t, "it has spread", func() bool { return len(marked(mark)) > 12 })
		c.bob.cancel(t, id)
		if v := c.bob.ended(t, id); v.State != job.Cancelled {
			t.Errorf("it is %s", v.State)
		}
		for _, pid := range marked(mark) {
			t.Errorf("process %d lives: %q", pid, procFile(pid, "cmdline"))
		}
	}},
	{"outlive its end under a tracer", outliveUnderATracer},
	{"fork without end", func(t *testing.T, c *camp) {
		// It is bounded before it goes off, or it does not go off at all.
		bomb := `ulimit -u 250 && [ "$(ulimit -Hu)" = 250 ] || exit 9; f() { f | f & }; f; sleep 1000`
		id := c.cat.submit(t, spec{"command": []string{"/bin/bash", "-c", bomb}, "gpus": "0.004", "timeout": "40s"})[0]
		c.cat.running(t, id)
		testkit.Eventually(t, "the bomb has gone off", func() bool { return owned(c.cat.uid) > 100 })
		c.cat.cancel(t, id)
		c.cat.ended(t, id)
		if left := owned(c.cat.uid); left > 0 {
			t.Errorf("%d processes are left", left)
		}
	}},
	{"escape from the job's cgroup", func(t *testing.T, c *camp) {
		out := c.bob.does(t, `grep -q berth /proc/self/cgroup || { echo "no cgroup here"; exit 0; }
own=$(sed -n 's/^0:://p' /proc/self/cgroup)
for root in /sys/fs/cgroup /sys/fs/cgroup/unified; do
	[ -d $root$own ] || continue
	for dir in $root $root$own $root${own%/*} $root${own%/*/*}; do
		(echo $$ >$dir/cgroup.procs) 2>/dev/null && echo joined $dir
		(echo 1 >$dir/cgroup.kill) 2>/dev/null && echo killed $dir
		(echo 1 >$dir/cgroup.freeze) 2>/dev/null && echo froze $dir
		mkdir $dir/x 2>/dev/null && echo made $dir/x
	done
done
true`)
		if strings.Contains(out, "no cgroup here") {
			t.Skip(out)
		}
		if out != "" {
			t.Error(out)
		}
	}},
	{"write to another's terminal", func(t *testing.T, c *camp) {
		id := c.ann.submit(t, shell("tty; mesg y 2>/dev/null; sleep 1000").with("pty", "yes"))[0]
		defer c.ann.cancel(t, id)
		var tty string
		testkit.Eventually(t, "the terminal has a name", func() bool {
			tty, _, _ = strings.Cut(c.ann.log(t, id).body, "\r\n")
			return strings.HasPrefix(tty, "/dev/")
		})
		info, err := os.Stat(tty)
		testkit.Must(t, err)
		if stat := info.Sys().(*syscall.Stat_t); int(stat.Uid) != c.ann.uid {
			t.Errorf("%s belongs to %d", tty, stat.Uid)
		}
		out := c.bob.does(t, fmt.Sprintf(`(echo typed >%s) 2>/dev/null && echo wrote; (head -c1 <%s) 2>/dev/null && echo read; (exec 3<>/dev/tty) 2>/dev/null && echo has a terminal; true`, tty, tty))
		if out != "" {
			t.Error(out)
		}
	}},
	{"push input into a terminal that is not the job's", func(t *testing.T, c *camp) {
		id := c.bob.submit(t, shell(fmt.Sprintf("%s/attacker %s push; sleep 0.2; ps -o sid=,pid= -p $$", programs, deedWord)).with("pty", "yes"))[0]
		c.bob.ended(t, id)
		// Whatever it pushed, it could only push to itself: the terminal is
		// new, and the job leads its session.
		if out := c.bob.log(t, id).body; strings.Contains(out, "pushed elsewhere") {
			t.Error(out)
		}
	}},
	{"fill a terminal that nobody reads", func(t *testing.T, c *camp) {
		id := c.bob.submit(t, shell("stty -opost; head -c 30000000 /dev/zero | tr '\\0' x; printf end").with("pty", "yes"))[0]
		if v := c.bob.ended(t, id); v.Outcome == nil || *v.Outcome != job.OK {
			t.Errorf("it ended %s: %s", text(v.Outcome), text(v.Reason))
		}
		if r := c.bob.mustAsk(t, "GET", "/v1/jobs/"+id+"/log?offset=-3", nil); r.body != "end" {
			t.Errorf("its log ends with %q", r.body)
		}
	}},
	{"reach the next job through a supervisor it left", func(t *testing.T, c *camp) {
		// Supervisors serve one job after another. A terminal is the job's, not
		// the supervisor's: whoever asked for one never gets the next.
		bob := c.bob.submit(t, shell("sleep 0.3").with("pty", "yes"))[0]
		c.bob.running(t, bob)
		conn := c.attach(t, c.bob, bob)
		defer conn.Close()
		ann := c.ann.submit(t, shell("echo secret-of-ann; sleep 1").with("pty", "yes"))[0]
		c.bob.ended(t, bob)
		c.ann.running(t, ann)
		if said := drain(conn); strings.Contains(said, "secret-of-ann") {
			t.Errorf("bob reads %q", said)
		}
		c.ann.cancel(t, ann)
	}},
}

func init() {
	deeds["pry"] = pry
	deeds["push"] = func([]string) error {
		for number := range 64 {
			path := "/dev/pts/" + strconv.Itoa(number)
			own, _ := os.Readlink("/proc/self/fd/0")
			tty, err := os.OpenFile(path, os.O_RDWR|syscall.O_NOCTTY|syscall.O_NONBLOCK, 0)
			if err != nil {
				continue
			}
			letter := byte('x')
			_, _, errno := syscall.Syscall(syscall.SYS_IOCTL, tty.Fd(), unix.TIOCSTI, pointer(&letter))
			if errno == 0 && path != own {
				fmt.Println("pushed elsewhere:", path)
			}
			tty.Close()
		}
		return nil
	}
}

// auditProcess is what the kernel has to say of a job's process.
func auditProcess(t *testing.T, c *camp) {
	id := c.bob.submitFrom(t, map[string]any{"dir": c.bob.home, "umask": 0o027, "environ": []string{"PATH=/usr/bin:/bin"}, "jobs": []spec{
		shell(`echo "cwd $(readlink /proc/$$/cwd)"
echo "umask $(umask)"
echo "oom $(cat /proc/$$/oom_score_adj)"
echo "parent $PPID"
echo "self $$"
echo "cgroup $(cat /proc/$$/cgroup | tr '\n' ' ')"
echo "stat $(cat /proc/$$/stat)"
exec sed 's/:/ /' /proc/self/status`), // exec: a shell blocks signals while it forks
	}})[0]
	c.bob.ended(t, id)
	got := map[string]string{}
	for lines := bufio.NewScanner(strings.NewReader(c.bob.log(t, id).body)); lines.Scan(); {
		key, value, _ := strings.Cut(lines.Text(), " ")
		got[key] = strings.Join(strings.Fields(value), " ")
	}
	uid, gid := strconv.Itoa(c.bob.uid), strconv.Itoa(c.bob.gid)
	groups := make([]string, len(c.bob.groups))
	for i, g := range c.bob.groups {
		groups[i] = strconv.Itoa(int(g))
	}
	slices.Sort(groups)
	const none = "0000000000000000"
	log := filepath.Join(c.stateDir, "jobs", id, "1.log")
	want := map[string]string{
		"Uid": strings.Join([]string{uid, uid, uid, uid}, " "), "Gid": strings.Join([]string{gid, gid, gid, gid}, " "), "Groups": strings.Join(groups, " "),
		"CapInh": none, "CapPrm": none, "CapEff": none, "CapAmb": none, "SigBlk": none, "SigIgn": none, "TracerPid": "0",
		"cwd": c.bob.home, "umask": "0027", "oom": "0",
	}
	for key, value := range want {
		if got[key] != value {
			t.Errorf("%s is %q, not %q", key, got[key], value)
		}
	}
	// After the command: state, parent, process group, session, terminal … nice.
	_, rest, _ := strings.Cut(got["stat"], ") ")
	fields := strings.Fields(rest)
	if len(fields) < 17 || fields[2] != got["self"] || fields[3] != got["self"] || fields[4] != "0" || fields[16] != "0" {
		t.Errorf("group, session, terminal and niceness: %q of process %s", rest, got["self"])
	}
	// Descriptors, as a program that is not a shell sees them: it needs one to
	// look.
	look := c.bob.submit(t, spec{"command": []string{"/bin/ls", "-l", "/proc/self/fd"}, "gpus": "0.004"})[0]
	c.bob.ended(t, look)
	var fds []string
	for line := range strings.Lines(c.bob.log(t, look).body) {
		if name, to, found := strings.Cut(line, " -> "); found && !strings.HasPrefix(to, "/proc/") {
			fds = append(fds, name[strings.LastIndex(name, " ")+1:]+"="+strings.TrimSpace(to))
		}
	}
	own := filepath.Join(c.stateDir, "jobs", look, "1.log")
	if want := []string{"0=/dev/null", "1=" + own, "2=" + own}; !slices.Equal(fds, want) {
		t.Errorf("its descriptors are %q", fds)
	}
	info, err := os.Stat(log)
	testkit.Must(t, err)
	if stat := info.Sys().(*syscall.Stat_t); int(stat.Uid) != c.bob.uid || info.Mode().Perm()&0o007 != 0 {
		t.Errorf("its log is %s of user %d, in spite of the umask", info.Mode(), stat.Uid)
	}
	dir, err := os.Stat(filepath.Dir(log))
	testkit.Must(t, err)
	if stat := dir.Sys().(*syscall.Stat_t); stat.Uid != 0 || dir.Mode().Perm() != 0o711 {
		t.Errorf("its directory is %s of user %d", dir.Mode(), stat.Uid)
	}
}

// marked lists living processes with a word in their command line.
func marked(word string) (pids []int) {
	for _, pid := range processes() {
		if pid != os.Getpid() && strings.Contains(procFile(pid, "cmdline"), word) && alive(pid) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// owned counts the living processes of a user.
func owned(uid int) (n int) {
	for _, pid := range processes() {
		if owner(pid) == uid && alive(pid) {
			n++
		}
	}
	return n
}

// drain reads what a terminal shows until its end.
func drain(conn *attached) string {
	var said strings.Builder
	for {
		frame, err := keep.ReadFrame(conn.reader)
		if err != nil || frame.Kind == keep.FrameEnded {
			return said.String()
		}
		said.WriteString(frame.Get("data"))
	}
}

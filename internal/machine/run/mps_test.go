package run

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"berth/internal/job"
	"berth/internal/machine/keep"
	"berth/internal/tests/testkit"
)

// fakeControl behaves as nvidia-cuda-mps-control was seen to, with files in the
// place of sockets, and fails in the ways that its mode file names.
const fakeControl = `#!/bin/sh
pipe=$CUDA_MPS_PIPE_DIRECTORY log=$CUDA_MPS_LOG_DIRECTORY mode=$(cat "$0.mode" 2>/dev/null)
if [ "$1" = -f ]; then
	echo $$ > "$0.control"
	env > "$0.env"
	case $mode in
	dies) echo "An instance of this daemon is already running" >&2; echo "no luck today" > "$log/control.log"; exit 1 ;;
	silent) exit 3 ;;
	stubborn) trap '' TERM ;;
	slow) sleep 0.5 ;;
	esac
	sleep 1000 & server=$!
	echo $server > "$0.server"
	[ "$mode" = never ] || echo 100.0 > "$pipe/threads"
	while [ ! -e "$pipe/quit" ] || [ "$mode" = stubborn ]; do sleep 0.05; [ -e "$0.crash" ] && exit 9; done
	kill $server
	exit 0
fi
read -r verb first second
[ "$mode" = hangs ] && exec sleep 1000
[ "$mode" = lingering ] && sleep 0.2 & # holds the answer's pipe open for a moment
[ -e "$pipe/threads" ] || { echo "Cannot find MPS control daemon process"; exit 1; }
case $verb in
get_default_active_thread_percentage) cat "$pipe/threads" ;;
set_default_active_thread_percentage) echo "$first.0" | tee "$pipe/threads" ;;
set_default_device_pinned_mem_limit) [ "$mode" = deaf ] && second=8G; echo "$second" > "$pipe/limit$first" ;;
get_default_device_pinned_mem_limit) if [ "$(cat "$pipe/limit$first")" = 4096M ]; then echo 4G; else cat "$pipe/limit$first"; fi ;;
quit) : > "$pipe/quit" ;;
esac
`

// mps is a control program and a place for what it makes.
type mps struct {
	t            *testing.T
	control, dir string
}

func newMPS(t *testing.T, mode string) mps {
	t.Helper()
	// Short, because a socket's path has to be.
	dir, err := os.MkdirTemp("/tmp", "m")
	if err != nil {
		t.Fatal(err)
	}
	os.Chmod(dir, 0o711)
	t.Cleanup(func() { os.RemoveAll(dir) })
	m := mps{t, filepath.Join(dir, "control"), filepath.Join(dir, "mps")}
	os.WriteFile(m.control, []byte(fakeControl), 0o755)
	os.WriteFile(m.control+".mode", []byte(mode), 0o644)
	return m
}

// on gives the order a server with two cards.
func (m mps) on(o keep.Order) keep.Order {
	o.MPS = &keep.MPS{Control: m.control, Dir: filepath.Join(m.dir, "t.1"), Cards: []string{"GPU-a", "GPU-b"}, LimitMiB: 4096, Threads: 50}
	return o
}

// process is one that the fake wrote the number of.
func (m mps) process(name string) keep.Process {
	m.t.Helper()
	var p keep.Process
	testkit.Eventually(m.t, "there is a "+name, func() bool {
		text, _ := os.ReadFile(m.control + "." + name)
		pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
		if err != nil {
			return false
		}
		p, err = keep.ReadProcess(pid)
		return err == nil
	})
	return p
}

// leftNothing fails the test if anything of a server is still there.
func (m mps) leftNothing() {
	m.t.Helper()
	if entries, _ := filepath.Glob(filepath.Join(m.dir, "*.*")); len(entries) > 0 {
		m.t.Errorf("left behind: %v", entries)
	}
	for _, name := range []string{"control", "server"} {
		text, _ := os.ReadFile(m.control + "." + name)
		pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
		if err != nil {
			continue
		}
		if p, err := keep.ReadProcess(pid); err == nil && !p.Dead() {
			environ, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/environ")
			if strings.Contains(string(environ), m.dir) {
				p.Signal(9)
				m.t.Errorf("the %s still lives", name)
			}
		}
	}
}

const showMPS = `cat $CUDA_MPS_PIPE_DIRECTORY/limit0 $CUDA_MPS_PIPE_DIRECTORY/limit1 $CUDA_MPS_PIPE_DIRECTORY/threads; echo $CUDA_MPS_LOG_DIRECTORY; tr '\0' '\n' < /proc/$$/environ | grep -c ^CUDA_MPS_PIPE`

func TestAnMPSServerIsReadyBeforeTheJobAndEndsAfterIt(t *testing.T) {
	for _, mode := range []string{"", "slow", "stubborn", "lingering"} {
		t.Run("a control daemon that is "+mode, func(t *testing.T) {
			t.Parallel()
			b, m := newBench(t), newMPS(t, mode)
			o := m.on(b.order("1", showMPS))
			o.Env = append(o.Env, "CUDA_MPS_PIPE_DIRECTORY=/tmp/mine", "CUDA_MPS_LOG_DIRECTORY=/tmp/mine")
			r := b.finish(o)
			want := "4096M\n4096M\n50.0\n" + o.MPS.Dir + "/log\n1\n"
			if r.ExitCode != 0 || r.Stragglers != 0 || r.Note != "" || b.logText("1") != want {
				t.Errorf("%+v, log %q", r, b.logText("1"))
			}
			m.leftNothing()
			environ, _ := os.ReadFile(m.control + ".env")
			for _, entry := range []string{"CUDA_VISIBLE_DEVICES=GPU-a,GPU-b", keep.TokenVariable + "=" + keep.TokenValue(r.Token, "1", 1)} {
				if !strings.Contains(string(environ), entry+"\n") {
					t.Errorf("the control daemon's environment has no %s:\n%s", entry, environ)
				}
			}
		})
	}
}

func TestAnMPSServerThatCannotBeHadIsALaunchFailure(t *testing.T) {
	rows := []struct {
		name, mode, why, note string
		change                func(o *keep.Order)
	}{
		{"one that says why it ends", "dies", "An instance of this daemon is already running", "no luck today", nil},
		{"one that ends without a word", "silent", "the MPS control daemon ended: exit status 3", "", nil},
		{"one that does not obey", "deaf", `expected a memory limit of 4096 MiB, found "8G"`, "", nil},
		{"no such program", "", "no such file or directory", "", func(o *keep.Order) { o.MPS.Control += ".missing" }},
		{"a directory too deep for a socket", "", "bytes too long for a socket path", "", func(o *keep.Order) {
			o.MPS.Dir = filepath.Join(filepath.Dir(o.MPS.Dir), strings.Repeat("x", 100)+".1")
		}},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			b, m := newBench(t), newMPS(t, row.mode)
			o := m.on(b.order("1", "echo it ran"))
			if row.change != nil {
				row.change(&o)
			}
			token := b.start(o)
			r := b.next(Ended).Record
			if !strings.HasPrefix(r.Launch, "CUDA MPS could not be started: ") || !strings.Contains(r.Launch, row.why) || !strings.Contains(r.Note, row.note) || r.PID != 0 {
				t.Errorf("launch %q, note %q, pid %d", r.Launch, r.Note, r.PID)
			}
			if _, err := os.Stat(o.Log); err == nil {
				t.Error("the job ran")
			}
			m.leftNothing()
			// The supervisor is as good as new.
			b.Ack(token)
			if r := b.finish(b.order("2", "exit 5")); r.ExitCode != 5 {
				t.Errorf("the next job: %+v", r)
			}
		})
	}
}

func TestACommandThatIsMissingEndsItsMPSServer(t *testing.T) {
	t.Parallel()
	b, m := newBench(t), newMPS(t, "")
	o := m.on(b.order("1", ""))
	o.Argv = []string{"no-such-command"}
	b.start(o)
	if r := b.next(Ended).Record; !strings.Contains(r.Launch, "no-such-command") || strings.Contains(r.Launch, "MPS") {
		t.Errorf("launch %q", r.Launch)
	}
	m.leftNothing()
}

func TestAJobIsCancelledWhileItsMPSServerStarts(t *testing.T) {
	b, m := newBench(t), newMPS(t, "hangs")
	token := b.start(m.on(b.order("1", "echo it ran")))
	server := m.process("server")
	begun := time.Now()
	if err := b.Stop(token, job.StopCancel, time.Minute); err != nil {
		t.Fatal(err)
	}
	r := b.next(Ended).Record
	if r.Stop != string(job.StopCancel) || r.Launch == "" {
		t.Errorf("%+v", r)
	}
	// The start would have been given up by itself only after ten seconds.
	if took := time.Since(begun); took > 9*time.Second {
		t.Errorf("it took %v", took)
	}
	b.gone(server)
	m.leftNothing()
}

func TestAnMPSServerThatIsNeverReady(t *testing.T) {
	t.Parallel()
	b, m := newBench(t), newMPS(t, "never")
	b.start(m.on(b.order("1", "echo it ran")))
	if r := b.next(Ended).Record; !strings.Contains(r.Launch, "not ready after 10s: Cannot find MPS control daemon process") {
		t.Errorf("launch %q", r.Launch)
	}
	m.leftNothing()
}

// The server is not one of the job's processes: it lives as long as the last of
// them, is neither warned nor counted, and what it used is its own.
func TestAnMPSServerLivesAsLongAsTheLastProcessOfItsJob(t *testing.T) {
	t.Parallel()
	b, m := newBench(t), newMPS(t, "")
	o := m.on(b.order("1", `(trap 'exit 0' TERM; echo up; while [ ! -e go ]; do sleep 0.05; done; echo late >> late) & exit 0`))
	b.start(o)
	b.next(Started)
	server := m.process("server")
	testkit.Eventually(t, "the child is up", func() bool { text, _ := os.ReadFile(o.Log); return strings.Contains(string(text), "up") })
	for range 20 { // several looks of the supervisor's
		if !lives(server) {
			t.Fatal("it ended before the job did")
		}
		<-time.After(20 * time.Millisecond)
	}
	os.WriteFile(filepath.Join(b.work, "go"), nil, 0o644)
	r := b.next(Ended).Record
	if text, _ := os.ReadFile(filepath.Join(b.work, "late")); string(text) != "late\n" || r.Stragglers != 0 || r.ExitCode != 0 {
		t.Errorf("%+v", r)
	}
	b.gone(server)
	m.leftNothing()
}

func TestAStoppedJobLeavesNoMPSServer(t *testing.T) {
	t.Parallel()
	b, m := newBench(t), newMPS(t, "")
	token := b.start(m.on(b.order("1", "trap '' TERM; echo $$ > main; sleep 1000 & wait; sleep 1000")))
	b.next(Started)
	b.pidFrom("main") // it is deaf from here on
	if err := b.Stop(token, job.StopCancel, 100*time.Millisecond); err != nil {
		t.Fatal(err)
	}
	if r := b.next(Ended).Record; r.Stop != string(job.StopCancel) || r.Signal != 9 {
		t.Errorf("%+v", r)
	}
	m.leftNothing()
}

const endedEarly = "its MPS server ended while it ran"

// noted waits for a remark in the record of a supervisor.
func (b *bench) noted(token, what string) {
	b.t.Helper()
	testkit.Eventually(b.t, "the record to have: "+what, func() bool {
		text, err := os.ReadFile(filepath.Join(b.dir, token, recordName))
		return err == nil && strings.Contains(string(text), what)
	})
}

func TestAnMPSServerThatEndsEarlyIsNoted(t *testing.T) {
	t.Parallel()
	b, m := newBench(t), newMPS(t, "")
	token := b.start(m.on(b.order("1", "while [ ! -e go ]; do sleep 0.05; done")))
	b.next(Started)
	control := m.process("control")
	os.WriteFile(m.control+".crash", nil, 0o644)
	testkit.Eventually(t, "its directory is gone", func() bool { _, err := os.Stat(filepath.Join(m.dir, "t.1")); return err != nil })
	b.gone(control)
	b.noted(token, endedEarly)
	os.WriteFile(filepath.Join(b.work, "go"), nil, 0o644)
	if r := b.next(Ended).Record; r.ExitCode != 0 || r.Note != endedEarly {
		t.Errorf("%+v", r)
	}
	m.leftNothing()
}

func TestAnMPSServerDoesNotOutliveItsSupervisor(t *testing.T) {
	t.Parallel()
	b, m := newBench(t), newMPS(t, "stubborn")
	b.start(m.on(b.order("1", "sleep 1000")))
	keeper, err := keep.ReadProcess(b.next(Started).Record.KeepPID)
	if err != nil {
		t.Fatal(err)
	}
	control, server := m.process("control"), m.process("server")
	keeper.Signal(9)
	b.next(Lost)
	b.gone(control, server)
	// What its host had no time to remove, the next one does.
	o := m.on(b.order("2", "true"))
	o.MPS.Dir = filepath.Join(m.dir, "u.1")
	os.WriteFile(m.control+".mode", nil, 0o644)
	if r := b.finish(o); r.ExitCode != 0 {
		t.Errorf("%+v", r)
	}
	m.leftNothing()
}

func TestAnMPSServerOfRootsServesItsUserAndNobodyElse(t *testing.T) {
	t.Parallel()
	b, m := newLab(t), newMPS(t, "")
	token := b.start(m.on(b.ordered("1", showMPS+`; while [ ! -e go ]; do sleep 0.05; done`)))
	started := b.next(Started).Record
	if uid := lines(proc(t, m.process("control").PID, "status"))["Uid"]; uid != "0 0 0 0" {
		t.Errorf("the control daemon is user %s", uid)
	}
	testkit.Eventually(t, "the job has spoken", func() bool { text, _ := os.ReadFile(b.log("1")); return strings.Count(string(text), "\n") == 5 })
	if text := b.logText("1"); !strings.HasPrefix(text, "4096M\n4096M\n50.0\n") {
		t.Errorf("its own user: %q", text)
	}
	other := b.ordered("2", "cat "+filepath.Join(m.dir, "t.1", "pipe", "threads"))
	other.Log = filepath.Join(b.work, "other", "2.log")
	other.Credential = &keep.Credential{UID: neighbour, GID: otherUser, Groups: []int{otherUser}, Umask: -1}
	second := b.start(other)
	b.next(Started)
	if r := b.next(Ended).Record; r.ExitCode == 0 {
		t.Errorf("another user reached it: %s", other.Log)
	}
	b.Ack(second)
	os.WriteFile(filepath.Join(b.work, "go"), nil, 0o644)
	if r := b.next(Ended).Record; r.ExitCode != 0 || r.PID != started.PID {
		t.Errorf("%+v", r)
	}
	b.Ack(token)
	m.leftNothing()
}

func TestAJobIsPinnedToTheCPUsOfItsOrder(t *testing.T) {
	allowed := lines(proc(t, os.Getpid(), "status"))["Cpus_allowed_list"]
	first, _, _ := strings.Cut(strings.FieldsFunc(allowed, func(r rune) bool { return r == ',' })[0], "-")
	show := "grep Cpus_allowed_list /proc/self/status | cut -f2"
	rows := []struct{ name, affinity, want, note string }{
		{"one CPU", first, first, ""},
		{"one that is there and one that is not", first + ",60000", first, "pinned to only 1 of the CPUs " + first + ",60000"},
		{"none that is there", "60000-60001", allowed, "not pinned to CPUs 60000-60001"},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			b := newBench(t)
			o := b.order("1", show)
			o.Affinity = row.affinity
			r := b.finish(o)
			if got := strings.TrimSpace(b.logText("1")); r.ExitCode != 0 || got != row.want || !strings.HasPrefix(r.Note, row.note) || row.note == "" && r.Note != "" {
				t.Errorf("runs on %s, want %s; note %q", got, row.want, r.Note)
			}
		})
	}
}

package run

import (
	"bytes"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"berth/internal/job"
	"berth/internal/machine/keep"
	"berth/internal/tests/testkit"
)

// viewer is someone attached to a terminal.
type viewer struct {
	t    *testing.T
	conn *net.UnixConn

	mu    sync.Mutex
	seen  bytes.Buffer
	ended bool
	gone  bool
}

func (b *bench) attach(token string) *viewer {
	b.t.Helper()
	conn, err := b.Attach(token, b.set.all[token].job)
	if err != nil {
		b.t.Fatal(err)
	}
	v := &viewer{t: b.t, conn: conn}
	done := make(chan struct{})
	go func() { defer close(done); v.watch() }()
	b.t.Cleanup(func() { conn.Close(); <-done })
	return v
}

func (v *viewer) watch() {
	for {
		frame, err := keep.ReadFrame(v.conn)
		v.mu.Lock()
		v.gone = err != nil
		v.ended = v.ended || frame.Kind == keep.FrameEnded
		v.seen.WriteString(frame.Get("data"))
		v.mu.Unlock()
		if err != nil {
			return
		}
	}
}

func (v *viewer) say(f keep.Frame) {
	v.t.Helper()
	if _, err := v.conn.Write(encode(f)); err != nil {
		v.t.Fatal(err)
	}
}

func (v *viewer) typed(text string) { v.t.Helper(); v.say(keep.InputFrame([]byte(text))) }

func (v *viewer) text() string {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.seen.String()
}

func (v *viewer) sees(text string) {
	v.t.Helper()
	testkit.Eventually(v.t, "a viewer sees "+text, func() bool { return strings.Contains(v.text(), text) })
}

func (v *viewer) hearsTheEnd() {
	v.t.Helper()
	testkit.Eventually(v.t, "a viewer hears of the end", func() bool {
		v.mu.Lock()
		defer v.mu.Unlock()
		return v.ended && v.gone
	})
}

// onTerminal is an order with a terminal.
func (b *bench) onTerminal(id, line string) keep.Order {
	o := b.order(id, line)
	o.Pty = true
	o.Env = append(o.Env, "TERM=xterm-256color")
	return o
}

func TestAJobOnATerminal(t *testing.T) {
	line := `tty; stat -c '%u %a' "$(tty)"; test -t 0 && test -t 1 && test -t 2 && echo all three; echo $TERM; stty size; ` +
		`sh -c 'echo controlling > /dev/tty'; ls /proc/self/fd | tr '\n' ' '; ps -o tty= -p $$ > /dev/null; echo end`
	for _, row := range []struct {
		name string
		lab  bool
	}{{"of berth's own user", false}, {"of another user", true}} {
		t.Run(row.name, func(t *testing.T) {
			b, owner := newBench(t), os.Geteuid()
			o := b.onTerminal("1", line)
			if row.lab {
				b, owner = newLab(t), otherUser
				o = b.onTerminal("1", line)
				o.Credential = b.ordered("1", "").Credential
			}
			r := b.finish(o)
			text := strings.ReplaceAll(b.logText("1"), "\r\n", "\n")
			got := strings.Split(text, "\n")
			if r.ExitCode != 0 || !r.Pty || len(got) < 8 || !strings.HasPrefix(got[0], "/dev/pts/") {
				t.Fatalf("got %+v, %q", r, text)
			}
			mode := map[bool]string{true: "12345 600"}[row.lab]
			if row.lab && got[1] != mode {
				t.Errorf("the terminal is %q, not user %d's alone", got[1], owner)
			}
			if rest := strings.Join(got[2:], "|"); rest != "all three|xterm-256color|24 80|controlling|0 1 2 3 end|" {
				t.Errorf("got %q", rest)
			}
		})
	}
}

// A terminal's buffer is small. What a job writes just before its end is in the
// log all the same, also what a child of it writes after.
func TestATerminalsOutputIsComplete(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for round := range 5 {
		o := b.onTerminal("1", "trap '' HUP; stty -opost; head -c 1000000 /dev/zero | tr '\\0' x; (sleep 0.1; printf late) & printf end")
		o.Log = b.log("round" + string(rune('0'+round)))
		r := b.finish(o)
		text, err := os.ReadFile(o.Log)
		if err != nil || len(text) != 1000007 || !bytes.HasSuffix(text, []byte("xendlate")) {
			t.Fatalf("round %d: %d bytes, %v, %+v", round, len(text), err, r)
		}
	}
}

// The supervisor learns of the end and of the last words at the same time.
func TestATerminalsLastWordsAreReadBeforeTheEndIsTold(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	token := b.start(b.onTerminal("1", "echo $$ > main; while [ ! -e enough ]; do sleep 0.01; done; echo CUDA out of memory; exit 1"))
	b.next(Started)
	main, supervisor := b.pidFrom("main"), b.keepOf(token)
	halt(t, supervisor)
	os.WriteFile(filepath.Join(b.work, "enough"), nil, 0o600)
	testkit.Eventually(t, "the job is dead", func() bool { now, err := keep.ReadProcess(main.PID); return err != nil || now.Dead() })
	supervisor.Signal(int(unix.SIGCONT))
	if e := b.next(Ended); !e.OOM || !strings.HasSuffix(b.logText("1"), "memory\r\n") {
		t.Errorf("got %+v, %q", e, b.logText("1"))
	}
}

// A job may close its terminal and open it again.
func TestATerminalThatIsClosedForAWhile(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	r := b.finish(b.onTerminal("1", "echo one; exec < /dev/null > /dev/null 2>&1; sleep 0.2; echo two > /dev/tty"))
	if got := b.logText("1"); r.ExitCode != 0 || got != "one\r\ntwo\r\n" {
		t.Errorf("got %+v, %q", r, got)
	}
}

const echoes = `stty -echo; trap 'stty size; echo resized' WINCH; echo ready; while :; do read -r line || continue; [ "$line" = quit ] && exit 5; echo "got $line"; done`

func TestAttaching(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	token := b.start(b.onTerminal("1", echoes))
	b.next(Started)
	first, second := b.attach(token), b.attach(token)
	first.sees("ready")
	second.sees("ready")
	first.typed("hello\n")
	first.sees("got hello")
	second.sees("got hello")
	second.say(keep.ResizeFrame(50, 132))
	second.typed("look\n")
	first.sees("50 132")
	first.sees("resized")
	// Leaving is nobody else's matter; coming back shows what was missed.
	first.conn.Close()
	second.typed("alone\n")
	second.sees("got alone")
	back := b.attach(token)
	back.sees("ready")
	back.sees("got alone")
	back.typed("quit\n")
	back.hearsTheEnd()
	second.hearsTheEnd()
	if e := b.next(Ended); e.Record.ExitCode != 5 {
		t.Errorf("got %+v", e.Record)
	}
	if _, err := b.Attach(token, "1"); !errors.Is(err, ErrNoTerminal) {
		t.Errorf("after its end: %v", err)
	}
	b.Ack(token)
	token = b.start(b.order("2", "sleep 1000"))
	b.next(Started)
	if _, err := b.Attach(token, "2"); !errors.Is(err, ErrNoTerminal) {
		t.Errorf("a job without a terminal: %v", err)
	}
	// Should a viewer knock all the same, it is not taken for a berth.
	conn, err := b.set.all[token].dir.knock(keep.AttachFrame(1, 1))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if frame, err := keep.ReadFrame(conn); err != nil || frame.Kind != keep.FrameEnded || frame.Get("why") == "" {
		t.Errorf("told %+v, %v", frame, err)
	}
	b.Stop(token, job.StopCancel, testkit.Patience)
	b.next(Ended)
}

func TestATerminalIsOneJobs(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	token := b.start(b.onTerminal("1", echoes))
	b.next(Started)
	if _, err := b.Attach(token, "2"); !errors.Is(err, ErrNoTerminal) {
		t.Errorf("another job's: %v", err)
	}
	// What the supervisor is asked for is what it compares: between a look at
	// the job and this there may have been another one.
	for _, late := range []keep.Frame{keep.AttachTo("2", 1), keep.AttachTo("1", 2)} {
		conn, err := b.set.all[token].dir.knock(late)
		if err != nil {
			t.Fatal(err)
		}
		if frame, err := keep.ReadFrame(conn); err != nil || frame.Kind != keep.FrameEnded || frame.Get("why") == "" {
			t.Errorf("told %+v, %v", frame, err)
		}
		conn.Close()
	}
	v := b.attach(token)
	v.sees("ready")
	v.typed("quit\n")
	b.next(Ended)
}

func TestSomebodyWhoDoesNotReadIsLetGo(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	token := b.start(b.onTerminal("1", "stty -opost; read -r go; head -c 20000000 /dev/zero; echo done"))
	b.next(Started)
	stuck, err := b.Attach(token, "1") // and never reads
	if err != nil {
		t.Fatal(err)
	}
	defer stuck.Close()
	other := b.attach(token)
	other.typed("go\n")
	if e := b.next(Ended); e.Record.ExitCode != 0 {
		t.Errorf("got %+v", e.Record)
	}
	if info, err := os.Stat(b.log("1")); err != nil || info.Size() < 20000000 {
		t.Errorf("log: %v, %v", info, err)
	}
}

func TestATerminalOutlivesABerth(t *testing.T) {
	b := newBench(t)
	token := b.start(b.onTerminal("1", echoes))
	b.next(Started)
	v := b.attach(token)
	v.sees("ready")
	b.Close()
	// While there is no berth, those who are attached stay so.
	v.typed("nobody there\n")
	v.sees("got nobody there")
	b.open()
	if found := b.scan(); len(found) != 1 || found[0].Kind != FoundRunning {
		t.Fatalf("found %+v", found)
	}
	again := b.attach(token)
	again.sees("got nobody there")
	again.typed("quit\n")
	again.hearsTheEnd()
	if e := b.next(Ended); e.Record.ExitCode != 5 {
		t.Errorf("got %+v", e.Record)
	}
}

func TestATerminalOfAKilledSupervisorIsLost(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	token := b.start(b.onTerminal("1", "trap '' HUP; echo $$ > main; sleep 1000; sleep 1000"))
	b.next(Started)
	main := b.pidFrom("main")
	b.keepOf(token).Signal(9)
	b.next(Lost)
	b.gone(main)
}

func TestATerminalsJobCanBeStopped(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	token := b.start(b.onTerminal("1", "trap 'echo saved; exit 0' TERM; echo $$ > main; while :; do sleep 0.1; done"))
	b.next(Started)
	b.pidFrom("main")
	b.Stop(token, job.StopCancel, testkit.Patience)
	if r := b.next(Ended).Record; r.Stop != "cancel" || r.ExitCode != 0 || !strings.HasSuffix(b.logText("1"), "saved\r\n") {
		t.Errorf("got %+v, %q", r, b.logText("1"))
	}
}

// A berth of the first protocol says nothing until it is greeted.
func TestASilentConnectionIsABerths(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	token := b.start(b.order("1", "sleep 1000"))
	b.next(Started)
	address, done, err := b.set.all[token].dir.address()
	if err != nil {
		t.Fatal(err)
	}
	defer done()
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Connect(fd, address); err != nil {
		t.Fatal(err)
	}
	conn, err := unixConn(fd)
	if err != nil {
		t.Fatal(err)
	}
	conn.SetReadDeadline(time.Now().Add(testkit.Patience))
	hello, err := keep.ReadFrame(conn)
	if err != nil || hello.Kind != keep.FrameHello || hello.Get("protocol") != strconv.Itoa(keep.Protocol) || hello.Get("job") != "1" {
		t.Errorf("greeted with %+v, %v", hello, err)
	}
	conn.Close()
	b.Stop(token, job.StopCancel, testkit.Patience)
	b.next(Ended)
}

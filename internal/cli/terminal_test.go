package cli_test

import (
	"bytes"
	"context"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"

	"berth/internal/api"
	"berth/internal/job"
	"berth/internal/machine/keep"
)

// seated is berth on a terminal of its own.
type seated struct {
	t       *testing.T
	cmd     *exec.Cmd
	master  *os.File
	before  unix.Termios
	mu      sync.Mutex
	text    bytes.Buffer
	changed chan struct{}
	over    chan struct{}
}

// sit runs the built berth on a terminal.
func sit(t *testing.T, socket string, args ...string) *seated {
	t.Helper()
	master, slave, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	if err := pty.Setsize(master, &pty.Winsize{Rows: 30, Cols: 100}); err != nil {
		t.Fatal(err)
	}
	s := &seated{t: t, master: master, changed: make(chan struct{}), over: make(chan struct{})}
	s.before = s.settings()
	s.cmd = exec.Command(filepath.Join(binaries, "berth"), args...)
	s.cmd.Env = append(os.Environ(), "TERM=xterm", "NO_COLOR=", "BERTH_SOCKET="+socket)
	s.cmd.Stdin, s.cmd.Stdout, s.cmd.Stderr = slave, slave, slave
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	// The other end stays open, so that what was written last can be read.
	go s.watch()
	go func() {
		_ = s.cmd.Wait()
		close(s.over)
	}()
	t.Cleanup(func() {
		_ = s.cmd.Process.Kill()
		<-s.over
		slave.Close()
		master.Close()
	})
	return s
}

func (s *seated) watch() {
	buffer := make([]byte, 4096)
	for {
		n, err := s.master.Read(buffer)
		s.mu.Lock()
		s.text.Write(buffer[:n])
		close(s.changed)
		s.changed = make(chan struct{})
		s.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// sees waits until the terminal has shown this, and returns all it showed.
func (s *seated) sees(want string) string {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), time.Minute)
	defer cancel()
	for {
		s.mu.Lock()
		text, changed := s.text.String(), s.changed
		s.mu.Unlock()
		if strings.Contains(text, want) {
			return text
		}
		select {
		case <-changed:
		case <-ctx.Done():
			s.t.Fatalf("the terminal never showed %q but %q", want, text)
		}
	}
}

func (s *seated) types(text string) {
	s.t.Helper()
	if _, err := io.WriteString(s.master, text); err != nil {
		s.t.Fatal(err)
	}
}

// leaves waits for its end and returns its status.
func (s *seated) leaves() int {
	s.t.Helper()
	select {
	case <-s.over:
	case <-time.After(time.Minute):
		s.t.Fatal("berth does not end")
	}
	return s.cmd.ProcessState.ExitCode()
}

func (s *seated) settings() unix.Termios {
	s.t.Helper()
	settings, err := unix.IoctlGetTermios(int(s.master.Fd()), unix.TCGETS)
	if err != nil {
		s.t.Fatal(err)
	}
	return *settings
}

// restored fails unless the terminal is as it was.
func (s *seated) restored() {
	s.t.Helper()
	if now := s.settings(); now != s.before {
		s.t.Errorf("the terminal was left as %+v, and was %+v", now, s.before)
	}
}

// attachedJob is the far end of an attachment: what the job's supervisor does.
type attachedJob struct {
	t    *testing.T
	conn net.Conn
}

func (f *fakeDaemon) awaitAttach(t *testing.T, times int) *attachedJob {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := f.until(ctx, func() bool { return f.attaches >= times }); err != nil {
		t.Fatal("nobody attached")
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return &attachedJob{t, f.terminals["1"]}
}

func (j *attachedJob) receives(kind keep.FrameKind) keep.Frame {
	j.t.Helper()
	_ = j.conn.SetReadDeadline(time.Now().Add(time.Minute))
	frame, err := keep.ReadFrame(j.conn)
	if err != nil || frame.Kind != kind {
		j.t.Fatalf("%c %v: %v, want %c", frame.Kind, frame.Fields, err, kind)
	}
	return frame
}

func (j *attachedJob) sends(kind keep.FrameKind, data string) {
	j.t.Helper()
	encoded, err := keep.Frame{Kind: kind, Fields: []keep.Field{{Key: "data", Value: data}}}.Encode()
	if err == nil {
		_, err = j.conn.Write(encoded)
	}
	if err != nil {
		j.t.Fatal(err)
	}
}

// terminalJob is a daemon with one job that runs on a terminal.
func terminalJob(t *testing.T) (f *fakeDaemon, socket string, stop func()) {
	t.Helper()
	f = newFakeDaemon()
	socket = filepath.Join(t.TempDir(), "s")
	stop = f.serve(t, socket)
	f.add(api.Detail{View: job.View{State: job.Running, Attempt: 1}, Settings: map[string]string{"pty": "yes"}})
	return f, socket, stop
}

func TestAttachIsTheJobsTerminal(t *testing.T) {
	f, socket, _ := terminalJob(t)
	s := sit(t, socket, "attach", "1")
	far := f.awaitAttach(t, 1)
	first := far.receives(keep.FrameAttach)
	if first.Get("rows") != "30" || first.Get("cols") != "100" {
		t.Errorf("the window is %v", first.Fields)
	}
	far.sends(keep.FrameOutput, "\x1b[32m>>> \x1b[?25l")
	s.sees("\x1b[32m>>> \x1b[?25l")
	s.types("a\x03\x04") // a key, ctrl-C and ctrl-D are the job's
	if got := far.receives(keep.FrameInput).Get("data"); got != "a\x03\x04" {
		t.Errorf("it was sent %q", got)
	}
	if err := pty.Setsize(s.master, &pty.Winsize{Rows: 40, Cols: 120}); err != nil {
		t.Fatal(err)
	}
	if size := far.receives(keep.FrameResize); size.Get("rows") != "40" || size.Get("cols") != "120" {
		t.Errorf("it was resized to %v", size.Fields)
	}
	s.types("\x1c")
	if code := s.leaves(); code != 0 {
		t.Errorf("exit status %d", code)
	}
	s.sees("berth: detached; job 1 keeps running\r\nhint: come back with berth attach 1, or end it with berth cancel 1\r\n")
	s.sees("\x1b[?25h")
	s.restored()
}

func TestAttachEndsWithTheJob(t *testing.T) {
	f, socket, _ := terminalJob(t)
	s := sit(t, socket, "attach", "@")
	far := f.awaitAttach(t, 1)
	far.receives(keep.FrameAttach)
	far.sends(keep.FrameOutput, "goodbye")
	far.sends(keep.FrameEnded, "")
	time.AfterFunc(time.Second, func() { f.end("1", job.Exited(2)) }) // the supervisor is heard before the daemon knows
	if code := s.leaves(); code != 0 {
		t.Errorf("exit status %d", code)
	}
	s.sees("goodbye")
	s.sees("berth: job 1 failed: exit:2\r\n")
	s.restored()
}

func TestAttachOutlivesTheDaemon(t *testing.T) {
	f, socket, stop := terminalJob(t)
	s := sit(t, socket, "attach", "1")
	far := f.awaitAttach(t, 1)
	far.receives(keep.FrameAttach)
	far.sends(keep.FrameOutput, "painted once")
	if text := s.sees("painted once"); strings.Contains(text, "\x1b[2J") {
		t.Errorf("the screen was wiped at first: %q", text)
	}
	stop()
	stop = f.serve(t, socket)
	far = f.awaitAttach(t, 2)
	far.receives(keep.FrameAttach)
	far.sends(keep.FrameOutput, "painted again")
	s.sees("\x1b[2Jpainted again")
	stop()
	s.sees("berth: the daemon does not answer; waiting for it\r\n")
	f.serve(t, socket)
	far = f.awaitAttach(t, 3)
	far.receives(keep.FrameAttach)
	s.sees("berth: the daemon is back\r\n")
	s.types("\x1c")
	if code := s.leaves(); code != 0 {
		t.Errorf("exit status %d", code)
	}
	s.restored()
}

func TestAttachGivesTheTerminalBackWhenItIsEnded(t *testing.T) {
	for _, signal := range []syscall.Signal{syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGINT} {
		f, socket, _ := terminalJob(t)
		s := sit(t, socket, "attach", "1")
		f.awaitAttach(t, 1).receives(keep.FrameAttach)
		if err := s.cmd.Process.Signal(signal); err != nil {
			t.Fatal(err)
		}
		s.leaves()
		s.restored()
	}
}

func TestAttachSaysWhyItCannot(t *testing.T) {
	f, socket, _ := terminalJob(t)
	f.add(api.Detail{View: job.View{State: job.Running}, Settings: map[string]string{"grace": "10s"}})
	s := sit(t, socket, "attach", "2")
	if code := s.leaves(); code != 1 {
		t.Errorf("exit status %d", code)
	}
	s.sees("berth: job 2 has no terminal\r\nhint: berth logs -f 2 follows its output; berth submit --pty gives a job a terminal\r\n")
	s.restored()
	f.end("1", job.OK)
	s = sit(t, socket, "attach", "1")
	if code := s.leaves(); code != 1 {
		t.Errorf("exit status %d", code)
	}
	s.sees("berth: job 1 does not run\r\nhint: berth logs -f 1 follows its output\r\n")
	s.restored()
	t.Setenv("BERTH_SOCKET", socket)
	berth("attach", "1").wants(t, 2, "", "attach needs a terminal\nhint: berth logs -f 1")
}

func TestSubmitInteractiveOnATerminal(t *testing.T) {
	f, socket, _ := terminalJob(t)
	s := sit(t, socket, "submit", "-i", "--", "true")
	s.sees("submitted job 2\r\n")
	f.write("2", "one\x1b[2J\n", false)
	s.sees("one␛[2J\r\n")
	s.types("\x03")
	if code := s.leaves(); code != 130 {
		t.Errorf("exit status %d", code)
	}
	s.sees("berth: detached; job 2 keeps running\r\nhint: come back with berth logs -f 2, or end it with berth cancel 2\r\n")

	// With a terminal of its own, once it runs.
	f.mu.Lock()
	f.jobs = nil
	f.mu.Unlock()
	s = sit(t, socket, "submit", "-i", "--pty", "--", "true")
	s.sees("berth: job 1 has not started; waiting\r\n")
	f.change("1", func(d *api.Detail) { d.View.State = job.Running })
	far := f.awaitAttach(t, 1)
	far.receives(keep.FrameAttach)
	far.sends(keep.FrameOutput, "hello")
	s.sees("hello")
	f.end("1", job.Exited(9))
	far.sends(keep.FrameEnded, "")
	if code := s.leaves(); code != 9 {
		t.Errorf("exit status %d", code)
	}
	s.restored()
}

func TestAListOnATerminalFitsIt(t *testing.T) {
	f, socket, _ := terminalJob(t)
	for range 80 {
		f.add(api.Detail{View: job.View{Name: strings.Repeat("long", 20), GPUs: 1}})
	}
	s := sit(t, socket, "list")
	if code := s.leaves(); code != 0 {
		t.Errorf("exit status %d", code)
	}
	text := s.sees("1 running, 80 queued\r\n")
	if !strings.Contains(text, "… and 55 more queued (berth list --limit 0 shows all)") || !strings.Contains(text, "\x1b[32mrunning\x1b[0m") {
		t.Errorf("it shows %q", text)
	}
	s = sit(t, socket, "list", "--no-color")
	s.leaves()
	if text := s.sees("80 queued\r\n"); strings.Contains(text, "\x1b") {
		t.Errorf("it is coloured: %q", text)
	}
	s = sit(t, socket, "list", "--watch")
	s.sees("\x1b[J")
	f.add(api.Detail{View: job.View{Name: "newcomer", State: job.Running}})
	s.sees("2 running")
	s.types("\x03")
	if code := s.leaves(); code != 130 {
		t.Errorf("exit status %d", code)
	}
}

func TestFollowingALogEndsWithCtrlC(t *testing.T) {
	f, socket, _ := terminalJob(t)
	f.write("1", "\x1b[31mred\x1b]0;title\x07\n", false)
	s := sit(t, socket, "logs", "-f", "1")
	s.sees("\x1b[31mred␛]0;title␇\r\n")
	s.types("\x03")
	if code := s.leaves(); code != 130 {
		t.Errorf("exit status %d", code)
	}
	s.sees("\x1b[0m")
}

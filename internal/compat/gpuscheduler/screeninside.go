package gpuscheduler

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"

	"berth/internal/compat/frontend"
)

const windowFD = 0 // standard input is screen's window

const (
	exitCannotRun = 126
	exitNotFound  = 127

	// hangUpSettle is how long to wait after a hang-up for a SIGTERM, which means
	// that the job is being cancelled.
	hangUpSettle = 200 * time.Millisecond
	// drainTime is how long to wait for output after the command has ended.
	drainTime = 500 * time.Millisecond
	// maxDrain bounds that if other processes keep writing.
	maxDrain = 5 * time.Second
)

// sitInside is the process in a session's window. It gives the command its own
// terminal, which outlives screen, and copies the output to the window and to the
// job's log. So the log is complete, and a blocked window does not block the
// command.
func sitInside(dir string) int {
	code, err := insideJob(dir)
	if err != nil {
		fmt.Fprintf(os.Stderr, "gpu-scheduler: %v\n", err)
	}
	return code
}

func insideJob(dir string) (int, error) {
	command, err := readInside(filepath.Join(dir, commandFile))
	if err != nil {
		return frontend.Failed, err
	}
	log, err := os.OpenFile(filepath.Join(dir, outputFile), os.O_WRONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return frontend.Failed, fmt.Errorf("open the job's log: %w", err)
	}
	defer log.Close()
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, syscall.SIGHUP, syscall.SIGTERM, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGWINCH)
	code := runInside(command, log, signals)
	return code, writeStatus(dir, code)
}

// readInside reads the command and deletes its file, which contains an
// environment.
func readInside(path string) (c insideCommand, err error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return c, err
	}
	defer os.Remove(path)
	if c, err = parseInside(text); err != nil {
		err = fmt.Errorf("read %s: %w", path, err)
	}
	return c, err
}

// writeStatus writes the status atomically.
func writeStatus(dir string, code int) error {
	next := filepath.Join(dir, statusFile+".next")
	if err := os.WriteFile(next, []byte(strconv.Itoa(code)), 0o600); err != nil {
		return err
	}
	return os.Rename(next, filepath.Join(dir, statusFile))
}

// windowEnv is the job's environment with screen's variables.
func windowEnv(env []string) []string {
	env = slices.DeleteFunc(slices.Clone(env), func(entry string) bool { return strings.HasPrefix(entry, "STY=") })
	for _, name := range []string{"TERM", "TERMCAP", "STY", "WINDOW", "SCREENDIR"} {
		if value, found := os.LookupEnv(name); found {
			env = append(env, name+"="+value)
		}
	}
	return env
}

func runInside(c insideCommand, log io.Writer, signals <-chan os.Signal) int {
	command := exec.Command(c.Words[0], c.Words[1:]...)
	command.Env = windowEnv(c.Env)
	makeRaw(windowFD)
	terminal, err := startAtTerminal(command)
	if err != nil {
		fmt.Fprintf(log, "gpu-scheduler: start %s: %v\r\n", c.Words[0], err)
		if errors.Is(err, exec.ErrNotFound) || errors.Is(err, os.ErrNotExist) {
			return exitNotFound
		}
		return exitCannotRun
	}
	defer terminal.Close()
	resize(terminal)
	window := newWindow(os.Stdout)
	go func() { _, _ = io.Copy(terminal, os.Stdin) }()
	copied := make(chan struct{})
	done := make(chan struct{})
	go func() { copyOut(terminal, log, window, done); close(copied) }()
	go func() { _ = command.Wait(); close(done) }() // the state has it

	hungUp := heed(command, terminal, signals, done)
	drain(terminal, copied)
	window.close()
	code := statusCode(command.ProcessState)
	if hungUp {
		fmt.Fprintf(log, "gpu-scheduler: the screen session was ended from outside, and its command with it\r\n")
		code = max(code, frontend.Failed)
	}
	return code
}

// startAtTerminal starts the command as a session leader on a new terminal. The
// returned file supports read deadlines.
func startAtTerminal(command *exec.Cmd) (*os.File, error) {
	terminal, err := pty.StartWithSize(command, &pty.Winsize{Rows: 24, Cols: 80})
	if err != nil {
		return nil, err
	}
	defer terminal.Close()
	fd, err := unix.FcntlInt(terminal.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	if err := unix.SetNonblock(fd, true); err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), "terminal"), nil
}

// resize gives the command's terminal the size of the window.
func resize(terminal *os.File) {
	size, err := unix.IoctlGetWinsize(windowFD, unix.TIOCGWINSZ)
	if err != nil || size.Row == 0 || size.Col == 0 {
		return
	}
	if raw, err := terminal.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) { _ = unix.IoctlSetWinsize(int(fd), unix.TIOCSWINSZ, size) })
	}
}

// heed handles signals until the command ends, and reports whether the window
// closed first. SIGINT and SIGQUIT come through the command's own terminal, and
// SIGTERM was sent to all processes, so none of them is passed on.
func heed(command *exec.Cmd, terminal *os.File, signals <-chan os.Signal, done <-chan struct{}) (hungUp bool) {
	terminated := false
	var settled <-chan time.Time
	for {
		select {
		case <-done:
			return hungUp
		case got := <-signals:
			switch got {
			case syscall.SIGWINCH:
				resize(terminal)
			case syscall.SIGTERM:
				terminated = true
			case syscall.SIGHUP:
				settled = time.After(hangUpSettle)
			}
		case <-settled:
			if settled = nil; !terminated {
				hungUp = true
				_ = syscall.Kill(-command.Process.Pid, syscall.SIGHUP)
				_ = syscall.Kill(-command.Process.Pid, syscall.SIGCONT)
			}
		}
	}
}

// copyOut copies the terminal's output to the end. A log that cannot be written
// does not stop the command.
func copyOut(terminal *os.File, log io.Writer, window *window, done <-chan struct{}) {
	buffer := make([]byte, 16<<10)
	for {
		n, err := terminal.Read(buffer)
		if n > 0 {
			_, _ = log.Write(buffer[:n])
			window.show(slices.Clone(buffer[:n]))
		}
		if err != nil {
			return
		}
		select {
		case <-done:
			_ = terminal.SetReadDeadline(time.Now().Add(drainTime))
		default:
		}
	}
}

// drain waits for the command's last output. If processes that it left behind
// keep the terminal open, it waits until they are quiet.
func drain(terminal *os.File, copied <-chan struct{}) {
	_ = terminal.SetReadDeadline(time.Now().Add(drainTime))
	select {
	case <-copied:
	case <-time.After(maxDrain):
	}
}

// statusCode is an exit status as a shell reports it.
func statusCode(state *os.ProcessState) int {
	if status, ok := state.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return 128 + int(status.Signal())
	}
	return state.ExitCode()
}

// makeRaw leaves input handling to the command's own terminal.
func makeRaw(fd int) {
	t, err := unix.IoctlGetTermios(fd, unix.TCGETS)
	if err != nil {
		return // not a terminal
	}
	t.Iflag &^= unix.IGNBRK | unix.BRKINT | unix.PARMRK | unix.ISTRIP | unix.INLCR | unix.IGNCR | unix.ICRNL | unix.IXON
	t.Oflag &^= unix.OPOST
	t.Lflag &^= unix.ECHO | unix.ECHONL | unix.ICANON | unix.ISIG | unix.IEXTEN
	t.Cc[unix.VMIN], t.Cc[unix.VTIME] = 1, 0 // a read blocks for one byte
	_ = unix.IoctlSetTermios(fd, unix.TCSETS, t)
}

// window is screen's window. If it blocks, as when an attached terminal hangs, it
// misses some output.
type window struct {
	to    chan []byte
	done  chan struct{}
	stuck bool
}

const (
	windowChunks   = 64
	windowPatience = time.Second
)

func newWindow(out io.Writer) *window {
	w := &window{to: make(chan []byte, windowChunks), done: make(chan struct{})}
	go func() {
		defer close(w.done)
		for data := range w.to {
			_, _ = out.Write(data) // the window may be gone
		}
	}()
	return w
}

func (w *window) show(data []byte) {
	select {
	case w.to <- data:
		w.stuck = false
		return
	default:
	}
	if w.stuck {
		return
	}
	select {
	case w.to <- data:
	case <-time.After(windowPatience):
		w.stuck = true
	}
}

// close waits briefly for the output to arrive.
func (w *window) close() {
	close(w.to)
	select {
	case <-w.done:
	case <-time.After(windowPatience):
	}
}

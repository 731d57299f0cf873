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

	"berth/internal/compat/frontend"
)

// insideWord follows ScreenWord in the session itself.
const insideWord = "--inside"

// The files that a session shares with the process that holds it.
const (
	outputFile  = "output"  // a pipe with the command's output
	commandFile = "command" // the command and its environment
	statusFile  = "status"  // its exit status
	screenFile  = "screenrc"
)

const (
	// leaveTime is how long one side of a session may take to end after the other.
	leaveTime = 10 * time.Second
	// spreadTime is how long a signal to all processes takes to reach them.
	spreadTime = time.Second
)

// ScreenMain is a job in screen mode: MODE ID -- WORD... It runs the command in a
// session, passes on its output and exits with its status. A session that is
// ended from outside counts as failed.
func ScreenMain(args []string, out, errOut io.Writer) int {
	if len(args) == 2 && args[0] == insideWord {
		return sitInside(args[1])
	}
	if len(args) < 4 || args[2] != "--" {
		fmt.Fprintf(errOut, "gpu-scheduler: %s: expected a mode, an id, -- and a command\n", ScreenWord)
		return frontend.BadUsage
	}
	s, err := newSession(sessionName(os.Getenv("BERTH_GPUS"), args[0], args[1]), args[3:])
	if err != nil {
		return call{Call: &frontend.Call{Name: "gpu-scheduler", Err: errOut}}.fail(err)
	}
	defer os.RemoveAll(s.dir)
	code, err := s.hold(out, errOut)
	if err != nil {
		fmt.Fprintf(errOut, "gpu-scheduler: session %s: %v\n", s.name, err)
	}
	return code
}

// session is a screen session, seen from the process that holds it.
type session struct {
	name string
	dir  string // shared with the process inside, and private
	home string // SCREENDIR, if the usual one cannot be used
}

// insideCommand is what runs in the session. The environment is passed in a file:
// screen is set-group-id on many systems, and the dynamic linker removes
// variables such as LD_LIBRARY_PATH from such programs.
type insideCommand struct {
	Words, Env []string
}

// text is the number of words, the words and the environment, separated by zero
// bytes, which none of them can contain.
func (c insideCommand) text() []byte {
	return []byte(strings.Join(slices.Concat([]string{strconv.Itoa(len(c.Words))}, c.Words, c.Env), "\x00"))
}

func parseInside(text []byte) (c insideCommand, err error) {
	count, rest, _ := strings.Cut(string(text), "\x00")
	fields := strings.Split(rest, "\x00")
	n, err := strconv.Atoi(count)
	if err != nil || n < 1 || n > len(fields) {
		return c, errors.New("expected a command, found none")
	}
	return insideCommand{Words: fields[:n], Env: fields[n:]}, nil
}

func newSession(name string, words []string) (s *session, err error) {
	if err := screenReady(); err != nil {
		return nil, err
	}
	s = &session{name: name}
	if s.home, err = screenDir(); err != nil {
		return nil, err
	}
	if s.dir, err = os.MkdirTemp("", "berth-session-"); err != nil {
		return nil, fmt.Errorf("create a directory for the session: %w", err)
	}
	if err := s.prepare(words); err != nil {
		os.RemoveAll(s.dir)
		return nil, fmt.Errorf("prepare the session: %w", err)
	}
	return s, nil
}

func (s *session) prepare(words []string) error {
	if err := syscall.Mkfifo(s.path(outputFile), 0o600); err != nil {
		return err
	}
	if err := os.WriteFile(s.path(screenFile), []byte(screenConfig()), 0o600); err != nil {
		return err
	}
	command := insideCommand{Words: words, Env: os.Environ()}
	return os.WriteFile(s.path(commandFile), command.text(), 0o600)
}

func (s *session) path(name string) string { return filepath.Join(s.dir, name) }

// screenConfig keeps the user's terminal settings and drops the rest: windows
// opened by the configuration would replace the job's, and windows that stay
// after their command would never end.
func screenConfig() string {
	config := "startup_message off\ndeflogin off\ndefscrollback 10000\n"
	own := os.Getenv("SCREENRC")
	if own == "" {
		own = filepath.Join(os.Getenv("HOME"), ".screenrc")
	}
	text, _ := os.ReadFile(own)
	for line := range strings.Lines(string(text)) {
		word, _, _ := strings.Cut(strings.TrimSpace(line), " ")
		switch word {
		case "escape", "bind", "bindkey", "hardstatus", "caption", "term", "termcapinfo", "terminfo", "defscrollback", "vbell", "altscreen", "attrcolor", "defutf8", "defencoding":
			config += strings.TrimRight(line, "\n") + "\n"
		}
	}
	return config + "zombie\nautodetach on\n"
}

// start starts the session in the foreground: it is a child of the job, and ends
// with it.
func (s *session) start(errOut io.Writer) (*exec.Cmd, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	command := exec.Command("screen", "-D", "-m", "-S", s.name, "-c", s.path(screenFile), self, ScreenWord, insideWord, s.dir)
	command.Stdout, command.Stderr = errOut, errOut
	for _, entry := range os.Environ() {
		if !strings.HasPrefix(entry, "STY=") { // its own session, even if berth was started in one
			command.Env = append(command.Env, entry)
		}
	}
	if s.home != "" {
		command.Env = append(command.Env, "SCREENDIR="+s.home)
	}
	return command, command.Start()
}

// hold starts the session and returns when both it and its command have ended.
//
// Cancelling a job signals all its processes, and screen ends at once. The
// command still has its grace period: sitInside holds its terminal, and this
// process passes on its output until it ends.
func (s *session) hold(out, errOut io.Writer) (int, error) {
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	defer signal.Stop(signals)
	screen, err := s.start(errOut)
	if err != nil {
		return frontend.Failed, err
	}
	screenGone, insideGone := make(chan struct{}), make(chan struct{})
	go func() { _ = screen.Wait(); close(screenGone) }() // its status is not the command's
	go func() { s.pass(out); close(insideGone) }()

	var late <-chan time.Time
	inSession, signalled := true, false
	for inSession || insideGone != nil {
		select {
		case <-screenGone:
			inSession, screenGone = false, nil
			// This ends the wait for a process inside that never started.
			if pipe, err := os.OpenFile(s.path(outputFile), os.O_WRONLY|syscall.O_NONBLOCK, 0); err == nil {
				pipe.Close()
			}
			if late = nil; !signalled {
				late = time.After(leaveTime)
			}
		case <-insideGone:
			insideGone = nil
			late = time.After(leaveTime)
		case <-signals:
			if signalled = true; inSession {
				late = time.After(spreadTime) // if screen is still there then, only we got the signal
			} else {
				late = nil
			}
		case <-late:
			if !inSession {
				return frontend.Failed, fmt.Errorf("the session ended, but its command keeps running without a terminal")
			}
			_ = screen.Process.Signal(syscall.SIGTERM)
			late = time.After(leaveTime)
		}
	}
	return s.status()
}

// pass copies the command's output until the pipe is closed. Output that cannot
// be written is dropped, so that the job does not block.
func (s *session) pass(out io.Writer) {
	pipe, err := os.OpenFile(s.path(outputFile), os.O_RDONLY, 0) // waits for the other end
	if err != nil {
		return
	}
	defer pipe.Close()
	buffer := make([]byte, 16<<10)
	for {
		n, err := pipe.Read(buffer)
		_, _ = out.Write(buffer[:n])
		if err != nil {
			return
		}
	}
}

// status is the exit status of the command, as written by the process inside.
func (s *session) status() (int, error) {
	text, err := os.ReadFile(s.path(statusFile))
	if err != nil {
		return frontend.Failed, fmt.Errorf("the session ended before its command")
	}
	code, err := strconv.Atoi(string(text))
	if err != nil {
		return frontend.Failed, fmt.Errorf("unreadable status: %w", err)
	}
	return code, nil
}

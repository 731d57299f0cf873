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

// What a session and the one who holds it share, in a directory of theirs.
const (
	outputFile  = "output"  // a pipe: what the command prints
	commandFile = "command" // what to run
	statusFile  = "status"  // how that ended
	screenFile  = "screenrc"
)

const (
	// leaveTime is what one side of a session gets to end after the other did.
	leaveTime = 10 * time.Second
	// hearTime is how long a signal that was sent to all takes to reach all.
	hearTime = time.Second
)

// ScreenMain is a job in screen mode: MODE ID -- WORD... It starts a session
// in which the words run, stays for as long as they do, prints what they print
// and ends as they end. A session that is ended by somebody else has failed.
func ScreenMain(args []string, out, errOut io.Writer) int {
	if len(args) == 2 && args[0] == insideWord {
		return sitInside(args[1])
	}
	if len(args) < 4 || args[2] != "--" {
		fmt.Fprintf(errOut, "gpu-scheduler: %s takes a mode, an id, -- and a command\n", ScreenWord)
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

// session is a screen session from outside.
type session struct {
	name string
	dir  string // shared with its inside; nobody else's
	home string // SCREENDIR, where the usual place is unusable
}

// insideCommand is what runs in the session. The environment goes along in a
// file: screen is set-group-id on many systems, and the dynamic linker takes
// variables as LD_LIBRARY_PATH from such programs.
type insideCommand struct {
	Words, Env []string
}

// text is the number of words, the words and the environment, with a zero byte
// between each two: the one byte that none of them can hold.
func (c insideCommand) text() []byte {
	return []byte(strings.Join(slices.Concat([]string{strconv.Itoa(len(c.Words))}, c.Words, c.Env), "\x00"))
}

func parseInside(text []byte) (c insideCommand, err error) {
	count, rest, _ := strings.Cut(string(text), "\x00")
	fields := strings.Split(rest, "\x00")
	n, err := strconv.Atoi(count)
	if err != nil || n < 1 || n > len(fields) {
		return c, errors.New("it holds no command")
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
		return nil, fmt.Errorf("make a directory for the session: %w", err)
	}
	if err := s.furnish(words); err != nil {
		os.RemoveAll(s.dir)
		return nil, fmt.Errorf("prepare the session: %w", err)
	}
	return s, nil
}

func (s *session) furnish(words []string) error {
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

// screenConfig is what of the user's own configuration concerns how one sits
// at a terminal. The rest stays out: windows that it opens would take the
// place of the job's, and dead ones that it keeps would never end.
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

// start begins the session, which does not go into the background: it is a
// child of the job, and ends with it.
func (s *session) start(errOut io.Writer) (*exec.Cmd, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	command := exec.Command("screen", "-D", "-m", "-S", s.name, "-c", s.path(screenFile), self, ScreenWord, insideWord, s.dir)
	command.Stdout, command.Stderr = errOut, errOut
	for _, entry := range os.Environ() {
		if !strings.HasPrefix(entry, "STY=") { // a session of its own, also where berth was started in one
			command.Env = append(command.Env, entry)
		}
	}
	if s.home != "" {
		command.Env = append(command.Env, "SCREENDIR="+s.home)
	}
	return command, command.Start()
}

// hold starts the session and returns when both it and its command are gone.
//
// Whoever ends the job tells every process of it, and screen obeys at once.
// The command has its grace all the same: its terminal is held by sitInside,
// and this process passes on what it prints until it is done.
func (s *session) hold(out, errOut io.Writer) (int, error) {
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	defer signal.Stop(signals)
	screen, err := s.start(errOut)
	if err != nil {
		return frontend.Failed, err
	}
	screenGone, insideGone := make(chan struct{}), make(chan struct{})
	go func() { _ = screen.Wait(); close(screenGone) }() // its status says nothing of the command's
	go func() { s.pass(out); close(insideGone) }()

	var late <-chan time.Time
	inSession, told := true, false
	for inSession || insideGone != nil {
		select {
		case <-screenGone:
			inSession, screenGone = false, nil
			s.unblock()
			if late = nil; !told {
				late = time.After(leaveTime)
			}
		case <-insideGone:
			insideGone = nil
			late = time.After(leaveTime)
		case <-signals:
			if told = true; inSession {
				late = time.After(hearTime) // only we were told, if screen is still there then
			} else {
				late = nil
			}
		case <-late:
			if !inSession {
				return frontend.Failed, fmt.Errorf("it was ended, and its command goes on without a terminal")
			}
			_ = screen.Process.Signal(syscall.SIGTERM)
			late = time.After(leaveTime)
		}
	}
	return s.status()
}

// pass prints what the command prints, until its end of the pipe is closed.
// What cannot be written is lost: the job does not wait for it.
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

// unblock ends the wait for an inside that never came.
func (s *session) unblock() {
	if pipe, err := os.OpenFile(s.path(outputFile), os.O_WRONLY|syscall.O_NONBLOCK, 0); err == nil {
		pipe.Close()
	}
}

// status is how the command ended, by the word of the one who saw it.
func (s *session) status() (int, error) {
	text, err := os.ReadFile(s.path(statusFile))
	if err != nil {
		return frontend.Failed, fmt.Errorf("it was ended before its command was")
	}
	code, err := strconv.Atoi(string(text))
	if err != nil {
		return frontend.Failed, fmt.Errorf("unreadable status: %w", err)
	}
	return code, nil
}

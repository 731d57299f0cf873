package keep

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"syscall"
	"time"
)

// A host is a process between a supervisor and the MPS control daemon of its
// job. It waits for programs that may hang, which a supervisor must not do. It
// is a subreaper, so that what the control daemon leaves behind is neither lost
// nor taken for a process of the job.

const (
	openBudget = 10 * time.Second      // for the control daemon to answer
	openPause  = 20 * time.Millisecond // between two tries
	quitBudget = 2 * time.Second       // for it to end when asked to, and then after TERM
)

// host is the host process. It ends when its socket is closed.
func host() int {
	// Pdeathsig is sent when the thread that started a process dies, so this
	// thread starts all of them.
	runtime.LockOSThread()
	if !onStage() {
		return 2
	}
	runtime.GOMAXPROCS(1)
	debug.SetGCPercent(25)
	b := beginning{socket: fdStage}
	if err := hostFrom(&b); err != nil {
		b.say(Message(stageFailed, "why", err), -1)
		return 1
	}
	return 0
}

// hostFrom reads its order and serves it. The error is why there is no server;
// nothing of it is left then.
func hostFrom(b *beginning) error {
	frame, err := ReadFrame(descriptor(b.socket))
	if err != nil {
		return err
	}
	h := &mpsHost{gone: make(chan struct{})}
	until, cancel := context.WithCancel(context.Background())
	defer cancel()
	h.until = until
	c := codec{fields: frame.Fields, reading: true}
	passMPS(&c, &h.MPS)
	passCredential(&c, &h.user)
	if c.err != nil || h.MPS == nil {
		return fmt.Errorf("%w: the order has no MPS server", ErrFrame)
	}
	const prSetChildSubreaper = 36
	if _, _, errno := syscall.Syscall(syscall.SYS_PRCTL, prSetChildSubreaper, 1, 0); errno != 0 {
		return fmt.Errorf("become subreaper: %w", errno)
	}
	if err := resetPriority(false); err != nil {
		return err
	}
	go func() {
		_, _ = io.Copy(io.Discard, descriptor(b.socket))
		cancel()
	}()
	if err := h.open(); err != nil {
		// The logs are removed with the directory, so their end is reported now.
		err = fmt.Errorf("%w%s", err, h.lastLogged())
		h.close()
		return err
	}
	b.say(Frame{Kind: stageReady}, -1)
	select {
	case <-h.until.Done():
	case <-h.gone:
		b.say(Frame{Kind: hostBereft}, -1)
		<-h.until.Done()
	}
	h.close()
	return nil
}

// mpsHost runs one control daemon.
type mpsHost struct {
	*MPS
	user *Credential // the job's user; nil: the host's own
	home *mpsHome
	// until ends when the host has to end, and gone is closed when the control
	// daemon has ended.
	until context.Context
	gone  chan struct{}

	control *exec.Cmd
	output  string // file for the control daemon's own output
	died    error  // valid once gone is closed
}

// open starts the control daemon, waits until it answers, sets the job's
// limits, and checks them.
func (h *mpsHost) open() (err error) {
	if h.home, err = makeMPSHome(h.MPS, h.user); err != nil {
		return err
	}
	h.output = filepath.Join(h.logs(), "output")
	if err := h.start(); err != nil {
		return err
	}
	if err := h.awaitAnswer(); err != nil {
		return err
	}
	if err := h.setLimits(); err != nil {
		return err
	}
	return h.setThreads()
}

func (h *mpsHost) start() error {
	output, err := os.OpenFile(h.output, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer output.Close()
	h.control = h.command(context.Background(), "-f")
	h.control.Stdout, h.control.Stderr = output, output
	// It must not outlive a killed host.
	h.control.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := h.control.Start(); err != nil {
		h.control = nil
		return err
	}
	go func() {
		h.died = h.control.Wait()
		close(h.gone)
	}()
	return nil
}

// command is the control program, for this server alone.
func (h *mpsHost) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, h.Control, args...)
	cmd.Dir = "/"
	cmd.Env = append(h.Env(), "CUDA_VISIBLE_DEVICES="+strings.Join(h.Cards, ","), "CUDA_DEVICE_ORDER=PCI_BUS_ID",
		"PATH="+filepath.Dir(h.Control)+":/usr/local/bin:/usr/bin:/bin") // the server's program is beside it
	for _, entry := range os.Environ() {
		if name, _, _ := strings.Cut(entry, "="); !hasVariable(cmd.Env, name) {
			cmd.Env = append(cmd.Env, entry)
		}
	}
	return cmd
}

// awaitAnswer asks until the control daemon answers.
func (h *mpsHost) awaitAnswer() error {
	deadline := time.NewTimer(openBudget)
	defer deadline.Stop()
	said := "no answer"
	for {
		answer, err := h.ask(h.until, "get_default_active_thread_percentage", openBudget)
		if err == nil && isPercentage(answer) {
			return nil
		}
		if answer != "" {
			said = answer
		}
		select {
		case <-h.until.Done():
			return errStageDied
		case <-h.gone:
			return h.whyGone()
		case <-deadline.C:
			return fmt.Errorf("not ready after %v: %s", openBudget, firstLine(said))
		case <-time.After(openPause):
		}
	}
}

// whyGone is what the control daemon printed before it ended.
func (h *mpsHost) whyGone() error {
	for line := range strings.Lines(readEnd(h.output)) {
		if line = strings.TrimSpace(line); line != "" {
			return fmt.Errorf("%s", line)
		}
	}
	if h.died != nil {
		return fmt.Errorf("the MPS control daemon ended: %w", h.died)
	}
	return fmt.Errorf("the MPS control daemon ended at once")
}

// lastLogged are the last lines of the server's logs, one per line.
func (h *mpsHost) lastLogged() string {
	var lines string
	for _, name := range []string{"control.log", "server.log"} {
		text := strings.TrimSpace(readEnd(filepath.Join(h.logs(), name)))
		if text == "" {
			continue
		}
		last := text[strings.LastIndexByte(text, '\n')+1:]
		lines += "\n" + name + ": " + strings.TrimSpace(last)
	}
	return lines
}

// readEnd reads the end of a small file, or "" if there is none.
func readEnd(path string) string {
	file, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer file.Close()
	const most = 4096
	if info, err := file.Stat(); err == nil && info.Size() > most {
		_, _ = file.Seek(-most, io.SeekEnd)
	}
	text, _ := io.ReadAll(io.LimitReader(file, most))
	return string(text)
}

// close stops the control daemon and everything below the host: by its
// command, then by TERM, then by KILL for as long as it takes.
func (h *mpsHost) close() {
	if h.control != nil {
		select {
		case <-h.gone:
		default:
			_, _ = h.ask(context.Background(), "quit", quitBudget)
			h.wait(quitBudget)
		}
	}
	if !h.alone() {
		h.signal(sigTERM)
		h.waitAlone(quitBudget)
	}
	for !h.alone() {
		h.signal(sigKILL)
		h.waitAlone(lastKillPause)
	}
	if h.home != nil {
		h.home.remove()
	}
}

func (h *mpsHost) wait(most time.Duration) {
	select {
	case <-h.gone:
	case <-time.After(most):
	}
}

func (h *mpsHost) waitAlone(most time.Duration) {
	for until := time.Now().Add(most); !h.alone() && time.Now().Before(until); {
		time.Sleep(openPause)
	}
}

// alone reaps dead children and reports whether no process is left below the
// host.
func (h *mpsHost) alone() bool {
	for {
		pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil)
		switch {
		case err == syscall.EINTR:
		case err != nil:
			return true
		case pid == 0:
			return false
		}
	}
}

func (h *mpsHost) signal(number int) {
	table, err := Processes()
	if err != nil {
		return
	}
	self := os.Getpid()
	for _, p := range Descendants(table, func(p Process) bool { return p.Parent == self }) {
		if !p.Dead() {
			_ = p.Signal(number)
		}
	}
}

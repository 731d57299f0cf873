package cli

import (
	"bytes"
	"io"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"berth/internal/cli/render"

	"golang.org/x/sys/unix"
)

const (
	detachKey   = 0x1c // ctrl-\
	typedChunks = 64
	startedPoll = 200 * time.Millisecond
	endedTries  = 25 // for the end of a job to be known; a cluster's takes a second or two
)

// heldTerminal is the user's terminal while attached: every key goes to the job,
// except the one that detaches.
type heldTerminal struct {
	in      *os.File
	out     io.Writer
	before  unix.Termios
	once    sync.Once
	typed   chan []byte
	resized chan os.Signal
	gone    chan os.Signal // the terminal was closed
	done    chan struct{}
}

// takeTerminal switches the terminal to raw mode: no echo, no line editing, no
// signals from keys.
func takeTerminal(in *os.File, out io.Writer) (*heldTerminal, error) {
	before, err := unix.IoctlGetTermios(int(in.Fd()), unix.TCGETS)
	if err != nil {
		return nil, err
	}
	t := &heldTerminal{
		in: in, out: out, before: *before, typed: make(chan []byte, typedChunks),
		resized: make(chan os.Signal, 1), gone: make(chan os.Signal, 1), done: make(chan struct{}),
	}
	raw := *before
	raw.Iflag &^= unix.IGNBRK | unix.BRKINT | unix.PARMRK | unix.ISTRIP | unix.INLCR | unix.IGNCR | unix.ICRNL | unix.IXON
	raw.Oflag &^= unix.OPOST
	raw.Lflag &^= unix.ECHO | unix.ECHONL | unix.ICANON | unix.ISIG | unix.IEXTEN
	raw.Cflag = raw.Cflag&^(unix.CSIZE|unix.PARENB) | unix.CS8
	raw.Cc[unix.VMIN], raw.Cc[unix.VTIME] = 1, 0
	if err := unix.IoctlSetTermios(int(in.Fd()), unix.TCSETS, &raw); err != nil {
		return nil, err
	}
	return t, nil
}

// calmed resets what a program may have left on: colours, a hidden cursor, mouse
// and paste reporting, the alternate screen.
const calmed = "\x1b[0m\x1b[?25h\x1b[?1000l\x1b[?1002l\x1b[?1003l\x1b[?1006l\x1b[?2004l\x1b[?1047l\x1b[?1l\x1b>\r\n"

// giveBack restores the terminal.
func (t *heldTerminal) giveBack() {
	t.once.Do(func() {
		signal.Stop(t.resized)
		signal.Stop(t.gone)
		close(t.done)
		_, _ = io.WriteString(t.out, calmed)                             // nothing to do if the terminal is gone
		_ = unix.IoctlSetTermios(int(t.in.Fd()), unix.TCSETS, &t.before) // likewise
	})
}

// giveBackIfPanicking is deferred by goroutines: a panic there ends the program
// without running the deferred calls of others.
func (t *heldTerminal) giveBackIfPanicking() {
	if p := recover(); p != nil {
		t.giveBack()
		panic(p)
	}
}

// listen starts to read keys and sizes. It calls leave when the user detaches or
// the terminal closes.
func (t *heldTerminal) listen(leave func(error)) {
	signal.Notify(t.resized, syscall.SIGWINCH)
	signal.Notify(t.gone, syscall.SIGHUP, syscall.SIGQUIT)
	go func() {
		select {
		case <-t.gone:
			leave(errDetached)
		case <-t.done:
		}
	}()
	go func() {
		defer t.giveBackIfPanicking()
		buffer := make([]byte, 4096)
		for {
			n, err := t.in.Read(buffer)
			if !t.forward(buffer[:n]) || err != nil {
				leave(errDetached)
				return
			}
		}
	}()
}

// forward passes typed bytes on, and reports false at the key that detaches. Bytes
// that nobody reads are dropped.
func (t *heldTerminal) forward(typed []byte) bool {
	before, _, leaving := bytes.Cut(typed, []byte{detachKey})
	if len(before) > 0 {
		select {
		case t.typed <- bytes.Clone(before):
		default:
		}
	}
	return !leaving
}

// returning adds the carriage returns that a raw terminal needs.
type returning struct{ io.Writer }

func (r returning) Write(p []byte) (int, error) {
	if _, err := r.Writer.Write(bytes.ReplaceAll(p, []byte("\n"), []byte("\r\n"))); err != nil {
		return 0, err
	}
	return len(p), nil
}

func (t *heldTerminal) size() (rows, cols int) {
	cols, rows = render.TerminalSize(t.out)
	return rows, cols
}

package keep

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// This file is the supervisor's side of a job's MPS server: it starts the host
// before the job and stops it when the job's last process is gone. It never
// waits for it; the host's messages arrive in the loop.

// hostWord, as the last argument, makes the program a host.
const hostWord = "__mps"

// hostBereft, beside stageReady and stageFailed, means that the control daemon
// ended unasked.
const hostBereft FrameKind = 'B'

// mpsServer is a host as its supervisor sees it.
type mpsServer struct {
	pid     int
	dir     string   // of its server
	socket  *os.File // closing it stops the host
	opening bool     // the job waits for it
	closing bool     // it was asked to end
	forsake time.Time

	empty  int       // checks in a row that found no process of the job
	lookAt time.Time // when to check next
	pause  time.Duration
}

// hostSaid is a message of a host; the kind 0 means that it is gone.
type hostSaid struct {
	from *mpsServer
	kind FrameKind
	text string
}

// Checks for what is left of the job come quickly at first. Two in a row must
// find nothing: the process table is not a snapshot.
const (
	emptyLooks     = 2
	firstLookPause = 10 * time.Millisecond
	lastLookPause  = time.Second
	// forsakeAfter is when a host that does not end is treated like a process
	// of the job. Its own deadlines are shorter.
	forsakeAfter = 20 * time.Second
)

const noMPS = "CUDA MPS could not be started: "

// openMPS starts the host. The job begins when the host reports that it is
// ready.
func (k *keeper) openMPS(o Order) {
	// The job's time limit begins with the job.
	k.held = &held{order: o, setup: -1, ending: newEnding(time.Now(), Order{Grace: o.Grace}), stragglers: make(map[[2]uint64]bool)}
	server, err := startHost(o, k.record.Token)
	if err != nil {
		k.held = nil
		k.end(noMPS + err.Error())
		return
	}
	k.held.mps = server
	go server.hear(k.hosts)
}

// startHost starts the host and gives it its order.
func startHost(o Order, token string) (*mpsServer, error) {
	var c codec
	passMPS(&c, &o.MPS)
	passCredential(&c, &o.Credential)
	order, err := Frame{FrameGoCarefully, c.fields}.Encode()
	if err != nil {
		return nil, err
	}
	ours, theirs, err := newStage()
	if err != nil {
		return nil, err
	}
	defer syscall.Close(theirs)
	null, err := syscall.Open("/dev/null", syscall.O_RDWR|syscall.O_CLOEXEC, 0)
	if err != nil {
		ours.file.Close()
		return nil, fmt.Errorf("open /dev/null: %w", err)
	}
	defer syscall.Close(null)
	attr := &syscall.ProcAttr{
		Dir: "/", Env: jobEnv(Order{Job: o.Job, Attempt: o.Attempt, Env: os.Environ()}, token),
		Files: []uintptr{uintptr(null), uintptr(null), uintptr(null), uintptr(theirs)},
		Sys:   &syscall.SysProcAttr{Setsid: true},
	}
	pid, err := startProcess("/proc/self/exe", selfArgv(hostWord), attr)
	if err != nil {
		ours.file.Close()
		return nil, fmt.Errorf("start the MPS host: %w", err)
	}
	// The order is far smaller than the socket's buffer, so this does not block.
	_, _ = ours.file.Write(order)
	return &mpsServer{pid: pid, dir: o.MPS.Dir, socket: ours.file, opening: true, pause: firstLookPause}, nil
}

// hear passes on the host's messages until it is gone.
func (m *mpsServer) hear(to chan<- hostSaid) {
	for {
		frame, err := ReadFrame(m.socket)
		if err != nil {
			m.bequeath()
			to <- hostSaid{from: m}
			return
		}
		to <- hostSaid{from: m, kind: frame.Kind, text: frame.Get("why")}
	}
}

// bequeath kills and removes what a killed host left; any other host leaves
// nothing. Its server has become the supervisor's child and would be taken for
// a process of the job, which the job would then have to wait for.
func (m *mpsServer) bequeath() {
	table, err := Processes()
	if err != nil {
		return
	}
	self := os.Getpid()
	for _, p := range Descendants(table, func(p Process) bool { return p.Parent == self }) {
		if p.Session == m.pid && p.PID != m.pid && !p.Dead() {
			_ = p.Signal(sigKILL)
		}
	}
	// The next job's host may already be creating a directory of that name. A
	// later host removes what is not removed now.
	if all, err := lockFile(filepath.Join(filepath.Dir(m.dir), homeLock), 0); err == nil {
		defer all.Close()
		removeForsaken(m.dir)
	}
}

// close asks the host to end by closing the socket, as the supervisor's death
// does. Its last messages are still read.
func (m *mpsServer) close() {
	if m.closing {
		return
	}
	m.closing, m.forsake = true, time.Now().Add(forsakeAfter)
	raw, err := m.socket.SyscallConn()
	if err == nil {
		_ = raw.Control(func(fd uintptr) { _ = syscall.Shutdown(int(fd), syscall.SHUT_WR) })
	}
}

// hostSaid takes in a message of a host.
func (k *keeper) hostSaid(said hostSaid) {
	h, m := k.held, said.from
	if said.kind == 0 {
		m.socket.Close()
	}
	if h == nil || h.mps != m {
		return
	}
	switch {
	case m.opening && said.kind == stageReady && h.ending.stop == "":
		m.opening = false
		k.launch(h.order, m)
	case m.opening:
		m.opening = false
		k.record.Cgroup = "" // it was not created yet
		h.launch = errStageDied.Error()
		if h.ending.stop == "" {
			h.launch = noMPS + firstLine(said.text)
			k.record.remark(afterFirstLine(said.text))
		}
		h.giveUp(k.reaped)
	case !m.closing:
		// The job continues, or fails by itself.
		m.close()
		k.record.remark("its MPS server ended while it ran")
		k.record.rewrite()
	}
}

// giveUp stops the host of a job that does not begin, and then ends the job.
func (h *held) giveUp(to chan<- reaped) {
	h.mps.close()
	h.ending.mainExited(time.Now()) // so that whatever is left is stopped
	go reap(0, h.mps.pid, to)
}

// heedMPS stops the server once the job has no process left, or will have
// none.
func (h *held) heedMPS(look *time.Timer) {
	m := h.mps
	if m == nil || m.closing {
		return
	}
	if m.opening {
		if h.ending.stop != "" {
			m.close()
		}
		return
	}
	if !h.ending.exited {
		return
	}
	now := time.Now()
	if now.Before(m.lookAt) {
		look.Reset(time.Until(m.lookAt))
		return
	}
	if len(h.tree()) > 0 {
		m.empty = 0
		m.pause = min(2*m.pause, lastLookPause)
	} else if m.empty++; m.empty == emptyLooks {
		m.close()
		return
	} else {
		m.pause = firstLookPause
	}
	m.lookAt = now.Add(m.pause)
	look.Reset(m.pause)
}

// apart reports whether the process is the host and not the job's. A host that
// outlived every deadline is killed with everything else.
func (m *mpsServer) apart(pid int) bool {
	return m != nil && pid == m.pid && (m.forsake.IsZero() || time.Now().Before(m.forsake))
}

// serves reports whether the host is still there.
func (m *mpsServer) serves() bool {
	if m == nil {
		return false
	}
	p, err := ReadProcess(m.pid)
	return err == nil && p.Parent == os.Getpid() && !p.Dead()
}

// firstLine is the error; the rest of the text comes from the logs.
func firstLine(text string) string {
	line, _, _ := strings.Cut(text, "\n")
	if line == "" {
		return "its host was killed"
	}
	return line
}

func afterFirstLine(text string) string {
	_, rest, _ := strings.Cut(text, "\n")
	return rest
}

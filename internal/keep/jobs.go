package keep

import (
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// held is the job a supervisor holds.
type held struct {
	order      Order
	pid        int
	cgroup     string
	setup      int // read end of the set-up pipe, or -1
	ending     ending
	stragglers map[[2]uint64]bool // by id
}

// heard acts on a frame from the berth that is obeyed.
func (k *keeper) heard(in incoming) {
	if in.from != k.conn {
		return
	}
	if in.err != nil {
		k.disconnected()
		return
	}
	switch in.frame.Kind {
	case FrameGo:
		o, err := orderOf(in.frame)
		if err != nil || k.record.State != Idle {
			// A berth that sends this is not one to obey.
			k.conn.shut(syscall.SHUT_RDWR)
			return
		}
		k.start(o)
	case FrameStop:
		if k.held != nil && k.concerns(in.frame) {
			grace, _ := strconv.ParseInt(in.frame.Get("grace_ms"), 10, 64)
			k.held.ending.request(time.Now(), in.frame.Get("why"), time.Duration(grace)*time.Millisecond)
		}
	case FrameAck:
		if k.record.State == Ended && k.concerns(in.frame) {
			k.acknowledged()
		}
	}
}

// concerns reports whether a frame is about the job on record.
func (k *keeper) concerns(f Frame) bool {
	return f.Get("job") == k.record.Job && f.Get("attempt") == strconv.Itoa(k.record.Attempt)
}

// start runs the order. The record says "started" before there is a process,
// so that whatever ran is known to have run.
func (k *keeper) start(o Order) {
	k.record = Record{
		State: Started, Seq: k.record.Seq + 1, Token: k.token, Job: o.Job, Attempt: o.Attempt,
		BootID: k.record.BootID, KeepPID: k.record.KeepPID, KeepStart: k.record.KeepStart,
		Log: o.Log, Cgroup: cgroupOf(o, k.token), StartedAt: time.Now(), ExitCode: -1,
	}
	if err := writeBlock(k.file, k.record); err != nil {
		k.end(err.Error())
		return
	}
	fault("before fork")
	s, err := launch(o, k.token)
	k.record.LogFrom, k.record.Cgroup, k.record.Note = s.logFrom, s.cgroup, s.note
	if err != nil {
		k.end(err.Error())
		return
	}
	fault("after fork")
	k.record.PID, k.record.Session = s.pid, s.pid
	// Nothing waits for the process yet, so it is still in the table.
	k.record.PIDStart, _ = StartTicks(s.pid)
	if err := writeBlock(k.file, k.record); err != nil {
		k.record.Note = strings.TrimPrefix(k.record.Note+"; "+err.Error(), "; ")
	}
	k.held = &held{
		order: o, pid: s.pid, cgroup: s.cgroup, setup: s.setup,
		ending: newEnding(time.Now(), o), stragglers: make(map[[2]uint64]bool),
	}
	go reap(k.reaped)
	k.tell(recordFrame(FrameStarted, k.record))
	k.held.order.Argv, k.held.order.Env = nil, nil
	k.tidy.Reset(tidyAfter)
}

// bury takes in one process that ended.
func (k *keeper) bury(r reaped) {
	if r.pid == 0 {
		k.end("")
		return
	}
	k.record.User += time.Duration(r.usage.Utime.Nano())
	k.record.Sys += time.Duration(r.usage.Stime.Nano())
	k.record.MaxRSSKiB = max(k.record.MaxRSSKiB, r.usage.Maxrss)
	if r.pid != k.held.pid || k.held.ending.exited {
		return
	}
	k.record.ExitCode = r.status.ExitStatus()
	if r.status.Signaled() {
		k.record.Signal, k.record.Core = int(r.status.Signal()), r.status.CoreDump()
	}
	k.held.ending.mainExited(time.Now())
}

// end writes the job's end down, for good, and then says so. launch is why
// nothing ran.
func (k *keeper) end(launch string) {
	r := &k.record
	r.State, r.Launch = Ended, launch
	r.EndedAt, r.Elapsed = time.Now(), time.Since(r.StartedAt)
	if h := k.held; h != nil {
		r.Stop, r.Stragglers = h.ending.stop, len(h.stragglers)
		r.SetupFailed = h.setup >= 0 && !setupDone(h.setup)
		k.held = nil
	}
	fault("before end")
	if err := writeBlock(k.file, *r); err != nil {
		r.Note = err.Error()
	} else if err := syscall.Fdatasync(int(k.file.Fd())); err != nil {
		r.Note = os.NewSyscallError("fdatasync", err).Error()
	}
	fault("after end")
	if r.Cgroup != "" {
		k.cgroup = r.Cgroup // kept for the next job
	}
	k.tell(recordFrame(FrameEnded, *r))
}

// setupDone reads what the wrapper left in the set-up pipe.
func setupDone(fd int) bool {
	defer syscall.Close(fd)
	var said [8]byte
	n, _ := syscall.Read(fd, said[:])
	return n > 0 && strings.HasPrefix(string(said[:n]), "ok")
}

// acknowledged makes the supervisor ready for its next job. One that cannot
// write that down is of no more use.
func (k *keeper) acknowledged() {
	k.record = Record{
		State: Idle, Seq: k.record.Seq + 1, Token: k.token,
		BootID: k.record.BootID, KeepPID: k.record.KeepPID, KeepStart: k.record.KeepStart,
	}
	if err := writeBlock(k.file, k.record); err != nil {
		k.conn.shut(syscall.SHUT_RDWR)
	}
}

func (k *keeper) tell(f Frame) {
	if k.conn != nil {
		k.conn.send(f)
	}
}

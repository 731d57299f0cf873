package keep

import (
	"errors"
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
	spent      bool // its cgroup was killed and cannot be used again
	limits     limits
	setup      int // read end of the set-up pipe, or -1
	log        *logFile
	cap        *logCap
	pty        *terminal
	mps        *mpsServer
	ending     ending
	stragglers map[[2]uint64]bool // by id
	vigil      vigil
	park       parking

	beginning bool   // its stage has not reported yet
	launch    string // why it could not begin
	alone     bool   // none of its processes is left
}

// heard carries out a frame from the current berth.
func (k *keeper) heard(in incoming) {
	if in.from != k.conn {
		return
	}
	if in.err != nil {
		k.disconnected()
		return
	}
	switch in.frame.Kind {
	case FrameGo, FrameGoCarefully:
		o, err := orderOf(in.frame)
		if err != nil || k.record.State != Idle {
			// The order is invalid: disconnect.
			k.conn.shut(syscall.SHUT_RDWR)
			return
		}
		k.start(o)
	case FrameStop:
		if k.held != nil && k.record.concerns(in.frame) {
			k.settle()
			grace, _ := strconv.ParseInt(in.frame.Get("grace_ms"), 10, 64)
			k.held.ending.request(time.Now(), in.frame.Get("why"), time.Duration(grace)*time.Millisecond)
		}
	case FrameWarn:
		if k.held != nil && k.record.concerns(in.frame) {
			k.held.ending.announce(time.Now(), in.frame.Get("stamp"), k.held.order.WarnSignal != 0)
		}
	case FramePark, FrameResume:
		if !k.record.concerns(in.frame) {
			return
		}
		if why, stays := k.held.manoeuvre(in.frame, k.moves); stays {
			k.conn.send(k.held.parkedFrame(k.record.Record, why, 0))
		}
	case FramePing:
		k.conn.send(in.frame)
	case FrameAck:
		if k.record.State == Ended && k.record.concerns(in.frame) {
			k.acknowledged()
		}
	}
}

// start runs the order. The record says "started" on disk before there is a
// process, so that a job that ran is known to have run: even if the disk fails and
// is mounted again without the last writes.
func (k *keeper) start(o Order) {
	r := k.record.next(Started)
	r.Job, r.Attempt, r.Log, r.Pty, r.Cgroup, r.Note = o.Job, o.Attempt, o.Log, o.Pty, cgroupOf(o, r.Token), o.Note
	r.StartedAt, r.ExitCode = time.Now(), -1
	if o.Credential != nil {
		r.UID = o.Credential.UID
	}
	k.record.Record = r
	if err := k.record.writeSynced(); err != nil {
		k.record.Scarce = true
		k.end("the supervisor's record could not be written: " + err.Error())
		return
	}
	if o.MPS != nil {
		k.openMPS(o)
		return
	}
	k.launch(o, nil)
}

// launch starts the job's process, beside its MPS server if it has one.
func (k *keeper) launch(o Order, mps *mpsServer) {
	fault("before fork")
	s, err := launch(o, k.record.Token, k.privileged)
	k.record.Cgroup = s.cgroup
	k.record.remark(note(s.note, s.limits.note))
	err = scarcity(err)
	k.record.Scarce = errors.Is(err, errScarce)
	if err != nil && mps != nil {
		k.held.launch = err.Error()
		k.held.giveUp(k.reaped)
		return
	}
	if err != nil {
		k.end(err.Error())
		return
	}
	fault("after fork")
	k.record.PID, k.record.Session = s.pid, s.pid
	// The process has not been reaped, so it is still in the process table.
	k.record.PIDStart, _ = StartTicks(s.pid)
	if s.log != nil {
		k.record.LogFrom = s.log.from
	}
	k.record.rewrite()
	k.held = &held{
		order: o, pid: s.pid, cgroup: s.cgroup, limits: s.limits, setup: s.setup, pty: s.pty, mps: mps,
		ending: newEnding(time.Now(), o), stragglers: make(map[[2]uint64]bool), beginning: s.stage != nil,
		vigil: vigil{at: time.Now().Add(pulse), pause: pulse},
	}
	k.held.order.Argv, k.held.order.Env = nil, nil
	host := 0
	if mps != nil {
		host = mps.pid
	}
	go reap(s.pid, host, k.reaped)
	if s.stage != nil {
		// The record names the process by now: the stage gets its order only after that.
		go s.stage.give(s.order, k.begun)
	} else {
		k.running(s.log)
	}
	k.tidy.Reset(tidyAfter)
}

// began takes in the outcome of the stage.
func (k *keeper) began(r report) {
	h := k.held
	h.beginning = false
	k.record.remark(r.note)
	if r.err != nil {
		h.launch = r.err.Error()
	} else {
		k.record.LogFrom = r.log.from
		k.record.rewrite()
		k.running(r.log)
	}
	if h.alone {
		k.part()
	}
}

// running is called as soon as the command itself has begun.
func (k *keeper) running(log *logFile) {
	h := k.held
	h.log = log
	if h.pty != nil {
		go h.pty.copy(log)
	}
	if h.order.LogMaxBytes+h.order.LogFreeBytes > 0 && log.regular {
		h.cap = newLogCap(log, h.order.LogMaxBytes, h.order.LogFreeBytes)
	}
	k.conn.send(k.record.frame(FrameStarted))
}

// visited attaches a connection to the job's terminal.
func (k *keeper) visited(v visit) {
	if k.held == nil || k.held.pty == nil || v.first.Get("job") != "" && !k.record.concerns(v.first) {
		go v.conn.refuse("the job has no terminal")
		return
	}
	k.held.pty.attach(v.conn, v.first)
}

// bury takes in that the main process has ended, or that no process is left.
func (k *keeper) bury(r reaped) {
	if k.held == nil || k.held.alone {
		return // a tracer let go of zombies that did not count any more
	}
	k.record.User += r.usage.user
	k.record.Sys += r.usage.sys
	k.record.MaxRSSKiB = max(k.record.MaxRSSKiB, r.usage.maxRSSKiB)
	if r.pid == 0 {
		k.held.alone = true
		if !k.held.beginning {
			k.part()
		}
		return
	}
	if k.held.ending.exited {
		return // its status was read while a tracer kept it
	}
	k.record.ExitCode = r.status.ExitStatus()
	if r.status.Signaled() {
		k.record.Signal, k.record.Core = int(r.status.Signal()), r.status.CoreDump()
	}
	k.held.ending.mainExited(time.Now())
	if h := k.held; h.order.LeaveRest && h.ending.stop == "" && h.mps == nil {
		// It ends although it may have processes. The supervisor takes no other
		// job: it could not tell whose processes are left.
		k.useless = true
		k.bury(reaped{})
	}
}

// settle takes in the end of a main process that has already ended before the
// job is stopped for another reason: its own status counts.
func (k *keeper) settle() {
	if h := k.held; h != nil && h.pid != 0 && !h.ending.exited && over(h.pid) {
		k.bury(<-k.reaped)
	}
}

// end records the job's end and then reports it. launch is why nothing ran.
func (k *keeper) end(launch string) {
	r := &k.record.Record
	r.State, r.Launch = Ended, launch
	r.EndedAt, r.Elapsed = time.Now(), time.Since(r.StartedAt)
	if h := k.held; h != nil {
		r.Stop, r.Stragglers = h.ending.stop, len(h.stragglers)
		if h.park.parked {
			r.Parked += time.Since(h.park.since)
		}
		r.SetupFailed = h.setup >= 0 && !setupDone(h.setup)
		r.MemoryKilled, r.PeakMemKiB = h.limits.verdict()
	}
	if launch != "" {
		// There may have been a process, but not one of the job.
		r.PID, r.PIDStart, r.Session = 0, 0, 0
		r.ExitCode, r.Signal, r.Core, r.SetupFailed = -1, 0, false, false
	}
	fault("before end")
	k.record.noteEnd(k.conn != nil)
	fault("after end")
	k.tidyUp()
	k.conn.send(k.record.frame(FrameEnded))
}

// tidyUp releases what the job had. Its cgroup serves the next job, unless it
// has limits or was killed.
func (k *keeper) tidyUp() {
	if k.record.Cgroup != "" {
		k.cgroup = k.record.Cgroup
	}
	h := k.held
	if h == nil {
		return
	}
	k.held = nil
	if h.pty != nil {
		h.pty.close()
	}
	if h.log != nil {
		h.log.close()
	}
	h.limits.remove()
	if h.limits.own == "" && !h.spent {
		return
	}
	if err := RemoveCgroup(h.cgroup); err == nil {
		k.cgroup = ""
	} else if h.spent {
		k.useless = true
	}
}

// setupDone reads what the wrapper left in the set-up pipe.
func setupDone(fd int) bool {
	defer syscall.Close(fd)
	var said [8]byte
	n, _ := syscall.Read(fd, said[:])
	return n > 0 && strings.HasPrefix(string(said[:n]), "ok")
}

// acknowledged prepares the supervisor for its next job. If it cannot record
// that, or has no usable cgroup, it exits.
func (k *keeper) acknowledged() {
	k.record.unsaved.end()
	k.record.Record = k.record.next(Idle)
	if err := k.record.write(); err != nil {
		k.useless = true
	}
}

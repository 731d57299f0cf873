package keep

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// The kernel reports a traced process to its tracer first, and to its parent
// only when the tracer has heard. So a supervisor that only waits would wait
// for as long as a tracer likes, and looks for itself as well.
const (
	// pulse is the time between looks at the main process while the job runs.
	pulse = 15 * time.Second
	// Looks at what is left of a job come quickly at first, then at this pace.
	firstRemainsPause = 100 * time.Millisecond
	lastRemainsPause  = 2 * time.Second
	// goneLooks in a row must find nothing but zombies: the process table is
	// not a snapshot.
	goneLooks = 3
	// tracerPatience is how long after KILL a tracer may stop a process.
	tracerPatience = 2 * time.Second
)

// UnkillableAfter is how long after the first KILL a process is reported that
// does not end. The driver may take several seconds to release a card.
const UnkillableAfter = 30 * time.Second

// vigil is the looks at what is left of a job.
type vigil struct {
	at     time.Time // the next one
	pause  time.Duration
	zombie int  // looks in a row that found zombies only
	hasty  bool // the job is ending
	stuck  *Stuck
}

// hasten makes the looks frequent, once.
func (v *vigil) hasten(now time.Time) {
	if !v.hasty {
		v.hasty, v.pause, v.at = true, firstRemainsPause, now.Add(firstRemainsPause)
	}
}

// heedRemains looks at the job's processes if a look is due.
func (k *keeper) heedRemains() {
	h := k.held
	if h == nil || h.pid == 0 || h.alone {
		return
	}
	v, now := &h.vigil, time.Now()
	if h.ending.exited || !h.ending.killedAt.IsZero() {
		v.hasten(now)
	}
	if !now.Before(v.at) {
		v.pause = min(2*max(v.pause, firstRemainsPause), h.slowest())
		v.at = now.Add(v.pause)
		if k.lookForMain(); v.hasty && k.lookAtRemains(now) {
			return
		}
	}
	k.vigil.Reset(time.Until(v.at))
}

// slowest is the longest time between two looks.
func (h *held) slowest() time.Duration {
	if h.ending.killedAt.IsZero() {
		return pulse
	}
	return lastRemainsPause
}

// lookForMain takes in the end of a main process that a tracer keeps.
func (k *keeper) lookForMain() {
	k.settle()
	h := k.held
	if h.ending.exited {
		return
	}
	if p, err := ReadProcess(h.pid); err != nil || !p.Dead() {
		return
	}
	status, known := zombieStatus(h.pid)
	switch {
	case known:
	case !h.ending.killedAt.IsZero():
		status = syscall.WaitStatus(sigKILL)
	default:
		status = syscall.WaitStatus(255 << 8)
		k.record.remark("its exit status could not be read")
	}
	k.bury(reaped{pid: h.pid, status: status})
	h.vigil.hasten(time.Now())
}

// lookAtRemains reports whether the job is over: a zombie holds no memory and
// no card, and will not run again.
func (k *keeper) lookAtRemains(now time.Time) bool {
	h := k.held
	living, zombies := h.remains()
	if len(living) > 0 || len(zombies) == 0 || h.mps.serves() {
		h.vigil.zombie = 0
		k.heedSurvivors(now, living)
		return false
	}
	if h.vigil.zombie++; h.vigil.zombie < goneLooks {
		return false
	}
	k.record.remark(fmt.Sprintf("a tracer keeps process %d, which has ended, in the process table", zombies[0].PID))
	k.useless = true // the next job's end could not be told from theirs
	k.bury(reaped{})
	return true
}

// heedSurvivors deals with processes that KILL did not end: it kills a tracer
// that stops them, and reports the rest once.
func (k *keeper) heedSurvivors(now time.Time, living []Process) {
	h := k.held
	if h.ending.killedAt.IsZero() || len(living) == 0 {
		return
	}
	since := now.Sub(h.ending.killedAt)
	if since >= tracerPatience {
		for _, p := range living {
			p.EndTracers(k.record.UID)
		}
	}
	if since >= UnkillableAfter && h.vigil.stuck == nil {
		stuck := Worst(living)
		h.vigil.stuck = &stuck
		k.conn.send(stuck.frame(k.record.Record))
	}
}

// Stuck is a process that outlived KILL, and how many others did.
type Stuck struct {
	PID    int
	State  byte // as in /proc
	Others int
}

// Worst picks the process to report: one that the kernel holds in an
// uninterruptible wait, if there is one.
func Worst(living []Process) Stuck {
	worst := living[0]
	for _, p := range living {
		if p.State == 'D' {
			worst = p
			break
		}
	}
	return Stuck{PID: worst.PID, State: worst.State, Others: len(living) - 1}
}

func (s Stuck) frame(r Record) Frame {
	return Message(FrameStuck, "job", r.Job, "attempt", r.Attempt,
		"pid", s.PID, "process_state", string(rune(s.State)), "others", s.Others)
}

// StuckOf reads it back, with the job and the attempt it is about.
func StuckOf(f Frame) (s Stuck, job string, attempt int) {
	s.PID, _ = strconv.Atoi(f.Get("pid"))
	s.Others, _ = strconv.Atoi(f.Get("others"))
	if state := f.Get("process_state"); state != "" {
		s.State = state[0]
	}
	attempt, _ = strconv.Atoi(f.Get("attempt"))
	return s, f.Get("job"), attempt
}

// zombieStatus is the wait status of a process of which only the entry is
// left. The kernel shows it only to a process that may trace it, and shows 0
// to others: such a process has no program any more, which the kernel says
// only to the same ones.
func zombieStatus(pid int) (status syscall.WaitStatus, known bool) {
	dir := "/proc/" + strconv.Itoa(pid)
	if _, err := os.Readlink(dir + "/exe"); !errors.Is(err, os.ErrNotExist) {
		return 0, false
	}
	stat, err := os.ReadFile(dir + "/stat")
	if err != nil {
		return 0, false
	}
	const exitCode = 49 // of the fields after the name
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) <= exitCode {
		return 0, false
	}
	n, err := strconv.ParseUint(string(fields[exitCode]), 10, 32)
	return syscall.WaitStatus(n), err == nil
}

// EndTracers kills the tracers that stop a killed process before it has ended.
// A tracer can ask for that stop, and neither a second KILL nor a kill of the
// cgroup ends it. Only tracers of the job's user or the process's own are
// killed; uid 0 means the caller's own user.
func (p Process) EndTracers(uid int) {
	if uid == 0 {
		uid = os.Geteuid()
	}
	for _, thread := range threads(p.PID) {
		traced := statusOf(thread)
		if !strings.HasPrefix(traced["State"], "t") || traced["TracerPid"] == "0" || traced["TracerPid"] == "" {
			continue
		}
		tracer := statusOf("/proc/" + traced["TracerPid"])
		owner := tracer["Uid"]
		if owner != strconv.Itoa(uid) && (owner != traced["Uid"] || owner == "0") {
			continue
		}
		// The tracer may be a thread: its process is killed.
		pid, err := strconv.Atoi(tracer["Tgid"])
		if err != nil || pid == os.Getpid() {
			continue
		}
		if start, err := StartTicks(pid); err == nil && statusOf(thread)["TracerPid"] == traced["TracerPid"] {
			_ = Process{PID: pid, Start: start}.Signal(sigKILL)
		}
	}
}

// statusOf reads the first word of each line of a status file.
func statusOf(dir string) map[string]string {
	status, err := os.ReadFile(dir + "/status")
	if err != nil {
		return nil
	}
	values := map[string]string{}
	for line := range strings.Lines(string(status)) {
		key, value, _ := strings.Cut(line, ":")
		if words := strings.Fields(value); len(words) > 0 {
			values[key] = words[0]
		}
	}
	return values
}

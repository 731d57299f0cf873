package running

import (
	"fmt"
	"time"

	"berth/internal/run"
	"berth/internal/text"
)

// A job without GPUs is idle if it uses next to no CPU time. That is read beside the
// loop, and rarely: the answer only has to be finer than the time after which
// something is done about it.
const (
	cpuInterval      = 30 * time.Second
	cpuIntervalLeast = time.Second
	cpuIdlePart      = 0.01 // of one CPU; sleeping and waiting take less, computing more
)

// cpuReading is the CPU times of jobs at one time, by the token of their supervisors.
type cpuReading struct {
	at   time.Time
	used map[string]time.Duration
}

// cpuWatch is the reading that is under way, if any.
type cpuWatch struct {
	begun time.Time
	next  chan cpuReading // nil: none
}

// cpuUse is what a job without GPUs did by the last readings.
type cpuUse struct {
	at   time.Time
	used time.Duration
	idle bool // it used next to nothing since the reading before
}

// readCPUTimes takes in the last reading, and begins the next one when it is due.
func (u *Uses) readCPUTimes(now time.Time) {
	if u.cpu.next != nil {
		select {
		case r := <-u.cpu.next:
			u.cpu.next = nil
			u.took(r)
		default:
			return
		}
	}
	interval := u.cpuInterval()
	if since := now.Sub(u.cpu.begun); interval == 0 || since >= 0 && since < interval {
		return
	}
	var jobs []run.Identity
	for _, a := range u.set.Active {
		if identity, ok := u.set.Runner.Identity(a.Token); ok && a.withoutGPUs() {
			jobs = append(jobs, identity)
		}
	}
	if len(jobs) == 0 {
		return
	}
	next, times := make(chan cpuReading, 1), u.set.cfg.CPUTimes
	u.cpu = cpuWatch{begun: now, next: next}
	go func() { next <- cpuReading{now, times(jobs)} }()
}

// cpuInterval is the time between readings; 0: nobody wants to know.
func (u *Uses) cpuInterval() time.Duration {
	interval := time.Duration(0)
	for _, after := range []time.Duration{u.set.cfg.IdleAfter, u.set.cfg.IdleCancel} {
		if after > 0 && (interval == 0 || after < interval) {
			interval = after
		}
	}
	if u.set.cfg.CPUTimes == nil || interval == 0 {
		return 0
	}
	return min(max(interval/4, cpuIntervalLeast), cpuInterval)
}

// took compares a reading with the one before. A job whose time could not be read is
// not idle.
func (u *Uses) took(r cpuReading) {
	for _, a := range u.set.Active {
		used, read := r.used[a.Token]
		before, span := a.cpu, r.at.Sub(a.cpu.at)
		switch {
		case !read:
			a.cpu = cpuUse{}
		case before.at.IsZero() || span <= 0:
			a.cpu = cpuUse{at: r.at, used: used}
		default:
			// Less than before means that a process ended: that is a use as well.
			more := (used - before.used).Abs()
			a.cpu = cpuUse{at: r.at, used: used, idle: more.Seconds() < cpuIdlePart*span.Seconds()}
		}
	}
}

// withoutGPUs reports whether the job holds only CPUs. An adopted process holds
// none of them.
func (a *Attempt) withoutGPUs() bool { return len(a.Job.Grant.GPUs) == 0 && a.Job.Spec.Adopt == nil }

// idleOnCPUs reports whether a job without GPUs uses next to no CPU time.
func (a *Attempt) idleOnCPUs() (idle bool, what string) {
	if !a.cpu.idle {
		return false, ""
	}
	return true, fmt.Sprintf("holds %s and has used almost no CPU time", text.Count(a.Job.ChargedCPUs(), "CPU"))
}

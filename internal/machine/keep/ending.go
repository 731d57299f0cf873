package keep

import "time"

// action is what is due for a job's processes.
type action int

const (
	nothing action = iota
	warn           // the warning signal before the limit
	term           // TERM to every process
	kill           // KILL to every process, repeatedly
)

// Rounds of KILL come quickly at first, then at this pace: a process that the
// kernel cannot kill yet is not worth a busy loop.
const (
	firstKillPause = 10 * time.Millisecond
	lastKillPause  = time.Second
)

// never is the time left until something that is not planned.
const never = time.Duration(-1 << 63)

// ending decides when a job's processes get which signal. It knows no process
// and no clock: times are arguments. A zero time means "not planned".
type ending struct {
	grace time.Duration

	warnAt, limitAt time.Time
	announceAt      time.Time // the warning signal, because berth requested it
	termAt, killAt  time.Time
	killPause       time.Duration
	killedAt        time.Time // when KILL was first due

	warnLeft, limitLeft time.Duration // while the clocks are stopped

	stamp  string // of the last warning that berth requested
	termed bool   // TERM was sent
	deaf   bool   // it is being parked or resumed: TERM waits for that
	exited bool   // the main process is gone
	stop   string // why it is being stopped; the first reason stays
}

func newEnding(now time.Time, o Order) ending {
	e := ending{grace: o.Grace, killPause: firstKillPause}
	if o.Limit > 0 {
		e.limitAt = now.Add(o.Limit)
		if o.WarnSignal != 0 {
			e.warnAt = e.limitAt.Add(-o.WarnBefore)
		}
	}
	return e
}

// request stops the job: TERM now, KILL after the grace period. A later
// request can shorten the grace period and nothing else. Once the main process
// is gone its status is final, and a request only speeds up the end of what it
// left behind.
func (e *ending) request(now time.Time, why string, grace time.Duration) {
	if e.stop == "" && !e.exited {
		e.stop = why
	}
	if !e.termed {
		e.termAt = now
	}
	if at := now.Add(max(0, grace)); e.killAt.IsZero() || at.Before(e.killAt) {
		e.killAt = at
	}
	e.warnAt, e.limitAt, e.announceAt = time.Time{}, time.Time{}, time.Time{}
}

// announce sends the warning signal now. A restarted berth asks again with the
// same stamp, and the job gets one signal only. A job that is being stopped
// needs no warning.
func (e *ending) announce(now time.Time, stamp string, wanted bool) {
	if !wanted || stamp == e.stamp || e.exited || !e.killAt.IsZero() {
		return
	}
	e.stamp, e.announceAt = stamp, now
}

// mainExited starts the clock for what the main process left behind: the grace
// period to finish by itself, then TERM, the grace period again, then KILL.
// The time limit still ends them, but the job has ended by itself.
func (e *ending) mainExited(now time.Time) {
	e.exited = true
	e.warnAt, e.announceAt = time.Time{}, time.Time{}
	if e.killAt.IsZero() {
		e.termAt = now.Add(e.grace)
		e.killAt = e.termAt.Add(e.grace)
	}
}

// due returns what has to be done now, one action at a time, and removes it
// from the plan.
func (e *ending) due(now time.Time) action {
	if reached(e.limitAt, now) {
		e.request(now, "timeout", e.grace)
	}
	switch {
	case reached(e.warnAt, now):
		e.warnAt = time.Time{}
		return warn
	case reached(e.announceAt, now):
		e.announceAt = time.Time{}
		return warn
	case !e.deaf && reached(e.termAt, now):
		e.killAt = e.killAt.Add(now.Sub(e.termAt)) // it comes late: so does the end of the grace period
		e.termAt, e.termed = time.Time{}, true
		return term
	case reached(e.killAt, now):
		if e.killedAt.IsZero() {
			e.killedAt = now
		}
		e.killAt = now.Add(e.killPause)
		e.killPause = min(2*e.killPause, lastKillPause)
		return kill
	}
	return nothing
}

// took reports how long an action took. A tree that is halted for its TERM
// cannot react, so its grace period counts from then on. The next round of
// KILL waits at least as long again: a supervisor that only examines a huge
// tree would never notice that it is gone.
func (e *ending) took(what action, spent time.Duration) {
	switch what {
	case term:
		e.killAt = e.killAt.Add(spent)
	case kill:
		e.killAt = e.killAt.Add(2 * spent)
	case nothing, warn:
	}
}

// next is the earliest time at which something will be due.
func (e *ending) next() (at time.Time, planned bool) {
	for _, t := range [...]time.Time{e.warnAt, e.announceAt, e.limitAt, e.termAt, e.killAt} {
		if e.deaf && t.Equal(e.termAt) {
			continue
		}
		if !t.IsZero() && (at.IsZero() || t.Before(at)) {
			at = t
		}
	}
	return at, !at.IsZero()
}

// suspend stops the clocks of a job that is parked: it neither works nor reaches
// its limit.
func (e *ending) suspend(now time.Time) {
	left := func(at time.Time) time.Duration {
		if at.IsZero() {
			return never
		}
		return at.Sub(now)
	}
	e.warnLeft, e.limitLeft = left(e.warnAt), left(e.limitAt)
	e.warnAt, e.limitAt, e.announceAt = time.Time{}, time.Time{}, time.Time{}
}

// resume lets them go on.
func (e *ending) resume(now time.Time) {
	again := func(left time.Duration) time.Time {
		if left == never || e.stop != "" || e.exited {
			return time.Time{}
		}
		return now.Add(left)
	}
	e.warnAt, e.limitAt = again(e.warnLeft), again(e.limitLeft)
}

// hurry kills the job now: it is parked, and could not react to TERM.
func (e *ending) hurry(now time.Time) {
	e.termAt = time.Time{}
	if e.killedAt.IsZero() && (e.killAt.IsZero() || e.killAt.After(now)) {
		e.killAt = now
	}
}

func reached(at, now time.Time) bool { return !at.IsZero() && !now.Before(at) }

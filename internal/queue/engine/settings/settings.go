package settings

import (
	"log/slog"
	"time"

	"berth/internal/job"
	"berth/internal/machine/gpu"
	"berth/internal/machine/run"
	"berth/internal/sched"
)

// Settings is what the owner of a queue decides. Some of it can change while the
// engine runs.
type Settings struct {
	Rules     sched.Rules
	Host      sched.Host
	Cards     []int        // only these; nil: all
	Devices   []gpu.Device // the cards found; the engine reads their free memory itself
	NoGPUs    bool         // there are none, so what needs one can be refused
	Xids      []gpu.Xid    // errors reported for them meanwhile
	Poll      time.Duration
	Rest      bool // stop polling the cards after they have been idle for long
	Tolerance float64
	User      string
	Limits    Limits
	HalfLife  time.Duration // of usage, under Rules.Fair
	KeepAll   bool          // preempt no job, not even a preemptible one
	Outer     string        // the booking of the job this berth itself runs in
	// IdleAfter is how long a job may hold its cards, or CPUs, without using them
	// before that is reported, IdleCancel before the job is cancelled; 0: never.
	IdleAfter, IdleCancel time.Duration
	// CPUTimes is the CPU time that jobs have used, by token. It runs beside the
	// loop. Nil: no job is idle for using no CPU time.
	CPUTimes func(jobs []run.Identity) map[string]time.Duration
	Overuse  Overuse
	// MaxGrace bounds the time between TERM and KILL, and how long a warning signal
	// may delay a preemption; 0: the job decides.
	MaxGrace time.Duration
	Parking  Parking

	// LimitedLast sends a job that reached its time limit behind every priority;
	// otherwise it stays before lower ones.
	LimitedLast bool
	Submissions bool                 // jobs arrive one by one, so the end of the queue is the next number
	TellQueued  bool                 // publish an event for each new job too
	Wanted      func(id string) bool // asked when a job comes back to the queue; nil: always
	Log         *slog.Logger
}

// Limits is how much of the machine a user may have at a time.
type Limits struct {
	Default sched.Limit
	Users   map[string]sched.Limit
	// Measured means that a share of a GPU counts as a whole one until it was
	// measured.
	Measured bool
}

// Shares reports whether some user has a share of the GPUs.
func (l *Limits) Shares() bool {
	has := l.Default.Share > 0
	for _, own := range l.Users {
		has = has || own.Share > 0
	}
	return has
}

// Of is the limit of one user.
func (l *Limits) Of(user string) sched.Limit {
	if own, some := l.Users[user]; some {
		return own
	}
	return l.Default
}

// Overuse is when a job that uses far more memory than it declared is ended.
type Overuse struct {
	Above float64       // by how much it must exceed the declaration, as a fraction of it
	After time.Duration // for how long; 0: no job is ended
	// Harmful means that only the time counts during which others suffer: the user is
	// over the limit on GPUs, or somebody else's job waits for room on the job's GPUs.
	Harmful bool
}

// Parking is how this berth parks jobs.
type Parking struct {
	// Cannot is why no job can be parked here; empty: jobs can be.
	Cannot string
	// All lets jobs be parked for others that did not ask for it, except gangs and
	// those with NoPark.
	All bool
	// First parks jobs that are to be requeued for others, where that is possible.
	First bool
	// Patience is how long a running kernel is waited for, if the job does not say.
	Patience time.Duration
	// MemoryMiB is how much host memory parked jobs may take in all, and UserMiB how
	// much those of one user may; 0: as much as is free, below 0: none.
	MemoryMiB, UserMiB int64
	// FreeMiB is how much host memory is free now, while parked jobs have that much.
	// Nil: it is not known, and nothing is checked.
	FreeMiB func(parkedMiB int64) int64
	// Longest is how long a person may have a job parked; 0: as long as they like.
	Longest time.Duration
	// Idle is how long a job may leave its cards unused before it is parked; 0: it
	// stays.
	Idle time.Duration
	// Strict ends a job that was to be parked at its time limit and cannot be.
	Strict bool
}

// DefaultParking is how jobs are parked without any setting: those that asked for
// it.
var DefaultParking = Parking{Patience: time.Minute}

// Parks reports whether jobs like this are parked for others. The processes of a
// gang often share memory between cards, which no driver parks yet: it has to ask.
func (c *Settings) Parks(spec *job.Spec) bool {
	switch {
	case c.KeepAll || c.Parking.Cannot != "" || spec.NoPark || spec.GPUs == 0 || spec.Adopt != nil:
		return false
	case spec.Preemptible == job.PreemptByRequeue:
		return c.Parking.First
	}
	return spec.Preemptible.Parks() || c.Parking.All && spec.GPUs == 1
}

// Requeues reports whether jobs like this are ended for others, and run again.
func (c *Settings) Requeues(spec *job.Spec) bool {
	return spec.Preemptible.Requeues() && !c.KeepAll && spec.Adopt == nil
}

// Requeued is what that costs.
func (c *Settings) Requeued(j *job.Job) sched.Preempt {
	spec := &j.Spec
	p := sched.Preempt{Mode: sched.Requeue, StopTime: c.Warning(spec) + c.Bounded(spec.Grace)}
	if j.Saves() {
		p.Saves, p.SavesEvery, p.ResumeTime = true, j.Interval(), c.Rules.Restart()
	}
	return p
}

// KeepsWork reports whether such a job makes room without losing what it did.
func (c *Settings) KeepsWork(j *job.Job) bool {
	return c.Parks(&j.Spec) || c.Requeues(&j.Spec) && j.Saves()
}

// ParkHistory is what earlier jobs showed about parking.
type ParkHistory interface {
	// ParkCost is what it costs to park a job that uses this much memory.
	ParkCost(mib int64) sched.Preempt
	// ParkRefused reports whether the user's jobs of this kind could not be parked.
	ParkRefused(user, kind string) bool
}

// GivesWay is how a job that waits can make room for others once it runs.
func (c *Settings) GivesWay(j *job.Job, kind string, p ParkHistory) sched.Preempt {
	switch {
	case c.Parks(&j.Spec) && !p.ParkRefused(j.User, kind):
		return p.ParkCost(max(j.VRAMMiB, j.Parking.HostMiB()))
	case c.Requeues(&j.Spec):
		return c.Requeued(j)
	}
	return sched.Preempt{}
}

// Until is when a job comes back by itself that a person has parked; zero: not.
func (p *Parking) Until(since, wanted time.Time) time.Time {
	latest := since.Add(p.Longest)
	if p.Longest <= 0 || !wanted.IsZero() && wanted.Before(latest) {
		return wanted
	}
	return latest
}

// DefaultIdleAfter is the default time without use after which a job is
// reported.
const DefaultIdleAfter = 30 * time.Minute

// Bounded is a grace period or a warning time within what this berth allows.
// Every stop and every order passes here, so a job that was submitted under a
// higher maximum gets no more.
func (c *Settings) Bounded(d time.Duration) time.Duration {
	if c.MaxGrace > 0 {
		return min(d, c.MaxGrace)
	}
	return d
}

// Warning is how long before berth stops it a job gets its warning signal. The
// signal before a time limit delays nothing and has no maximum.
func (c *Settings) Warning(spec *job.Spec) time.Duration {
	if spec.WarnSignal == "" {
		return 0
	}
	return c.Bounded(spec.WarnBefore)
}

// Longest is how long an attempt can hold its cards: the time limit, and the
// grace period that follows. 0: there is no limit.
func (c *Settings) Longest(spec *job.Spec) time.Duration {
	if spec.TimeLimit <= 0 {
		return 0
	}
	return spec.TimeLimit + c.Bounded(spec.Grace)
}

// Left is how long a job can hold its cards from when it gets them: what parking
// interrupted counts against its time limit. 0: there is no limit.
func (c *Settings) Left(j *job.Job) time.Duration {
	longest := c.Longest(&j.Spec)
	if longest == 0 {
		return 0
	}
	return max(time.Second, longest-(j.Parking.Served-j.Parking.Sliced))
}

// SettleAtMost is when a share of a GPU counts as measured, whatever it does.
const SettleAtMost = 30 * time.Second

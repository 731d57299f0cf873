package config

import (
	"sync/atomic"
	"time"

	"berth/internal/job"
	"berth/internal/machine/site"
	"berth/internal/text"
	"berth/internal/text/problem"
)

// BoundGrace keeps a job from outliving its time limit, a cancellation or a
// preemption for long. The engine applies the same maximum to jobs that were
// accepted under a higher one.
func (c *Config) BoundGrace(grace time.Duration) error {
	if c.Grace <= 0 || grace <= c.Grace {
		return nil
	}
	return problem.Newf(problem.Refused, "limits.grace of the config is the maximum; for more time to save, --signal USR1@600 warns a job 10 minutes before its time limit",
		"grace: expected at most %s, found %s", text.Brief(c.Grace), text.Brief(grace))
}

// CheckGrace judges the grace period of a request, in seconds.
func (c *Config) CheckGrace(seconds *float64) error {
	switch {
	case seconds == nil:
		return nil
	case !(*seconds <= text.MaxDuration.Seconds()): // NaN is not either
		return problem.Newf(problem.Invalid, "", "grace_s: expected at most %s, found %v seconds", text.Brief(text.MaxDuration), *seconds)
	}
	return c.BoundGrace(time.Duration(max(0, *seconds) * float64(time.Second)))
}

// JobDefaults is a job that asks for nothing.
func (c *Config) JobDefaults() job.Spec {
	spec := job.Defaults()
	if c.Grace > 0 {
		spec.Grace = min(spec.Grace, c.Grace)
	}
	return spec
}

// CheckParked refuses to have a job parked for longer than allowed.
func (c *Config) CheckParked(until *time.Time) error {
	if until == nil || c.ParkedTime <= 0 || time.Until(*until) <= c.ParkedTime {
		return nil
	}
	return problem.Newf(problem.Invalid, "limits.parked_time of the config is the maximum",
		"until: expected at most %s from now, found %s", text.Brief(c.ParkedTime), until.Local().Format(time.DateTime))
}

// MemoryMiB is the most host memory of one job; 0: no limit.
func (c *Config) MemoryMiB() int64 {
	if c.Memory == (Portion{}) {
		return 0 // without asking the host, which reads several files
	}
	return int64(c.Memory.Of(float64(hostMiB.now())))
}

// hostMiB is the host's memory. Each job that asks for memory, and each start, is
// held to a part of it, and reading it opens several files.
var hostMiB recent

// recent is a figure that is read again after a second.
type recent struct{ read atomic.Pointer[reading] }

type reading struct {
	at    time.Time
	total int64
}

func (r *recent) now() int64 {
	if last := r.read.Load(); last != nil && time.Since(last.at) < time.Second {
		return last.total
	}
	_, total := site.Host()
	r.read.Store(&reading{time.Now(), total})
	return total
}

// BoundMemory refuses a job that asks for more host memory than it may have.
func (c *Config) BoundMemory(spec *job.Spec) error {
	if spec.MemMiB == 0 {
		return nil
	}
	most := c.MemoryMiB()
	if most <= 0 || spec.MemMiB <= most {
		return nil
	}
	return problem.Newf(problem.Refused, "limits.memory of the config is the maximum of one job", "mem: expected at most %d MiB, found %d MiB", most, spec.MemMiB)
}

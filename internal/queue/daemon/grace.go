package daemon

import (
	"time"

	"berth/internal/job"
	"berth/internal/text"
	"berth/internal/text/problem"
)

// boundGrace keeps a job from outliving its time limit, a cancellation or a
// preemption for long. The engine applies the same maximum to jobs that were
// accepted under a higher one.
func (c *Config) boundGrace(grace time.Duration) error {
	if c.Grace <= 0 || grace <= c.Grace {
		return nil
	}
	return problem.Newf(problem.Refused, "limits.grace of the config is the maximum; for more time to save, --signal USR1@600 warns a job 10 minutes before its time limit",
		"grace: expected at most %s, found %s", text.Brief(c.Grace), text.Brief(grace))
}

// checkGrace judges the grace period of a request, in seconds.
func (c *Config) checkGrace(seconds *float64) error {
	switch {
	case seconds == nil:
		return nil
	case !(*seconds <= text.MaxDuration.Seconds()): // NaN is not either
		return problem.Newf(problem.Invalid, "", "grace_s: expected at most %s, found %v seconds", text.Brief(text.MaxDuration), *seconds)
	}
	return c.boundGrace(time.Duration(max(0, *seconds) * float64(time.Second)))
}

// defaults is a job that asks for nothing.
func (c *Config) defaults() job.Spec {
	spec := job.Defaults()
	if c.Grace > 0 {
		spec.Grace = min(spec.Grace, c.Grace)
	}
	return spec
}

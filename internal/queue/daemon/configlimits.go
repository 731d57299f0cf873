package daemon

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"berth/internal/job"
	"berth/internal/machine/site"
	"berth/internal/queue/engine/settings"
	"berth/internal/sched"
	"berth/internal/text/problem"
)

// Portion is an amount, or a part of what the machine has. The zero Portion is
// no limit.
type Portion struct{ Amount, Percent float64 }

// of is the portion where the machine has that much.
func (p Portion) of(total float64) float64 {
	if p.Percent > 0 {
		return math.Ceil(total * p.Percent / 100)
	}
	return p.Amount
}

// UserLimit bounds one user's running jobs; a part that is 0 is not limited.
type UserLimit struct {
	Jobs       int
	GPUs, CPUs Portion
	Memory     Portion // of the host, in MiB
}

// Limits bounds all users, and single ones differently.
type Limits struct {
	Default UserLimit
	Users   map[string]UserLimit
}

// on is the limits on such a machine. A part of a single GPU is no limit: jobs that
// declare their memory count as one GPU each, so it would keep them from sharing it.
// A part of the CPUs is at least one, which is what a job without GPUs needs.
func (l Limits) on(gpus int, host sched.Host) settings.Limits {
	limit := func(u UserLimit) sched.Limit {
		found := sched.Limit{Jobs: u.Jobs, CPUs: int(u.CPUs.of(float64(host.CPUs))), MemMiB: int64(u.Memory.of(float64(host.MemMiB)))}
		if u.GPUs.Percent == 0 || gpus > 1 {
			found.GPUs = u.GPUs.of(float64(gpus))
		}
		return found
	}
	found := settings.Limits{Default: limit(l.Default)}
	for user, own := range l.Users {
		putIn(&found.Users, user, limit(own))
	}
	return found
}

// namesPatience is how long all names of a config may take to look up.
const namesPatience = 5 * time.Second

// UnknownUsers says which users that the config names do not exist. One that cannot
// be looked up counts as known.
func (c *Config) UnknownUsers(ctx context.Context, users *site.Users) (warnings []string) {
	names := map[string]bool{}
	for name := range c.Limits.Users {
		names[name] = true
	}
	for name := range c.QueuedJobsOf {
		names[name] = true
	}
	ctx, cancel := context.WithTimeout(ctx, namesPatience)
	defer cancel()
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if _, err := users.ByName(ctx, name); errors.Is(err, site.ErrUnknownUser) {
			warnings = append(warnings, fmt.Sprintf("%s.%s: there is no user %s, so these limits apply to nobody", usersTable, name, name))
		}
	}
	return warnings
}

// readPortion reads a percentage, or what read reads.
func readPortion(read func(any) (float64, error)) func(any) (Portion, error) {
	return func(value any) (Portion, error) {
		if written, ok := value.(string); ok {
			if number, found := strings.CutSuffix(strings.TrimSpace(written), "%"); found {
				percent, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
				if err != nil || !(percent > 0 && percent <= 100) {
					return Portion{}, mismatch(value, "a percentage above 0% and up to 100%")
				}
				return Portion{Percent: percent}, nil
			}
		}
		amount, err := read(value)
		if err != nil {
			return Portion{}, fmt.Errorf("%w (a percentage such as \"50%%\" is accepted too)", err)
		}
		return Portion{Amount: amount}, nil
	}
}

func readMiB(value any) (float64, error) {
	mib, err := readSize(value)
	return float64(mib), err
}

func readCPUs(value any) (float64, error) {
	cpus, err := readCount(0, maxCPUs)(value)
	return float64(cpus), err
}

// memoryMiB is the most host memory of one job; 0: no limit.
func (c *Config) memoryMiB() int64 {
	if c.Memory == (Portion{}) {
		return 0 // without asking the host, which reads several files
	}
	_, total := site.Host()
	return int64(c.Memory.of(float64(total)))
}

// boundMemory refuses a job that asks for more host memory than it may have.
func (c *Config) boundMemory(spec *job.Spec) error {
	if spec.MemMiB == 0 {
		return nil
	}
	most := c.memoryMiB()
	if most <= 0 || spec.MemMiB <= most {
		return nil
	}
	return problem.Newf(problem.Refused, "limits.memory of the config is the maximum of one job", "mem: expected at most %d MiB, found %d MiB", most, spec.MemMiB)
}

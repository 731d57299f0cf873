package config

import (
	"cmp"
	"fmt"
	"math"
	"strconv"
	"strings"

	"berth/internal/queue/engine/settings"
	"berth/internal/sched"
)

// Portion is an amount, or a part of what the machine has. The zero Portion is
// no limit.
type Portion struct{ Amount, Percent float64 }

// Of is the portion where the machine has that much.
func (p Portion) Of(total float64) float64 {
	if p.Percent > 0 {
		return math.Ceil(total * p.Percent / 100)
	}
	return p.Amount
}

// UserLimit bounds one user's running jobs; a part that is 0 is not limited.
type UserLimit struct {
	Jobs    int
	GPUs    Portion // beyond this, they are borrowed
	MostGPU Portion
	CPUs    Portion
	Memory  Portion // of the host, in MiB
}

// Limits bounds all users, and single ones differently.
type Limits struct {
	Default UserLimit
	Users   map[string]UserLimit
}

// On is the limits on such a machine. A part of a single GPU is no limit: jobs that
// declare their memory count as one GPU each, so it would keep them from sharing it.
// A part of the CPUs is at least one, which is what a job without GPUs needs.
func (l Limits) On(gpus int, host sched.Host) settings.Limits {
	limit := func(u UserLimit) sched.Limit {
		most := func(p Portion) float64 {
			if p.Percent > 0 && gpus <= 1 {
				return 0
			}
			return p.Of(float64(gpus))
		}
		return sched.Limit{
			Jobs: u.Jobs, Share: most(u.GPUs), GPUs: most(u.MostGPU),
			CPUs: int(u.CPUs.Of(float64(host.CPUs))), MemMiB: int64(u.Memory.Of(float64(host.MemMiB))),
		}
	}
	found := settings.Limits{Default: limit(l.Default)}
	for user, own := range l.Users {
		putIn(&found.Users, user, limit(own))
	}
	return found
}

// RulesWith is the rules where users have these limits.
func (c *Config) RulesWith(l settings.Limits) sched.Rules {
	r := c.Rules
	if r.BorrowTime = cmp.Or(r.BorrowTime, -1); !l.Shares() {
		r.BorrowTime = 0
	}
	return r
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

func putIn[T any](to *map[string]T, key string, value T) {
	if *to == nil {
		*to = map[string]T{}
	}
	(*to)[key] = value
}

package waiting

import (
	"encoding/json"
	"fmt"
	"time"

	"berth/internal/job"
	"berth/internal/sched"
	"berth/internal/text"
)

// usage is the GPU seconds of each user, halved after each half-life: the basis
// of fair share. CPUs and host memory count as GPUs, where a job has more of those.
type usage struct {
	At      time.Time          `json:"at"`
	Seconds map[string]float64 `json:"gpu_seconds"`

	Since time.Time // since when the stored usage is out of date
}

// UsageKey is the store's key for it.
const UsageKey = "usage"

// UsageDelay bounds how much of it a crash may lose.
const UsageDelay = 30 * time.Second

// Decayed is the usage at a given time.
func (u *usage) Decayed(now time.Time, halfLife time.Duration) map[string]float64 {
	return sched.Decayed(u.Seconds, now.Sub(u.At), halfLife)
}

// Charge adds an attempt's GPU time to its user's usage.
func (u *usage) Charge(now time.Time, j *job.Job, until time.Time, scale sched.Scale, halfLife time.Duration) {
	if j.StartedAt.IsZero() {
		return
	}
	u.At, u.Seconds = now, u.Decayed(now, halfLife)
	u.Seconds[j.User] += GpuSeconds(j, until, scale)
	if u.Since.IsZero() {
		u.Since = now
	}
}

// GpuSeconds is the time on cards; a share counts as that part of a card, or as
// the memory the job took there.
func GpuSeconds(j *job.Job, until time.Time, scale sched.Scale) float64 {
	return AllocationOf(j).FairWeight(scale) * max(0, until.Sub(j.RunsSince()).Seconds())
}

// AllocationOf is what a running job counts as, by its last measurement.
func AllocationOf(j *job.Job) *sched.Allocation {
	return &sched.Allocation{Cards: j.Grant.GPUs, Share: j.Grant.Share, OverGPUs: j.OverGPUs, CPUs: j.ChargedCPUs(), MemMiB: j.Spec.MemMiB}
}

// Save returns the value to store, once it is old enough or at once.
func (u *usage) Save(now time.Time, atOnce bool) (value string, due bool) {
	if u.Since.IsZero() || !atOnce && now.Sub(u.Since) < UsageDelay {
		return "", false
	}
	u.Since = time.Time{}
	return string(text.MustJSON(u)), true
}

// Restore takes over the usage from an earlier berth.
func (u *usage) Restore(meta func(key string) (string, error)) error {
	value, err := meta(UsageKey)
	if err != nil || value == "" {
		return err
	}
	if err := json.Unmarshal([]byte(value), u); err != nil {
		return fmt.Errorf("read users' usage: %w", err)
	}
	return nil
}

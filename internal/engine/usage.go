package engine

import (
	"encoding/json"
	"fmt"
	"time"

	"berth/internal/job"
	"berth/internal/sched"
)

// Limits is how much of the machine a user may have at a time.
type Limits struct {
	Default sched.Limit
	Users   map[string]sched.Limit
	// Measured means that a share of a GPU counts as a whole one until it was
	// measured.
	Measured bool
}

// of is the limit of one user.
func (l *Limits) of(user string) sched.Limit {
	if own, some := l.Users[user]; some {
		return own
	}
	return l.Default
}

// usage is the GPU seconds of each user, halved after each half-life: the basis
// of fair share. CPUs and host memory count as GPUs, where a job has more of those.
type usage struct {
	At      time.Time          `json:"at"`
	Seconds map[string]float64 `json:"gpu_seconds"`

	since time.Time // since when the stored usage is out of date
}

// usageKey is the store's key for it.
const usageKey = "usage"

// usageDelay bounds how much of it a crash may lose.
const usageDelay = 30 * time.Second

// decayed is the usage at a given time.
func (u *usage) decayed(now time.Time, halfLife time.Duration) map[string]float64 {
	return sched.Decayed(u.Seconds, now.Sub(u.At), halfLife)
}

// charge adds an attempt's GPU time to its user's usage.
func (u *usage) charge(now time.Time, j *job.Job, until time.Time, scale sched.Scale, halfLife time.Duration) {
	if j.StartedAt.IsZero() {
		return
	}
	u.At, u.Seconds = now, u.decayed(now, halfLife)
	u.Seconds[j.User] += gpuSeconds(j, until, scale)
	if u.since.IsZero() {
		u.since = now
	}
}

// gpuSeconds is the time on cards; a share counts as that part of a card, or as
// the memory the job took there.
func gpuSeconds(j *job.Job, until time.Time, scale sched.Scale) float64 {
	return holding(j).FairWeight(scale) * max(0, until.Sub(j.RunsSince()).Seconds())
}

// holding is what a running job counts as, by its last measurement.
func holding(j *job.Job) *sched.Held {
	return &sched.Held{Cards: j.Grant.GPUs, Share: j.Grant.Share, OverGPUs: j.OverGPUs, CPUs: j.ChargedCPUs(), MemMiB: j.Spec.MemMiB}
}

// save returns the value to store, once it is old enough or at once.
func (u *usage) save(now time.Time, atOnce bool) (value string, due bool) {
	if u.since.IsZero() || !atOnce && now.Sub(u.since) < usageDelay {
		return "", false
	}
	u.since = time.Time{}
	data, err := json.Marshal(u)
	if err != nil {
		panic("bug: " + err.Error())
	}
	return string(data), true
}

// restore takes over the usage from an earlier berth.
func (u *usage) restore(meta func(key string) (string, error)) error {
	value, err := meta(usageKey)
	if err != nil || value == "" {
		return err
	}
	if err := json.Unmarshal([]byte(value), u); err != nil {
		return fmt.Errorf("read users' usage: %w", err)
	}
	return nil
}

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
}

// usage is what users had, in GPU-seconds that count half after each
// half-life. It is what a fair share is fair about.
type usage struct {
	At      time.Time          `json:"at"`
	Seconds map[string]float64 `json:"gpu_seconds"`
}

// usageKey is where the store keeps it.
const usageKey = "usage"

// usageDelay bounds how much of it a crash may forget.
const usageDelay = 30 * time.Second

// decayed is the usage as it counts at a time.
func (u usage) decayed(now time.Time, halfLife time.Duration) map[string]float64 {
	return sched.Decayed(u.Seconds, now.Sub(u.At), halfLife)
}

// charge books what an attempt had of the cards to its user.
func (t *Turn) charge(j *job.Job, until time.Time) {
	if !t.cfg.Rules.Fair || j.StartedAt.IsZero() {
		return
	}
	t.usage = usage{At: t.Now, Seconds: t.usage.decayed(t.Now, t.cfg.HalfLife)}
	t.usage.Seconds[j.User] += gpuSeconds(j, until)
	if t.usageSince.IsZero() {
		t.usageSince = t.Now
	}
}

// gpuSeconds is the time on cards, a share counting as that share.
func gpuSeconds(j *job.Job, until time.Time) float64 {
	return holding(j).FairWeight() * max(0, until.Sub(j.StartedAt).Seconds())
}

// holding is what a running job counts as.
func holding(j *job.Job) *sched.Held {
	h := &sched.Held{Cards: j.Grant.GPUs, Share: j.Grant.Share, CPUs: j.Spec.CPUs}
	if len(h.Cards) == 0 {
		h.CPUs = max(1, h.CPUs)
	}
	return h
}

// saveUsage lets the usage ride on a commit once it is old enough.
func (t *Turn) saveUsage(atOnce bool) {
	if t.usageSince.IsZero() || !atOnce && t.Now.Sub(t.usageSince) < usageDelay {
		return
	}
	t.usageSince = time.Time{}
	value, err := json.Marshal(t.usage)
	if err != nil {
		panic("bug: " + err.Error())
	}
	t.meta[usageKey] = string(value)
}

// RestoreUsage takes over what an earlier berth had counted.
func (t *Turn) RestoreUsage(meta func(key string) (string, error)) error {
	value, err := meta(usageKey)
	if err != nil || value == "" {
		return err
	}
	if err := json.Unmarshal([]byte(value), &t.usage); err != nil {
		return fmt.Errorf("read users' usage: %w", err)
	}
	return nil
}

// shares fills in what the plan needs to know of users and arrays.
func (t *Turn) shares(s *sched.State) {
	s.DefaultLimit, s.Limits = t.cfg.Limits.Default, t.cfg.Limits.Users
	s.Pools, s.InUse = map[string]int{}, map[string]sched.Use{}
	if t.cfg.Rules.Fair {
		s.Usage, s.FairQuantum, s.HalfLife = t.usage.decayed(t.Now, t.cfg.HalfLife), sched.FairQuantum, t.cfg.HalfLife
	}
	for _, a := range t.active {
		j := a.job
		if j.Spec.ArrayLimit > 0 {
			s.Pools[j.Array()]++
		}
		use := s.InUse[j.User]
		use.Jobs++
		held := holding(j)
		use.GPUs += held.CountedGPUs()
		s.InUse[j.User] = use
		if t.cfg.Rules.Fair {
			s.Usage[j.User] += gpuSeconds(j, t.Now) + sched.FairQuantum*held.FairWeight()
		}
	}
}

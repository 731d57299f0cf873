package running

import (
	"context"
	"os"
	"time"

	"berth/internal/job"
	"berth/internal/machine/gpu"
)

// LimitDeadline bounds how long setting limits in the driver may take.
const LimitDeadline = 15 * time.Second

// memoryLimits are the cgroups in which the driver limits GPU memory, with the
// last request for each. Jobs of one supervisor share a cgroup, so a job without
// a limit must clear that of the previous one.
type memoryLimits map[string]<-chan struct{}

// maxLimited is when cgroups that no longer exist are dropped.
const maxLimited = 1000

// LimitMemory has the driver limit a new job to its budget, if it can. Nothing
// waits for that, and if it fails the job runs anyway. ask runs a function in the
// loop.
func (s *Set) LimitMemory(a *Attempt, cgroup string, ask func(context.Context, func(now time.Time))) {
	driver, ok := s.cards.Source.(gpu.Limiter)
	before := s.Limits[cgroup]
	if !ok || cgroup == "" || !driver.CanLimit() || !capped(a.Job) && before == nil {
		return
	}
	done := make(chan struct{})
	s.Limits.remember(cgroup, done)
	limits := driverLimits(a.Job, cgroup)
	go func() {
		defer close(done)
		if before != nil {
			<-before // the previous job's request must not arrive later
		}
		// The wait for it is not part of this request's deadline.
		ctx, cancel := context.WithTimeout(context.Background(), LimitDeadline)
		defer cancel()
		for _, limit := range limits {
			if err := driver.Limit(ctx, limit); err != nil {
				// Its own deadline may have passed.
				told, cancel := context.WithTimeout(context.Background(), LimitDeadline)
				defer cancel()
				ask(told, func(now time.Time) { s.limitFailed(now, a, err) })
				return
			}
		}
	}()
}

func (s *Set) limitFailed(now time.Time, a *Attempt, err error) {
	if s.Active[a.Job.ID] != a {
		return // the job has ended
	}
	text := "the driver does not limit its memory: "
	if !capped(a.Job) {
		text = "the driver may still apply the memory limit of the previous job: "
	}
	s.changes.Tell(now, job.EventWarning, a.Job, text+err.Error())
}

func (m memoryLimits) remember(cgroup string, done <-chan struct{}) {
	if len(m) >= maxLimited {
		for dir := range m {
			if _, err := os.Stat(dir); err != nil {
				delete(m, dir)
			}
		}
	}
	m[cgroup] = done
}

// capped reports whether the job asked to be held to an amount of memory.
func capped(j *job.Job) bool {
	return (j.Spec.Cap == "soft" || j.Spec.Cap == "mps") && j.BudgetMiB() > 0
}

// driverLimits is one limit per card: a soft cap guarantees memory, a hard one
// limits it, and none clears an earlier limit.
func driverLimits(j *job.Job, cgroup string) []gpu.MemoryLimit {
	limits := make([]gpu.MemoryLimit, 0, len(j.Grant.UUIDs))
	for _, uuid := range j.Grant.UUIDs {
		limit := gpu.MemoryLimit{Cgroup: cgroup, UUID: uuid}
		switch {
		case !capped(j):
		case j.Spec.Cap == "mps":
			limit.HardMiB = j.BudgetMiB()
		default:
			limit.SoftMiB = j.BudgetMiB()
		}
		limits = append(limits, limit)
	}
	return limits
}

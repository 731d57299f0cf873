package engine

import (
	"context"
	"os"
	"time"

	"berth/internal/gpu"
	"berth/internal/job"
)

// limitDeadline bounds how long the driver is given to set limits.
const limitDeadline = 15 * time.Second

// memoryLimits are the cgroups in which the driver limits device memory, and
// what was last asked of it there. A supervisor's jobs follow one another in one
// cgroup, so a limit has to be taken back for a job that has none.
type memoryLimits map[string]<-chan struct{}

// maxLimited is when cgroups that are gone are forgotten.
const maxLimited = 1000

// limitMemory has the driver hold a job that has just begun to its budget, where
// it can. Nothing waits for that, and the job goes on where it fails.
func (s *attempts) limitMemory(a *attempt, cgroup string, door door) {
	driver, ok := s.cards.source.(gpu.Limiter)
	before := s.limits[cgroup]
	if !ok || cgroup == "" || !driver.CanLimit() || !capped(a.job) && before == nil {
		return
	}
	done := make(chan struct{})
	s.limits.remember(cgroup, done)
	limits := driverLimits(a.job, cgroup)
	go func() {
		defer close(done)
		if before != nil {
			<-before // what was asked for the job before it must not come later
		}
		// The time that one took is not taken off this one's.
		ctx, cancel := context.WithTimeout(context.Background(), limitDeadline)
		defer cancel()
		for _, limit := range limits {
			if err := driver.Limit(ctx, limit); err != nil {
				door.Do(ctx, func(t *Turn) { t.attempts.limitFailed(t.Now, a, err) })
				return
			}
		}
	}()
}

func (s *attempts) limitFailed(now time.Time, a *attempt, err error) {
	if s.active[a.job.ID] != a {
		return // it is over
	}
	text := "the driver does not limit its memory: "
	if !capped(a.job) {
		text = "the driver may still hold it to the memory of the job before it: "
	}
	s.changes.tell(now, job.EventWarning, a.job, text+err.Error())
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

// capped reports whether the job has an amount that it wants to be held to.
func capped(j *job.Job) bool {
	return (j.Spec.Cap == "soft" || j.Spec.Cap == "mps") && budgetMiB(j) > 0
}

// budgetMiB is what the job may have on each card; one that has its cards alone
// has no budget there, but what it declared.
func budgetMiB(j *job.Job) int64 {
	if j.Grant.BudgetMiB > 0 {
		return j.Grant.BudgetMiB
	}
	return j.VRAMMiB
}

// driverLimits is one limit for each card: a soft cap is what the job can count
// on, a hard one what it cannot pass, and none takes back what was there.
func driverLimits(j *job.Job, cgroup string) []gpu.MemoryLimit {
	limits := make([]gpu.MemoryLimit, 0, len(j.Grant.UUIDs))
	for _, uuid := range j.Grant.UUIDs {
		limit := gpu.MemoryLimit{Cgroup: cgroup, UUID: uuid}
		switch {
		case !capped(j):
		case j.Spec.Cap == "mps":
			limit.HardMiB = budgetMiB(j)
		default:
			limit.SoftMiB = budgetMiB(j)
		}
		limits = append(limits, limit)
	}
	return limits
}

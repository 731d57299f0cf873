package allocation

import (
	"cmp"
	"slices"
	"time"

	"berth/internal/job"
)

// room is an allocation that has begun and takes jobs.
type room struct {
	gpus    int
	gpuMiB  int64 // memory of each; 0: not known
	cpus    int
	left    time.Duration // until its jobs are stopped; 0: no limit
	whole   time.Duration // what left was at its beginning
	backlog []*task       // dealt to it, and not ended
	dealt   []*task       // those of them that it gets now
}

// guessedMiB is the memory of a GPU that is not known.
const guessedMiB = 40 << 10

// size is the part of an allocation that a job takes while it runs.
func (r *room) size(s *job.Spec) float64 {
	cpus := float64(max(s.CPUs, 1)) / float64(max(r.cpus, 1))
	if s.GPUs == 0 || r.gpus == 0 {
		return cpus
	}
	part := 1.0
	switch {
	case s.Exclusive:
	case s.Share > 0:
		part = s.Share
	case s.VRAMMiB > 0:
		part = min(1, float64(s.VRAMMiB)/float64(cmp.Or(r.gpuMiB, guessedMiB)))
	}
	gpus := part * float64(s.GPUs) / float64(r.gpus)
	if s.CPUs > 0 {
		return max(gpus, cpus)
	}
	return gpus
}

// pace is how long jobs take: what was measured so far.
type pace struct {
	ended int
	total time.Duration
}

const (
	guessedTime = 10 * time.Minute // of a job without an estimate
	measured    = 3                // jobs after which a mean is believed
)

// expects is how long a job will probably run.
func (p pace) expects(s *job.Spec) time.Duration {
	guess := cmp.Or(s.TimeLimit, guessedTime)
	if p.ended >= measured {
		guess = max(p.total/time.Duration(p.ended), 10*time.Millisecond)
	}
	if s.TimeLimit > 0 {
		guess = min(guess, s.TimeLimit)
	}
	return guess
}

// How much work an allocation has in advance: it is filled this many times, and
// has work for this long. More is left for those that begin later.
const (
	fills   = 2
	horizon = 2 * time.Minute
)

// work is for how many seconds a room's jobs keep it busy, and whether that is enough
// in advance.
func (r *room) work(p pace) (seconds float64, enough bool) {
	size := 0.0
	for _, t := range r.backlog {
		part := r.size(&t.spec)
		size += part
		seconds += part * p.expects(&t.spec).Seconds()
	}
	return seconds, size >= fills && seconds >= horizon.Seconds()
}

// fits reports whether a job that says how long it runs can end in a room. One that
// no allocation of this length can hold is tried nevertheless: it may end early.
func (r *room) fits(s *job.Spec) bool {
	return r.left == 0 || s.TimeLimit == 0 || s.TimeLimit <= r.left || s.TimeLimit > r.whole
}

// deal says which tasks go to which room now: the first in the queue to the room
// that will be free first, until each has enough.
func deal(tasks []*task, rooms []*room, p pace) {
	queue := make([]*task, 0, len(tasks))
	for _, t := range tasks {
		if t.isReady() {
			queue = append(queue, t)
		}
	}
	slices.SortStableFunc(queue, func(a, b *task) int { return cmp.Compare(b.spec.Priority, a.spec.Priority) })
	for _, t := range queue {
		var best *room
		open, least := false, 0.0
		for _, r := range rooms {
			seconds, enough := r.work(p)
			if enough {
				continue
			}
			open = true
			if r.fits(&t.spec) && (best == nil || seconds < least) {
				best, least = r, seconds
			}
		}
		if !open {
			break
		}
		if best != nil {
			best.backlog = append(best.backlog, t)
			best.dealt = append(best.dealt, t)
		}
	}
}

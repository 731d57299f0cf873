package sched

import "time"

// maxTimeline bounds the steps of a timeline.
const maxTimeline = 64

// timeline is how much of the GPUs is free from now on: the estimate for jobs that
// Decide was not stepped up to. It knows no card, no limit and no user.
type timeline []freeFrom

// freeFrom is what is free from a time on, until the next begins, and the job whose
// end begins it.
type freeFrom struct {
	at   time.Duration
	free float64
	job  string
}

// take finds the first time at which these GPUs are free for that long, and takes
// them. It is false if that never comes.
func (l *timeline) take(gpus float64, from, length time.Duration, job string) (at time.Duration, after string, ok bool) {
	t := *l
	begin := -1
	for i := range t {
		switch {
		case t[i].free < gpus-shareTolerance:
			begin = -1
			continue
		case begin < 0:
			begin = i
		}
		at = max(from, t[begin].at)
		if i == len(t)-1 || later(at, length) <= t[i+1].at {
			l.use(at, later(at, length), gpus, job)
			return at, t[begin].job, true
		}
	}
	return 0, "", false
}

// use takes GPUs from a time on until another.
func (l *timeline) use(from, until time.Duration, gpus float64, job string) {
	first, end := l.cut(from, ""), len(*l)
	if until < forEver {
		end = l.cut(until, job)
	}
	for i := first; i < end; i++ {
		(*l)[i].free -= gpus
	}
	// Nothing starts where nothing is free. At the bound, nothing starts early.
	full := 0
	for full < len(*l)-1 && ((*l)[full].free < shareTolerance || len(*l)-full > maxTimeline) {
		full++
	}
	*l = append((*l)[:0], (*l)[full:]...)
}

// cut makes a step begin there, and returns its index.
func (l *timeline) cut(at time.Duration, job string) int {
	t := *l
	i := len(t)
	for i > 0 && t[i-1].at > at {
		i--
	}
	if i == 0 || t[i-1].at == at {
		return max(0, i-1)
	}
	t = append(t, freeFrom{})
	copy(t[i+1:], t[i:])
	t[i] = freeFrom{at, t[i-1].free, job}
	*l = t
	return i
}

func later(at, by time.Duration) time.Duration {
	if at >= forEver-by {
		return forEver
	}
	return at + by
}

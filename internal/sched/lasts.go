package sched

import (
	"math"
	"time"
)

// lasts is how long a job may hold its cards: as a rule and at most by what is
// expected of it, and for sure by its limit. 0 is not known.
type lasts struct {
	usual, expected, limit time.Duration
}

// lastsOf is that of a job which had some of its run already. What has had all
// that was expected, and is not done, is not known.
func lastsOf(run Span, served, limit time.Duration) lasts {
	l := lasts{limit: limit}
	if run.High > served {
		left := run.Left(served, 0)
		l.usual, l.expected = roundSpan(left.Mid), roundSpan(left.High)
	}
	if limit > 0 {
		l.usual, l.expected = min(orForEver(l.usual), limit), min(orForEver(l.expected), limit)
	}
	return l
}

// roundSpan rounds up to a step.
func roundSpan(d time.Duration) time.Duration {
	if d <= 0 {
		return 1
	}
	steps := math.Ceil(math.Log(d.Seconds())/math.Log(estimateStep) - 1e-9)
	rounded := time.Duration(math.Pow(estimateStep, steps) * float64(time.Second))
	return max(rounded, d)
}

const forEver = time.Duration(math.MaxInt64)

func orForEver(d time.Duration) time.Duration {
	if d > 0 {
		return d
	}
	return forEver
}

// anyLength stands for jobs however long they last.
var anyLength = lasts{usual: -1}

// covers reports whether a may last for as long as b, or longer. Nothing known
// is not the same as for ever: it binds otherwise.
func (l lasts) covers(b lasts) bool {
	if b == anyLength {
		return true
	}
	known := l.expected > 0
	return known == (b.expected > 0) && l.usual >= b.usual && l.expected >= b.expected && orForEver(l.limit) >= orForEver(b.limit)
}

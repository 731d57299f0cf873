package sched

import (
	"math"
	"time"
)

// term is how long a job may hold its cards: usually and at most by its estimate,
// and for certain by its limit. 0: not known.
type term struct {
	usual, atMost, limit time.Duration
}

// termOf is the term of a job that has been served already. A job past its estimate
// has none.
func termOf(run Estimate, served, limit time.Duration) term {
	l := term{limit: limit}
	if run.High > served {
		left := run.Left(served, 0)
		l.usual, l.atMost = roundEstimate(left.Mid), roundEstimate(left.High)
	}
	if limit > 0 {
		l.usual, l.atMost = min(orForEver(l.usual), limit), min(orForEver(l.atMost), limit)
	}
	return l
}

// roundEstimate rounds up to the next step.
func roundEstimate(d time.Duration) time.Duration {
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

// anyTerm means "however long it lasts".
var anyTerm = term{usual: -1}

// covers reports whether a may last as long as b, or longer. An unknown term is not
// endless: it is bound differently.
func (l term) covers(b term) bool {
	if b == anyTerm {
		return true
	}
	known := l.atMost > 0
	return known == (b.atMost > 0) && l.usual >= b.usual && l.atMost >= b.atMost && orForEver(l.limit) >= orForEver(b.limit)
}

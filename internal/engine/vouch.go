package engine

import (
	"time"

	"berth/internal/job"
)

// When a share of a GPU counts as measured: its memory has not grown noticeably for
// settleAfter, or settleAtMost has passed since it started.
const (
	settleAfter  = 3 * time.Second
	settleAtMost = 30 * time.Second
)

// vouched says of which jobs it is known that they keep to the share they ask for:
// a job like them was measured, and did or did not. What is not there is not known.
type vouched map[likeness]bool

// likeness is what the jobs have in common for which one can vouch.
type likeness struct {
	user, kind string
	share      float64
}

// maxVouched bounds what is remembered. Beyond it berth begins anew, and the next
// job of each kind is measured again.
const maxVouched = 4096

// note remembers whether a job kept to its share, and reports whether that is news.
// What it takes beyond a tenth of the share is not rounding. A short job that was
// never seen on a GPU proves nothing.
func (v vouched) note(j *job.Job, kind string, ran time.Duration) (news bool) {
	if j.Grant.Share <= 0 || len(j.PeakMiB) == 0 && ran < settleAtMost {
		return false
	}
	like, kept := likeness{j.User, kind, j.Grant.Share}, j.OverGPUs <= 0.1*j.Grant.Share*float64(len(j.Grant.GPUs))
	was, known := v[like]
	if !known && len(v) >= maxVouched {
		clear(v)
	}
	v[like] = kept
	return !known || was != kept
}

// unproven reports a share for which no job like it vouches.
func (l *line) unproven(j *job.Job, kind string, share float64) bool {
	return l.cfg.Limits.Measured && share > 0 && share < 1 && j.Spec.Adopt == nil && !l.vouched[likeness{j.User, kind, share}]
}

// vouch lets a measured job speak for the queued jobs like it.
func (l *line) vouch(j *job.Job, kind string, ran time.Duration) {
	if l.cfg.Limits.Measured && l.vouched.note(j, kind, ran) {
		l.reviewKind(kind)
	}
}

// vouch takes in the shares that were measured, or found to take more.
func (t *Turn) vouch(measured []*attempt) {
	for _, a := range measured {
		t.line.vouch(t.attempts.charged(a), a.kind, t.Now.Sub(a.startedAt))
	}
}

// settle finds the shares that count as measured from now on.
func (u *uses) settle(now time.Time) (settled []*attempt) {
	for _, a := range u.set.active {
		if !a.unmeasured {
			continue
		}
		still := a.nearMiB > 0 && now.Sub(a.grewAt) >= settleAfter
		if still || now.Sub(a.startedAt) >= settleAtMost {
			a.unmeasured, u.set.cards.moved = false, true
			settled = append(settled, a)
		}
	}
	return settled
}

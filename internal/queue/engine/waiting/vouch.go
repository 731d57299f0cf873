package waiting

import (
	"time"

	"berth/internal/job"
	"berth/internal/queue/engine/settings"
)

// Vouched says of which jobs it is known that they keep to the share they ask for:
// a job like them was measured, and did or did not. What is not there is not known.
type Vouched map[likeness]bool

// likeness is what the jobs have in common for which one can vouch.
type likeness struct {
	user, kind string
	share      float64
}

// MaxVouched bounds what is remembered. Beyond it berth begins anew, and the next
// job of each kind is measured again.
const MaxVouched = 4096

// Note remembers whether a job kept to its share, and reports whether that is news.
// What it takes beyond a tenth of the share is not rounding. A short job that was
// never seen on a GPU proves nothing.
func (v Vouched) Note(j *job.Job, kind string, ran time.Duration) (news bool) {
	if j.Grant.Share <= 0 || len(j.PeakMiB) == 0 && ran < settings.SettleAtMost {
		return false
	}
	like, kept := likeness{j.User, kind, j.Grant.Share}, j.OverGPUs <= 0.1*j.Grant.Share*float64(len(j.Grant.GPUs))
	was, known := v[like]
	if !known && len(v) >= MaxVouched {
		clear(v)
	}
	v[like] = kept
	return !known || was != kept
}

// Unproven reports a share for which no job like it vouches.
func (l *Line) Unproven(j *job.Job, kind string, share float64) bool {
	return l.cfg.Limits.Measured && share > 0 && share < 1 && j.Spec.Adopt == nil && !l.vouched[likeness{j.User, kind, share}]
}

// Vouch lets a measured job speak for the queued jobs like it.
func (l *Line) Vouch(j *job.Job, kind string, ran time.Duration) {
	if l.cfg.Limits.Measured && l.vouched.Note(j, kind, ran) {
		l.reviewKind(kind)
	}
}

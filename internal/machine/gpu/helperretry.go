package gpu

import "time"

// retry says when a failed helper may be started again.
type retry struct {
	at      time.Time
	delay   time.Duration // 0: the last reading was good
	err     error         // why there is no helper
	failing time.Time     // since when; zero: the last reading was good
}

// failed delays the next start, longer each time.
func (r *retry) failed(err error, timing helperTiming) {
	r.err = err
	if r.failing.IsZero() {
		r.failing = time.Now()
	}
	r.delay = min(max(2*r.delay, timing.retry), timing.retryMax)
	r.at = time.Now().Add(r.delay)
}

func (r *retry) succeeded() { r.delay, r.failing = 0, time.Time{} }

package gpu

import "time"

// helperTiming are the time limits of a helper.
type helperTiming struct {
	start    time.Duration // for any request: without persistence mode the driver wakes every card at hello
	sample   time.Duration // for a request other than hello, and for the time on one card
	grace    time.Duration // between SIGTERM and SIGKILL
	idle     time.Duration // without a sample, until the helper is stopped
	retry    time.Duration // until a failed helper is started again; doubles
	retryMax time.Duration
	renew    time.Duration // until a helper that reports a lost card is replaced
	renewMax time.Duration // for other lasting faults the wait doubles up to this
	probe    time.Duration // until a skipped card is tried again; doubles
	probeMax time.Duration
}

var patientHelper = helperTiming{
	start: 10 * time.Second, sample: 2 * time.Second, grace: termGrace, idle: time.Minute,
	retry: 100 * time.Millisecond, retryMax: 10 * time.Second,
	renew: 30 * time.Second, renewMax: 10 * time.Minute, probe: 5 * time.Second, probeMax: 30 * time.Second,
}

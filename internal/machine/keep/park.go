package keep

import (
	"strconv"
	"strings"
	"time"
)

// This file is the supervisor's side of parking: it starts manoeuvres, and
// keeps the clock of the job and its memory limit in step with them. It never
// waits; their outcomes arrive in the loop.

// parking is what a supervisor knows of its job's parking.
type parking struct {
	parked bool
	busy   *manoeuvre // at work; nil: none
	cancel chan struct{}
	driver *driver // lives from the first manoeuvre until the job ends

	since time.Time // when the job last stopped working
	saved int64     // bytes that then moved to the host
}

// manoeuvreNews is a driver that was started, or the outcome.
type manoeuvreNews struct {
	of      *manoeuvre
	driver  *driver
	outcome *manoeuvred
}

// manoeuvre carries out FramePark and FrameResume. Where there is nothing to do, the
// job stays as it is, and why says why that is not what was asked for.
func (h *held) manoeuvre(f Frame, moves chan<- manoeuvreNews) (why string, stays bool) {
	resume := f.Kind == FrameResume
	switch {
	case h == nil || h.pid == 0 || h.beginning || h.ending.exited || len(h.order.Driver) == 0:
		return "it cannot be parked now", true
	case h.park.busy != nil:
		return "", false // its outcome follows
	case h.ending.stop != "":
		return "it is being stopped", true
	case h.park.parked != resume:
		return "", true
	}
	cancel := make(chan struct{})
	m := &manoeuvre{argv: h.order.Driver, cgroup: h.cgroup, cancel: cancel, driver: h.park.driver}
	m.started = func(d *driver) { moves <- manoeuvreNews{of: m, driver: d} }
	h.park.busy, h.park.cancel, h.ending.deaf = m, cancel, true
	if resume {
		var hold []Room
		for _, text := range f.all("hold") {
			hold = append(hold, roomOf(text))
		}
		go func() { r := m.resume(hold); moves <- manoeuvreNews{of: m, outcome: &r} }()
		return "", false
	}
	patience, _ := strconv.ParseInt(f.Get("patience_ms"), 10, 64)
	more, _ := strconv.ParseInt(f.Get("host_mib"), 10, 64)
	m.patience = time.Duration(patience) * time.Millisecond
	h.limits.raise(h.order.MemMiB + more) // or the kernel kills the job half way
	go func() { r := m.park(); moves <- manoeuvreNews{of: m, outcome: &r} }()
	return "", false
}

// moved takes in news of a manoeuvre.
func (k *keeper) moved(news manoeuvreNews) {
	h := k.held
	if h == nil || h.park.busy != news.of {
		return
	}
	if news.outcome == nil {
		h.park.driver = news.driver
		return
	}
	r := *news.outcome
	was := h.park.parked
	h.park.busy, h.park.cancel, h.park.parked, h.ending.deaf = nil, nil, r.parked, false
	now := time.Now()
	switch {
	case r.parked && !was:
		h.park.since, h.park.saved = r.stood, r.saved
		h.ending.suspend(now)
		k.record.Parkings++
	case !r.parked && was:
		k.record.Parked += now.Sub(h.park.since)
		h.ending.resume(now)
	}
	if !r.parked {
		h.limits.raise(h.order.MemMiB)
	}
	why := ""
	if r.err != nil {
		why = r.err.Error()
		if h.ending.exited || h.ending.stop != "" {
			r.took = 0
		}
	}
	if r.broken {
		h.ending.request(now, StopBroken, 0)
		k.record.remark("it could not be resumed: " + why)
	}
	k.record.rewrite()
	k.conn.send(h.parkedFrame(k.record.Record, why, r.took))
}

// ParkNews is what a supervisor says of its job's parking.
type ParkNews struct {
	Parked bool          // what the job is now
	Busy   bool          // that may change: a manoeuvre is at work
	Why    string        // why it is not what was asked for; "": it is
	Took   time.Duration // by the manoeuvre; 0: there was none, or it failed for the end of the job or for want of a process
	MiB    int64         // what a parked job has on the host for its cards; 0: not known
}

// parkedFrame tells berth what a manoeuvre came to; h may be nil.
func (h *held) parkedFrame(r Record, why string, took time.Duration) Frame {
	n := ParkNews{Why: why, Took: took}
	if h != nil {
		n.Parked, n.Busy = h.park.parked, h.park.busy != nil
		if n.Parked {
			n.MiB = h.park.saved >> 20
		}
	}
	var c codec
	n.visit(&c, &r.Job, &r.Attempt)
	return Frame{FrameParked, c.fields}
}

func (n *ParkNews) visit(c *codec, job *string, attempt *int) {
	c.text("job", job)
	c.int("attempt", attempt)
	c.bool("parked", &n.Parked)
	c.bool("busy", &n.Busy)
	c.text("why", &n.Why)
	c.span("took_us", &n.Took, time.Microsecond)
	c.int64("mib", &n.MiB)
}

// ParkNewsOf reads it back, with the job and the attempt it is about.
func ParkNewsOf(f Frame) (n ParkNews, job string, attempt int) {
	n.visit(&codec{fields: f.Fields, reading: true}, &job, &attempt)
	return n, job, attempt
}

// Room is memory of one card.
type Room struct {
	UUID string
	MiB  int64
}

func (r Room) String() string { return r.UUID + " " + strconv.FormatInt(r.MiB, 10) }

func roomOf(text string) Room {
	uuid, mib, _ := strings.Cut(text, " ")
	n, _ := strconv.ParseInt(mib, 10, 64)
	return Room{uuid, n}
}

// heedParking ends the driver program with the job, and lets nothing wait for
// a manoeuvre that is pointless now.
func (h *held) heedParking() {
	over := h.ending.exited || h.ending.stop != ""
	if over && h.park.cancel != nil {
		close(h.park.cancel)
		h.park.cancel = nil
	}
	if over && h.park.parked && h.park.busy == nil {
		// It cannot react to TERM.
		h.ending.hurry(time.Now())
	}
	if d := h.park.driver; d != nil && over && h.park.busy == nil {
		d.kill()
	}
}

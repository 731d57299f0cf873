package gpu

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"berth/internal/text"
)

// helperTiming is how patient a Helper is.
type helperTiming struct {
	start    time.Duration // until a request must be answered at the latest: without persistence the driver wakes every card at hello
	sample   time.Duration // that a request other than hello may take, and any on one card
	grace    time.Duration // between SIGTERM and SIGKILL
	idle     time.Duration // without a sample, until the helper is let go of
	retry    time.Duration // until a helper that failed is started again; doubles
	retryMax time.Duration
	renew    time.Duration // until a helper that knows a card as lost gives way to one that looks anew
	renewMax time.Duration // where another fault stays, the wait doubles up to this
	probe    time.Duration // until a card that is left out is tried again; doubles
	probeMax time.Duration
}

var patientHelper = helperTiming{
	start: 10 * time.Second, sample: 2 * time.Second, grace: termGrace, idle: time.Minute,
	retry: 100 * time.Millisecond, retryMax: 10 * time.Second,
	renew: 30 * time.Second, renewMax: 10 * time.Minute, probe: 5 * time.Second, probeMax: 30 * time.Second,
}

const (
	// The helper looks for short peaks between samples, for as long as samples
	// keep coming.
	watchEvery = 100 * time.Millisecond
	watchFor   = 5 * time.Second
	// A reading that came when whoever asked was gone serves the next one, for
	// this long.
	leftoverFor = 100 * time.Millisecond
	// maxHelpers bounds the processes: one that hangs, and one without the card
	// it hangs on; or one that serves, and one that tries a card.
	maxHelpers = 2
	// deathsOnCard is after how many deaths in a row about one card the card is
	// left out.
	deathsOnCard = 2
	maxXids      = 256 // that wait for somebody to take them
)

// helperSource reads the cards through berth-gpu. It is a source of the driver's own
// numbers: Cards makes berth's of them.
//
// One look is under way at a time, in a goroutine of its own: a caller whose
// time is up leaves, and the reply serves the next one. What is wrong with the
// helper costs that look and is put right by the next.
type helperSource struct {
	path   string
	log    *slog.Logger
	words  *helperLog
	timing helperTiming
	turn   chan struct{} // held by whoever talks to the current process

	mu      sync.Mutex
	closed  bool
	current *helperProcess   // greeted, and nothing is held against it
	alive   []*helperProcess // every process that was not waited for yet
	look    *look            // the last one
	hi      HelperHi         // what the last helper said
	since   time.Time        // when it did
	seen    []Device         // as they were last read
	out     map[int]*leftOut // cards that are left out, by driver index
	probing bool
	xids    []Xid
	idle    *time.Timer
	until   time.Time // let go of, as asked

	places     map[string]bool // where there ever was a card
	renewDelay time.Duration   // of the next renewal for a fault that stays

	retryAt    time.Time
	retryDelay time.Duration
	lastError  error     // why there is no helper
	failing    time.Time // since when; zero: the last look was a good one
	diedOn     int       // the card of the last death
	deaths     int       // in a row, about that card
}

var errNoLonger = errors.New("the GPUs are no longer read")

// look is one reading, shared by those who wait for it.
type look struct {
	done   chan struct{}
	at     time.Time // when it was done
	taken  bool
	sample Sample
	err    error
}

func newHelper(path string, log *slog.Logger, timing helperTiming) *helperSource {
	return &helperSource{
		path: path, log: log, words: &helperLog{log: log}, timing: timing,
		turn: make(chan struct{}, 1), out: map[int]*leftOut{}, places: map[string]bool{}, diedOn: noCard,
	}
}

// Name names the source to people.
func (h *helperSource) Name() string { return "NVML" }

// Cheap is true: a sample is one line each way, and some 100 µs of the driver.
func (h *helperSource) Cheap() bool { return true }

// Sample takes a reading, or waits for the one that is under way. Where the
// context ends first, nothing is held against the helper.
func (h *helperSource) Sample(ctx context.Context) (Sample, error) {
	h.mu.Lock()
	if h.closed {
		h.mu.Unlock()
		return Sample{}, errNoLonger
	}
	h.startProbe()
	l := h.look
	if l == nil || l.finished() && (l.taken || time.Since(l.at) > leftoverFor) {
		l = &look{done: make(chan struct{})}
		h.look = l
		go h.run(l)
	}
	h.mu.Unlock()
	select {
	case <-l.done:
	case <-ctx.Done():
		return Sample{}, fmt.Errorf("berth-gpu has not answered yet: %w", context.Cause(ctx))
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	l.taken = true
	sample := l.sample
	sample.Xids, h.xids = h.xids, nil
	return sample, l.err
}

func (l *look) finished() bool {
	select {
	case <-l.done:
		return true
	default:
		return false
	}
}

// run takes one reading.
func (h *helperSource) run(l *look) {
	h.turn <- struct{}{}
	defer func() { <-h.turn }()
	sample, err := h.read()
	h.mu.Lock()
	defer h.mu.Unlock()
	l.sample, l.err, l.at = sample, err, time.Now()
	h.rest()
	close(l.done)
}

func (h *helperSource) read() (Sample, error) {
	p, err := h.ready()
	if err != nil {
		return Sample{}, err
	}
	at := time.Now()
	reply, err := p.ask(HelperRequest{Do: HelperSample, Skip: h.skipped(), Watch: watchEvery, WatchFor: watchFor}, h.timing)
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case err != nil:
		return Sample{}, h.failed(p, err)
	case reply.Error != "":
		return Sample{}, h.failed(p, fmt.Errorf("%w: %s", errNoNVML, text.Said(reply.Error)))
	case reply.Sample == nil:
		return Sample{}, h.failed(p, fmt.Errorf("%w: berth-gpu answered without a sample", errHelperRubbish))
	}
	sample := *reply.Sample
	sample.At = at // its clock is not asked, and no reading is older than its request
	h.retryDelay, h.deaths, h.failing = 0, 0, time.Time{}
	h.xids = append(h.xids, sample.Xids...)
	h.xids = h.xids[max(0, len(h.xids)-maxXids):]
	sample.Xids = nil
	h.seen = sample.Devices
	h.renew(p, sample)
	sample.Faults = h.withLeftOut(sample)
	return sample, nil
}

// ready is a helper that said hello: the one there is, or a new one.
func (h *helperSource) ready() (*helperProcess, error) {
	p, greeted, err := h.currentOrNew()
	if err != nil || greeted {
		return p, err
	}
	hi, err := h.greet(p, h.skipped())
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case err != nil:
		return nil, h.failed(p, err)
	case h.closed:
		return nil, errNoLonger
	}
	h.hi, h.current, h.since = hi, p, time.Now()
	return p, nil
}

// currentOrNew starts a helper where there is none. One that ended while nobody
// asked it anything costs no sample, unless it keeps doing so.
func (h *helperSource) currentOrNew() (p *helperProcess, greeted bool, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if p := h.current; p != nil && !p.isSpoilt() {
		return p, true, nil
	} else if p != nil {
		steady := h.retryDelay == 0
		err := h.failed(p, p.spoiltBy())
		if !steady || !errors.Is(err, errHelperDied) {
			return nil, false, err
		}
		h.retryAt = time.Time{}
	}
	if err := h.mayStart(time.Now()); err != nil {
		return nil, false, err
	}
	if p, err = h.start(h.words); err != nil {
		h.backOff(err)
	}
	return p, false, err
}

// mayStart says why no helper may be started now.
func (h *helperSource) mayStart(now time.Time) error {
	if h.closed {
		return errNoLonger
	}
	if now.Before(h.until) {
		return releasedError(h.until)
	}
	for _, p := range h.alive {
		if !p.stuckSince.IsZero() && (p.stuckOn == noCard || len(h.alive) >= maxHelpers) {
			return fmt.Errorf("berth-gpu (process %d) does not answer since %s, and cannot be ended", p.pid, p.stuckSince.Format(time.TimeOnly))
		}
	}
	switch {
	case len(h.alive) >= maxHelpers:
		return fmt.Errorf("%d processes of berth-gpu have not ended yet", len(h.alive))
	case now.Before(h.retryAt):
		return fmt.Errorf("%w; berth-gpu is started again at %s", h.lastError, h.retryAt.Format(time.TimeOnly))
	}
	return nil
}

// start starts a helper and sees to it that its end is noticed.
func (h *helperSource) start(words *helperLog, args ...string) (*helperProcess, error) {
	p, err := startHelperProcess(h.path, words, args...)
	if err != nil {
		return nil, err
	}
	h.alive = append(h.alive, p)
	go func() {
		<-p.over
		h.mu.Lock()
		defer h.mu.Unlock()
		h.alive = slices.DeleteFunc(h.alive, func(other *helperProcess) bool { return other == p })
	}()
	return p, nil
}

// errNoNVML is what a helper says whose driver's library cannot be used, or can
// be no more.
var errNoNVML = errors.New("NVML cannot be used")

// greet makes the acquaintance of a new helper.
func (h *helperSource) greet(p *helperProcess, skip []int) (HelperHi, error) {
	reply, err := p.ask(HelperRequest{Do: HelperHello, Skip: skip}, h.timing)
	switch {
	case err != nil:
		return HelperHi{}, err
	case reply.Error != "":
		return HelperHi{}, fmt.Errorf("%w: %s", errNoNVML, text.Said(reply.Error))
	case reply.Hello == nil:
		return HelperHi{}, fmt.Errorf("%w: berth-gpu did not say hello", errHelperRubbish)
	case reply.Hello.Protocol != HelperProtocol:
		return HelperHi{}, fmt.Errorf("%w: %s speaks version %d of the protocol and not %d: install the one that came with berth",
			errHelperRubbish, h.path, reply.Hello.Protocol, HelperProtocol)
	}
	return *reply.Hello, nil
}

func (h *helperSource) endLater(p *helperProcess, patience time.Duration) {
	go p.end(patience, h.timing.grace)
}

// rest has the helper let go of if nobody asks for long: an open driver keeps
// others from resetting a card.
func (h *helperSource) rest() {
	if h.closed {
		return
	}
	if h.idle == nil {
		h.idle = time.AfterFunc(h.timing.idle, h.goIdle)
		return
	}
	h.idle.Reset(h.timing.idle)
}

func (h *helperSource) goIdle() {
	select {
	case h.turn <- struct{}{}:
		defer func() { <-h.turn }()
	default:
		return // somebody is asking, and comes back to rest
	}
	h.letGo()
}

// letGo ends the helper; the next look starts another. Whoever calls it should
// hold the turn, or the look that is under way fails.
func (h *helperSource) letGo() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if p := h.current; p != nil {
		h.current = nil
		h.endLater(p, leaveTime)
	}
}

// Close ends the helper, and waits a little for it. What hangs is ended without
// anybody waiting.
func (h *helperSource) Close() error {
	h.mu.Lock()
	if h.closed {
		h.mu.Unlock()
		return nil
	}
	h.closed = true
	if h.idle != nil {
		h.idle.Stop()
	}
	alive := slices.Clone(h.alive)
	h.current = nil
	for _, p := range alive {
		h.endLater(p, leaveTime/2)
	}
	h.mu.Unlock()
	bound := time.NewTimer(leaveTime)
	defer bound.Stop()
	for _, p := range alive {
		select {
		case <-p.over:
		case <-bound.C:
			return nil
		}
	}
	return nil
}

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

const (
	// watchEvery is how often the helper looks for short peaks between samples.
	watchEvery = 100 * time.Millisecond
	watchFor   = 5 * time.Second
	// leftoverFor is how long a reading whose caller gave up can serve the next
	// caller.
	leftoverFor = 100 * time.Millisecond
	// maxHelpers bounds the processes: one that hangs and one that skips the
	// card it hangs on, or one that serves and one that tries a skipped card.
	maxHelpers = 2
	// deathsOnCard is how many deaths in a row on one card it takes to skip
	// the card.
	deathsOnCard = 2
	maxXids      = 256 // that nothing has collected yet
)

// helperSource reads the cards through berth-gpu, with the driver's numbers;
// cardSource translates them into berth's.
//
// Only one reading runs at a time, in a goroutine of its own. A caller whose
// time is up leaves, and the reply serves the next caller. A problem with the
// helper costs one reading; the next one repairs it.
type helperSource struct {
	path   string
	log    *slog.Logger
	words  *helperLog
	timing helperTiming
	turn   chan struct{} // held while talking to the current process

	mu      sync.Mutex
	closed  bool
	current *helperProcess   // greeted, and not known to be bad
	alive   []*helperProcess // every process that has not been reaped
	look    *look            // the latest
	hi      HelperHi         // the last helper's hello
	since   time.Time        // when hi arrived
	seen    []Device         // from the latest reading
	out     skippedCards
	probing bool
	xids    []Xid
	idle    *time.Timer
	until   time.Time // released on request

	places     cardPlaces
	renewDelay time.Duration // until the next renewal for a lasting fault

	retry  retry
	diedOn int // the card of the last death
	deaths int // in a row, about that card
}

var errNoLonger = errors.New("the GPU source is closed")

// look is one reading, shared by the callers that wait for it.
type look struct {
	done   chan struct{}
	at     time.Time // when it was finished
	taken  bool
	sample Sample
	err    error
}

func newHelper(path string, log *slog.Logger, timing helperTiming) *helperSource {
	return &helperSource{
		path: path, log: log, words: &helperLog{log: log}, timing: timing,
		turn: make(chan struct{}, 1), out: skippedCards{}, places: cardPlaces{}, diedOn: noCard,
	}
}

// Name is the name of the source, for display.
func (h *helperSource) Name() string { return "NVML" }

// Cheap is true: a sample is one line each way, and takes the driver about 100
// µs.
func (h *helperSource) Cheap() bool { return true }

// Sample takes a reading, or waits for the one in progress. If the context
// ends first, the helper is not blamed.
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
	sample.At = at // the helper's clock is not used, and no reading is older than its request
	h.retry.succeeded()
	h.deaths = 0
	h.xids = append(h.xids, sample.Xids...)
	h.xids = h.xids[max(0, len(h.xids)-maxXids):]
	sample.Xids = nil
	h.seen = sample.Devices
	h.renew(p, sample)
	sample.Faults = h.out.faults(sample, h.log)
	return sample, nil
}

// ready is a helper that has said hello: the current one, or a new one.
func (h *helperSource) ready() (*helperProcess, error) {
	p, greeted, err := h.currentOrNew()
	if err != nil || greeted {
		return p, err
	}
	hi, err := p.greet(h.skipped(), h.timing)
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

// currentOrNew starts a helper if there is none. A helper that ended while
// idle costs no sample, unless that keeps happening.
func (h *helperSource) currentOrNew() (p *helperProcess, greeted bool, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if p := h.current; p != nil && !p.isSpoilt() {
		return p, true, nil
	} else if p != nil {
		steady := h.retry.delay == 0
		err := h.failed(p, p.spoiltBy())
		if !steady || !errors.Is(err, errHelperDied) {
			return nil, false, err
		}
		h.retry.at = time.Time{}
	}
	if err := h.mayStart(time.Now()); err != nil {
		return nil, false, err
	}
	if p, err = h.start(h.words); err != nil {
		h.retry.failed(err, h.timing)
	}
	return p, false, err
}

// mayStart returns why no helper may be started now.
func (h *helperSource) mayStart(now time.Time) error {
	if h.closed {
		return errNoLonger
	}
	if now.Before(h.until) {
		return releasedError(h.until)
	}
	for _, p := range h.alive {
		if !p.stuckSince.IsZero() && (p.stuckOn == noCard || len(h.alive) >= maxHelpers) {
			return fmt.Errorf("berth-gpu (process %d) has not answered since %s and cannot be killed", p.pid, p.stuckSince.Format(time.TimeOnly))
		}
	}
	switch {
	case len(h.alive) >= maxHelpers:
		return fmt.Errorf("%d berth-gpu processes have not ended yet", len(h.alive))
	case now.Before(h.retry.at):
		return fmt.Errorf("%w; berth-gpu will be restarted at %s", h.retry.err, h.retry.at.Format(time.TimeOnly))
	}
	return nil
}

// start starts a helper and waits for its end in the background.
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

// errNoNVML is a helper's answer when it cannot use the driver's library, or
// not any more.
var errNoNVML = errors.New("NVML cannot be used")

// errNoLibrary is a helper's answer where the driver's library is not installed.
var errNoLibrary = fmt.Errorf("%w", errNoNVML)

// greet sends hello to a new helper.
func (p *helperProcess) greet(skip []int, timing helperTiming) (HelperHi, error) {
	reply, err := p.ask(HelperRequest{Do: HelperHello, Skip: skip}, timing)
	switch {
	case err != nil:
		return HelperHi{}, err
	case reply.NoLib:
		return HelperHi{}, fmt.Errorf("%w: %s", errNoLibrary, text.Said(reply.Error))
	case reply.Error != "":
		return HelperHi{}, fmt.Errorf("%w: %s", errNoNVML, text.Said(reply.Error))
	case reply.Hello == nil:
		return HelperHi{}, fmt.Errorf("%w: berth-gpu did not say hello", errHelperRubbish)
	case reply.Hello.Protocol != HelperProtocol:
		return HelperHi{}, fmt.Errorf("%w: expected protocol version %d, found %d: install the berth-gpu that came with berth",
			errHelperRubbish, HelperProtocol, reply.Hello.Protocol)
	}
	return *reply.Hello, nil
}

// rest stops the helper after a long time without requests: an open driver
// keeps others from resetting a card.
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
		// A request is in progress. It may have called rest already, so look again.
		h.mu.Lock()
		defer h.mu.Unlock()
		h.rest()
		return
	}
	h.stop()
}

// stop stops the helper; the next reading starts another. Callers should hold
// the turn, or the reading in progress fails.
func (h *helperSource) stop() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if p := h.current; p != nil {
		h.current = nil
		go p.end(leaveTime, h.timing.grace)
	}
}

// Close stops the helper and waits briefly for its end. A helper that hangs is
// killed in the background.
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
		go p.end(leaveTime/2, h.timing.grace)
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

func releasedError(until time.Time) error {
	return fmt.Errorf("the GPUs are released until %s, as requested", until.Format(time.TimeOnly))
}

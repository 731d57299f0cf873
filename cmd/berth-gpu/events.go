//go:build cgo

package main

import (
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"berth/internal/machine/gpu"
)

const (
	eventWaitMS  = 250 // the longest wait for events, which also delays a stop
	eventStop    = 400 * time.Millisecond
	eventRetry   = time.Second // after a failed wait
	maxXids      = 256         // kept until the next sample
	maxEventSets = 32          // batches of cards that appeared
)

// wantedEvents are the events about a card's health.
const wantedEvents = nvml.EventTypeXidCriticalError | nvml.EventTypeDoubleBitEccError | nvml.EventTypeDramRetirementFailure |
	nvml.EventTypeFatalPoisonError | nvml.EventTypeGpuUnavailableError | nvml.EventTypeGpuRecoveryAction

// otherEvents maps events without a code to the Xid with the same meaning.
var otherEvents = map[uint64]gpu.Xid{
	nvml.EventTypeDoubleBitEccError:     {Code: 48, Text: "NVML event: double bit ECC error"},
	nvml.EventTypeDramRetirementFailure: {Code: 64, Text: "NVML event: a row or page could not be retired"},
	nvml.EventTypeFatalPoisonError:      {Code: 95, Text: "NVML event: fatal poison error"},
	nvml.EventTypeGpuUnavailableError:   {Code: 0, Text: "NVML event: the GPU is unavailable"},
	nvml.EventTypeGpuRecoveryAction:     {Code: 154, Text: "NVML event: the recovery action has changed"},
}

// place is the card of an event. MIG parts have no events of their own, so an
// event on a partitioned card has only the bus id.
type place struct{ uuid, busID string }

// events collects the driver's events. Each batch of cards has a set and a
// goroutine of its own, which may hang without delaying a sample.
type events struct {
	registered map[string]bool // by UUID; used only by the goroutine that calls NVML
	pending    map[nvml.Device]place
	set        nvml.EventSet
	sets       int
	ending     chan struct{}
	waiters    sync.WaitGroup

	mu      sync.Mutex
	xids    []gpu.Xid
	dropped int
}

// supportsEvents reports whether this driver has events at all.
func (d *driver) supportsEvents() bool {
	return d.has[eventSets] && d.has[eventTypes] && d.has[eventRegister] && d.has[eventWait]
}

// register subscribes to a card's events, once. The caller's page names the
// card.
func (e *events) register(d *driver, handle nvml.Device, id identity, partitioned bool) {
	if e.registered[id.uuid] || !d.supportsEvents() || e.sets >= maxEventSets {
		return
	}
	if e.registered == nil {
		e.registered, e.ending = map[string]bool{}, make(chan struct{})
	}
	e.registered[id.uuid] = true
	types, ret := handle.GetSupportedEventTypes()
	if ret != nvml.SUCCESS || types&wantedEvents == 0 {
		return
	}
	if e.set == nil {
		set, ret := d.nvml.EventSetCreate()
		if ret != nvml.SUCCESS {
			return
		}
		e.set, e.pending = set, map[nvml.Device]place{}
	}
	if handle.RegisterEvents(types&wantedEvents, e.set) != nvml.SUCCESS {
		return
	}
	where := place{uuid: id.uuid, busID: kernelBusID(id.busID)}
	if partitioned {
		where.uuid = ""
	}
	e.pending[handle] = where
}

// listen starts to wait for the cards registered since the last call.
func (e *events) listen(library nvml.Interface) (listening bool) {
	if e.set != nil && len(e.pending) > 0 {
		e.sets++
		e.waiters.Add(1)
		go e.wait(library, e.set, e.pending)
		e.set, e.pending = nil, nil
	}
	return e.sets > 0
}

// wait takes in the events of one set. It makes no call about a card: the
// registration says which one it was.
func (e *events) wait(library nvml.Interface, set nvml.EventSet, places map[nvml.Device]place) {
	defer e.waiters.Done()
	for {
		data, ret := library.EventSetWait(set, eventWaitMS)
		retry := time.Duration(0)
		switch ret {
		case nvml.SUCCESS:
			e.add(data, places[data.Device])
		case nvml.ERROR_TIMEOUT:
		default: // a lost card fails every wait: try again, but do not spin
			retry = eventRetry
		}
		select {
		case <-e.ending:
			return
		case <-time.After(retry):
		}
	}
}

func (e *events) add(data nvml.EventData, where place) {
	xid, other := otherEvents[data.EventType]
	if !other {
		xid.Code = int(data.EventData)
	}
	xid.At, xid.UUID, xid.BusID = time.Now(), where.uuid, where.busID
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, had := range e.xids {
		if other && had.Code == xid.Code && had.UUID == xid.UUID && had.BusID == xid.BusID {
			return // the driver reports some errors in both ways
		}
	}
	if len(e.xids) == maxXids {
		e.xids = e.xids[1:]
		e.dropped++
	}
	e.xids = append(e.xids, xid)
}

// drain returns what came since the last sample.
func (e *events) drain() (xids []gpu.Xid, problems []string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	xids = e.xids
	if e.dropped > 0 {
		problems = append(problems, fmt.Sprintf("%d driver events were dropped because too many came at once", e.dropped))
	}
	e.xids, e.dropped = nil, 0
	return xids, problems
}

// stop ends the waits before NVML is shut down; one that hangs is abandoned.
func (e *events) stop() {
	if e.ending == nil {
		return
	}
	close(e.ending)
	over := make(chan struct{})
	go func() { e.waiters.Wait(); close(over) }()
	select {
	case <-over:
	case <-time.After(eventStop):
	}
}

// kernelBusID converts "00000000:3B:00.0" to the form of the kernel log:
// "0000:3b:00".
func kernelBusID(busID string) string {
	domain, rest, found := strings.Cut(strings.ToLower(busID), ":")
	if !found {
		return ""
	}
	rest, _, _ = strings.Cut(rest, ".")
	return domain[max(0, len(domain)-4):] + ":" + rest
}

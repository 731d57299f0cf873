//go:build cgo

package main

import (
	"slices"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"berth/internal/gpu"
)

// Memory, processes and utilisation cost microseconds, and are read in every
// sample. Everything else goes to the card's firmware and costs hundreds each,
// so it is read in tiers, each as often as somebody needs it. In between, what
// was read last is told again.
type tier int

const (
	senses   tier = iota // what people look at
	health               // what the driver says about itself
	shares               // the utilisation of each process
	layout               // whether it is in parts, which nobody changes while it is in use
	settings             // what hardly ever changes: the power limit, the links
	tierCount
)

// newcomerWait is how long a process that the last reading of shares does not
// know waits for the next: one call costs as much as all others together.
const newcomerWait = 2 * time.Second

// idlersWait is the same where nobody is known to work on a card that does.
const idlersWait = 5 * time.Second

// ageLimits say how old the values of a tier may be before they are read anew.
var ageLimits = [tierCount]time.Duration{senses: 2 * time.Second, health: 5 * time.Second, shares: 15 * time.Second, layout: 5 * time.Second, settings: time.Minute}

// lateFactor is by how much values may be over their age before they are read
// whatever else a sample has to read.
const lateFactor = 2

// lastRead is what was read about a card, at some time or other.
type lastRead struct {
	card int                  // the driver's number
	at   [tierCount]time.Time // the zero time: never
	read bool                 // in the sample under way, without a fault
	busy bool                 // it had processes, of which there are shares

	tempC, powerW, powerLimitW float64
	smClockMHz, memClockMHz    int
	condition                  gpu.Condition
	partitioned                bool
	shares                     map[int]float64 // by pid; nil: not known
}

// recall finds what was read about the reader's card. An Xid on it says that
// its health may have changed.
func (r *reader) recall(id identity, xids []gpu.Xid) {
	r.last = r.lastReads[id.uuid]
	if r.last == nil {
		r.last = &lastRead{}
		r.lastReads[id.uuid] = r.last
	}
	r.last.card = r.card
	for _, xid := range xids {
		if xid.UUID == id.uuid || xid.UUID == "" && xid.BusID == kernelBusID(id.busID) {
			r.last.at[health] = time.Time{}
		}
	}
	r.turn = r.card == r.nextTurn
}

// due reports whether a tier is to be read now, and notes that it is.
func (r *reader) due(t tier) bool {
	age := r.now.Sub(r.last.at[t])
	if !r.last.at[t].IsZero() && age >= 0 && age <= lateFactor*ageLimits[t] && (!r.turn || age < ageLimits[t]) {
		return false
	}
	r.last.at[t] = r.now
	return true
}

// takeTurns finds the one card whose tiers are read in this sample as soon as
// they are due, so that the cost is spread: that which is the most behind.
func (d *driver) takeTurns() {
	d.nextTurn = maxCards // nobody's
	most := 1.0
	for _, last := range d.lastReads {
		behind := last.behind(d.now)
		if behind > most || behind == most && last.card < d.nextTurn {
			most, d.nextTurn = behind, last.card
		}
	}
}

// behind is how old the values of a card are: of the tier that is the most
// over its limit, as a multiple of it.
func (l *lastRead) behind(now time.Time) float64 {
	most := 0.0
	for t, at := range l.at {
		if !at.IsZero() && (tier(t) != shares || l.busy) { // what was never read is read anyway
			most = max(most, now.Sub(at).Seconds()/ageLimits[t].Seconds())
		}
	}
	return most
}

// forget ends a sample: of a card that it did not read, or not well, everything
// is read anew when it is back.
func (d *driver) forget() {
	for uuid, last := range d.lastReads {
		if !last.read {
			delete(d.lastReads, uuid)
			delete(d.links.cards, uuid)
		}
		last.read = false
	}
}

// tellSenses says what nobody places by.
func (r *reader) tellSenses(device *gpu.Device) {
	if r.due(senses) {
		r.readSenses()
	}
	if r.due(settings) {
		delete(r.links.cards, device.UUID)
		r.last.powerLimitW = -1
		if r.has[powerLimit] {
			if milliwatts, ret := r.handle.GetEnforcedPowerLimit(); r.ok(ret) {
				r.last.powerLimitW = float64(milliwatts) / milliwattsPW
			}
		}
	}
	device.TempC, device.PowerW, device.PowerLimitW = r.last.tempC, r.last.powerW, r.last.powerLimitW
	device.SMClockMHz, device.MemClockMHz = r.last.smClockMHz, r.last.memClockMHz
}

func (r *reader) readSenses() {
	r.last.tempC, r.last.powerW, r.last.smClockMHz, r.last.memClockMHz = -1, -1, -1, -1
	if r.has[temperature] {
		if degrees, ret := r.handle.GetTemperature(nvml.TEMPERATURE_GPU); r.ok(ret) {
			r.last.tempC = float64(degrees)
		}
	}
	if r.has[powerUsage] {
		if milliwatts, ret := r.handle.GetPowerUsage(); r.ok(ret) {
			r.last.powerW = float64(milliwatts) / milliwattsPW
		}
	}
	if !r.has[clocks] {
		return
	}
	if megahertz, ret := r.handle.GetClockInfo(nvml.CLOCK_SM); r.ok(ret) {
		r.last.smClockMHz = int(megahertz)
	}
	if megahertz, ret := r.handle.GetClockInfo(nvml.CLOCK_MEM); r.ok(ret) {
		r.last.memClockMHz = int(megahertz)
	}
}

// condition is what the driver says about the health of the card.
func (r *reader) condition() gpu.Condition {
	if r.due(health) {
		r.last.condition = r.readCondition()
	}
	return r.last.condition
}

// tellShares adds each process's latest utilisation. On a card that does
// nothing none of them does, and one alone does all there is: that is known
// without asking. Of several, one that has come since they were asked about has
// none yet.
func (r *reader) tellShares(processes []gpu.Process, cardPct float64) {
	r.last.busy = false
	if cardPct == 0 || cardPct > 0 && len(processes) == 1 {
		for i := range processes {
			processes[i].UtilPct = cardPct
		}
		return
	}
	if !r.has[processUtilisation] || len(processes) == 0 {
		return
	}
	r.last.busy = true
	if r.outdated(processes, cardPct) {
		r.last.at[shares] = time.Time{}
	}
	if r.due(shares) {
		r.last.shares = r.readShares(processes)
	}
	for i := range processes {
		if share, known := r.last.shares[processes[i].PID]; known {
			processes[i].UtilPct = share
		}
	}
}

// outdated reports whether what was read of the processes' shares cannot be
// true any more: it does not know one of them, or has nobody work on a card
// that is at work.
func (r *reader) outdated(processes []gpu.Process, cardPct float64) bool {
	if r.last.shares == nil {
		return false
	}
	age := r.now.Sub(r.last.at[shares])
	unknown := func(p gpu.Process) bool { _, known := r.last.shares[p.PID]; return !known }
	works := func(p gpu.Process) bool { return r.last.shares[p.PID] > 0 }
	return age >= newcomerWait && slices.ContainsFunc(processes, unknown) ||
		age >= idlersWait && cardPct > 0 && !slices.ContainsFunc(processes, works)
}

//go:build cgo

package main

import (
	"slices"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"berth/internal/machine/gpu"
)

// Memory, processes and utilisation cost microseconds, and are read in every
// sample. Everything else goes to the card's firmware and costs hundreds each,
// so it is read in tiers, each as often as needed. In between, the last values
// are repeated.
type tier int

const (
	senses   tier = iota // for display: temperature, power, clocks
	health               // the driver's own report on it
	shares               // the utilisation of each process
	layout               // whether it is partitioned, which cannot change while it is in use
	settings             // what hardly ever changes: the power limit, the links
	tierCount
)

// newcomerWait is how long a process that is missing from the last reading of
// shares waits for the next: that call costs as much as all others together.
const newcomerWait = 2 * time.Second

// idlersWait is the same if a card is busy and no known process is.
const idlersWait = 5 * time.Second

// ageLimits say how old the values of a tier may get.
var ageLimits = [tierCount]time.Duration{senses: 2 * time.Second, health: 5 * time.Second, shares: 15 * time.Second, layout: 5 * time.Second, settings: time.Minute}

// lateFactor is how far values may exceed their age before they are read in
// any sample.
const lateFactor = 2

// lastRead are the last values read of a card.
type lastRead struct {
	card int                  // the driver's number
	at   [tierCount]time.Time // zero: never
	read bool                 // in the sample in progress, without a fault
	busy bool                 // it had processes, which have shares

	tempC, powerW, powerLimitW float64
	smClockMHz, memClockMHz    int
	condition                  gpu.Condition
	partitioned                bool
	shares                     map[int]float64 // by pid; nil: unknown
}

// recall finds the last values of the reader's card. After an Xid, its health
// is read again.
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

// due reports whether a tier has to be read now, and notes that it is.
func (r *reader) due(t tier) bool {
	age := r.now.Sub(r.last.at[t])
	if !r.last.at[t].IsZero() && age >= 0 && age <= lateFactor*ageLimits[t] && (!r.turn || age < ageLimits[t]) {
		return false
	}
	r.last.at[t] = r.now
	return true
}

// takeTurns finds the one card whose tiers are read in this sample as soon as
// they are due, which spreads the cost: the card that is most behind.
func (d *driver) takeTurns() {
	d.nextTurn = maxCards // no card's
	most := 1.0
	for _, last := range d.lastReads {
		behind := last.behind(d.now)
		if behind > most || behind == most && last.card < d.nextTurn {
			most, d.nextTurn = behind, last.card
		}
	}
}

// behind is the age of a card's values: of the tier that most exceeds its
// limit, as a multiple of it.
func (l *lastRead) behind(now time.Time) float64 {
	most := 0.0
	for t, at := range l.at {
		if !at.IsZero() && (tier(t) != shares || l.busy) { // what was never read is read in any case
			most = max(most, now.Sub(at).Seconds()/ageLimits[t].Seconds())
		}
	}
	return most
}

// forget ends a sample: a card that it did not read successfully is read
// completely when it is back.
func (d *driver) forget() {
	for uuid, last := range d.lastReads {
		if !last.read {
			delete(d.lastReads, uuid)
			delete(d.links.cards, uuid)
		}
		last.read = false
	}
}

// tellSenses adds the values that are for display only.
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

// condition is what the driver reports about the health of the card.
func (r *reader) condition() gpu.Condition {
	if r.due(health) {
		r.last.condition = r.readCondition()
	}
	return r.last.condition
}

// tellShares adds each process's latest utilisation. On an idle card no
// process works, and a single process does all the work: neither needs a call.
// Of several, a process that has come since the last call has no value yet.
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

// outdated reports whether the last reading of shares cannot be true any more:
// it lacks a process, or has no process work on a busy card.
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

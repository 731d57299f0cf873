package fakenvml

import "fmt"

// How a card behaves, by the library's numbers.
const (
	fine = iota
	lost
	hangs
	hangsHard
	aborts
	faulty
	gone
)

// EventXid and its neighbours are the kinds of event that Event takes.
const (
	EventXid         = 0x8
	EventUnavailable = 0x4000
	EventRecovery    = 0x8000
)

func (b *Box) mode(i, mode, fault int) {
	b.t.Helper()
	b.Change(i, func(card *Card) { card.mode, card.fault = mode, fault })
}

// Lose makes the card fall off the bus: calls about it say so.
func (b *Box) Lose(i int) { b.t.Helper(); b.mode(i, lost, 0) }

// LoseForSession is Lose with a driver that does not find a card again:
// processes that initialised it before Restore keep seeing the card as lost.
func (b *Box) LoseForSession(i int) { b.t.Helper(); b.mode(i, gone, 0) }

// Hang makes every call about the card block for ever.
func (b *Box) Hang(i int) { b.t.Helper(); b.mode(i, hangs, 0) }

// HangHard is Hang in a way that SIGTERM does not end.
func (b *Box) HangHard(i int) { b.t.Helper(); b.mode(i, hangsHard, 0) }

// Abort makes the library abort the process that asks about the card.
func (b *Box) Abort(i int) { b.t.Helper(); b.mode(i, aborts, 0) }

// Fail makes calls about the card return an NVML code.
func (b *Box) Fail(i, code int) { b.t.Helper(); b.mode(i, faulty, code) }

// Restore ends what Lose, Hang, Abort, Fail and Remove began. A call that
// hangs keeps hanging.
func (b *Box) Restore(i int) {
	b.t.Helper()
	b.Change(i, func(card *Card) { card.mode, card.fault, card.removed = fine, 0, false })
}

// Remove removes the card from the driver's list: those after it are
// renumbered.
func (b *Box) Remove(i int) {
	b.t.Helper()
	b.Change(i, func(card *Card) { card.removed = true })
}

// FailInit makes the library refuse to start with an NVML code; 0 ends that.
func (b *Box) FailInit(code int) {
	b.t.Helper()
	b.change(func() { b.initResult = code })
}

// HangInit makes it hang when it starts, or not any more.
func (b *Box) HangInit(on bool) {
	b.t.Helper()
	b.change(func() { b.initHangs = flag(on) })
}

// HangEvents makes the wait for events never return.
func (b *Box) HangEvents() {
	b.t.Helper()
	b.change(func() { b.eventsHang = 1 })
}

// Slow makes every call take that long.
func (b *Box) Slow(milliseconds int) {
	b.t.Helper()
	b.change(func() { b.slowMS = milliseconds })
}

// Driver changes the driver's version.
func (b *Box) Driver(version string) {
	b.t.Helper()
	b.change(func() { b.driver = version })
}

// Xid raises an error with that code on a card.
func (b *Box) Xid(i, code int) { b.t.Helper(); b.Event(i, EventXid, code) }

// Event raises any kind of event.
func (b *Box) Event(i int, kind uint64, data int) {
	b.t.Helper()
	b.change(func() {
		b.xidSerial++
		b.xids = append(b.xids, fmt.Sprintf("xid %d %d %d %d", b.xidSerial, i, kind, data))
		// The library keeps 64: older ones have long been delivered.
		if len(b.xids) > 48 {
			b.xids = b.xids[1:]
		}
	})
}

// Symbols that older drivers lack, for Miss.
var (
	MemoryV2     = []string{"nvmlDeviceGetMemoryInfo_v2"}
	ProcessesV3  = []string{"nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetGraphicsRunningProcesses_v3", "nvmlDeviceGetMPSComputeRunningProcesses_v3"}
	ProcessesV2  = []string{"nvmlDeviceGetComputeRunningProcesses_v2", "nvmlDeviceGetGraphicsRunningProcesses_v2", "nvmlDeviceGetMPSComputeRunningProcesses_v2"}
	MemoryLimits = []string{"nvmlDeviceSetMemoryLimits_v1", "nvmlDeviceGetMemoryLimits_v1"}
	FieldValues  = []string{"nvmlDeviceGetFieldValues"}
)

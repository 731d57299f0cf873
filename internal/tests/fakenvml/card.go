package fakenvml

import (
	"fmt"
	"io"
)

// Unavailable is the memory of a process that the driver does not report.
const Unavailable = -1

// The kinds of process.
const (
	Computes = 'c'
	Draws    = 'g' // a desktop
	MPS      = 'm' // computes as a client of MPS
)

// Process is a process as the driver lists it. Its pid need not exist.
type Process struct {
	PID     int
	UsedMiB int64 // or Unavailable
	Kind    rune  // 0 means Computes
	SMPct   int   // its share of the card's time; -1: no sample
}

// Part is a MIG device.
type Part struct {
	UUID                         string
	Profile                      string // "1g.10gb"
	GPUInstance, ComputeInstance int
	Slices                       int
	TotalMiB, ReservedMiB        int64
	StrayMiB                     int64 // in use, but not by a listed process
	Processes                    []Process
}

// Link is an NVLink of a card: to another card, by its bus id, or to a switch.
type Link struct {
	To     string
	Switch bool
}

// Card is a card. A negative number means that the card does not report the
// value.
type Card struct {
	UUID, Name, BusID string
	Minor             int

	TotalMiB, ReservedMiB int64
	StrayMiB              int64 // in use, but not by a listed process
	Processes             []Process
	UtilPct               int
	ProcessUtil           int // -1: per-process utilisation is not supported

	TempC                      int
	PowerMilliwatts            int
	PowerLimitMilliwatts       int
	SMClockMHz, MemoryClockMHz int

	CorrectedECC, UncorrectedECC int64
	CorrectedRows                int // -1: a card without row remapping
	UncorrectedRows              int
	RowsPending, RowsFailed      bool
	RetiredPending               int // 1: pages wait for retirement, on older cards
	Recovery                     int // an nvmlDeviceGpuRecoveryAction_t
	Persistence                  int // 1: on
	Limits                       int // -1: memory limits are not supported
	Xids                         bool

	MIG   int // 1: partitioned
	Parts []Part
	Links []Link

	mode, fault int
	removed     bool
}

// H100 is a healthy idle card with NVIDIA's largest set of features, number i
// of its box. Change what a test needs.
func H100(i int) Card {
	return Card{
		UUID: fmt.Sprintf("GPU-00000000-0000-4000-8000-%012x", i+1), Name: "NVIDIA H100 80GB HBM3",
		BusID: fmt.Sprintf("00000000:%02X:00.0", 0x10+i), Minor: i,
		TotalMiB: 81559, ReservedMiB: 551, TempC: 31, PowerMilliwatts: 71250, PowerLimitMilliwatts: 700000,
		SMClockMHz: 345, MemoryClockMHz: 2619, Persistence: 1, Xids: true, RetiredPending: -1,
	}
}

// RTX2080 is an older workstation card: no ECC, no row remapping, no MIG, no
// recovery action, no memory limits.
func RTX2080(i int) Card {
	card := H100(i)
	card.Name, card.TotalMiB, card.ReservedMiB = "NVIDIA GeForce RTX 2080 Ti", 11264, 247
	card.PowerLimitMilliwatts = 250000
	card.CorrectedECC, card.UncorrectedECC, card.CorrectedRows, card.Recovery = -1, -1, -1, -1
	card.MIG, card.Limits, card.Persistence = -1, -1, 0
	return card
}

// Partitioned is an H100 with MIG, number i of its box, and parts of 1g.10gb.
func Partitioned(i, parts int) Card {
	card := H100(i)
	card.MIG, card.UtilPct = 1, -1
	for n := range parts {
		card.Parts = append(card.Parts, Part{
			UUID: fmt.Sprintf("MIG-00000000-0000-4000-9%03x-%012x", n, i+1), Profile: "1g.10gb",
			GPUInstance: 7 + n, Slices: 1, TotalMiB: 9984, ReservedMiB: 13,
		})
	}
	return card
}

const mib = int64(1) << 20

func flag(set bool) int {
	if set {
		return 1
	}
	return 0
}

// write writes one card in the library's format.
func (c *Card) write(out io.Writer, slot int) {
	line := func(format string, args ...any) { fmt.Fprintf(out, format+"\n", args...) }
	line("card %d", slot)
	line("uuid %s", c.UUID)
	line("name %s", c.Name)
	line("bus %s", c.BusID)
	line("minor %d", c.Minor)
	line("memory %d %d %d", c.TotalMiB*mib, c.ReservedMiB*mib, c.StrayMiB*mib)
	line("util %d %d", c.UtilPct, c.ProcessUtil)
	line("senses %d %d %d %d %d", c.TempC, c.PowerMilliwatts, c.PowerLimitMilliwatts, c.SMClockMHz, c.MemoryClockMHz)
	line("ecc %d %d", c.CorrectedECC, c.UncorrectedECC)
	line("rows %d %d %d %d", c.CorrectedRows, c.UncorrectedRows, flag(c.RowsPending), flag(c.RowsFailed))
	line("retired %d", c.RetiredPending)
	line("recovery %d", c.Recovery)
	line("persistence %d", c.Persistence)
	line("limits %d", c.Limits)
	line("xids %d", flag(c.Xids))
	line("mig %d", c.MIG)
	line("mode %d %d", c.mode, c.fault)
	for _, link := range c.Links {
		line("link %d %s", 2*flag(link.Switch), link.To)
	}
	for _, part := range c.Parts {
		line("part %d %d %d %s %s %d %d %d", part.GPUInstance, part.ComputeInstance, part.Slices, part.UUID, part.Profile, part.TotalMiB*mib, part.ReservedMiB*mib, part.StrayMiB*mib)
	}
	writeProcesses(out, slot, -1, c.Processes)
	for n, part := range c.Parts {
		writeProcesses(out, slot, n, part.Processes)
	}
}

func writeProcesses(out io.Writer, slot, part int, processes []Process) {
	for _, process := range processes {
		kind, bytes := process.Kind, uint64(process.UsedMiB*mib)
		if kind == 0 {
			kind = Computes
		}
		if process.UsedMiB == Unavailable {
			bytes = ^uint64(0)
		}
		fmt.Fprintf(out, "process %d %d %c %d %d %d\n", slot, part, kind, process.PID, bytes, process.SMPct)
	}
}

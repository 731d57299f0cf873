package gpu

import (
	"cmp"
	"slices"
	"time"
)

// sameXidWithin is how far apart NVML and the kernel log may report one event.
const sameXidWithin = 5 * time.Second

// xidMerge merges the Xids from NVML and the kernel log, and drops duplicates.
type xidMerge struct {
	recent []reportedXid
	busID  map[string]string // by UUID, in the form of the kernel log
	uuid   map[string]string // of the whole card at a bus address
}

// reportedXid is an event that was passed on.
type reportedXid struct {
	card   string
	code   int
	at     time.Time
	kernel bool // from the kernel log; otherwise from NVML
}

func newXidMerge() *xidMerge {
	return &xidMerge{busID: map[string]string{}, uuid: map[string]string{}}
}

// learn takes in where the cards are.
func (m *xidMerge) learn(devices []Device) {
	if len(m.busID) > maxPlaces {
		clear(m.busID)
		clear(m.uuid)
	}
	for _, d := range devices {
		id := kernelBusID(d.BusID)
		if id == "" || d.UUID == "" {
			continue
		}
		m.busID[d.UUID] = id
		if d.Part == nil {
			m.uuid[id] = d.UUID
		}
	}
}

// merge returns what is new, sorted by time.
func (m *xidMerge) merge(nvml, kernel []Xid) []Xid {
	var merged []Xid
	for _, source := range []struct {
		xids   []Xid
		kernel bool
	}{{nvml, false}, {kernel, true}} {
		for _, x := range source.xids {
			x = m.complete(x)
			told := reportedXid{card: x.BusID, code: x.Code, at: x.At, kernel: source.kernel}
			told.card = cmp.Or(told.card, x.UUID)
			if !slices.ContainsFunc(m.recent, told.repeats) {
				merged = append(merged, x)
			}
			m.recent = append(m.recent, told)
		}
	}
	m.recent = m.recent[max(0, len(m.recent)-2*maxXids):]
	slices.SortStableFunc(merged, func(a, b Xid) int { return a.At.Compare(b.At) })
	return merged
}

// repeats reports whether the other source reported the same event.
func (t reportedXid) repeats(o reportedXid) bool {
	return t.kernel != o.kernel && t.card == o.card && t.code == o.code && t.at.Sub(o.at).Abs() <= sameXidWithin
}

// complete adds the missing one of UUID and bus address, if known.
func (m *xidMerge) complete(x Xid) Xid {
	if x.BusID != "" {
		x.BusID = kernelBusID(x.BusID)
	}
	x.UUID = cmp.Or(x.UUID, m.uuid[x.BusID])
	x.BusID = cmp.Or(x.BusID, m.busID[x.UUID])
	return x
}

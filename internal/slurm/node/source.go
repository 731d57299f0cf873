package node

import (
	"context"
	"slices"
	"strings"
	"sync/atomic"

	"berth/internal/machine/gpu"
	"berth/internal/machine/run"
)

// allotted is the cards of one job. Slurm has decided that the job runs on them:
// until it has begun they look free and healthy, whoever else uses them.
type allotted struct {
	gpu.Source
	cards []gpu.Device
	begun atomic.Pointer[run.Holder] // the job; nil: not yet
	own   *run.Attribution
}

func newAllotted(source gpu.Source, cards []gpu.Device) *allotted {
	return &allotted{Source: source, cards: cards, own: run.NewAttribution()}
}

// begin says whose processes are the job's.
func (a *allotted) begin(h run.Holder) {
	a.own.Set([]run.Holder{h})
	a.begun.Store(&h)
}

// Sample reads the job's cards, under the node's numbers.
func (a *allotted) Sample(ctx context.Context) (gpu.Sample, error) {
	begun := a.begun.Load() != nil
	all, err := a.Source.Sample(ctx)
	s := gpu.Sample{At: all.At}
	for _, d := range all.Devices {
		at := slices.IndexFunc(a.cards, func(card gpu.Device) bool { return card.UUID == d.UUID })
		if at < 0 {
			continue
		}
		d.Index, d.Links, d.Near = a.cards[at].Index, nil, nil
		if begun {
			a.attribute(&d)
		} else {
			clean := gpu.Unknown(d.Index, d.UUID, d.Name).Condition
			d.UsedMiB, d.UtilPct, d.Processes, d.Condition = 0, 0, nil, clean
		}
		s.Devices = append(s.Devices, d)
	}
	for _, xid := range all.Xids {
		if begun && slices.ContainsFunc(a.cards, func(card gpu.Device) bool { return card.UUID == xid.UUID }) {
			s.Xids = append(s.Xids, xid)
		}
	}
	return s, err
}

// attribute makes the utilisation of a card that the job shares that of the job's
// own processes.
func (a *allotted) attribute(d *gpu.Device) {
	own, shared := 0.0, false
	for _, p := range d.Processes {
		switch _, ours, known := a.own.Owner(p.PID); {
		case ours && p.UtilPct < 0:
			own = -1
		case ours && own >= 0:
			own += p.UtilPct
		case !ours && known && !p.Graphics:
			shared = true
		}
	}
	if shared {
		d.UtilPct = min(own, 100)
	}
}

func uuids(cards []gpu.Device) string {
	list := make([]string, len(cards))
	for i, d := range cards {
		list[i] = d.UUID
	}
	return strings.Join(list, ",")
}

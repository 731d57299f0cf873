package engine

import (
	"fmt"
	"time"

	"berth/internal/machine/gpu"
)

// externalProcess is a process on a card that no berth started.
type externalProcess struct {
	card     int
	pid      int
	mib      int64
	graphics bool
	until    time.Time
	shown    bool // in the last sample that showed its card
}

// comeAndGo lets external begin and end. In the calm they all leave.
func (w *world) comeAndGo() {
	for card := range w.cards {
		if w.chance(60) {
			w.hardware.came++
			w.hardware.external = append(w.hardware.external, &externalProcess{
				card: card, pid: 500_000 + w.hardware.came, mib: int64(300 + w.rng.IntN(6000)), graphics: w.rng.IntN(4) == 0,
				until: w.now.Add(time.Duration(1+w.rng.IntN(30)) * time.Second),
			})
		}
	}
	staying := w.hardware.external[:0]
	for _, s := range w.hardware.external {
		if w.storm && w.now.Before(s.until) {
			staying = append(staying, s)
		}
	}
	w.hardware.external = staying
}

// addStrangers puts those on a card into its reading, as far as they fit.
func (w *world) addStrangers(d *gpu.Device) {
	for _, s := range w.hardware.external {
		_, away := w.hardware.away[d.Index]
		if s.card != d.Index || away {
			continue
		}
		p := gpu.Process{PID: s.pid, UsedMiB: min(s.mib, w.total-d.UsedMiB), Graphics: s.graphics}
		d.UsedMiB += p.UsedMiB
		s.mib, s.shown = p.UsedMiB, true
		if w.hardware.vague {
			p.UsedMiB = -1
		}
		d.Processes = append(d.Processes, p)
	}
}

// checkStrangers: nothing is promised memory that external were shown to use,
// and nothing that needs a card to itself joins one that computes there.
func (w *world) checkStrangers(x *execution) {
	for _, card := range x.cards {
		var takenMiB int64
		for _, y := range w.history {
			for _, other := range y.cards {
				if y.alive && !y.parked && other == card {
					takenMiB += y.useMiB
				}
			}
		}
		for _, s := range w.hardware.external {
			if s.card != card || !s.shown {
				continue
			}
			takenMiB += s.mib
			if x.alone && !s.graphics && s.mib > w.rules().IdleThresholdMiB {
				w.wrong("job %s started alone on gpu%d beside an external process with %d MiB", x.job, card, s.mib)
			}
		}
		if takenMiB+x.useMiB > w.total {
			w.wrong("gpu%d over-committed by job %s beside external: %d + %d MiB", card, x.job, takenMiB, x.useMiB)
		}
	}
}

// spoken is what the driver said since it was last asked.
func (w *world) spoken() []gpu.Xid {
	xids := w.hardware.xids
	w.hardware.xids = nil
	for _, x := range xids {
		if x.Code == 48 || x.Code == 79 {
			var card int
			if _, err := fmt.Sscanf(x.UUID, "GPU-%d", &card); err != nil {
				panic(err)
			}
			w.hardware.hard[card] = w.now
		}
	}
	return xids
}

// kernelLog is what a berth that begins finds there.
func (w *world) kernelLog() (lately []gpu.Xid) {
	for _, x := range w.hardware.log {
		if w.now.Sub(x.At) <= 5*time.Minute {
			lately = append(lately, x)
		}
	}
	return lately
}

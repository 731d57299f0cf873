package engine

import (
	"slices"
	"time"

	"berth/internal/job"
	"berth/internal/machine/keep"
	"berth/internal/machine/run"
)

// This file is how the world parks jobs.

// Park takes a job off its cards, or refuses.
func (w *world) Park(token string, _ time.Duration, _ int64) error {
	w.checkHost()
	return w.moves(token, job.ParkOut, func(k *fakeKeep, x *execution) {
		if !x.parked && w.rng.IntN(4) == 0 {
			w.reportParking(k, "not supported", time.Second)
			return
		}
		x.parked = true
		w.parkings++
		w.reportParking(k, "", time.Second)
	})
}

// Resume brings it back if there is room, or finds that it is broken.
func (w *world) Resume(token string, _ []keep.Room) error {
	return w.moves(token, job.ParkBack, func(k *fakeKeep, x *execution) {
		switch {
		case x.parked && w.storm && w.rng.IntN(8) == 0:
			w.reportParking(k, "not enough free memory", time.Second)
		case x.parked && w.storm && w.rng.IntN(16) == 0:
			w.exit(token, x, keep.StopBroken)
		default:
			if x.parked {
				w.checkBack(x)
			}
			x.parked = false
			w.resumes++
			w.reportParking(k, "", time.Second)
		}
	})
}

// moves has a supervisor park its job or resume it, unless it is at that already.
// The phase must be on disk before it is asked.
func (w *world) moves(token string, phase job.ParkPhase, outcome func(*fakeKeep, *execution)) error {
	w.mayCrash()
	k := w.keeps[token]
	x := k.running
	if x == nil || x.busy {
		return nil
	}
	w.arrives(x)
	if row := w.rows[x.job]; row.State != job.Running || row.Keep != token || row.Parking.Phase != phase {
		w.wrong("job %s is asked to move (%s), but on disk it is %s %+v", x.job, phase, row.State, row.Parking)
	}
	x.busy = true
	w.at(time.Duration(w.rng.IntN(2000))*time.Millisecond, func() {
		if x.busy = false; x.alive && k.alive && k.running == x {
			outcome(k, x)
		}
	})
	return nil
}

// checkHost: parked jobs take no more of the host's memory than they may, together
// with those that are told to leave.
func (w *world) checkHost() {
	var mib int64
	for _, row := range w.rows {
		if row.State == job.Parked || row.State == job.Running && row.Parking.Phase == job.ParkOut {
			mib += row.Parking.HostMiB()
		}
	}
	if mib > w.total {
		w.wrong("parked jobs take %d MiB of the host, and may take %d", mib, w.total)
	}
}

// checkBack: a job never comes back to a card without room.
func (w *world) checkBack(x *execution) {
	w.arrives(x)
	for _, card := range x.cards {
		held := x.useMiB
		for _, y := range w.history {
			if y == x || !y.alive || y.parked || !slices.Contains(y.cards, card) {
				continue
			}
			if held += y.useMiB; x.alone || y.alone {
				w.wrong("job %s came back to job %s on gpu%d, where one of them must be alone", x.job, y.job, card)
			}
		}
		if held > w.total {
			w.wrong("gpu%d over-committed by job %s, which came back: %d MiB", card, x.job, held)
		}
	}
}

// reportParking is what a supervisor says of its job; without a time it is the
// greeting for a new berth. Its frames stay in order.
func (w *world) reportParking(k *fakeKeep, why string, took time.Duration) {
	boot, x := w.boots, k.running
	if x == nil {
		return
	}
	ev := run.Event{Kind: run.Parking, Token: k.token, Job: x.job, Attempt: x.attempt,
		Park: keep.ParkNews{Parked: x.parked, Busy: x.busy, Why: why, Took: took}}
	w.at(0, func() {
		if boot == w.boots {
			w.inbox = append(w.inbox, ev)
		}
	})
}

// askParking: people park jobs, and bring them back.
func (w *world) askParking(e *Engine, id string) {
	if w.chance(20) {
		var until time.Time
		if w.rng.IntN(2) == 0 {
			until = w.now.Add(time.Duration(w.rng.IntN(20)) * time.Second)
		}
		e.at(w.now).parker.Park(id, "ann", until)
	}
	if w.chance(20) {
		e.at(w.now).parker.Unpark(id, "ann")
	}
}

package engine

import (
	"berth/internal/job"
	"berth/internal/series"
)

// record passes on what the last sample measured, for the past: each card, each
// running job on each of its cards, and which jobs are parked.
func (t *Turn) record() {
	if t.cfg.Measured == nil {
		return
	}
	all := make([]series.Reading, 0, len(t.cards.Book.Present)+2*len(t.attempts.Active))
	card := func(index int) series.Point {
		d, known := t.cards.Book.Known[index]
		if !known || !t.cards.Book.Present[index] {
			return series.Point{At: t.Now, MiB: series.Unknown, UtilPct: series.Unknown, PowerW: series.Unknown, TempC: series.Unknown}
		}
		return series.Point{At: t.Now, MiB: d.UsedMiB, UtilPct: d.UtilPct, PowerW: d.PowerW, TempC: d.TempC}
	}
	for index := range t.cards.Book.Present {
		all = append(all, series.Reading{Track: series.Track{Kind: series.GPU, ID: t.cards.Book.Known[index].UUID}, Point: card(index)})
	}
	for _, a := range t.attempts.Active {
		all = t.recordJob(all, a.Job, card)
	}
	for _, j := range t.attempts.Parking.List() {
		track := series.Track{Kind: series.Parked, Owner: j.User, ID: j.ID, Attempt: j.Number}
		all = append(all, series.Reading{Track: track, Point: series.Point{At: t.Now, MiB: j.Parking.HostMiB(), UtilPct: series.Unknown, PowerW: series.Unknown, TempC: series.Unknown}})
	}
	t.cfg.Measured(all)
}

// recordJob adds a running job. Memory on a card that was not allocated to it is
// its memory all the same; what could not be measured stays unknown.
func (t *Turn) recordJob(all []series.Reading, j *job.Job, card func(index int) series.Point) []series.Reading {
	usedMiB := t.cards.Meter.Top(j.ID)
	add := func(index int, mib int64) {
		p := card(index)
		p.MiB = mib
		track := series.Track{Kind: series.Job, Owner: j.User, ID: j.ID, Attempt: j.Number, GPU: index}
		all = append(all, series.Reading{Track: track, Point: p})
	}
	for _, index := range j.Grant.GPUs {
		mib, measured := usedMiB[index]
		if !measured {
			mib = series.Unknown
		}
		add(index, mib)
		delete(usedMiB, index)
	}
	for index, mib := range usedMiB {
		add(index, mib)
	}
	return all
}

package engine

import (
	"context"
	"time"

	"berth/internal/job"
	"berth/internal/machine/gpu"
	"berth/internal/machine/run"
	"berth/internal/queue/engine/cards"
	"berth/internal/queue/engine/running"
	"berth/internal/queue/engine/waiting"
	"berth/internal/queue/series"
)

// observer takes in what happened: readings of the cards, and events of
// supervisors.
type observer struct {
	*parts
	explain  *Explain
	ends     *ends
	parker   *Parker
	recovery *Recovery
	round    *round
	ask      func(context.Context, func(now time.Time)) // runs a function in the loop
}

// observe takes in a reading of the cards, or its failure. A failed reading
// starts nothing and ends nothing.
func (o *observer) observe(s gpu.Sample, err error) {
	first := o.cards.Book.At.IsZero()
	if !o.cards.Look(o.changes.Now, s, err, o.work(), o.attempts.InUse) {
		return
	}
	if (first || o.line.Queue.Len() == 0) && o.cards.GlanceAtOthers(o.attempts.Runs) {
		o.attempts.Holdings.SetOwners()
	}
	if first {
		o.attempts.Hindrances.ForgetStuck(o.changes.Now)
	}
	o.cards.Measure(o.attempts.Holdings.List())
	o.attempts.Uses.Compare(o.changes.Now)
	// These are the shares that were measured, or found to take more.
	for _, a := range append(o.attempts.Uses.Settle(o.changes.Now), o.attempts.Uses.WatchOveruse(o.changes.Now, o.explain.harms())...) {
		o.line.Vouch(o.attempts.Charged(a), a.Kind, o.changes.Now.Sub(a.StartedAt))
	}
	o.cards.CheckLeft(o.changes.Now)
	o.attempts.Uses.WatchIdle(o.changes.Now)
	o.record()
}

// work is why the cards should be read.
func (o *observer) work() cards.Work {
	return cards.Work{Queued: o.line.Queue.Len() > 0, Running: len(o.attempts.Active) > 0, Closely: o.attempts.Closely(o.changes.Now)}
}

// absorb takes in a supervisor's event. It is in memory at once and on disk
// after the next round; until then it is not acknowledged.
func (o *observer) absorb(ev run.Event) {
	a := o.attempts.HeldBy(&ev)
	if s := o.attempts.Strays[ev.Token]; a == nil && s != nil {
		if ev.Kind == run.Parking {
			s.Park = ev.Park // it counts once the stray is adopted
			return
		}
		o.recovery.strayOver(ev)
		return
	}
	if a == nil {
		o.cfg.Log.Warn("a supervisor reported on a job it does not hold", "kind", ev.Kind, "token", ev.Token, "job", ev.Job, "attempt", ev.Attempt)
		if ev.Kind.Final() {
			o.attempts.Acks = append(o.attempts.Acks, ev.Token)
		}
		return
	}
	o.attempts.Remarked(o.changes.Now, a, ev.Record.Note)
	o.attempts.Hindrances.Note(o.changes.Now, a, ev)
	switch ev.Kind {
	case run.Started:
		o.attempts.Holdings.SetOwners()
		o.attempts.LimitMemory(a, ev.Record.Cgroup, o.ask)
	case run.Ended:
		o.ends.ended(a, ev)
	case run.Parking:
		o.parker.news(a, ev.Park)
	case run.NeverRan:
		o.ends.stillborn(a)
	case run.Lost:
		o.ends.lost(a, ev.Record)
	}
}

// wait is how long nothing becomes due.
func (o *observer) wait(looking bool) time.Duration {
	wait := time.Hour
	until := func(at time.Time) { wait = min(wait, max(at.Sub(o.changes.Now), time.Millisecond)) }
	if !looking {
		until(o.cards.Due(o.changes.Now, o.work()))
	}
	if undecided := o.round.undecided() && o.line.Queue.Len() > 0 && !o.stopping; o.changes.Failed == nil && (undecided || len(o.line.Expect.Review) > 0 || !o.changes.Written()) {
		until(o.changes.Now)
	}
	for _, at := range []time.Time{o.line.Gates.Next(), o.attempts.Preemption.UrgeAt(), o.round.decideAt()} {
		if !at.IsZero() {
			until(at)
		}
	}
	if o.changes.Failed != nil || len(o.changes.Warned) > 0 || len(o.line.Adopted) > 0 {
		until(o.changes.Now.Add(o.cfg.Poll))
	}
	if len(o.attempts.Uses.Grown) > 0 {
		until(o.attempts.Uses.GrownSince.Add(running.GrownDelay))
	}
	if !o.line.Usage.Since.IsZero() {
		until(o.line.Usage.Since.Add(waiting.UsageDelay))
	}
	return wait
}

// record passes on what the last sample measured, for the past: each card, each
// running job on each of its cards, and which jobs are parked.
func (o *observer) record() {
	if o.cfg.Measured == nil {
		return
	}
	all := make([]series.Reading, 0, len(o.cards.Book.Present)+2*len(o.attempts.Active))
	card := func(index int) series.Point {
		d, known := o.cards.Book.Known[index]
		if !known || !o.cards.Book.Present[index] {
			return series.Point{At: o.changes.Now, MiB: series.Unknown, UtilPct: series.Unknown, PowerW: series.Unknown, TempC: series.Unknown}
		}
		return series.Point{At: o.changes.Now, MiB: d.UsedMiB, UtilPct: d.UtilPct, PowerW: d.PowerW, TempC: d.TempC}
	}
	for index := range o.cards.Book.Present {
		all = append(all, series.Reading{Track: series.Track{Kind: series.GPU, ID: o.cards.Book.Known[index].UUID}, Point: card(index)})
	}
	for _, a := range o.attempts.Active {
		all = o.recordJob(all, a.Job, card)
	}
	for _, j := range o.attempts.Parking.List() {
		track := series.Track{Kind: series.Parked, Owner: j.User, ID: j.ID, Attempt: j.Number}
		all = append(all, series.Reading{Track: track, Point: series.Point{At: o.changes.Now, MiB: j.Parking.HostMiB(), UtilPct: series.Unknown, PowerW: series.Unknown, TempC: series.Unknown}})
	}
	o.cfg.Measured(all)
}

// recordJob adds a running job. Memory on a card that was not allocated to it is
// its memory all the same; what could not be measured stays unknown.
func (o *observer) recordJob(all []series.Reading, j *job.Job, card func(index int) series.Point) []series.Reading {
	usedMiB := o.cards.Meter.Top(j.ID)
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

// needsSample reports whether the next decision needs a new reading. One from
// before the end of a job would show the job's memory as used or, worse, miss
// memory that is still in use.
func (o *observer) needsSample() bool {
	if o.cards.Book.Asked || !o.changes.Now.Before(o.cards.Due(o.changes.Now, o.work())) {
		return true
	}
	return o.line.Queue.Len() > 0 && !o.stopping && o.cards.Book.Err == nil && o.cards.Book.WantsLook(o.changes.Now, o.cards.FreshFor())
}

package running

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"berth/internal/job"
	"berth/internal/machine/gpu"
	"berth/internal/machine/run"
	"berth/internal/queue/engine/cards"
	"berth/internal/sched"
)

// holdings is what running jobs hold of the cards, for placement, for other berths
// and for the meter.
type holdings struct{ set *Set }

// Allocations is what is on the cards for placement, including other berths' jobs. Here
// a budget grows once a job used more than it declared.
func (hs *holdings) Allocations(now time.Time) []sched.Allocation {
	list := make([]sched.Allocation, 0, len(hs.set.Active))
	cards := hs.set.cards.Book.List()
	for _, a := range hs.set.Active {
		h := hs.occupied(a.Job, cards)
		hs.rank(now, a, &h)
		list = append(list, h)
	}
	return append(list, hs.set.cards.OtherAllocations()...)
}

// allocation is one of our jobs on its cards, with what was measured so far.
func (hs *holdings) allocation(j *job.Job, cards []sched.Card) sched.Allocation {
	measured := *j
	hs.set.measure(&measured)
	return sched.AllocationOf(&measured, hs.set.cfg.Rules, cards)
}

// occupied is allocation without the cards that an adopted process has left: berth
// keeps nothing free for it that it used and freed.
func (hs *holdings) occupied(j *job.Job, cards []sched.Card) sched.Allocation {
	h := hs.allocation(j, cards)
	if j.Spec.Adopt == nil {
		return h
	}
	nowMiB, peakMiB := hs.set.cards.Meter.Now(j.ID), hs.set.cards.Meter.Peak(j.ID)
	var left sched.Allocation
	for i, card := range h.Cards {
		if used, known := nowMiB[card]; !known || used > 0 || peakMiB[card] == 0 {
			left.Cards, left.BudgetMiB = append(left.Cards, card), append(left.BudgetMiB, h.BudgetMiB[i])
		}
	}
	h.Cards, h.BudgetMiB = left.Cards, left.BudgetMiB
	return h
}

// List is where the meter looks for whose memory.
func (hs *holdings) List() []gpu.Holding {
	held := hs.set.cards.OtherAllocations()
	cards := hs.set.cards.Book.List()
	for _, a := range hs.set.Active {
		held = append(held, hs.allocation(a.Job, cards))
	}
	list := make([]gpu.Holding, 0, len(held))
	for _, h := range held {
		list = append(list, gpu.Holding{Key: h.Job, Cards: h.Cards, BudgetMiB: h.BudgetMiB})
	}
	return list
}

// rank fills in a running job's owner and its rank in the order.
func (hs *holdings) rank(now time.Time, a *Attempt, h *sched.Allocation) {
	j := a.Job
	ran := max(0, now.Sub(j.RunsSince()))
	h.User, h.Priority, h.Rank, h.Seq = j.User, j.Spec.Priority, j.Rank, j.Seq
	h.Submitted, h.Started, h.Run, h.Limit = j.SubmittedAt, j.RunsSince(), a.Run, hs.set.cfg.Left(j)
	h.RanBefore = j.RanBefore()
	if waited := j.RunsSince().Sub(job.Later(j.SubmittedAt, j.WaitsSince)); waited > 0 {
		h.Waited = waited
	}
	switch {
	case j.Leaving():
		h.BeingPreempted, h.PreemptedFor, h.FreeBy = true, j.PreemptedFor, job.Later(j.PreemptAt.Add(hs.set.cfg.Bounded(j.Spec.Grace)), now)
	case j.Parking.Phase == job.ParkOut:
		h.BeingPreempted, h.PreemptedFor, h.FreeBy = true, j.PreemptedFor, now.Add(hs.set.Parking.Pace.Park(j.Parking.HostMiB()).StopTime)
	case j.Stop != job.NoStop:
		// It was told to stop, and is gone within its grace period.
		end := ran + hs.set.cfg.Bounded(j.Spec.Grace)
		h.Run, h.Limit = sched.Estimate{Low: ran, Mid: end, High: end}, end
	default:
		h.Preempt = hs.set.Parking.PreemptMode(a)
	}
}

// Bookings is what this berth publishes to the others on the machine.
func (hs *holdings) Bookings(starts []*job.Job) []gpu.Entry {
	entries := make([]gpu.Entry, 0, len(hs.set.Active)+len(starts))
	cards := hs.set.cards.Book.List()
	for _, a := range hs.set.Active {
		entries = append(entries, hs.booking(a.Job, cards))
	}
	for _, j := range starts {
		entries = append(entries, hs.booking(j, cards))
	}
	entries = append(entries, hs.StrayBookings()...)
	slices.SortFunc(entries, func(a, b gpu.Entry) int { return cmp.Compare(a.Key, b.Key) })
	return entries
}

func (hs *holdings) booking(j *job.Job, all []sched.Card) gpu.Entry {
	identity, _ := hs.set.Runner.Identity(j.Keep)
	h, uuids := hs.occupied(j, all), j.Grant.UUIDs
	if len(h.Cards) < len(j.Grant.GPUs) {
		uuids = make([]string, len(h.Cards))
		for i, card := range h.Cards {
			uuids[i] = j.Grant.UUIDs[slices.Index(j.Grant.GPUs, card)]
		}
	}
	return gpu.Entry{
		Key: cards.BookingKey(j.Keep, j.ID), User: j.User, Job: j.ID, Name: j.Name(),
		UUIDs: uuids, BudgetMiB: h.BudgetMiB, Share: j.Grant.Share,
		Alone: j.Grant.Alone, Exclusive: j.Grant.Exclusive,
		HolderPID: identity.KeepPID, HolderStart: identity.KeepStart,
	}
}

// SetOwners tells attribution which supervisors and sessions belong to which
// job.
func (hs *holdings) SetOwners() {
	holders := make([]run.Holder, 0, len(hs.set.Active))
	for id, a := range hs.set.Active {
		identity, _ := hs.set.Runner.Identity(a.Token)
		holder := run.Holder{
			Key: id, KeepPID: identity.KeepPID, Session: identity.Session, Cgroup: identity.Cgroup, Token: a.Token, UID: a.Job.UID,
		}
		if p := a.Job.Spec.Adopt; p != nil {
			holder.Root = *p
		}
		holders = append(holders, holder)
	}
	hs.set.cards.Bookings.SetOwners(holders)
}

// TellJobsOn reports a quarantined card for each job on it. The jobs keep
// running: they may have read all they need.
func (hs *holdings) TellJobsOn(now time.Time, c gpu.HealthChange) {
	for _, id := range hs.set.IDs() {
		a := hs.set.Active[id]
		if !slices.Contains(a.Job.Grant.UUIDs, c.UUID) {
			continue
		}
		a.Trouble = whileItRan(c.Index, c.To)
		hs.set.changes.TellCard(now, cards.CardChange(c), a.Job, fmt.Sprintf("%s; job %s keeps running", c, id))
	}
}

// CapMiB is the most memory that a request may declare and still be placed; 0:
// not known.
func (hs *holdings) CapMiB(now time.Time, r sched.Request) int64 {
	return sched.CapMiB(sched.State{
		Now: now, Rules: hs.set.cfg.Rules, Host: hs.set.cfg.Host, Cards: hs.set.cards.Book.Placeable(now, hs.set.cards.FreshFor()),
	}, r)
}

// ParkCost is what it costs to park a job that uses this much memory.
func (hs *holdings) ParkCost(mib int64) sched.Preempt { return hs.set.Parking.Pace.Park(mib) }

// ParkRefused reports whether the user's jobs of this kind could not be parked.
func (hs *holdings) ParkRefused(user, kind string) bool {
	return hs.set.Parking.Refusals[program{user, kind}]
}

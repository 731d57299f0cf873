package running

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"berth/internal/job"
	"berth/internal/machine/keep"
	"berth/internal/queue/engine/fault"
	"berth/internal/sched"
	"berth/internal/text"
)

// Parking moves running jobs off their cards and back.
type Parking struct {
	set      *Set
	Pace     sched.Pace
	Refusals Refusals
	Attended map[string]int // how many are attached to the jobs of these supervisors
}

// parkFloorMiB of the host's memory is never given to parked jobs.
const parkFloorMiB = 1 << 10

// parkOrder parks a job, or resumes it if it has rooms.
type parkOrder struct {
	token    string
	back     bool
	Patience time.Duration
	hostMiB  int64
	rooms    []keep.Room
}

// ResumeDelay is how long a job waits whose card had no room after all.
const ResumeDelay = 10 * time.Second

// CannotPark says why a running job cannot be parked; empty: it can. A person may
// ask again for one that was refused.
func (p *Parking) CannotPark(a *Attempt, again bool) string {
	j := a.Job
	switch {
	case p.set.cfg.Parking.Cannot != "":
		return p.set.cfg.Parking.Cannot
	case len(j.Grant.GPUs) == 0:
		return "it has no GPU"
	case j.Spec.Adopt != nil:
		return "it was adopted"
	case j.Spec.NoPark:
		return "it was submitted with --no-park"
	case j.Spec.Cap == "mps":
		return "it runs under MPS"
	case j.Stop != job.NoStop:
		return "it is being stopped"
	case j.Parking.Phase == job.ParkBack:
		return "it is just coming back"
	case j.Parking.Refused != "" && !again:
		return j.Parking.Refused
	case !again && p.Refusals[program{j.User, a.Kind}]:
		return "a job of this program could not be parked"
	}
	return ""
}

// ParkMiB is what a job uses on each of its cards, and has to go to the host.
func (p *Parking) ParkMiB(a *Attempt) map[int]int64 {
	used, peak := p.set.cards.Meter.Now(a.Job.ID), p.set.cards.Meter.Peak(a.Job.ID)
	list := make(map[int]int64, len(a.Job.Grant.GPUs))
	for _, card := range a.Job.Grant.GPUs {
		mib, known := used[card]
		if !known {
			mib = max(peak[card], a.Job.Grant.BudgetMiB)
		}
		list[card] = mib
	}
	return list
}

// parkRoom is how much host memory is left for parked jobs.
type parkRoom struct {
	AllMiB  int64
	UserMiB int64            // what one user's jobs may take; 0: all of it
	heldMiB map[string]int64 // by user
}

// Of is what is left for a user's jobs.
func (r *parkRoom) Of(user string) int64 {
	if r.UserMiB <= 0 {
		return r.AllMiB
	}
	return max(0, min(r.AllMiB, r.UserMiB-r.heldMiB[user]))
}

// Room counts what parked jobs have. Those that are just leaving their cards
// will need some of what is free.
func (p *Parking) Room() (room parkRoom, known bool) {
	policy := &p.set.cfg.Parking
	if policy.FreeMiB == nil {
		return parkRoom{}, false
	}
	room = parkRoom{UserMiB: policy.UserMiB, heldMiB: map[string]int64{}}
	var parkedMiB, leavingMiB int64
	for _, a := range p.set.Parked {
		parkedMiB += a.Job.Parking.HostMiB()
		room.heldMiB[a.Job.User] += a.Job.Parking.HostMiB()
	}
	for _, a := range p.set.Active {
		if a.Job.Parking.Phase == job.ParkOut {
			leavingMiB += a.Job.Parking.HostMiB()
			room.heldMiB[a.Job.User] += a.Job.Parking.HostMiB()
		}
	}
	room.AllMiB = policy.FreeMiB(parkedMiB) - leavingMiB - parkFloorMiB
	if policy.MemoryMiB != 0 {
		room.AllMiB = min(room.AllMiB, policy.MemoryMiB-parkedMiB-leavingMiB)
	}
	room.AllMiB = max(0, room.AllMiB)
	return room, true
}

// NoRoom says how much host memory is missing to park a job; empty: none.
func (p *Parking) NoRoom(a *Attempt) string {
	moves := job.Parking{CardMiB: p.ParkMiB(a)}
	room, known := p.Room()
	needs, own := moves.HostMiB(), room.Of(a.Job.User)
	switch {
	case !known || needs <= own:
		return ""
	case needs <= room.AllMiB:
		return fmt.Sprintf("it uses %s on its GPUs, and parked jobs of %s may take %s more of the host's memory (limits.parked_memory)", Gib(needs), a.Job.User, Gib(own))
	}
	return fmt.Sprintf("it uses %s on its GPUs, and the host has room for %s of parked jobs (scheduling.park_memory)", Gib(needs), Gib(room.AllMiB))
}

// mostOn is how much a job could use on these cards. Its memory limit is raised by
// as much: it may have grown since it was last measured, and with less the kernel
// would kill it half way. Once it is parked it cannot grow.
func (p *Parking) mostOn(cards []int) (mib int64) {
	for _, card := range cards {
		mib += p.set.cards.Book.Known[card].TotalMiB
	}
	return mib
}

// SendOut orders a job off its cards, once that is on disk.
func (p *Parking) SendOut(a *Attempt, by string) {
	p.record(a.Job, by, p.ParkMiB(a))
	p.set.changes.Fact(a.Job)
	p.set.Parks = append(p.set.Parks, p.OrderFor(a.Job))
}

// record records that a job is to leave its cards.
func (p *Parking) record(j *job.Job, by string, cardMiB map[int]int64) {
	fault.Point("park decided")
	j.Parking.Phase, j.Parking.By, j.Parking.CardMiB, j.Parking.Refused = job.ParkOut, by, cardMiB, ""
}

func (p *Parking) OrderFor(j *job.Job) parkOrder {
	o := parkOrder{
		token: j.Keep, back: j.Parking.Phase == job.ParkBack, hostMiB: p.mostOn(j.Grant.GPUs),
		Patience: cmp.Or(j.Spec.ParkTimeout, p.set.cfg.Parking.Patience),
	}
	if o.back {
		for i, card := range j.Grant.GPUs {
			o.rooms = append(o.rooms, keep.Room{UUID: j.Grant.UUIDs[i], MiB: max(1, j.Parking.CardMiB[card])})
		}
	}
	return o
}

// Send sends an order that is on disk. If it is lost, the supervisor says so when
// it is found again.
func (p *Parking) Send(o parkOrder) {
	fault.Point("before park")
	var err error
	if o.back {
		err = p.set.Runner.Resume(o.token, o.rooms)
	} else {
		err = p.set.Runner.Park(o.token, o.Patience, o.hostMiB)
	}
	if err != nil {
		p.set.cfg.Log.Warn("cannot park or resume a job", "token", o.token, "err", err)
	}
	fault.Point("park asked")
}

// Vacate takes a parked job off its cards. Its supervisor keeps it.
func (p *Parking) Vacate(now time.Time, a *Attempt) {
	delete(p.set.Active, a.Job.ID)
	delete(p.set.Uses.Grown, a.Job.ID)
	p.set.Parked[a.Job.ID] = a
	p.set.cards.Meter.Ended(a.Job.ID, a.Job.Grant.GPUs, now)
	p.set.cards.Meter.Forget(a.Job.ID)
	for _, card := range a.Job.Grant.GPUs {
		p.set.cards.Book.Freed[card] = now
	}
	p.set.cards.Moved, p.set.cards.Bookings.Behind = true, true
	p.set.Hindrances.openCards(now, a.Job.Grant.UUIDs)
	p.set.Holdings.SetOwners()
}

// Occupy puts a job that comes back on its cards.
func (p *Parking) Occupy(a *Attempt, j *job.Job, run sched.Estimate) {
	a.Job, a.Run, a.IdleSince, a.IdleTold = j, run, time.Time{}, false
	delete(p.set.Parked, j.ID)
	p.set.Active[j.ID] = a
	p.set.cards.Meter.Seed(j.ID, j.PeakMiB)
}

func CardsOf(j *job.Job) string {
	list := make([]string, len(j.Grant.GPUs))
	for i, card := range slices.Sorted(slices.Values(j.Grant.GPUs)) {
		list[i] = fmt.Sprintf("gpu%d", card)
	}
	return strings.Join(list, ", ")
}

// In is how long something took; empty: not known, because berth was not there.
func In(took time.Duration) string {
	if took == 0 {
		return ""
	}
	return fmt.Sprintf(" in %.1f s", took.Seconds())
}

func Gib(mib int64) string { return text.GiB(mib) + " GiB" }

// List lists the parked jobs, oldest first.
func (p *Parking) List() []*job.Job {
	list := make([]*job.Job, 0, len(p.set.Parked))
	for _, a := range slices.Collect(maps.Values(p.set.Parked)) {
		list = append(list, a.Job)
	}
	slices.SortFunc(list, func(a, b *job.Job) int { return int(a.Seq - b.Seq) })
	return list
}

const (
	// paceLeastMiB is the least that says how fast memory moves: for less, the time
	// around it counts more.
	paceLeastMiB = 1 << 10
	// paceWeight is how much one measurement counts against those before.
	paceWeight = 0.25
	// PaceLow and paceHigh bound what is believed: beyond them, planning would
	// park nothing any more, or count parking as free.
	PaceLow, paceHigh = 10, 200_000

	PaceKey = "parking/pace"
)

// Learn takes in how long a job took to leave its cards (Out) or to come back.
func Learn(rate *float64, mib int64, took time.Duration) bool {
	if mib < paceLeastMiB || took <= 0 {
		return false
	}
	seen := min(max(float64(mib)/took.Seconds(), PaceLow), paceHigh)
	*rate += paceWeight * (seen - *rate)
	return true
}

// LearnPace takes in one move, and adds the pace to the next commit.
func (p *Parking) LearnPace(rate *float64, mib int64, took time.Duration) {
	if !Learn(rate, mib, took) {
		return
	}
	p.set.changes.Meta[PaceKey] = string(text.MustJSON(p.Pace))
}

// ParkState is whether jobs can be parked now, at what pace, and what is parked.
type ParkState struct {
	Cannot    string  // why not; empty: they can be
	Out, Back float64 // MiB per second
	HeldMiB   int64   // of the host's memory, by parked jobs
	RoomMiB   int64   // for more of them; -1: not known
}

// The time limit of a job with on_timeout=park is a time slice: at its end the job
// is parked, goes to the end of the queue, and gets a fresh limit. Only the engine
// knows when that makes sense, so the supervisor is told no limit.

// SliceEnds is when a job's time slice ends; zero: it has none. A slice lasts
// at least twice as long as parking takes.
func (p *Parking) SliceEnds(a *Attempt) time.Time {
	j := a.Job
	if j.Spec.OnTimeout != job.TimeoutPark || j.Spec.TimeLimit <= 0 || j.Stop != job.NoStop || j.Parking.Phase != job.ParkNone {
		return time.Time{}
	}
	moves := job.Parking{CardMiB: p.ParkMiB(a)}
	cost := p.Pace.Park(moves.HostMiB())
	least := 2 * (cost.StopTime + cost.ResumeTime)
	if j.Parking.Times > 0 {
		least += cost.ResumeTime // it was still coming back
	}
	return j.RunsSince().Add(max(least, j.Spec.TimeLimit-(j.Parking.Served-j.Parking.Sliced)))
}

// parkIdle parks a job that has left its cards unused for long, until a person
// asks for it. Nobody loses a job while attached to it.
func (p *Parking) parkIdle(now time.Time, a *Attempt, what string) {
	j := a.Job
	if p.Attended[a.Token] > 0 || j.Parking.Phase != job.ParkNone || cmp.Or(p.CannotPark(a, false), p.NoRoom(a)) != "" {
		return
	}
	j.Held = true
	p.SendOut(a, job.ParkedByIdling)
	p.set.changes.Tell(now, job.EventNotice, j, fmt.Sprintf("job %s is being parked: it %s for %s", j.ID, what, text.Brief(p.set.cfg.Parking.Idle)))
}

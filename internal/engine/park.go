package engine

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"berth/internal/job"
	"berth/internal/keep"
	"berth/internal/run"
	"berth/internal/sched"
	"berth/internal/text"
)

// Parking is how this berth parks jobs.
type Parking struct {
	// Cannot is why no job can be parked here; empty: jobs can be.
	Cannot string
	// All lets jobs be parked for others that did not ask for it, except gangs and
	// those with NoPark.
	All bool
	// First parks jobs that are to be requeued for others, where that is possible.
	First bool
	// Patience is how long a running kernel is waited for, if the job does not say.
	Patience time.Duration
	// MemoryMiB is how much host memory parked jobs may take in all, and UserMiB how
	// much those of one user may; 0: as much as is free, below 0: none.
	MemoryMiB, UserMiB int64
	// FreeMiB is how much host memory is free now, while parked jobs have that much.
	// Nil: it is not known, and nothing is checked.
	FreeMiB func(parkedMiB int64) int64
	// Longest is how long a person may have a job parked; 0: as long as they like.
	Longest time.Duration
	// Idle is how long a job may leave its cards unused before it is parked; 0: it
	// stays.
	Idle time.Duration
	// Strict ends a job that was to be parked at its time limit and cannot be.
	Strict bool
}

// DefaultParking is how jobs are parked without any setting: those that asked for
// it.
var DefaultParking = Parking{Patience: time.Minute}

// parking moves running jobs off their cards and back.
type parking struct {
	set      *attempts
	pace     pace
	attended map[string]int // how many are attached to the jobs of these supervisors
}

// parkFloorMiB of the host's memory is never given to parked jobs.
const parkFloorMiB = 1 << 10

// parkOrder parks a job, or resumes it if it has rooms.
type parkOrder struct {
	token    string
	back     bool
	patience time.Duration
	hostMiB  int64
	rooms    []keep.Room
}

// resumeDelay is how long a job waits whose card had no room after all.
const resumeDelay = 10 * time.Second

// cannotPark says why a running job cannot be parked; empty: it can. A person may
// ask again for one that was refused.
func (p *parking) cannotPark(a *attempt, again bool) string {
	j := a.job
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
	}
	return ""
}

// parks reports whether jobs like this are parked for others. The processes of a
// gang often share memory between cards, which no driver parks yet: it has to ask.
func (c *Config) parks(spec *job.Spec) bool {
	switch {
	case c.KeepAll || c.Parking.Cannot != "" || spec.NoPark || spec.GPUs == 0 || spec.Adopt != nil:
		return false
	case spec.Preemptible == job.PreemptByRequeue:
		return c.Parking.First
	}
	return spec.Preemptible.Parks() || c.Parking.All && spec.GPUs == 1
}

// parkMiB is what a job uses on each of its cards, and has to go to the host.
func (p *parking) parkMiB(a *attempt) map[int]int64 {
	used, peak := p.set.cards.meter.Now(a.job.ID), p.set.cards.meter.Peak(a.job.ID)
	list := make(map[int]int64, len(a.job.Grant.GPUs))
	for _, card := range a.job.Grant.GPUs {
		mib, known := used[card]
		if !known {
			mib = max(peak[card], a.job.Grant.BudgetMiB)
		}
		list[card] = mib
	}
	return list
}

// parkRoom is how much host memory is left for parked jobs.
type parkRoom struct {
	allMiB  int64
	userMiB int64            // what one user's jobs may take; 0: all of it
	heldMiB map[string]int64 // by user
}

// of is what is left for a user's jobs.
func (r *parkRoom) of(user string) int64 {
	if r.userMiB <= 0 {
		return r.allMiB
	}
	return max(0, min(r.allMiB, r.userMiB-r.heldMiB[user]))
}

// room counts what parked jobs have. Those that are just leaving their cards
// will need some of what is free.
func (p *parking) room() (room parkRoom, known bool) {
	policy := &p.set.cfg.Parking
	if policy.FreeMiB == nil {
		return parkRoom{}, false
	}
	room = parkRoom{userMiB: policy.UserMiB, heldMiB: map[string]int64{}}
	var parkedMiB, leavingMiB int64
	for _, a := range p.set.parked {
		parkedMiB += a.job.Parking.HostMiB()
		room.heldMiB[a.job.User] += a.job.Parking.HostMiB()
	}
	for _, a := range p.set.active {
		if a.job.Parking.Phase == job.ParkOut {
			leavingMiB += a.job.Parking.HostMiB()
			room.heldMiB[a.job.User] += a.job.Parking.HostMiB()
		}
	}
	room.allMiB = policy.FreeMiB(parkedMiB) - leavingMiB - parkFloorMiB
	if policy.MemoryMiB != 0 {
		room.allMiB = min(room.allMiB, policy.MemoryMiB-parkedMiB-leavingMiB)
	}
	room.allMiB = max(0, room.allMiB)
	return room, true
}

// noRoom says how much host memory is missing to park a job; empty: none.
func (p *parking) noRoom(a *attempt) string {
	moves := job.Parking{CardMiB: p.parkMiB(a)}
	room, known := p.room()
	needs, own := moves.HostMiB(), room.of(a.job.User)
	switch {
	case !known || needs <= own:
		return ""
	case needs <= room.allMiB:
		return fmt.Sprintf("it uses %s on its GPUs, and parked jobs of %s may take %s more of the host's memory (limits.parked_memory)", gib(needs), a.job.User, gib(own))
	}
	return fmt.Sprintf("it uses %s on its GPUs, and the host has room for %s of parked jobs (scheduling.park_memory)", gib(needs), gib(room.allMiB))
}

// Park has a job parked for a user, until it is unparked or that time comes, or it
// has been parked for as long as a person may have it parked. It returns why it is
// not.
func (t *Turn) Park(id, by string, until time.Time) (why string) {
	a := t.attempts.active[id]
	switch {
	case a == nil && t.attempts.parked[id] != nil:
		a = t.attempts.parked[id]
		if until = t.cfg.Parking.until(a.job.Parking.Since, until); !until.IsZero() && !until.After(t.Now) {
			return fmt.Sprintf("it has been parked for %s already (limits.parked_time)", text.Span(t.Now.Sub(a.job.Parking.Since)))
		}
		a.job.Held, a.job.NotBefore = until.IsZero(), until
		t.changes.fact(a.job)
		t.queue.enqueue(a.job)
		return ""
	case a == nil && t.line.away.running[id] != nil:
		return "it runs on Slurm"
	case a == nil:
		return "it is not running"
	}
	until = t.cfg.Parking.until(t.Now, until)
	if a.job.Parking.Phase == job.ParkOut {
		a.job.Held, a.job.NotBefore = until.IsZero(), until
		t.changes.fact(a.job)
		return ""
	}
	if why = cmp.Or(t.attempts.parking.cannotPark(a, true), t.attempts.parking.noRoom(a)); why != "" {
		return why
	}
	a.job.Held, a.job.NotBefore = until.IsZero(), until
	t.attempts.parking.sendOut(a, by)
	t.queue.tell(job.EventNotice, a.job, fmt.Sprintf("job %s is being parked by %s", id, by))
	return ""
}

// until is when a job comes back by itself that a person has parked; zero: not.
func (p *Parking) until(since, wanted time.Time) time.Time {
	latest := since.Add(p.Longest)
	if p.Longest <= 0 || !wanted.IsZero() && wanted.Before(latest) {
		return wanted
	}
	return latest
}

// boundParked makes a job come back in time that a person parked without a bound,
// or under a longer one. It reports whether that changed anything.
func (t *Turn) boundParked(j *job.Job) bool {
	if j.State != job.Parked || j.Stop != job.NoStop || j.Parking.By == job.ParkedByIdling || !j.Held && j.NotBefore.IsZero() {
		return false
	}
	wanted := j.NotBefore
	if j.Held {
		wanted = time.Time{}
	}
	until := t.cfg.Parking.until(j.Parking.Since, wanted)
	if until.Equal(wanted) {
		return false
	}
	j.Held, j.NotBefore = false, until
	t.changes.fact(j)
	return true
}

// mostOn is how much a job could use on these cards. Its memory limit is raised by
// as much: it may have grown since it was last measured, and with less the kernel
// would kill it half way. Once it is parked it cannot grow.
func (p *parking) mostOn(cards []int) (mib int64) {
	for _, card := range cards {
		mib += p.set.cards.book.known[card].TotalMiB
	}
	return mib
}

// sendOut orders a job off its cards, once that is on disk.
func (p *parking) sendOut(a *attempt, by string) {
	p.record(a.job, by, p.parkMiB(a))
	p.set.changes.fact(a.job)
	p.set.parks = append(p.set.parks, p.orderFor(a.job))
}

// record records that a job is to leave its cards.
func (p *parking) record(j *job.Job, by string, cardMiB map[int]int64) {
	Fault("park decided")
	j.Parking.Phase, j.Parking.By, j.Parking.CardMiB, j.Parking.Refused = job.ParkOut, by, cardMiB, ""
}

func (p *parking) orderFor(j *job.Job) parkOrder {
	o := parkOrder{
		token: j.Keep, back: j.Parking.Phase == job.ParkBack, hostMiB: p.mostOn(j.Grant.GPUs),
		patience: cmp.Or(j.Spec.ParkTimeout, p.set.cfg.Parking.Patience),
	}
	if o.back {
		for i, card := range j.Grant.GPUs {
			o.rooms = append(o.rooms, keep.Room{UUID: j.Grant.UUIDs[i], MiB: max(1, j.Parking.CardMiB[card])})
		}
	}
	return o
}

// send sends an order that is on disk. If it is lost, the supervisor says so when
// it is found again.
func (p *parking) send(o parkOrder) {
	Fault("before park")
	var err error
	if o.back {
		err = p.set.runner.Resume(o.token, o.rooms)
	} else {
		err = p.set.runner.Park(o.token, o.patience, o.hostMiB)
	}
	if err != nil {
		p.set.cfg.Log.Warn("cannot park or resume a job", "token", o.token, "err", err)
	}
	Fault("park asked")
}

// Unpark lets a parked job come back as soon as its cards have room. One that is
// being parked comes back after that.
func (t *Turn) Unpark(id, by string) bool {
	j := t.line.roster.jobs[id]
	if j == nil || j.State != job.Parked && j.Parking.Phase != job.ParkOut || !j.Held && j.NotBefore.IsZero() {
		return false
	}
	j.Held, j.NotBefore = false, time.Time{}
	t.changes.fact(j)
	t.queue.tell(job.EventReleased, j, "unparked by "+by)
	if j.State == job.Parked {
		t.queue.enqueue(j)
	}
	return true
}

// parking takes in what a supervisor says of its job. What is on disk is what was
// wanted; the supervisor knows what is.
func (t *Turn) parking(a *attempt, n keep.ParkNews) {
	j := a.job
	outcome := n.Took > 0 || n.Why != ""
	if outcome {
		Fault("park heard")
	}
	switch {
	case n.Busy: // its outcome follows
	case j.State == job.Parked && n.Parked:
	case j.State == job.Parked:
		t.unparkedBehindOurBack(a)
	case n.Parked && j.Parking.Phase != job.ParkBack:
		t.parkedNow(a, n)
	case n.Parked && outcome: // it could not come back
		t.parkedAgain(a, n)
	case n.Parked:
		t.attempts.parks = append(t.attempts.parks, t.attempts.parking.orderFor(j)) // the order was lost with the last berth
	case j.Parking.Phase == job.ParkOut && outcome:
		t.parkRefused(a, n.Why)
	case j.Parking.Phase == job.ParkOut:
		t.attempts.parks = append(t.attempts.parks, t.attempts.parking.orderFor(j))
	case j.Parking.Phase == job.ParkBack:
		t.resumed(a, n)
	}
}

// parkedNow frees the cards of a job that has left them.
func (t *Turn) parkedNow(a *attempt, n keep.ParkNews) {
	j := a.job
	if j.Parking.CardMiB == nil { // nobody asked for it: the store is older, or another
		j.Parking.CardMiB, j.Held = t.attempts.parking.parkMiB(a), true
	}
	j.Parking.Saved(n.MiB)
	t.attempts.uses.measured(a)
	if t.cfg.Rules.Fair {
		t.line.usage.charge(t.Now, j, t.Now, t.scale(), t.cfg.HalfLife)
	}
	j.Parking.Served = j.Worked(t.Now)
	t.sliced(j)
	j.MustTo(job.Parked)
	j.Parking.Phase, j.Parking.Since = job.ParkNone, t.Now
	j.Parking.Times++
	j.WaitsSince = t.Now
	t.attempts.parking.vacate(t.Now, a)
	t.changes.fact(j)
	if j.Detail = ""; j.PreemptedFor != "" {
		j.Detail = "parked for job " + j.PreemptedFor
	}
	t.cfg.Watch.Parked(n.Took, j.Parking.HostMiB())
	t.attempts.parking.learnPace(&t.attempts.parking.pace.Out, j.Parking.HostMiB(), n.Took)
	t.queue.tell(job.EventParked, j, gib(j.Parking.HostMiB())+" moved to the host's memory"+in(n.Took))
	t.queue.enqueue(j)
}

// vacate takes a parked job off its cards. Its supervisor keeps it.
func (p *parking) vacate(now time.Time, a *attempt) {
	delete(p.set.active, a.job.ID)
	delete(p.set.uses.grown, a.job.ID)
	p.set.parked[a.job.ID] = a
	p.set.cards.meter.Ended(a.job.ID, a.job.Grant.GPUs, now)
	p.set.cards.meter.Forget(a.job.ID)
	for _, card := range a.job.Grant.GPUs {
		p.set.cards.book.freed[card] = now
	}
	p.set.cards.moved, p.set.cards.bookings.behind = true, true
	p.set.hindrances.openCards(now, a.job.Grant.UUIDs)
	p.set.holdings.setOwners()
}

// occupy puts a job that comes back on its cards.
func (p *parking) occupy(a *attempt, j *job.Job) {
	a.job, a.idleSince, a.idleTold = j, time.Time{}, false
	delete(p.set.parked, j.ID)
	p.set.active[j.ID] = a
	p.set.cards.meter.Seed(j.ID, j.PeakMiB)
}

// parkRefused lets a job go on that could not be parked.
func (t *Turn) parkRefused(a *attempt, why string) {
	t.cfg.Watch.NotParked()
	j := a.job
	by := j.Parking.By
	j.Parking.Phase, j.Parking.By, j.Parking.CardMiB = job.ParkNone, "", nil
	j.Parking.Refused = "it could not be parked: " + why
	j.PreemptedFor, j.Held, j.NotBefore = "", false, time.Time{}
	t.cards.moved = true
	t.changes.fact(j)
	what := "; it goes on running, and is not parked by itself any more"
	if by != "" {
		what = "; it goes on running"
	}
	t.queue.tell(job.EventWarning, j, j.Parking.Refused+what)
}

// parkedAgain is for a job whose card had no room when it was to come back: it
// stays parked and waits.
func (t *Turn) parkedAgain(a *attempt, n keep.ParkNews) {
	t.cfg.Watch.NotResumed()
	j := a.job
	j.MustTo(job.Parked)
	j.Parking.Phase, j.Parking.Since = job.ParkNone, t.Now
	j.Parking.Resumed = time.Time{}
	j.NotBefore, j.Detail = t.Now.Add(resumeDelay), "it could not be resumed yet: "+n.Why
	t.attempts.parking.vacate(t.Now, a)
	t.changes.fact(j)
	t.queue.tell(job.EventNotice, j, j.Detail)
	t.queue.enqueue(j)
}

// resumed is for a job that is back.
func (t *Turn) resumed(a *attempt, n keep.ParkNews) {
	j := a.job
	j.Parking.Phase, j.Parking.By, j.Detail = job.ParkNone, "", ""
	t.changes.fact(j)
	parked := max(0, t.Now.Sub(j.Parking.Since))
	t.cfg.Watch.Resumed(n.Took, parked, j.Parking.HostMiB())
	t.attempts.parking.learnPace(&t.attempts.parking.pace.Back, j.Parking.HostMiB(), n.Took)
	t.queue.tell(job.EventResumed, j, fmt.Sprintf("resumed on %s%s, having been parked for %s", cardsOf(j), in(n.Took), text.Span(parked)))
	t.cards.moved = true
}

// unparkedBehindOurBack is for a job that runs although the store says that it is
// parked: the end of its parking was lost with a berth.
func (t *Turn) unparkedBehindOurBack(a *attempt) {
	j := a.job
	t.line.unqueue(j.ID)
	j.MustTo(job.Running)
	j.Parking.Resumed = t.Now
	t.attempts.parking.occupy(a, j)
	t.attempts.holdings.setOwners()
	t.changes.fact(j)
}

// comeBack is a parked job that gets its cards again.
func (t *Turn) comeBack(j *job.Job, grant job.Grant) *job.Job {
	Fault("park decided")
	j = j.Clone()
	j.MustTo(job.Running)
	grant.CardMiB = t.cards.book.smallest(grant.GPUs)
	j.Grant = grant
	j.Parking.Phase, j.Parking.Resumed = job.ParkBack, t.Now
	j.Detail, j.PreemptedFor = "", ""
	return j
}

// parkedRequest is what a parked job needs to come back: the cards that it left,
// as it had them, with at least as much memory as it used there.
func parkedRequest(j *job.Job, rules sched.Rules) sched.Request {
	spec := j.Spec
	spec.IDs, spec.Share, spec.Exclusive = j.Grant.GPUs, j.Grant.Share, j.Grant.Exclusive
	var vramMiB int64
	if !j.Grant.Alone && j.Grant.Share == 0 {
		_, most := highest(j.Parking.CardMiB)
		vramMiB = max(j.Grant.BudgetMiB, most)
	}
	return sched.NewRequest(spec, vramMiB, rules)
}

func cardsOf(j *job.Job) string {
	list := make([]string, len(j.Grant.GPUs))
	for i, card := range slices.Sorted(slices.Values(j.Grant.GPUs)) {
		list[i] = fmt.Sprintf("gpu%d", card)
	}
	return strings.Join(list, ", ")
}

// in is how long something took; empty: not known, because berth was not there.
func in(took time.Duration) string {
	if took == 0 {
		return ""
	}
	return fmt.Sprintf(" in %.1f s", took.Seconds())
}

func gib(mib int64) string { return text.GiB(mib) + " GiB" }

// restoreParked takes a parked job over from an earlier berth.
func (t *Turn) restoreParked(f fate) {
	j := f.Job
	a := &attempt{job: j, token: j.Keep, startedAt: t.Now, run: t.line.span(j), kind: kindOf(j)}
	t.attempts.parked[j.ID], t.attempts.byToken[j.Keep] = a, j.ID
	switch f.Kind {
	case fateRunning:
		t.attempts.takeOver(t.Now, j)
		t.boundParked(j)
		if j.Stop == job.NoStop {
			t.queue.enqueue(j)
		}
	case fateEnded:
		t.ended(a, run.Event{Kind: run.Ended, Token: f.Found.Token, Job: j.ID, Attempt: j.Attempt.Number, Record: f.Found.Record, OOM: f.Found.OOM})
	case fateNeverRan, fateVanished:
		t.lost(a, f.Found.Record)
	case fateForgotten:
		t.attempts.runner.Lose(j.Keep, j.ID, j.Attempt.Number)
	case fateLosing, fateQueued:
	}
}

// List lists the parked jobs, oldest first.
func (p *parking) List() []*job.Job {
	list := make([]*job.Job, 0, len(p.set.parked))
	for _, a := range slices.Collect(maps.Values(p.set.parked)) {
		list = append(list, a.job)
	}
	slices.SortFunc(list, func(a, b *job.Job) int { return int(a.Seq - b.Seq) })
	return list
}

package engine

import (
	"errors"
	"fmt"
	"iter"
	"slices"
	"syscall"
	"time"

	"berth/internal/job"
	"berth/internal/job/reason"
	"berth/internal/queue/engine/running"
	"berth/internal/queue/engine/waiting"
	"berth/internal/queue/store"
	"berth/internal/sched"
	"berth/internal/sched/predict"
)

// Explain says what the next decision is based on, and why jobs wait.
type Explain struct{ *parts }

// State is what the next decision is based on. It is valid only during the turn:
// to keep it, make a snapshot.
func (x *Explain) State() sched.State {
	x.line.Queue.Tick(x.changes.Now)
	x.line.Expect.Relearn(func(kind string) { x.attempts.Expect(kind, x.line.Span) })
	s := sched.State{
		Now: x.changes.Now, Rules: x.cfg.Rules, Host: x.cfg.Host,
		Cards: x.cards.Book.Placeable(x.changes.Now, x.cards.FreshFor()), Allocations: x.attempts.Holdings.Allocations(x.changes.Now), Queue: x.line.Queue, MaxStarts: maxStarts,
	}
	x.shares(&s)
	x.parkedIn(&s)
	switch {
	case x.cards.Book.Err != nil:
		s.Unreadable = x.cards.Book.Err.Error()
	case x.cards.Book.At.IsZero():
		s.Unreadable = "they have not been read yet"
	}
	return s
}

// parkedIn fills in what parked jobs leave of the host's memory, and where they come
// back to.
func (x *Explain) parkedIn(s *sched.State) {
	if room, known := x.attempts.Parking.Room(); known {
		if s.ParkMiB = room.AllMiB; s.ParkMiB == 0 {
			s.ParkMiB = -1
		}
		if room.UserMiB > 0 {
			s.ParkOfMiB = map[string]int64{}
			for _, a := range x.attempts.Active {
				s.ParkOfMiB[a.Job.User] = room.Of(a.Job.User)
			}
		}
	}
	for _, a := range x.attempts.Parked {
		for i := range s.Cards {
			s.Cards[i].ParkedMiB += a.Job.Parking.CardMiB[s.Cards[i].Index]
		}
	}
}

// shares fills in users, arrays and groups.
func (x *Explain) shares(s *sched.State) {
	s.DefaultLimit, s.Limits = x.cfg.Limits.Default, x.cfg.Limits.Users
	s.ArrayRuns, s.InUse, s.Groups = map[string]int{}, map[string]sched.Use{}, x.limitedGroups()
	if x.cfg.Rules.Fair {
		s.Usage, s.FairQuantum, s.HalfLife = x.line.Usage.Decayed(x.changes.Now, x.cfg.HalfLife), sched.FairQuantum, x.cfg.HalfLife
	}
	scale := x.scale()
	for _, a := range x.attempts.Active {
		j := x.attempts.Charged(a)
		if array := j.Array(); array != "" { // it may have got a limit since
			s.ArrayRuns[array]++
		}
		use, held := s.InUse[j.User], waiting.AllocationOf(j)
		use.Add(held)
		if a.Unmeasured {
			use.Unmeasured += max(0, float64(len(held.Cards))-held.CountedGPUs())
		}
		s.InUse[j.User] = use
		if x.cfg.Rules.Fair {
			s.Usage[j.User] += waiting.GpuSeconds(j, x.changes.Now, scale) + sched.FairQuantum*held.FairWeight(scale)
		}
	}
	for _, a := range x.attempts.Parked {
		use := s.InUse[a.Job.User]
		use.Jobs++
		use.Parked++
		s.InUse[a.Job.User] = use
	}
}

// scale is what CPUs and host memory count as in usage.
func (x *Explain) scale() sched.Scale { return x.cfg.Host.Scale(len(x.cards.Book.Known)) }

// Live counts the queued jobs, and those that have begun: running and parked.
func (x *Explain) Live() (queued, running int) {
	running = len(x.attempts.Active) + len(x.attempts.Parked) + x.remote.Begun()
	return x.line.Roster.Len() - running, running
}

// InOrder visits the unfinished jobs until fn returns false: running and parked
// ones, oldest first, then queued ones as Next lists them. fn must not keep a job or change the
// queue.
func (x *Explain) InOrder(fn func(*job.Job) bool) {
	begun := append(x.attempts.OldestFirst(), x.remote.Running()...)
	for _, a := range x.attempts.Parked {
		begun = append(begun, a.Job)
	}
	slices.SortStableFunc(begun, job.ByStart)
	for _, j := range begun {
		if !fn(j) {
			return
		}
	}
	x.eachQueued(func(j *job.Job) bool {
		_, parked := x.attempts.Parked[j.ID]
		return parked || fn(j)
	})
}

// Next lists the first n queued jobs: those that wait for room in order, then
// those behind a gate, oldest first.
func (x *Explain) Next(n int) []*job.Job {
	list := make([]*job.Job, 0, n)
	x.eachQueued(func(j *job.Job) bool {
		if len(list) < n {
			list = append(list, x.line.Roster.Get(j.ID))
		}
		return len(list) < n
	})
	return list
}

func (x *Explain) eachQueued(fn func(*job.Job) bool) {
	more, look := true, x.line.Roster.Looking()
	sched.InOrder(x.State(), func(id string) bool {
		more = fn(look(id))
		return more
	})
	if !more {
		return
	}
	x.line.Roster.Each(0, func(j *job.Job) bool {
		if x.line.Queue.Has(j.ID) || x.attempts.Runs(j.ID) || j.State == job.Running {
			return true
		}
		return fn(j)
	})
}

// Position is a job's place in the queue, from 1; 0 if it is behind a gate.
func (x *Explain) Position(id string) int { return sched.Position(x.State(), id) }

// Blocked says why no job can start at all; empty: jobs can start.
func (x *Explain) Blocked() string {
	switch {
	case x.stopping:
		return "berth is stopping"
	case x.cards.Book.Err != nil && x.removed == nil:
		return "the GPUs cannot be read: " + x.cards.Book.Err.Error()
	}
	return x.unable()
}

// unable says why nothing can be started although there may be room; empty: it
// can.
func (x *Explain) unable() string {
	var err error
	if x.line.Queue.Len() > 0 {
		err = x.unleased
	}
	if x.changes.Failed != nil {
		err = x.changes.Failed
	}
	if x.removed != nil {
		err = x.removed
	}
	switch {
	case err == nil:
		return ""
	case errors.Is(err, store.ErrFull) || errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT):
		return "the disk of berth's state is full: " + err.Error()
	case errors.Is(err, store.ErrUnwritable) || diskFails(err):
		return "the disk of berth's state cannot be written: " + err.Error()
	}
	return err.Error()
}

// diskFails reports whether a file system is read-only or reports errors.
func diskFails(err error) bool { return errors.Is(err, syscall.EROFS) || errors.Is(err, syscall.EIO) }

// Why says why a queued job waits.
func (x *Explain) Why(id string) string { return x.Reasons([]string{id})[id] }

// Gate says what keeps a queued job from starting however much room there is;
// empty: nothing does.
func (x *Explain) Gate(id string) string { return gate(x, id, x.line.Roster.Look(id)) }

// gate is Gate with the job, which is unpacked once; nil: it is over.
func gate(x *Explain, id string, j *job.Job) string {
	text := x.line.Why(x.changes.Now, id, j)
	if why := x.unable(); why != "" && text == "" && x.line.Queue.Has(id) {
		text = "cannot be started: " + why
	}
	return afterPreemption(j, text)
}

// Reasons says why each of these queued jobs waits, at about the cost of one
// decision.
func (x *Explain) Reasons(ids []string) map[string]string {
	reasons, look := make(map[string]string, len(ids)), x.line.Roster.Looking()
	explain(x, ids, func(i int) *job.Job { return look(ids[i]) }, reasons)
	return reasons
}

// ReasonsOf is Reasons of jobs that were looked up in the same turn.
func ReasonsOf(x *Explain, jobs []*job.Job, reasons map[string]string) {
	ids := make([]string, len(jobs))
	for i := range jobs {
		ids[i] = jobs[i].ID
	}
	explain(x, ids, func(i int) *job.Job { return jobs[i] }, reasons)
}

// explain finds the reasons of jobs, of which at gives the one with ids[i].
func explain(x *Explain, ids []string, at func(i int) *job.Job, reasons map[string]string) {
	var inLine []string
	var places []int
	for i, id := range ids {
		if text := gate(x, id, at(i)); text != "" {
			reasons[id] = text
		} else if x.line.Queue.Has(id) {
			inLine, places = append(inLine, id), append(places, i)
		}
	}
	if x.stopping {
		for _, id := range inLine {
			reasons[id] = "berth is stopping"
		}
		return
	}
	if len(inLine) == 0 {
		return
	}
	for i, text := range sched.Sentences(x.State(), inLine) {
		reasons[inLine[i]] = afterPreemption(at(places[i]), text)
	}
}

// Borrowed says of running jobs that they are beyond their users' shares.
func (x *Explain) Borrowed(reasons map[string]string) {
	if !x.cfg.Limits.Shares() {
		return
	}
	for _, held := range sched.Borrowed(x.State()) {
		reasons[held.Job] = "borrowed: beyond " + held.User + "'s share of the GPUs"
	}
}

// Estimate is the estimated duration and memory of an unfinished job, with their
// sources. A running job is expected to run longer than it has.
func (x *Explain) Estimate(id string) (predict.Estimate, predict.Memory, bool) {
	j := x.line.Roster.Look(id)
	if j == nil {
		return predict.Estimate{}, predict.Memory{}, false
	}
	ask := x.line.Ask(j)
	if j.State == job.Running || j.State == job.Parked {
		ask.Ran = j.Worked(x.changes.Now).Truncate(time.Second)
	}
	run := x.line.Expect.BookOf(j.Spec.GPUs).Duration(ask)
	if j.Spec.GPUs == 0 && run.Guess() {
		run = predict.NewBook().Duration(ask) // as Span has it: only its limit counts
	}
	if run.Guess() && ask.Limit > 0 {
		run.High = ask.Limit + ask.Grace // as sched.Estimate.Left has it
	}
	return run, x.line.Memory(j), true
}

// Ends visits the unfinished jobs that are expected to end, at about the cost of one
// story.
func (x *Explain) Ends(visit func(j *job.Job, at time.Time)) {
	look := x.line.Roster.Looking()
	sched.Ends(x.State(), func(id string, at time.Time) {
		if j := look(id); j != nil {
			visit(j, at)
		}
	})
}

// Auto is what a vram=auto job of a user would declare, and from what; 0: it
// would declare nothing, and get GPUs to itself.
func (x *Explain) Auto(user string, spec *job.Spec) (mib int64, from predict.Memory) {
	j := &job.Job{User: user, Spec: *spec}
	from = x.line.Memory(j)
	return x.line.AutoMiB(x.changes.Now, j, from.HighMiB), from
}

// Infeasible goes through the jobs that can never run here, and why. Until a card
// was seen that is unknown, and nothing is refused.
func (x *Explain) Infeasible(user string, specs ...job.Spec) iter.Seq2[int, reason.Reason] {
	return func(yield func(int, reason.Reason) bool) {
		if x.cards.Unseen() {
			return
		}
		state := x.State()
		for i := range specs {
			if specs[i].To == job.ToSlurm {
				continue
			}
			p := sched.Pending{User: user, Request: sched.NewRequest(specs[i], specs[i].VRAMMiB, x.cfg.Rules), Limit: x.cfg.Longest(&specs[i])}
			p.Preempt = x.cfg.GivesWay(&job.Job{Spec: specs[i]}, "", x.line.Room)
			why, ok := sched.FeasibleFor(state, p)
			if !ok && !yield(i, why) {
				return
			}
		}
	}
}

// limitedGroups is what a decision has to know about groups.
func (x *Explain) limitedGroups() map[sched.GroupName]sched.Group {
	if len(x.groups.Settings) == 0 {
		return nil
	}
	groups := make(map[sched.GroupName]sched.Group, len(x.groups.Settings))
	for name, of := range x.groups.Settings {
		groups[name] = sched.Group{Limit: of.Limit, PausedBy: of.PausedBy}
	}
	for id, a := range x.attempts.Active {
		if of, set := groups[waiting.GroupOf(a.Job)]; set {
			of.Running = append(of.Running, id)
			groups[waiting.GroupOf(a.Job)] = of
		}
	}
	for _, of := range groups {
		slices.Sort(of.Running)
	}
	return groups
}

// harms reports whether others suffer from what a job takes. What that depends on is
// worked out when it is asked for the first time.
func (x *Explain) harms() func(*running.Attempt) bool {
	var state *sched.State
	var contended map[int]sched.Contenders
	return func(a *running.Attempt) bool {
		if state == nil {
			s := x.State()
			state, contended = &s, sched.Contended(s)
		}
		limit := x.cfg.Limits.Of(a.Job.User)
		if x.attempts.Parking.PreemptMode(a).Mode == "" {
			limit.GPUs = limit.WithoutBorrowing()
		}
		if limit.GPUs > 0 && state.InUse[a.Job.User].GPUs > limit.GPUs+overTolerance {
			return true
		}
		for card, usedMiB := range x.cards.Meter.Now(a.Job.ID) {
			if usedMiB > 0 && contended[card].Besides(a.Job.User) {
				return true
			}
		}
		return false
	}
}

// overTolerance keeps the last bit of a sum from putting a user over a limit.
const overTolerance = 1e-6

// OverLimit says why a limit keeps the user from holding one more job on this
// many cards; empty: none does. Adopted jobs that have not started yet count
// too, because they are not in the queue.
func (x *Explain) OverLimit(user string, cards int) string {
	limit := x.cfg.Limits.Of(user)
	var use sched.Use
	count := func(j *job.Job) {
		if j.User == user {
			use.Add(waiting.AllocationOf(j))
		}
	}
	for _, a := range x.attempts.Active {
		count(x.attempts.Charged(a))
	}
	for id := range x.line.Adopted {
		count(x.line.Roster.Get(id))
	}
	x.changes.EachStaged(func(j *job.Job) {
		if j.Spec.Adopt != nil {
			count(j)
		}
	})
	most := limit.WithoutBorrowing()
	switch {
	case limit.Jobs > 0 && use.Jobs >= limit.Jobs:
		return fmt.Sprintf("%s already runs %d jobs, which is the limit", user, use.Jobs)
	case most > 0 && use.GPUs+float64(cards) > most:
		return fmt.Sprintf("%s holds %g GPUs and this job needs %d more; the limit is %g", user, use.GPUs, cards, most)
	}
	return ""
}

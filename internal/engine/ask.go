package engine

import (
	"errors"
	"iter"
	"slices"
	"syscall"
	"time"

	"berth/internal/engine/running"
	"berth/internal/engine/waiting"
	"berth/internal/job"
	"berth/internal/predict"
	"berth/internal/reason"
	"berth/internal/sched"
	"berth/internal/store"
)

// Questions that a Turn answers. What concerns one part alone is answered by
// that part.

// State is what the next decision is based on. It is valid only during the turn:
// to keep it, make a snapshot.
func (t *Turn) State() sched.State {
	t.line.Queue.Tick(t.Now)
	t.line.Expect.Relearn(func(kind string) { t.attempts.Expect(kind, t.line.Span) })
	s := sched.State{
		Now: t.Now, Rules: t.cfg.Rules, Host: t.cfg.Host,
		Cards: t.cards.Book.Placeable(t.Now, t.cards.FreshFor()), Held: t.attempts.Holdings.Held(t.Now), Queue: t.line.Queue, MaxStarts: maxStarts,
	}
	t.shares(&s)
	t.parkedIn(&s)
	switch {
	case t.cards.Book.Err != nil:
		s.Unreadable = t.cards.Book.Err.Error()
	case t.cards.Book.At.IsZero():
		s.Unreadable = "they have not been read yet"
	}
	return s
}

// parkedIn fills in what parked jobs leave of the host's memory, and where they come
// back to.
func (t *Turn) parkedIn(s *sched.State) {
	if room, known := t.attempts.Parking.Room(); known {
		if s.ParkMiB = room.AllMiB; s.ParkMiB == 0 {
			s.ParkMiB = -1
		}
		if room.UserMiB > 0 {
			s.ParkOfMiB = map[string]int64{}
			for _, a := range t.attempts.Active {
				s.ParkOfMiB[a.Job.User] = room.Of(a.Job.User)
			}
		}
	}
	for _, a := range t.attempts.Parked {
		for i := range s.Cards {
			s.Cards[i].ParkedMiB += a.Job.Parking.CardMiB[s.Cards[i].Index]
		}
	}
}

// shares fills in users, arrays and groups.
func (t *Turn) shares(s *sched.State) {
	s.DefaultLimit, s.Limits = t.cfg.Limits.Default, t.cfg.Limits.Users
	s.Pools, s.InUse, s.Groups = map[string]int{}, map[string]sched.Use{}, t.limitedGroups()
	if t.cfg.Rules.Fair {
		s.Usage, s.FairQuantum = t.line.Usage.Decayed(t.Now, t.cfg.HalfLife), sched.FairQuantum
	}
	scale := t.scale()
	for _, a := range t.attempts.Active {
		j := t.attempts.Charged(a)
		if j.Spec.ArrayLimit > 0 {
			s.Pools[j.Array()]++
		}
		use, held := s.InUse[j.User], waiting.Holding(j)
		use.Add(held)
		if a.Unmeasured {
			use.Unmeasured += max(0, float64(len(held.Cards))-held.CountedGPUs())
		}
		s.InUse[j.User] = use
		if t.cfg.Rules.Fair {
			s.Usage[j.User] += waiting.GpuSeconds(j, t.Now, scale) + sched.FairQuantum*held.FairWeight(scale)
		}
	}
	for _, a := range t.attempts.Parked {
		use := s.InUse[a.Job.User]
		use.Jobs++
		use.Parked++
		s.InUse[a.Job.User] = use
	}
}

// scale is what CPUs and host memory count as in usage.
func (t *Turn) scale() sched.Scale { return t.cfg.Host.Scale(len(t.cards.Book.Known)) }

// Live counts the queued jobs, and those that have begun: running and parked.
func (t *Turn) Live() (queued, running int) {
	running = len(t.attempts.Active) + len(t.attempts.Parked) + t.remote.Begun()
	return len(t.line.Roster.Jobs) - running, running
}

// Supervised counts the jobs that supervisors hold on this machine.
func (t *Turn) Supervised() int { return len(t.attempts.Active) + len(t.attempts.Parked) }

// Written reports whether everything that happened so far is on disk and
// published.
func (t *Turn) Written() bool { return t.changes.Written() }

// Stopping reports whether berth was told to stop.
func (t *Turn) Stopping() bool { return t.stopping }

// InOrder visits the unfinished jobs until fn returns false: running and parked
// ones, oldest first, then queued ones as Next lists them. fn must not keep a job or change the
// queue.
func (t *Turn) InOrder(fn func(*job.Job) bool) {
	begun := append(t.attempts.OldestFirst(), t.remote.Running()...)
	for _, a := range t.attempts.Parked {
		begun = append(begun, a.Job)
	}
	slices.SortStableFunc(begun, job.ByStart)
	for _, j := range begun {
		if !fn(j) {
			return
		}
	}
	t.eachQueued(func(j *job.Job) bool {
		_, parked := t.attempts.Parked[j.ID]
		return parked || fn(j)
	})
}

// Next lists the first n queued jobs: those that wait for room in order, then
// those behind a gate, oldest first.
func (t *Turn) Next(n int) []*job.Job {
	list := make([]*job.Job, 0, n)
	t.eachQueued(func(j *job.Job) bool {
		if len(list) < n {
			list = append(list, j)
		}
		return len(list) < n
	})
	return list
}

func (t *Turn) eachQueued(fn func(*job.Job) bool) {
	more := true
	sched.InOrder(t.State(), func(id string) bool {
		more = fn(t.line.Roster.Jobs[id])
		return more
	})
	if !more {
		return
	}
	t.line.Roster.Each(0, func(j *job.Job) bool {
		if _, waits := t.line.Queue.Get(j.ID); waits || t.attempts.Runs(j.ID) || j.State == job.Running {
			return true
		}
		return fn(j)
	})
}

// Position is a job's place in the queue, from 1; 0 if it is behind a gate.
func (t *Turn) Position(id string) int { return sched.Position(t.State(), id) }

// Blocked says why no job can start at all; empty: jobs can start.
func (t *Turn) Blocked() string {
	switch {
	case t.stopping:
		return "berth is stopping"
	case t.cards.Book.Err != nil && t.removed == nil:
		return "the GPUs cannot be read: " + t.cards.Book.Err.Error()
	}
	return t.unable()
}

// unable says why nothing can be started although there may be room; empty: it
// can.
func (t *Turn) unable() string {
	var err error
	if t.line.Queue.Len() > 0 {
		err = t.unleased
	}
	if t.changes.Failed != nil {
		err = t.changes.Failed
	}
	if t.removed != nil {
		err = t.removed
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
func (t *Turn) Why(id string) string { return t.Reasons([]string{id})[id] }

// Gate says what keeps a queued job from starting however much room there is;
// empty: nothing does.
func (t *Turn) Gate(id string) string {
	text := t.line.Why(t.Now, id)
	if why := t.unable(); why != "" && text == "" && t.waits(id) {
		text = "cannot be started: " + why
	}
	return afterPreemption(t.line.Roster.Jobs[id], text)
}

// Reasons says why each of these queued jobs waits, at about the cost of one
// decision.
func (t *Turn) Reasons(ids []string) map[string]string {
	reasons := make(map[string]string, len(ids))
	var inLine []string
	for _, id := range ids {
		if text := t.Gate(id); text != "" {
			reasons[id] = text
		} else if _, queued := t.line.Queue.Get(id); queued {
			inLine = append(inLine, id)
		}
	}
	if t.stopping {
		for _, id := range inLine {
			reasons[id] = "berth is stopping"
		}
		return reasons
	}
	if len(inLine) == 0 {
		return reasons
	}
	for i, text := range sched.Sentences(t.State(), inLine) {
		reasons[inLine[i]] = afterPreemption(t.line.Roster.Jobs[inLine[i]], text)
	}
	return reasons
}

// Estimate is the estimated duration and memory of an unfinished job, with their
// sources. A running job is expected to run longer than it has.
func (t *Turn) Estimate(id string) (predict.Estimate, predict.Memory, bool) {
	j, live := t.line.Roster.Jobs[id]
	if !live {
		return predict.Estimate{}, predict.Memory{}, false
	}
	ask, book := t.line.Ask(j), t.line.Expect.Book
	if j.State == job.Running || j.State == job.Parked {
		ask.Ran = j.Worked(t.Now).Truncate(time.Second)
	}
	if j.Spec.GPUs == 0 {
		book = predict.NewBook() // other jobs' runs say nothing about it: only its limit does
	}
	run := book.Duration(ask)
	if run.Guess() && ask.Limit > 0 {
		run.High = ask.Limit + ask.Grace // as sched.Estimate.Left has it
	}
	return run, t.line.Memory(j), true
}

// Auto is what a vram=auto job of a user would declare, and from what; 0: it
// would declare nothing, and get GPUs to itself.
func (t *Turn) Auto(user string, spec *job.Spec) (mib int64, from predict.Memory) {
	j := &job.Job{User: user, Spec: *spec}
	from = t.line.Memory(j)
	return t.line.AutoMiB(t.Now, j, from.HighMiB), from
}

// Infeasible goes through the jobs that can never run here, and why. Until a card
// was seen that is unknown, and nothing is refused.
func (t *Turn) Infeasible(user string, specs ...job.Spec) iter.Seq2[int, reason.Reason] {
	return func(yield func(int, reason.Reason) bool) {
		if t.cards.Unseen() {
			return
		}
		state := t.State()
		for i := range specs {
			if specs[i].To == job.ToSlurm {
				continue
			}
			why, ok := sched.FeasibleFor(state, user, sched.NewRequest(specs[i], specs[i].VRAMMiB, t.cfg.Rules))
			if !ok && !yield(i, why) {
				return
			}
		}
	}
}

// Shows reports whether the last reading is recent enough to show and newer than
// the last end of a job.
func (t *Turn) Shows(youngest time.Duration) bool {
	return t.cards.Book.Err == nil && !t.cards.Book.WantsLook(t.Now, youngest)
}

// Ready reports whether the last reading is recent enough to place jobs.
func (t *Turn) Ready() bool { return !t.cards.Book.WantsLook(t.Now, t.cards.FreshFor()) }

// Resting reports whether the cards are not polled because they have been idle
// for long. The first reading after that may be slow.
func (t *Turn) Resting() bool { return t.cards.Resting(t.Now, t.work()) }

// needsSample reports whether the next decision needs a new reading. One from
// before the end of a job would show the job's memory as used or, worse, miss
// memory that is still in use.
func (t *Turn) needsSample() bool {
	if t.cards.Book.Asked || !t.Now.Before(t.cards.Due(t.Now, t.work())) {
		return true
	}
	return t.line.Queue.Len() > 0 && !t.stopping && t.cards.Book.Err == nil && !t.Ready()
}

// limitedGroups is what a decision has to know about groups.
func (t *Turn) limitedGroups() map[sched.GroupName]sched.JobGroup {
	if len(t.groups.Settings) == 0 {
		return nil
	}
	groups := make(map[sched.GroupName]sched.JobGroup, len(t.groups.Settings))
	for name, of := range t.groups.Settings {
		groups[name] = sched.JobGroup{Limit: of.Limit, PausedBy: of.PausedBy}
	}
	for id, a := range t.attempts.Active {
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
func (t *Turn) harms() func(*running.Attempt) bool {
	var state *sched.State
	var contended map[int]sched.Contenders
	return func(a *running.Attempt) bool {
		if state == nil {
			s := t.State()
			state, contended = &s, sched.Contended(s)
		}
		if limit := t.cfg.Limits.Of(a.Job.User).GPUs; limit > 0 && state.InUse[a.Job.User].GPUs > limit+overTolerance {
			return true
		}
		for card, usedMiB := range t.cards.Meter.Now(a.Job.ID) {
			if usedMiB > 0 && contended[card].Besides(a.Job.User) {
				return true
			}
		}
		return false
	}
}

// overTolerance keeps the last bit of a sum from putting a user over a limit.
const overTolerance = 1e-6

package engine

import (
	"cmp"
	"errors"
	"iter"
	"maps"
	"slices"
	"syscall"
	"time"

	"berth/internal/gpu"
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
	t.line.queue.Tick(t.Now)
	s := sched.State{
		Now: t.Now, Rules: t.cfg.Rules, Host: t.cfg.Host,
		Cards: t.cards.placeable(t.Now, t.cards.freshFor()), Held: t.attempts.held(t.Now), Queue: t.line.queue, MaxStarts: maxStarts,
	}
	t.shares(&s)
	t.parkedIn(&s)
	switch {
	case t.cards.err != nil:
		s.Unreadable = t.cards.err.Error()
	case t.cards.at.IsZero():
		s.Unreadable = "they have not been read yet"
	}
	return s
}

// parkedIn fills in what parked jobs leave of the host's memory, and where they come
// back to.
func (t *Turn) parkedIn(s *sched.State) {
	if room, known := t.attempts.parkRoom(); known {
		if s.ParkMiB = room.allMiB; s.ParkMiB == 0 {
			s.ParkMiB = -1
		}
		if room.userMiB > 0 {
			s.ParkOfMiB = map[string]int64{}
			for _, a := range t.attempts.active {
				s.ParkOfMiB[a.job.User] = room.of(a.job.User)
			}
		}
	}
	for _, a := range t.attempts.parked {
		for i := range s.Cards {
			s.Cards[i].ParkedMiB += a.job.Parking.CardMiB[s.Cards[i].Index]
		}
	}
}

// shares fills in users, arrays and groups.
func (t *Turn) shares(s *sched.State) {
	s.DefaultLimit, s.Limits = t.cfg.Limits.Default, t.cfg.Limits.Users
	s.Pools, s.InUse, s.Groups = map[string]int{}, map[string]sched.Use{}, t.limitedGroups()
	if t.cfg.Rules.Fair {
		s.Usage, s.FairQuantum = t.line.usage.decayed(t.Now, t.cfg.HalfLife), sched.FairQuantum
	}
	scale := t.scale()
	for _, a := range t.attempts.active {
		j := t.attempts.charged(a)
		if j.Spec.ArrayLimit > 0 {
			s.Pools[j.Array()]++
		}
		use, held := s.InUse[j.User], holding(j)
		use.Add(held)
		if a.unmeasured {
			use.Unmeasured += max(0, float64(len(held.Cards))-held.CountedGPUs())
		}
		s.InUse[j.User] = use
		if t.cfg.Rules.Fair {
			s.Usage[j.User] += gpuSeconds(j, t.Now, scale) + sched.FairQuantum*held.FairWeight(scale)
		}
	}
	for _, a := range t.attempts.parked {
		use := s.InUse[a.job.User]
		use.Jobs++
		use.Parked++
		s.InUse[a.job.User] = use
	}
}

// scale is what CPUs and host memory count as in usage.
func (t *Turn) scale() sched.Scale { return t.cfg.Host.Scale(len(t.cards.known)) }

// capMiB is the most memory that a request may declare and still be placed; 0:
// not known.
func (t *Turn) capMiB(r sched.Request) int64 {
	return sched.CapMiB(sched.State{
		Now: t.Now, Rules: t.cfg.Rules, Host: t.cfg.Host, Cards: t.cards.placeable(t.Now, t.cards.freshFor()),
	}, r)
}

// Owned counts a user's unfinished jobs, including staged ones.
func (t *Turn) Owned(user string) int { return t.line.owned[user] + t.changes.stagedOf[user] }

// Size counts the unfinished jobs, including staged ones.
func (t *Turn) Size() int {
	size := len(t.line.jobs)
	for _, b := range t.changes.staged {
		size += len(b.Jobs)
	}
	return size
}

// Live counts the queued jobs, and those that have begun: running and parked.
func (t *Turn) Live() (queued, running int) {
	running = len(t.attempts.active) + len(t.attempts.parked) + len(t.line.away.running)
	return len(t.line.jobs) - running, running
}

// Supervised counts the jobs that supervisors hold on this machine.
func (t *Turn) Supervised() int { return len(t.attempts.active) + len(t.attempts.parked) }

// Written reports whether everything that happened so far is on disk and
// published.
func (t *Turn) Written() bool { return t.changes.written() }

// Stopping reports whether berth was told to stop.
func (t *Turn) Stopping() bool { return t.stopping }

// Find is an unfinished job, or one whose end is not on disk yet.
func (t *Turn) Find(id string) (*job.Job, bool) {
	if j, ok := t.line.jobs[id]; ok {
		return j, true
	}
	j, ok := t.changes.rows[id]
	return j, ok
}

// EachUnwritten visits the jobs whose end is not on disk yet.
func (t *Turn) EachUnwritten(fn func(*job.Job)) {
	for id, j := range t.changes.rows {
		if _, live := t.line.jobs[id]; !live {
			fn(j)
		}
	}
}

// InOrder visits the unfinished jobs until fn returns false: running and parked
// ones, oldest first, then queued ones as Next lists them. fn must not keep a job or change the
// queue.
func (t *Turn) InOrder(fn func(*job.Job) bool) {
	begun := append(t.attempts.oldestFirst(), t.line.away.oldestFirst()...)
	for _, a := range t.attempts.parked {
		begun = append(begun, a.job)
	}
	slices.SortStableFunc(begun, byStart)
	for _, j := range begun {
		if !fn(j) {
			return
		}
	}
	t.eachQueued(func(j *job.Job) bool {
		_, parked := t.attempts.parked[j.ID]
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
		more = fn(t.line.jobs[id])
		return more
	})
	if !more {
		return
	}
	t.line.Each(0, func(j *job.Job) bool {
		if _, waits := t.line.queue.Get(j.ID); waits || t.attempts.runs(j.ID) || j.State == job.Running {
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
	case t.cards.err != nil && t.removed == nil:
		return "the GPUs cannot be read: " + t.cards.err.Error()
	}
	return t.unable()
}

// unable says why nothing can be started although there may be room; empty: it
// can.
func (t *Turn) unable() string {
	var err error
	if t.line.queue.Len() > 0 {
		err = t.unleased
	}
	if t.changes.failed != nil {
		err = t.changes.failed
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
	text := t.line.why(t.Now, id)
	if why := t.unable(); why != "" && text == "" && t.waits(id) {
		text = "cannot be started: " + why
	}
	return afterPreemption(t.line.jobs[id], text)
}

// Reasons says why each of these queued jobs waits, at about the cost of one
// decision.
func (t *Turn) Reasons(ids []string) map[string]string {
	reasons := make(map[string]string, len(ids))
	var inLine []string
	for _, id := range ids {
		if text := t.Gate(id); text != "" {
			reasons[id] = text
		} else if _, queued := t.line.queue.Get(id); queued {
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
		reasons[inLine[i]] = afterPreemption(t.line.jobs[inLine[i]], text)
	}
	return reasons
}

// Estimate is the estimated duration and memory of an unfinished job, with their
// sources. A running job is expected to run longer than it has.
func (t *Turn) Estimate(id string) (predict.Estimate, predict.Memory, bool) {
	j, live := t.line.jobs[id]
	if !live {
		return predict.Estimate{}, predict.Memory{}, false
	}
	ask := t.line.ask(j)
	if j.State == job.Running || j.State == job.Parked {
		ask.Ran = j.Worked(t.Now).Truncate(time.Second)
	}
	run := t.line.expect.bookOf(j.Spec.GPUs).Duration(ask)
	if j.Spec.GPUs == 0 && run.Guess() {
		run = predict.NewBook().Duration(ask) // as span has it: only its limit counts
	}
	if run.Guess() && ask.Limit > 0 {
		run.High = ask.Limit + ask.Grace // as sched.Estimate.Left has it
	}
	return run, t.line.memory(j), true
}

// Auto is what a vram=auto job of a user would declare, and from what; 0: it
// would declare nothing, and get GPUs to itself.
func (t *Turn) Auto(user string, spec *job.Spec) (mib int64, from predict.Memory) {
	j := &job.Job{User: user, Spec: *spec}
	from = t.line.memory(j)
	return t.line.autoMiB(t.Now, j, from.HighMiB), from
}

// Infeasible goes through the jobs that can never run here, and why. Until a card
// was seen that is unknown, and nothing is refused.
func (t *Turn) Infeasible(user string, specs ...job.Spec) iter.Seq2[int, reason.Reason] {
	return func(yield func(int, reason.Reason) bool) {
		if t.cards.unseen() {
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

// Running is a running job with its current use.
type Running struct {
	Job     *job.Job
	NowMiB  int64 // on the card where it uses most; -1: not known
	CardMiB map[int]int64
	PeakMiB int64
}

// Running lists the running jobs, oldest first.
func (s *attempts) Running() []Running {
	list := make([]Running, 0, len(s.active))
	for _, j := range s.oldestFirst() {
		r := Running{Job: j, NowMiB: -1, CardMiB: s.cards.meter.Now(j.ID)}
		if card, now := highest(r.CardMiB); card >= 0 {
			r.NowMiB = now
		}
		_, r.PeakMiB = highest(s.cards.meter.Peak(j.ID))
		list = append(list, r)
	}
	return list
}

// RunningAway lists the jobs that the cluster runs, oldest first. Their current use
// is not known, only their peak.
func (t *Turn) RunningAway() []Running {
	var list []Running
	for _, j := range t.line.away.oldestFirst() {
		r := Running{Job: j, NowMiB: -1}
		_, r.PeakMiB = highest(j.PeakMiB)
		list = append(list, r)
	}
	return list
}

// oldestFirst is the running jobs by start.
func (s *attempts) oldestFirst() []*job.Job {
	list := make([]*job.Job, 0, len(s.active))
	for _, a := range s.active {
		list = append(list, a.job)
	}
	slices.SortFunc(list, byStart)
	return list
}

// Copy is a copy of a job as it is now, with what was measured so far.
func (s *attempts) Copy(j *job.Job) job.Job {
	c := *j
	a := s.active[j.ID]
	if a == nil {
		return c
	}
	if s.measure(&c); len(c.PeakMiB) == 0 {
		c.PeakMiB = j.PeakMiB
	}
	if util, ok := s.cards.meter.AvgUtil(j.ID); ok {
		c.AvgUtil = &util
	}
	if since, idle := s.IdleSince(j.ID); idle {
		c.IdleSince = since
	}
	if c.Detail = cmp.Or(a.hindrance.String(), c.Detail, a.trouble); c.IdleSince.IsZero() {
		c.Detail = cmp.Or(c.Detail, join(a.exceeds, s.EndsForOveruse(j.ID)))
	}
	return c
}

// join puts a second remark behind a first, where there are both.
func join(first, second string) string {
	if first == "" || second == "" {
		return cmp.Or(first, second)
	}
	return first + "; " + second
}

// Supervises is the running job whose supervisor the process is.
func (s *attempts) Supervises(pid int) (id string, found bool) {
	for id, a := range s.active {
		if identity, ok := s.runner.Identity(a.token); ok && identity.KeepPID == pid {
			return id, true
		}
	}
	return "", false
}

// NowMiB is what a running job uses on a card now, and its peak there.
func (c *cards) NowMiB(id string, card int) (nowMiB, peakMiB int64, known bool) {
	nowMiB, known = c.meter.Now(id)[card]
	return nowMiB, c.meter.Peak(id)[card], known
}

// Cards is the last reading of each card.
func (c *cards) Cards() []sched.Card { return c.list() }

// Devices is every known card as last seen.
func (c *cards) Devices() []gpu.Device {
	devices := slices.Collect(maps.Values(c.known))
	slices.SortFunc(devices, func(a, b gpu.Device) int { return a.Index - b.Index })
	return devices
}

// Device is a card as it was last read.
func (c *cards) Device(uuid string) (gpu.Device, bool) { return c.device(uuid) }

// HealthOf is the health of a card.
func (c *cards) HealthOf(uuid string) gpu.Verdict { return c.health.Of(uuid) }

// PausedBy says who paused a card; empty: it is not paused.
func (c *cards) PausedBy(uuid string) string { return c.paused[uuid] }

// ReadAt is when the cards were last read, and why they could not be read since.
func (c *cards) ReadAt() (at time.Time, trouble error) { return c.arrived, c.err }

// SeenAt is when a card was last read; zero: not since berth started.
func (c *cards) SeenAt(index int) time.Time { return c.seen[index] }

// FailedAt is when reading the cards last failed.
func (c *cards) FailedAt() time.Time { return c.failed }

// Look asks for a new reading of the cards, which an idle engine would not make.
func (c *cards) Look() { c.asked = true }

// Occupants are the processes on each card as last read. A card that hides them
// has no entry.
func (c *cards) Occupants() map[int][]gpu.Process {
	occupants := make(map[int][]gpu.Process, len(c.known))
	for index, d := range c.known {
		if d.ProcessesKnown && c.present[index] {
			occupants[index] = slices.Clone(d.Processes)
		}
	}
	return occupants
}

// Occupied is the grant of a process that uses these cards already. Other jobs
// may join it. A budget of zero would mean the whole card.
func (c *cards) Occupied(indices []int, budgetMiB int64) job.Grant {
	g := job.Grant{GPUs: indices, BudgetMiB: max(1, budgetMiB), CardMiB: c.smallest(indices)}
	for _, index := range indices {
		g.UUIDs = append(g.UUIDs, c.known[index].UUID)
	}
	return g
}

// Others is what other berths hold on this machine's cards.
func (b *bookings) Others() []gpu.Entry { return slices.Clone(b.others) }

// OwnerOf is the job that a process on a card belongs to, or another berth's
// booking; empty: an external process. A number from another PID namespace is
// not known.
func (b *bookings) OwnerOf(pid int) (key string, known bool) {
	key, owned, known := b.owners.Owner(pid)
	if !owned {
		key = ""
	}
	return key, known
}

// Shows reports whether the last reading is recent enough to show and newer than
// the last end of a job.
func (t *Turn) Shows(youngest time.Duration) bool {
	return t.cards.err == nil && !t.cards.wantsLook(t.Now, youngest)
}

// Ready reports whether the last reading is recent enough to place jobs.
func (t *Turn) Ready() bool { return !t.cards.wantsLook(t.Now, t.cards.freshFor()) }

// Resting reports whether the cards are not polled because they have been idle
// for long. The first reading after that may be slow.
func (t *Turn) Resting() bool { return t.cards.resting(t.Now, t.work()) }

// needsSample reports whether the next decision needs a new reading. One from
// before the end of a job would show the job's memory as used or, worse, miss
// memory that is still in use.
func (t *Turn) needsSample() bool {
	if t.cards.asked || !t.Now.Before(t.cards.due(t.Now, t.work())) {
		return true
	}
	return t.line.queue.Len() > 0 && !t.stopping && t.cards.err == nil && !t.Ready()
}

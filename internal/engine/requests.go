package engine

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"berth/internal/gpu"
	"berth/internal/job"
	"berth/internal/sched"
)

// Batch is jobs that are accepted together or not at all.
type Batch struct {
	Jobs  []*job.Job        // numbered, and otherwise as for Submit
	Blobs map[string][]byte // what they share, by its name in the store
	Done  func(error)       // called in the engine's goroutine
}

// Accept takes jobs from someone who waits for the answer. They exist once
// they are on disk, and not a moment sooner: a commit that fails refuses them,
// and what was never acknowledged is not tried again.
func (e *Engine) Accept(now time.Time, b Batch) {
	e.now = now
	for _, j := range b.Jobs {
		j.Submitted(now)
		j.VRAMMiB = j.Spec.VRAMMiB
	}
	e.staged = append(e.staged, b)
	for _, j := range b.Jobs {
		e.stagedOf[j.User]++
	}
}

// unstage takes what is staged.
func (e *Engine) unstage() []Batch {
	staged := e.staged
	e.staged = nil
	clear(e.stagedOf)
	return staged
}

// admit makes the staged jobs the queue's: they are on disk now.
func (e *Engine) admit(batches []Batch) {
	for _, b := range batches {
		for _, j := range b.Jobs {
			e.know(j)
			if e.cfg.TellQueued {
				e.arrivals = append(e.arrivals, job.Event{At: e.now, Kind: job.EventQueued, Job: j.Clone()})
			}
		}
		for _, j := range b.Jobs {
			e.enqueue(j)
		}
		e.admitted = true
		b.Done(nil)
	}
}

// Then calls f once what was asked for so far is on disk, or could not be
// written.
func (e *Engine) Then(f func(error)) { e.thens = append(e.thens, f) }

// know adds a job to those that are not over.
func (e *Engine) know(j *job.Job) {
	if _, known := e.jobs[j.ID]; !known {
		e.owned[j.User]++
		e.roster.add(j)
	}
	e.jobs[j.ID] = j
}

// forgetJob takes a job out of those that are not over.
func (e *Engine) forgetJob(j *job.Job) {
	if _, known := e.jobs[j.ID]; !known {
		return
	}
	delete(e.jobs, j.ID)
	e.roster.remove(j)
	if e.owned[j.User]--; e.owned[j.User] == 0 {
		delete(e.owned, j.User)
	}
}

// Owned counts a user's jobs that are not over, staged ones included.
func (e *Engine) Owned(user string) int {
	return e.owned[user] + e.stagedOf[user]
}

// Size counts the jobs that are not over, staged ones included.
func (e *Engine) Size() int {
	size := len(e.jobs)
	for _, b := range e.staged {
		size += len(b.Jobs)
	}
	return size
}

// Retire makes a berth that has nothing to do take no more jobs. It reports
// false, and changes nothing, where there is something to do.
func (e *Engine) Retire() bool {
	if e.Size() > 0 || !e.Written() {
		return false
	}
	e.stopping = true
	return true
}

// Hold keeps a queued job, or one that is being set aside, from starting until
// it is released.
func (e *Engine) Hold(now time.Time, id, by string) bool {
	return e.setHeld(now, id, true, "held by "+by)
}

// Release lets a held job go.
func (e *Engine) Release(now time.Time, id, by string) bool {
	return e.setHeld(now, id, false, "released by "+by)
}

func (e *Engine) setHeld(now time.Time, id string, held bool, text string) bool {
	e.now = now
	j := e.jobs[id]
	if j == nil || j.State != job.Queued && !j.Leaving() || j.Held == held {
		return false
	}
	if j.Held = held; !held {
		j.WaitsSince = now
	}
	e.fact(j)
	kind := job.EventReleased
	if held {
		kind = job.EventHeld
	}
	e.tell(kind, j, text)
	if j.State == job.Queued {
		e.enqueue(j)
	}
	return true
}

// Requeue ends a running job and runs it again from its beginning. One that is
// given up already does not come back.
func (e *Engine) Requeue(now time.Time, id, by string, grace time.Duration) bool {
	e.now = now
	j := e.jobs[id]
	if j == nil || j.State != job.Running || j.Stop == job.StopCancel {
		return false
	}
	if j.Stop == job.NoStop || j.Stop == job.StopAside {
		j.Detail = "requeued by " + by
	}
	e.stop(j, job.StopRequeue, grace)
	return true
}

// pausedKey is where the store keeps which cards are paused.
const pausedKey = "paused"

// Pause keeps new jobs off a card, or lets them on again; what runs there is
// not touched. It reports false for a card that does not exist.
func (e *Engine) Pause(now time.Time, index int, paused bool, by string) bool {
	e.now = now
	d, known := e.cards.known[index]
	if !known {
		return false
	}
	if _, is := e.cards.paused[d.UUID]; is == paused {
		return true
	}
	text := fmt.Sprintf("gpu%d resumed by %s", index, by)
	if paused {
		text = fmt.Sprintf("gpu%d paused by %s", index, by)
		e.cards.paused[d.UUID] = by
	} else {
		delete(e.cards.paused, d.UUID)
	}
	value, err := json.Marshal(e.cards.paused)
	if err != nil {
		panic("bug: " + err.Error())
	}
	e.meta[pausedKey] = string(value)
	e.tell(job.EventCard, nil, text)
	e.moved = true
	return true
}

// TellCard writes down what a person did to a card or to all. The text begins
// with the card: "gpu3 ".
func (e *Engine) TellCard(now time.Time, text string) {
	e.now = now
	e.tell(job.EventCard, nil, text)
}

// OwnerOf is the job that a process on a card belongs to, or the booking of
// another berth's; empty: nobody's. Not known is what a number means that
// comes from another PID namespace.
func (e *Engine) OwnerOf(pid int) (key string, known bool) {
	key, owned, known := e.owners.Owner(pid)
	if !owned {
		key = ""
	}
	return key, known
}

// RestorePauses takes over which cards an earlier berth had paused.
func (e *Engine) RestorePauses(meta func(key string) (string, error)) error {
	value, err := meta(pausedKey)
	if err != nil || value == "" {
		return err
	}
	if err := json.Unmarshal([]byte(value), &e.cards.paused); err != nil {
		return fmt.Errorf("read which cards are paused: %w", err)
	}
	return nil
}

// PausedBy says who paused a card; empty: nobody did.
func (e *Engine) PausedBy(uuid string) string { return e.cards.paused[uuid] }

// SetRules changes how jobs are placed from now on. What runs is not touched.
func (e *Engine) SetRules(rules sched.Rules, limits Limits) {
	again := e.cfg.Rules != rules
	e.cfg.Rules, e.cfg.Limits = rules, limits
	e.queue.SetRules(rules)
	e.meter.SetSpikeBuffer(rules.SpikeBuffer)
	e.moved = true
	if !again {
		return
	}
	// A request carries what the rules made of it.
	for id, j := range e.jobs {
		if _, queued := e.queue.Get(id); queued {
			e.lineAgain(j)
		}
	}
}

// SetKeepAll says whether every running job stays on its cards, also one that
// may be set aside. One that was told to leave leaves.
func (e *Engine) SetKeepAll(keep bool) {
	e.moved = e.moved || e.cfg.KeepAll != keep
	e.cfg.KeepAll = keep
}

// Find is a job that is not over, or one whose end is not on disk yet.
func (e *Engine) Find(id string) (*job.Job, bool) {
	if j, ok := e.jobs[id]; ok {
		return j, true
	}
	j, ok := e.dirty[id]
	return j, ok
}

// Reasons says of each queued job what it waits for, at about the price of
// one decision.
func (e *Engine) Reasons(ids []string) map[string]string {
	reasons := make(map[string]string, len(ids))
	var inLine []string
	for _, id := range ids {
		if text := e.Gate(id); text != "" {
			reasons[id] = text
		} else if _, queued := e.queue.Get(id); queued {
			inLine = append(inLine, id)
		}
	}
	if e.stopping {
		for _, id := range inLine {
			reasons[id] = "berth is stopping"
		}
		return reasons
	}
	if len(inLine) == 0 {
		return reasons
	}
	for i, text := range sched.Sentences(e.state(), inLine) {
		reasons[inLine[i]] = setAside(e.jobs[inLine[i]], text)
	}
	return reasons
}

// Position is a job's place in the line, from 1; 0 if it is behind a gate.
func (e *Engine) Position(id string) int { return sched.Position(e.state(), id) }

// Trial says what would become of a job if it were queued now.
type Trial struct {
	Infeasible string // why it can never run here
	Starts     bool
	GPUs       []int
	Waits      string // why it would wait
}

// Try asks the plan about a job without queueing it.
func (e *Engine) Try(now time.Time, user string, spec job.Spec) Trial {
	e.now = now
	request := sched.NewRequest(spec, spec.VRAMMiB, e.cfg.Rules)
	state := e.state()
	if _, why := e.Feasible(user, spec); why != "" {
		return Trial{Infeasible: why}
	}
	const id = "trial"
	e.queue.Add(sched.Pending{
		Job: id, User: user, Priority: spec.Priority, Rank: e.nextSeq, Seq: e.nextSeq, Request: request,
		Since: now, Run: e.span(&job.Job{User: user, Spec: spec}), Limit: spec.TimeLimit,
	})
	defer e.queue.Remove(id)
	for _, start := range sched.Decide(state).Starts {
		if start.Job == id {
			return Trial{Starts: true, GPUs: start.Grant.GPUs}
		}
	}
	return Trial{Waits: sched.Explain(state, id).String()}
}

// Feasible says of the first job that can never run here why; empty: all can.
// Before any card was ever seen that cannot be known, and nothing is refused.
func (e *Engine) Feasible(user string, specs ...job.Spec) (which int, why string) {
	if len(e.cards.known) == 0 {
		return 0, ""
	}
	state := e.state()
	for i := range specs {
		reason, ok := sched.FeasibleFor(state, user, sched.NewRequest(specs[i], specs[i].VRAMMiB, e.cfg.Rules))
		if !ok {
			return i, reason.String()
		}
	}
	return 0, ""
}

// Devices is every card that is known, as it was last seen.
func (e *Engine) Devices() []gpu.Device {
	devices := slices.Collect(maps.Values(e.cards.known))
	slices.SortFunc(devices, func(a, b gpu.Device) int { return a.Index - b.Index })
	return devices
}

// NextRank is a place behind everything that is queued now.
func (e *Engine) NextRank() int64 { return e.nextSeq }

// Others is what other berths hold on this machine's cards.
func (e *Engine) Others() []gpu.Entry { return slices.Clone(e.others) }

// NowMiB is what a running job uses on a card at the moment, and the most it
// used there.
func (e *Engine) NowMiB(id string, card int) (nowMiB, peakMiB int64, known bool) {
	nowMiB, known = e.meter.Now(id)[card]
	return nowMiB, e.meter.Peak(id)[card], known
}

// ReadAt is when the cards were last read, and why they could not be since.
func (e *Engine) ReadAt() (at time.Time, trouble error) { return e.cards.arrived, e.cards.err }

// SeenAt is when a card was last read; the zero time: never since berth began.
func (e *Engine) SeenAt(index int) time.Time { return e.cards.seen[index] }

// FailedAt is when the last look at the cards that failed did so.
func (e *Engine) FailedAt() time.Time { return e.cards.failed }

// Copy is a job as it stands now, with what was measured of it so far. Nothing
// in it changes any more.
func (e *Engine) Copy(j *job.Job) job.Job {
	c := *j
	if _, runs := e.active[j.ID]; !runs {
		return c
	}
	if peaks := e.meter.Peak(j.ID); len(peaks) > 0 {
		c.PeakMiB = peaks
	}
	if util, ok := e.meter.AvgUtil(j.ID); ok {
		c.AvgUtil = &util
	}
	if since, idle := e.IdleSince(j.ID); idle {
		c.IdleSince = since
	}
	if c.Detail == "" {
		c.Detail = e.Trouble(j.ID)
	}
	return c
}

// Begin changes before when a queued job may not start.
func (e *Engine) Begin(now time.Time, id string, notBefore time.Time) {
	e.now = now
	j := e.jobs[id]
	if j == nil || j.State != job.Queued {
		return
	}
	j.NotBefore = notBefore
	e.fact(j)
	e.enqueue(j)
}

// Stopping reports whether berth was told to stop.
func (e *Engine) Stopping() bool { return e.stopping }

// Given is a card as a job is told of it: where the driver's number of it is in
// doubt, that is -1. Only for use inside Order.
func (e *Engine) Given(uuid string) (gpu.Device, bool) { return e.cards.given(uuid) }

// Device is a card as it was last read. Only for use inside Order and Do.
func (e *Engine) Device(uuid string) (gpu.Device, bool) { return e.cards.device(uuid) }

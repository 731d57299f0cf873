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
func (t *Turn) Accept(b Batch) {
	for _, j := range b.Jobs {
		j.Submitted(t.Now)
		j.VRAMMiB = j.Spec.VRAMMiB
	}
	t.staged = append(t.staged, b)
	for _, j := range b.Jobs {
		t.stagedOf[j.User]++
	}
}

// unstage takes what is staged.
func (t *Turn) unstage() []Batch {
	staged := t.staged
	t.staged = nil
	clear(t.stagedOf)
	return staged
}

// admit makes the staged jobs the queue's: they are on disk now.
func (t *Turn) admit(batches []Batch) {
	for _, b := range batches {
		for _, j := range b.Jobs {
			t.know(j)
			if t.cfg.TellQueued {
				t.arrivals = append(t.arrivals, job.Event{At: t.Now, Kind: job.EventQueued, Job: j.Clone()})
			}
		}
		for _, j := range b.Jobs {
			t.enqueue(j)
		}
		t.admitted = true
		b.Done(nil)
	}
}

// Then calls f once what was asked for so far is on disk, or could not be
// written.
func (t *Turn) Then(f func(error)) { t.thens = append(t.thens, f) }

// know adds a job to those that are not over.
func (t *Turn) know(j *job.Job) {
	if _, known := t.jobs[j.ID]; !known {
		t.owned[j.User]++
		t.roster.add(j)
	}
	t.jobs[j.ID] = j
}

// forgetJob takes a job out of those that are not over.
func (t *Turn) forgetJob(j *job.Job) {
	if _, known := t.jobs[j.ID]; !known {
		return
	}
	delete(t.jobs, j.ID)
	t.roster.remove(j)
	if t.owned[j.User]--; t.owned[j.User] == 0 {
		delete(t.owned, j.User)
	}
}

// Owned counts a user's jobs that are not over, staged ones included.
func (t *Turn) Owned(user string) int {
	return t.owned[user] + t.stagedOf[user]
}

// Size counts the jobs that are not over, staged ones included.
func (t *Turn) Size() int {
	size := len(t.jobs)
	for _, b := range t.staged {
		size += len(b.Jobs)
	}
	return size
}

// Retire makes a berth that has nothing to do take no more jobs. It reports
// false, and changes nothing, where there is something to do.
func (t *Turn) Retire() bool {
	if t.Size() > 0 || !t.Written() {
		return false
	}
	t.stopping = true
	return true
}

// Hold keeps a queued job, or one that is being set aside, from starting until
// it is released.
func (t *Turn) Hold(id, by string) bool {
	return t.setHeld(id, true, "held by "+by)
}

// Release lets a held job go.
func (t *Turn) Release(id, by string) bool {
	return t.setHeld(id, false, "released by "+by)
}

func (t *Turn) setHeld(id string, held bool, text string) bool {
	j := t.jobs[id]
	if j == nil || j.State != job.Queued && !j.Leaving() || j.Held == held {
		return false
	}
	if j.Held = held; !held {
		j.WaitsSince = t.Now
	}
	t.fact(j)
	kind := job.EventReleased
	if held {
		kind = job.EventHeld
	}
	t.tell(kind, j, text)
	if j.State == job.Queued {
		t.enqueue(j)
	}
	return true
}

// Requeue ends a running job and runs it again from its beginning. One that is
// given up already does not come back.
func (t *Turn) Requeue(id, by string, grace time.Duration) bool {
	j := t.jobs[id]
	if j == nil || j.State != job.Running || j.Stop == job.StopCancel {
		return false
	}
	if j.Stop == job.NoStop || j.Stop == job.StopAside {
		j.Detail = "requeued by " + by
	}
	t.stop(j, job.StopRequeue, grace)
	return true
}

// pausedKey is where the store keeps which cards are paused.
const pausedKey = "paused"

// Pause keeps new jobs off a card, or lets them on again; what runs there is
// not touched. It reports false for a card that does not exist.
func (t *Turn) Pause(index int, paused bool, by string) bool {
	d, known := t.cards.known[index]
	if !known {
		return false
	}
	if _, is := t.cards.paused[d.UUID]; is == paused {
		return true
	}
	text := fmt.Sprintf("gpu%d resumed by %s", index, by)
	if paused {
		text = fmt.Sprintf("gpu%d paused by %s", index, by)
		t.cards.paused[d.UUID] = by
	} else {
		delete(t.cards.paused, d.UUID)
	}
	value, err := json.Marshal(t.cards.paused)
	if err != nil {
		panic("bug: " + err.Error())
	}
	t.meta[pausedKey] = string(value)
	t.tell(job.EventCard, nil, text)
	t.moved = true
	return true
}

// TellCard writes down what a person did to a card or to all. The text begins
// with the card: "gpu3 ".
func (t *Turn) TellCard(text string) {
	t.tell(job.EventCard, nil, text)
}

// OwnerOf is the job that a process on a card belongs to, or the booking of
// another berth's; empty: nobody's. Not known is what a number means that
// comes from another PID namespace.
func (t *Turn) OwnerOf(pid int) (key string, known bool) {
	key, owned, known := t.owners.Owner(pid)
	if !owned {
		key = ""
	}
	return key, known
}

// RestorePauses takes over which cards an earlier berth had paused.
func (t *Turn) RestorePauses(meta func(key string) (string, error)) error {
	value, err := meta(pausedKey)
	if err != nil || value == "" {
		return err
	}
	if err := json.Unmarshal([]byte(value), &t.cards.paused); err != nil {
		return fmt.Errorf("read which cards are paused: %w", err)
	}
	return nil
}

// PausedBy says who paused a card; empty: nobody did.
func (t *Turn) PausedBy(uuid string) string { return t.cards.paused[uuid] }

// SetRules changes how jobs are placed from now on. What runs is not touched.
func (t *Turn) SetRules(rules sched.Rules, limits Limits) {
	again := t.cfg.Rules != rules
	t.cfg.Rules, t.cfg.Limits = rules, limits
	t.queue.SetRules(rules)
	t.meter.SetSpikeBuffer(rules.SpikeBuffer)
	t.moved = true
	if !again {
		return
	}
	// A request carries what the rules made of it.
	for id, j := range t.jobs {
		if _, queued := t.queue.Get(id); queued {
			t.lineAgain(j)
		}
	}
}

// SetKeepAll says whether every running job stays on its cards, also one that
// may be set aside. One that was told to leave leaves.
func (t *Turn) SetKeepAll(keep bool) {
	t.moved = t.moved || t.cfg.KeepAll != keep
	t.cfg.KeepAll = keep
}

// Find is a job that is not over, or one whose end is not on disk yet.
func (t *Turn) Find(id string) (*job.Job, bool) {
	if j, ok := t.jobs[id]; ok {
		return j, true
	}
	j, ok := t.dirty[id]
	return j, ok
}

// Reasons says of each queued job what it waits for, at about the price of
// one decision.
func (t *Turn) Reasons(ids []string) map[string]string {
	reasons := make(map[string]string, len(ids))
	var inLine []string
	for _, id := range ids {
		if text := t.Gate(id); text != "" {
			reasons[id] = text
		} else if _, queued := t.queue.Get(id); queued {
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
	for i, text := range sched.Sentences(t.state(), inLine) {
		reasons[inLine[i]] = setAside(t.jobs[inLine[i]], text)
	}
	return reasons
}

// Position is a job's place in the line, from 1; 0 if it is behind a gate.
func (t *Turn) Position(id string) int { return sched.Position(t.state(), id) }

// Trial says what would become of a job if it were queued now.
type Trial struct {
	Infeasible string // why it can never run here
	Starts     bool
	GPUs       []int
	Waits      string // why it would wait
}

// Try asks the plan about a job without queueing it.
func (t *Turn) Try(user string, spec job.Spec) Trial {
	request := sched.NewRequest(spec, spec.VRAMMiB, t.cfg.Rules)
	state := t.state()
	if _, why := t.Feasible(user, spec); why != "" {
		return Trial{Infeasible: why}
	}
	const id = "trial"
	t.queue.Add(sched.Pending{
		Job: id, User: user, Priority: spec.Priority, Rank: t.nextSeq, Seq: t.nextSeq, Request: request,
		Since: t.Now, Run: t.span(&job.Job{User: user, Spec: spec}), Limit: spec.TimeLimit,
	})
	defer t.queue.Remove(id)
	for _, start := range sched.Decide(state).Starts {
		if start.Job == id {
			return Trial{Starts: true, GPUs: start.Grant.GPUs}
		}
	}
	return Trial{Waits: sched.Explain(state, id).String()}
}

// Feasible says of the first job that can never run here why; empty: all can.
// Before any card was ever seen that cannot be known, and nothing is refused.
func (t *Turn) Feasible(user string, specs ...job.Spec) (which int, why string) {
	if len(t.cards.known) == 0 {
		return 0, ""
	}
	state := t.state()
	for i := range specs {
		reason, ok := sched.FeasibleFor(state, user, sched.NewRequest(specs[i], specs[i].VRAMMiB, t.cfg.Rules))
		if !ok {
			return i, reason.String()
		}
	}
	return 0, ""
}

// Devices is every card that is known, as it was last seen.
func (t *Turn) Devices() []gpu.Device {
	devices := slices.Collect(maps.Values(t.cards.known))
	slices.SortFunc(devices, func(a, b gpu.Device) int { return a.Index - b.Index })
	return devices
}

// NextRank is a place behind everything that is queued now.
func (t *Turn) NextRank() int64 { return t.nextSeq }

// Others is what other berths hold on this machine's cards.
func (t *Turn) Others() []gpu.Entry { return slices.Clone(t.others) }

// NowMiB is what a running job uses on a card at the moment, and the most it
// used there.
func (t *Turn) NowMiB(id string, card int) (nowMiB, peakMiB int64, known bool) {
	nowMiB, known = t.meter.Now(id)[card]
	return nowMiB, t.meter.Peak(id)[card], known
}

// ReadAt is when the cards were last read, and why they could not be since.
func (t *Turn) ReadAt() (at time.Time, trouble error) { return t.cards.arrived, t.cards.err }

// SeenAt is when a card was last read; the zero time: never since berth began.
func (t *Turn) SeenAt(index int) time.Time { return t.cards.seen[index] }

// FailedAt is when the last look at the cards that failed did so.
func (t *Turn) FailedAt() time.Time { return t.cards.failed }

// Copy is a job as it stands now, with what was measured of it so far. Nothing
// in it changes any more.
func (t *Turn) Copy(j *job.Job) job.Job {
	c := *j
	if _, runs := t.active[j.ID]; !runs {
		return c
	}
	if peaks := t.meter.Peak(j.ID); len(peaks) > 0 {
		c.PeakMiB = peaks
	}
	if util, ok := t.meter.AvgUtil(j.ID); ok {
		c.AvgUtil = &util
	}
	if since, idle := t.IdleSince(j.ID); idle {
		c.IdleSince = since
	}
	if c.Detail == "" {
		c.Detail = t.Trouble(j.ID)
	}
	return c
}

// Begin changes before when a queued job may not start.
func (t *Turn) Begin(id string, notBefore time.Time) {
	j := t.jobs[id]
	if j == nil || j.State != job.Queued {
		return
	}
	j.NotBefore = notBefore
	t.fact(j)
	t.enqueue(j)
}

// Stopping reports whether berth was told to stop.
func (t *Turn) Stopping() bool { return t.stopping }

// Device is a card as it was last read.
func (t *Turn) Device(uuid string) (gpu.Device, bool) { return t.cards.device(uuid) }

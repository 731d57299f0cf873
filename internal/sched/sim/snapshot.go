package sim

import (
	"errors"
	"slices"
	"time"

	"berth/internal/job"
	"berth/internal/sched"
)

// unknownRun is the assumed duration of queued jobs in a snapshot without any
// estimate.
const unknownRun = time.Hour

// snapshotReader makes a workload of a snapshot.
type snapshotReader struct {
	state  *sched.State
	work   *Workload
	origin time.Time
	places map[int]int       // of the cards: their numbers in the replay
	atOnce map[string]int    // how many tasks of an array may run at a time, for arrays with waiting tasks
	member map[string]string // the group of each running job, if that has a limit
}

// FromSnapshot makes a workload of the running and queued jobs of a daemon. It
// fails if no card takes jobs.
func FromSnapshot(source string, s *sched.State) (*Workload, error) {
	r := &snapshotReader{
		state: s, places: map[int]int{}, atOnce: map[string]int{}, member: map[string]string{},
		work: &Workload{Source: source, Origin: OfSnapshot, TakenAt: s.Now, Host: s.Host, Rules: &s.Rules, Limits: s.Limits, DefaultLimit: s.DefaultLimit, GroupLimits: map[sched.GroupName]int{}},
	}
	if err := r.cards(); err != nil {
		return nil, err
	}
	r.begin()
	r.groups()
	for i := range s.Allocations {
		r.held(&s.Allocations[i])
	}
	for _, p := range s.Queue.First(s.Queue.Len()) {
		r.pending(&p)
	}
	r.usage()
	return r.work, nil
}

// cards numbers the cards that hold jobs or may take some. External processes
// keep their memory throughout the replay.
func (r *snapshotReader) cards() error {
	busy := map[int]bool{}
	for i := range r.state.Allocations {
		for _, card := range r.state.Allocations[i].Cards {
			busy[card] = true
		}
	}
	w := r.work
	for i := range r.state.Cards {
		c := &r.state.Cards[i]
		usable := c.Health == sched.HealthOK && !c.Paused && c.TotalMiB > 0
		if !usable && !busy[c.Index] || len(w.CardNames) == MaxGPUs {
			w.CardsLeftOut++
			continue
		}
		place := len(w.CardNames)
		r.places[c.Index] = place
		w.CardNames = append(w.CardNames, c.Index)
		w.Machine.VRAMMiB = max(w.Machine.VRAMMiB, c.TotalMiB)
		foreign := c.ForeignMiB
		if c.IdleForeignMiB < r.state.Rules.IdleThresholdMiB {
			foreign = c.IdleForeignMiB // a desktop does not count
		}
		if foreign > 0 {
			w.Foreign = append(w.Foreign, Foreign{Card: place, MiB: foreign})
		}
	}
	w.Machine.GPUs = len(w.CardNames)
	if w.Machine.GPUs == 0 || w.Machine.VRAMMiB == 0 {
		return errors.New("no GPU in this snapshot takes jobs")
	}
	return nil
}

// begin finds the earliest submission, the typical duration of a job, and the
// limits of arrays, which a snapshot has for queued jobs only.
func (r *snapshotReader) begin() {
	s := r.state
	r.origin = s.Now
	earlier := func(t time.Time) {
		if !t.IsZero() && t.Before(r.origin) && s.Now.Sub(t) < 10*365*24*time.Hour {
			r.origin = t
		}
	}
	var runs []time.Duration
	for i := range s.Allocations {
		h := &s.Allocations[i]
		earlier(h.Started.Add(-h.Waited))
		if h.Run.Mid > 0 {
			runs = append(runs, h.Run.Mid)
		}
	}
	for _, p := range s.Queue.First(s.Queue.Len()) {
		earlier(p.Since)
		if p.ArrayLimit > 0 {
			r.atOnce[p.Array] = p.ArrayLimit
		}
		if p.Run.Mid > 0 {
			runs = append(runs, p.Run.Mid)
		}
	}
	r.work.Typical = unknownRun
	if len(runs) > 0 {
		slices.Sort(runs)
		r.work.Typical = runs[len(runs)/2]
	}
	r.work.Begin = r.millis(s.Now)
}

// groups takes over the limits of groups.
func (r *snapshotReader) groups() {
	for name, of := range r.state.Groups {
		if of.Limit <= 0 {
			continue
		}
		r.work.GroupLimits[name] = of.Limit
		for _, id := range of.Running {
			r.member[id] = name.Name
		}
	}
}

// millis is a moment in the replay's time; an unknown one is that of the
// snapshot.
func (r *snapshotReader) millis(t time.Time) Millis {
	if t.IsZero() || t.After(r.state.Now) {
		t = r.state.Now
	}
	return max(0, MillisOf(t.Sub(r.origin).Seconds()))
}

func lasting(d time.Duration) Millis {
	return min(max(1, MillisOf(d.Seconds())), MaxDuration)
}

// held adds a running job, which goes on for its estimated duration. A job of
// another berth only occupies its cards, for the typical duration of a job.
func (r *snapshotReader) held(h *sched.Allocation) {
	var cards []int
	for _, index := range h.Cards {
		if place, known := r.places[index]; known {
			cards = append(cards, place)
		}
	}
	w := r.work
	switch {
	case h.Other:
		for i, place := range cards {
			mib := w.Machine.VRAMMiB
			if !h.Alone && i < len(h.BudgetMiB) {
				mib = h.BudgetMiB[i]
			}
			w.Foreign = append(w.Foreign, Foreign{Card: place, MiB: mib, From: w.Begin, Until: w.Begin + lasting(r.work.Typical)})
		}
		return
	case len(cards) == 0:
		w.LeftOut++
		return
	}
	ran := max(0, r.state.Now.Sub(h.Started))
	if h.Started.IsZero() {
		ran = 0
	}
	left := less(h.Run, h.RanBefore).Left(ran, h.Limit).Mid
	j := Job{
		ID: h.Job, User: h.User, Priority: h.Priority, GPUs: len(cards), Share: h.Share, CPUs: h.CPUs, MemMiB: h.MemMiB,
		Submit: r.millis(h.Started.Add(-h.Waited)), Duration: lasting(ran + left),
	}
	if !h.Alone && h.Share == 0 && len(h.BudgetMiB) > 0 {
		j.VRAMMiB = slices.Max(h.BudgetMiB)
	}
	if array := (&job.Job{ID: h.Job}).Array(); r.atOnce[array] > 0 {
		j.Array, j.AtOnce = array, r.atOnce[array]
	}
	j.Group = r.member[h.Job]
	w.Running = append(w.Running, Running{Job: len(w.Jobs), Cards: cards, Ran: min(r.work.Begin, MillisOf(ran.Seconds()))})
	w.add(j, "job "+j.ID)
}

// pending adds a queued job with what it asked for. A job of a paused group is left
// out: nobody knows when the group is resumed.
func (r *snapshotReader) pending(p *sched.Pending) {
	of := r.state.Groups[sched.GroupName{User: p.User, Name: p.Group}]
	switch {
	case p.Request.GPUs == 0:
		r.work.LeftOut++
		return
	case of.PausedBy != "":
		r.work.Paused++
		r.work.LeftOut++
		return
	}
	ids, allow, can := r.cardsOf(&p.Request)
	if !can {
		r.work.KeptOff++
		r.work.LeftOut++
		return
	}
	run := less(p.Run, p.RanBefore).Mid
	switch {
	case p.Run.Mid > 0:
		run = max(run, time.Second)
	case p.Limit > 0:
		run = min(r.work.Typical, p.Limit)
		r.work.Unknown++
	default:
		run = r.work.Typical
		r.work.Unknown++
	}
	r.work.add(Job{
		ID: p.Job, User: p.User, Priority: p.Priority, GPUs: p.Request.GPUs, Share: p.Request.Share, VRAMMiB: p.Request.VRAMMiB, CPUs: p.Request.CPUs, MemMiB: p.Request.MemMiB,
		IDs: ids, Allow: allow, Array: p.Array, AtOnce: p.ArrayLimit, Group: p.Group, Submit: r.millis(p.Since), Duration: lasting(run),
	}, "job "+p.Job)
}

// cardsOf are the cards of the replay that a job names, as exactly these or as
// any of these, and whether enough of them take jobs.
func (r *snapshotReader) cardsOf(request *sched.Request) (ids, allow []int, can bool) {
	named, exactly := request.Named(r.state.Cards)
	if named == nil {
		return nil, nil, true
	}
	var places []int
	for _, index := range named {
		if place, known := r.places[index]; known {
			places = append(places, place)
		}
	}
	if exactly {
		return places, nil, len(places) == len(named)
	}
	return nil, places, len(places) >= request.GPUs
}

// less is the rest of an estimate for a job that has run before.
func less(s sched.Estimate, served time.Duration) sched.Estimate {
	return sched.Estimate{Low: max(0, s.Low-served), Mid: max(0, s.Mid-served), High: max(0, s.High-served), Guess: s.Guess}
}

// usage is each user's usage in ended jobs: the replay adds that of running jobs
// itself.
func (r *snapshotReader) usage() {
	r.work.Usage = map[string]float64{}
	for user, seconds := range r.state.Usage {
		r.work.Usage[user] = seconds
	}
	scale := r.state.Host.Scale(len(r.state.Cards))
	for i := range r.state.Allocations {
		h := &r.state.Allocations[i]
		if seconds, counted := r.work.Usage[h.User]; counted && !h.Other {
			ran := max(0, r.state.Now.Sub(h.Started).Seconds())
			r.work.Usage[h.User] = max(0, seconds-h.FairWeight(scale)*(ran+r.state.FairQuantum))
		}
	}
}

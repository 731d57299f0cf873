package cli

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"berth/internal/job"
	"berth/internal/problem"
	"berth/internal/sched"
	"berth/internal/sim"
)

// unknownRun is how long a queued job is taken to run of which nothing is
// known, in a snapshot that knows nothing of any other.
const unknownRun = time.Hour

// maxSnapshotBytes bounds a snapshot that is read.
const maxSnapshotBytes = 1 << 30

// openWorkload reads a trace or a snapshot by its name; - is standard input.
// Which it is, its first byte says: a trace begins with the name of a column.
func openWorkload(name string, stdin io.Reader) (*workload, error) {
	from, shown := stdin, standardInput
	if name != "-" {
		file, err := os.Open(name)
		if err != nil {
			return nil, problem.Newf(problem.Invalid, "berth simulate --help shows the columns of a trace", "trace: %v", err)
		}
		defer file.Close()
		from, shown = file, name
	}
	r := bufio.NewReader(from)
	if !beginsAsJSON(r) {
		return readTrace(shown, r)
	}
	data, err := io.ReadAll(&bounded{from: r, left: maxSnapshotBytes})
	if err != nil {
		return nil, problem.Newf(problem.Invalid, "berth debug snapshot writes one", "%s: %v", shown, err)
	}
	state, err := sched.UnmarshalState(data)
	if err != nil {
		return nil, badSnapshot(shown, err)
	}
	return snapshotWorkload(filepath.Base(shown), &state)
}

// beginsAsJSON looks for the brace that a snapshot begins with, or that another
// program's JSON does.
func beginsAsJSON(r *bufio.Reader) bool {
	head, _ := r.Peek(64) // what cannot be read is told by who reads it
	head = bytes.TrimLeft(head, "\ufeff \t\r\n")
	return len(head) > 0 && (head[0] == '{' || head[0] == '[')
}

// standardInput is what - is called.
const standardInput = "standard input"

func badSnapshot(name string, err error) error {
	hint := "berth debug snapshot FILE writes a snapshot; a trace is CSV"
	if !errors.Is(err, sched.ErrNoSnapshot) {
		hint = "take it again with berth debug snapshot"
		if name != standardInput {
			hint += " " + name
		}
	}
	return problem.Newf(problem.Invalid, hint, "%s: %v", name, err)
}

// snapshotReader makes a workload of a snapshot.
type snapshotReader struct {
	state   *sched.State
	work    *workload
	origin  time.Time
	places  map[int]int    // of the cards, as a replay numbers them
	atOnce  map[string]int // of each array that has a limit and waits: how many tasks run at a time
	typical time.Duration
	unknown int // queued jobs of which nothing is known
	kept    int // jobs that name cards of which too few take jobs now
}

func snapshotWorkload(source string, s *sched.State) (*workload, error) {
	r := &snapshotReader{state: s, places: map[int]int{}, atOnce: map[string]int{}, work: &workload{source: source, fromSnapshot: true, rules: &s.Rules, estimates: sim.Perfect, limits: s.Limits, defaultLimit: s.DefaultLimit}}
	if err := r.cards(); err != nil {
		return nil, &problem.Problem{Kind: problem.Invalid, What: source + ": " + err.Error(), Hint: "cards that are paused or not well take no jobs; take it again when one does"}
	}
	r.begin()
	for i := range s.Held {
		r.held(&s.Held[i])
	}
	for _, p := range s.Queue.First(s.Queue.Len()) {
		r.pending(&p)
	}
	r.usage()
	r.tell()
	return r.work, nil
}

// cards numbers those that jobs are on or may be put on. Others' memory stays
// where it is for as long as the replay lasts.
func (r *snapshotReader) cards() error {
	busy := map[int]bool{}
	for i := range r.state.Held {
		for _, card := range r.state.Held[i].Cards {
			busy[card] = true
		}
	}
	w, skipped := r.work, 0
	for i := range r.state.Cards {
		c := &r.state.Cards[i]
		usable := c.Health == sched.HealthOK && !c.Paused && c.TotalMiB > 0
		if !usable && !busy[c.Index] || len(w.cardNames) == sim.MaxGPUs {
			skipped++
			continue
		}
		place := len(w.cardNames)
		r.places[c.Index] = place
		w.cardNames = append(w.cardNames, c.Index)
		w.machine.VRAMMiB = max(w.machine.VRAMMiB, c.TotalMiB)
		foreign := c.ForeignMiB
		if c.IdleForeignMiB < r.state.Rules.IdleThresholdMiB {
			foreign = c.IdleForeignMiB // a desktop keeps nobody off
		}
		if foreign > 0 {
			w.foreign = append(w.foreign, sim.Foreign{Card: place, MiB: foreign})
		}
	}
	if skipped > 0 {
		w.notes = append(w.notes, fmt.Sprintf("%s without a job that %s none now %s left out", plural(skipped, "card"), verbOf(skipped, "take"), isAre(skipped)))
	}
	w.machine.GPUs = len(w.cardNames)
	if w.machine.GPUs == 0 || w.machine.VRAMMiB == 0 {
		return errors.New("no card takes jobs in this snapshot")
	}
	return nil
}

// begin finds the first moment that matters, how long a job takes as a rule,
// and which arrays have limits: of what runs a snapshot does not say it.
func (r *snapshotReader) begin() {
	s := r.state
	r.origin = s.Now
	earlier := func(t time.Time) {
		if !t.IsZero() && t.Before(r.origin) && s.Now.Sub(t) < 10*365*24*time.Hour {
			r.origin = t
		}
	}
	var runs []time.Duration
	for i := range s.Held {
		h := &s.Held[i]
		earlier(h.Started.Add(-h.Waited))
		if h.Run.Mid > 0 {
			runs = append(runs, h.Run.Mid)
		}
	}
	for _, p := range s.Queue.First(s.Queue.Len()) {
		earlier(p.Since)
		if p.PoolLimit > 0 {
			r.atOnce[p.Pool] = p.PoolLimit
		}
		if p.Run.Mid > 0 {
			runs = append(runs, p.Run.Mid)
		}
	}
	r.typical = unknownRun
	if len(runs) > 0 {
		slices.Sort(runs)
		r.typical = runs[len(runs)/2]
	}
	r.work.begin = r.millis(s.Now)
}

// millis is a moment as the replay counts; what is not known is the snapshot's.
func (r *snapshotReader) millis(t time.Time) sim.Millis {
	if t.IsZero() || t.After(r.state.Now) {
		t = r.state.Now
	}
	return max(0, sim.MillisOf(t.Sub(r.origin).Seconds()))
}

func lasting(d time.Duration) sim.Millis {
	return min(max(1, sim.MillisOf(d.Seconds())), sim.MaxDuration)
}

// held goes on for as long as is expected. Another berth's job is in the way
// of others, for as long as jobs take as a rule, and no more.
func (r *snapshotReader) held(h *sched.Held) {
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
			mib := w.machine.VRAMMiB
			if !h.Alone && i < len(h.BudgetMiB) {
				mib = h.BudgetMiB[i]
			}
			w.foreign = append(w.foreign, sim.Foreign{Card: place, MiB: mib, From: w.begin, Until: w.begin + lasting(r.typical)})
		}
		return
	case len(cards) == 0:
		w.leftOut++
		return
	}
	ran := max(0, r.state.Now.Sub(h.Started))
	if h.Started.IsZero() {
		ran = 0
	}
	left := less(h.Run, h.Served).Left(ran, h.Limit).Mid
	j := sim.Job{
		ID: h.Job, User: h.User, Priority: h.Priority, GPUs: len(cards), Share: h.Share,
		Submit: r.millis(h.Started.Add(-h.Waited)), Duration: lasting(ran + left),
	}
	if !h.Alone && h.Share == 0 && len(h.BudgetMiB) > 0 {
		j.VRAMMiB = slices.Max(h.BudgetMiB)
	}
	if array := (&job.Job{ID: h.Job}).Array(); r.atOnce[array] > 0 {
		j.Array, j.AtOnce = array, r.atOnce[array]
	}
	w.running = append(w.running, sim.Running{Job: len(w.jobs), Cards: cards, Ran: min(r.work.begin, sim.MillisOf(ran.Seconds()))})
	r.add(j)
}

// pending is queued again with what it asked for.
func (r *snapshotReader) pending(p *sched.Pending) {
	if p.Request.GPUs == 0 {
		r.work.leftOut++
		return
	}
	ids, allow, can := r.cardsOf(&p.Request)
	if !can {
		r.kept++
		r.work.leftOut++
		return
	}
	run := less(p.Run, p.Served).Mid
	switch {
	case p.Run.Mid > 0:
		run = max(run, time.Second)
	case p.Limit > 0:
		run = min(r.typical, p.Limit)
		r.unknown++
	default:
		run = r.typical
		r.unknown++
	}
	r.add(sim.Job{
		ID: p.Job, User: p.User, Priority: p.Priority, GPUs: p.Request.GPUs, Share: p.Request.Share, VRAMMiB: p.Request.VRAMMiB,
		IDs: ids, Allow: allow, Array: p.Pool, AtOnce: p.PoolLimit, Submit: r.millis(p.Since), Duration: lasting(run),
	})
}

// cardsOf is which cards of the replay a job restricts itself to, exactly or
// to any of them, and whether enough of these take jobs.
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

// less is how long is left of what was expected, for one that ran before.
func less(s sched.Span, served time.Duration) sched.Span {
	return sched.Span{Low: max(0, s.Low-served), Mid: max(0, s.Mid-served), High: max(0, s.High-served)}
}

func (r *snapshotReader) add(j sim.Job) {
	w := r.work
	w.jobs = append(w.jobs, j)
	w.places = append(w.places, "job "+j.ID)
}

// usage is what users had in jobs that are over: a replay counts what runs by
// itself.
func (r *snapshotReader) usage() {
	r.work.usage = map[string]float64{}
	for user, seconds := range r.state.Usage {
		r.work.usage[user] = seconds
	}
	for i := range r.state.Held {
		h := &r.state.Held[i]
		if seconds, counted := r.work.usage[h.User]; counted && !h.Other {
			ran := max(0, r.state.Now.Sub(h.Started).Seconds())
			r.work.usage[h.User] = max(0, seconds-h.FairWeight()*(ran+r.state.FairQuantum))
		}
	}
}

// tell says what was assumed, and what is not replayed.
func (r *snapshotReader) tell() {
	w := r.work
	w.why = "without a GPU " + isAre(w.leftOut) + " left out"
	if r.kept > 0 {
		w.why = "without a GPU, or for cards that take none now, " + isAre(w.leftOut) + " left out"
	}
	w.assumed = fmt.Sprintf("It goes on from the snapshot of %s: what runs ends when it is expected to, and no job comes after it.", r.state.Now.Format(time.DateTime))
	if r.unknown > 0 {
		note := fmt.Sprintf("%s of which nothing is known %s taken to run for %s", plural(r.unknown, "queued job"), isAre(r.unknown), span(r.typical))
		w.notes = append(w.notes, note)
		w.assumed += " " + note + "."
	}
}

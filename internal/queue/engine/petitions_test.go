package engine

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"berth/internal/job"
	"berth/internal/machine/keep"
	"berth/internal/queue/engine/cards"
	"berth/internal/queue/engine/journal"
	"berth/internal/queue/engine/launch"
	"berth/internal/queue/store"
)

// This file is the world's people: what they ask of the engine, and what they
// were promised.

type people struct {
	promised map[string]bool // jobs whose acceptance was answered
	denied   map[string]bool // jobs whose refusal was
	again    map[string]bool // jobs that somebody wanted run again
	meta     map[string]string
}

func newPeople() people {
	return people{promised: map[string]bool{}, denied: map[string]bool{}, again: map[string]bool{}, meta: map[string]string{}}
}

// ask has people come with requests, as they do between two rounds.
func (w *world) ask(e *Engine) {
	id := strconv.Itoa(1 + w.rng.IntN(12))
	if w.chance(50) {
		e.at(w.now).requests.Cancel(id, "a person asked")
	}
	if w.chance(60) {
		e.at(w.now).queue.Hold(id, "ann")
	}
	if w.chance(40) {
		e.at(w.now).queue.Unhold(id, "ann")
	}
	if w.chance(40) && e.at(w.now).requests.Requeue(id, "ann", time.Duration(w.rng.IntN(3))*time.Second) {
		w.people.again[id] = true
	}
	w.askParking(e, id)
	if w.chance(80) {
		e.at(w.now).health.Pause(w.rng.IntN(w.cards), w.rng.IntN(2) == 0, "root")
	}
	if w.chance(60) {
		w.runAgain(e, id)
	}
	if j := e.at(w.now).line.Roster.Get(id); j != nil && j.Leaving() && w.chance(4) {
		e.at(w.now).requests.Cancel(j.PreemptedFor, "nobody has to make room for it")
	}
	if w.chance(30) && !w.stopping {
		w.accept(e)
	}
}

// accept submits one or two jobs.
func (w *world) accept(e *Engine) {
	jobs := []*job.Job{w.randomJob(0)}
	if w.rng.IntN(2) == 0 {
		jobs = append(jobs, w.randomJob(0))
	}
	e.at(w.now).queue.Number(jobs)
	for _, j := range jobs {
		j.User, j.Rank, j.Held = "ann", j.Seq, w.rng.IntN(4) == 0
		if w.people.promised[j.ID] {
			w.wrong("the number of job %s was given out twice", j.ID)
		}
		delete(w.people.denied, j.ID) // another had that number, and nobody was told of it
	}
	e.at(w.now).requests.Accept(journal.Batch{Jobs: jobs, Done: func(err error) {
		for _, j := range jobs {
			switch {
			case err != nil:
				w.people.denied[j.ID] = true
			case w.rows[j.ID] == nil:
				w.wrong("job %s was promised before it was on disk", j.ID)
			default:
				w.people.promised[j.ID] = true
			}
		}
	}})
}

// runAgain queues a job that is over, if nobody waits for how it ended.
func (w *world) runAgain(e *Engine, id string) {
	row := w.rows[id]
	live := e.at(w.now).line.Roster.Has(id)
	if row == nil || live || !row.State.Terminal() || len(row.Spec.After) > 0 || w.givenUp[id] {
		return
	}
	if _, unwritten := e.at(w.now).line.Roster.Find(id); unwritten {
		return
	}
	for _, other := range w.rows {
		if slices.ContainsFunc(other.Spec.After, func(d job.Dependency) bool { return d.Job == id }) {
			return
		}
	}
	w.people.again[id] = true
	e.at(w.now).queue.Again([]*job.Job{row.Clone()})
}

// settleAll is the calm after the storm: what was held is released, and what
// was paused resumed.
func (w *world) settleAll(e *Engine) {
	e.at(w.now).line.Roster.Each(0, func(j *job.Job) bool {
		if j.Held && j.State == job.Queued {
			e.at(w.now).queue.Unhold(j.ID, "ann")
		}
		e.at(w.now).parker.Unpark(j.ID, "ann")
		return true
	})
	for index := range w.cards {
		e.at(w.now).health.Pause(index, false, "root")
	}
}

// order is how a job is started; its user may not be known just now.
func (w *world) order(j *job.Job, _ launch.CardOf) (keep.Order, error) {
	if w.chance(40) {
		return keep.Order{}, fmt.Errorf("look up ann: %w", ErrNotNow)
	}
	return keep.Order{Job: j.ID, Attempt: j.Attempt.Number}, nil
}

// checkTx holds what is written against what was asked for: nothing starts
// that is held, or on a card that is paused.
func (w *world) checkTx(tx store.Tx) {
	meta := maps.Clone(w.people.meta)
	maps.Copy(meta, tx.Meta)
	paused := map[string]string{}
	if text := meta[cards.PausedKey]; text != "" {
		if err := json.Unmarshal([]byte(text), &paused); err != nil {
			w.wrong("the paused cards are written as %q", text)
		}
	}
	for _, j := range tx.Put {
		before := w.rows[j.ID]
		if j.State != job.Running || before != nil && before.State == job.Running && before.Attempt.Number == j.Attempt.Number {
			continue
		}
		if j.Held {
			w.wrong("job %s starts, though it is held", j.ID)
		}
		for _, uuid := range j.Grant.UUIDs {
			if _, is := paused[uuid]; is {
				w.wrong("job %s starts on %s, which is paused", j.ID, uuid)
			}
		}
	}
	w.people.meta = meta
}

// auditPromises: what was promised is there, and what was denied is not.
func (w *world) auditPromises() error {
	for id := range w.people.promised {
		if w.rows[id] == nil {
			return fmt.Errorf("job %s was promised, and is not there", id)
		}
	}
	for id := range w.people.denied {
		if w.rows[id] != nil {
			return errors.New("job " + id + " was denied, and is there")
		}
	}
	return nil
}

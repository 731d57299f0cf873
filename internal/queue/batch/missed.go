package batch

import (
	"context"
	"sync/atomic"
	"time"

	"berth/internal/api"
	"berth/internal/job"
)

// missed is what the stream of events may not have told: what happened before it was
// connected, or while it was not and is no longer stored.
type missed struct {
	maybe atomic.Bool
	found map[string]job.State // the jobs that were found to differ at the last poll; empty: gone
}

// look asks for the jobs if something may be missed, and takes in what two polls
// find: at the first, its event may be on its way.
func (m *missed) look(ctx context.Context, f *follower) {
	if !m.maybe.Swap(false) {
		return
	}
	began, before, there := time.Now(), m.found, map[string]bool{}
	m.found = map[string]job.State{}
	err := f.theJobs(ctx, func(v *job.View) {
		there[v.ID] = true
		if kind := f.jobs.untold(v); kind == "" {
			return
		} else if before[v.ID] == v.State {
			f.hear(api.Event{Time: time.Now(), Kind: kind, Text: some(v.Reason), Job: v})
			f.jobs.byID[v.ID].asOf = began
			return
		}
		m.found[v.ID] = v.State
	})
	if err != nil {
		m.maybe.Store(true) // the next time
		return
	}
	for _, id := range f.jobs.gone(there) {
		_, found := before[id]
		switch {
		case !found:
			m.found[id] = ""
		case f.jobs.inFile(f.jobs.byID[id]): // nobody knows how it ended, if it did
			f.hear(api.Event{Time: time.Now(), Kind: job.EventEnded, Job: &job.View{
				ID: id, Name: "job" + id, State: job.Failed, Outcome: new(job.Lost), Reason: new("the queue no longer has it"),
			}})
		default:
			f.jobs.forget(id)
			delete(f.view.jobs, id)
		}
	}
	if len(m.found) > 0 {
		m.maybe.Store(true)
	}
}

// settled reads from the store of an own queue that has ended how its jobs ended, and
// reports whether all of them have. Such a queue does not wait long for a run that was
// stopped or suspended.
func (m *missed) settled(ctx context.Context, f *follower) bool {
	if f.link.Own.Read == nil {
		return false
	}
	f.link.Client = f.link.Own.Read()
	for range 2 { // it differs from what was heard, and does not change any more
		m.maybe.Store(true)
		m.look(ctx, f)
	}
	return !m.maybe.Load() && f.jobs.counts.queued+f.jobs.counts.running == 0
}

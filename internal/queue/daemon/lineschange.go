package daemon

import (
	"cmp"
	"context"
	"slices"
	"strconv"

	"berth/internal/job"
	"berth/internal/queue/engine"
	"berth/internal/queue/store"
)

// checkKnown holds what the jobs that existed before are to become against the
// limits and the machine, as if they were submitted.
func (l *lines) checkKnown(ctx context.Context) error {
	again, text, environ := 0, 0, ""
	if l.environ != nil {
		environ = store.BlobName(l.environ)
	}
	var specs []job.Spec
	var at []int
	seen := map[requestKey]bool{}
	for i, row := range l.rows {
		switch {
		case row == nil || l.batch.Lines[i].Cancel:
			continue
		case l.other[i]:
			text += l.all[i].Spec.TextBytes() - row.Spec.TextBytes()
		case row.State.Terminal() && l.runsAgain(i):
			again, text = again+1, text+l.all[i].Spec.TextBytes()
		default:
			continue
		}
		if key := requestKeyOf(&l.all[i].Spec); !seen[key] {
			seen[key], specs, at = true, append(specs, l.all[i].Spec), append(at, i)
		}
	}
	if len(specs) == 0 {
		return nil
	}
	var refusal error
	err := l.h.svc.Do(ctx, func(t *engine.Turn) {
		if full := room(t, l.cfg, l.caller, l.caller.Name, again); full != nil {
			refusal = full
			return
		}
		if full := roomFor(t, l.cfg, l.caller.Name, text, environ); full != nil {
			refusal = full
			return
		}
		var bad mistakes
		for which, why := range t.Explain().Infeasible(l.caller.Name, specs...) {
			if !l.endsHere(why) && !bad.add(atLine(l.batch, at[which], neverFits(why))) {
				break
			}
		}
		refusal = bad.all()
	})
	return cmp.Or(err, refusal)
}

// withdraw removes the queued jobs of deleted lines, and those that run are not
// queued again. The engine knows which are queued now.
func (l *lines) withdraw(ctx context.Context) error {
	l.reply.Withdrawn = nil
	for _, row := range l.rows {
		if row != nil && !row.State.Terminal() {
			l.h.deleted.unwanted.Delete(row.ID) // its line may be back
		}
	}
	for some := range slices.Chunk(l.gone, actJobs) {
		if err := l.h.svc.Change(ctx, func(t *engine.Turn) {
			for _, line := range some {
				j := t.Queue().Queued(line.id)
				if j == nil {
					l.h.deleted.letRun(t, line.id)
					continue
				}
				if j.Attempt.Number == 0 && !j.HandedOver() {
					l.h.deleted.keep(t, line.key, line.id)
				}
				t.Queue().Withdraw(line.id)
				l.reply.Withdrawn = append(l.reply.Withdrawn, line.id)
			}
		}); err != nil {
			return err
		}
	}
	return nil
}

// runAgain queues jobs that have ended, all in one turn: they may wait for one
// another. One that waits for a new line is held until that exists.
func (l *lines) runAgain(ctx context.Context) error {
	var again []*job.Job
	var at []int
	for i, row := range l.rows {
		if row == nil || !row.State.Terminal() || !l.runsAgain(i) {
			continue
		}
		j, line := row.Clone(), l.all[i]
		if row.Spec.VRAMMiB != line.Spec.VRAMMiB || row.Spec.VRAMAuto != line.Spec.VRAMAuto {
			j.VRAMMiB = line.Spec.VRAMMiB
		}
		j.Spec, j.Key, j.Environ, j.Umask, j.TextGone = l.spec(i), line.Key, line.Environ, line.Umask, false
		j.Held = len(l.after[i]) > 0
		again, at = append(again, j), append(at, i)
	}
	if len(again) == 0 {
		return nil
	}
	return l.h.svc.Change(ctx, func(t *engine.Turn) {
		again = slices.DeleteFunc(again, func(j *job.Job) bool { return t.Jobs().Has(j.ID) })
		for _, j := range again {
			j.Rank = t.Queue().TakeRank()
			t.Queue().Changes.Blob(j.Environ, l.environ)
		}
		t.Queue().Again(again)
		l.h.twins.add(again)
		for _, i := range at {
			if j := t.Queue().Queued(l.rows[i].ID); j != nil {
				l.rows[i] = j.Clone()
			}
		}
	})
}

// order gives the waiting jobs of the file its order, among the places that they
// have. One that was sent to the end of the queue stays there.
func (l *lines) order() {
	var at []int
	var ranks []int64
	for i, row := range l.rows {
		switch {
		case l.batch.Lines[i].Cancel || l.request.DryRun:
		case row == nil:
			at, ranks = append(at, i), append(ranks, l.all[i].Rank)
		case row.State == job.Queued && row.Requeues == 0:
			at, ranks = append(at, i), append(ranks, row.Rank)
		}
	}
	if slices.IsSorted(ranks) {
		return // most often, lines were only added at the end
	}
	slices.Sort(ranks)
	for k, i := range at {
		if l.ranks[i] = ranks[k]; l.rows[i] == nil {
			l.all[i].Rank = ranks[k] // it is not submitted yet
		}
	}
}

// spec is what the job of a line is to be, as far as the new ones that it waits for
// exist.
func (l *lines) spec(i int) job.Spec {
	spec := l.all[i].Spec
	for _, dep := range l.after[i] {
		at, _ := strconv.Atoi(dep.Job) // resolve wrote it
		if dep.Job = l.reply.Jobs[at].ID; dep.Job != "" {
			spec.After = append(slices.Clone(spec.After), dep)
		}
	}
	return spec
}

// markedCancel is why such a job ended.
const markedCancel = "its line is marked cancel"

// change makes the jobs match their lines.
func (l *lines) change(ctx context.Context) error {
	var changed []int
	for i, row := range l.rows {
		marked := l.batch.Lines[i].Cancel
		switch {
		case row == nil && marked, row != nil && marked && !row.State.Terminal():
			changed = append(changed, i)
		case row == nil || row.State != job.Queued:
		case l.other[i] || l.after[i] != nil || l.ranks[i] != 0 && l.ranks[i] != row.Rank:
			changed = append(changed, i)
		}
	}
	for some := range slices.Chunk(changed, actJobs) {
		if err := l.h.svc.Change(ctx, func(t *engine.Turn) {
			for _, i := range some {
				l.changeOne(t, i, l.reply.Jobs[i].ID)
			}
		}); err != nil {
			return err
		}
	}
	return nil
}

func (l *lines) changeOne(t *engine.Turn, i int, id string) {
	j := t.Queue().Queued(id)
	switch {
	case l.batch.Lines[i].Cancel:
		if l.rows[i] == nil && j != nil {
			j.Held = false // it was only held until now
		}
		t.Requests().Cancel(id, markedCancel)
	case j == nil:
		return // it has started
	default:
		j.Key, j.Held = l.all[i].Key, j.Held && !l.reply.Jobs[i].Again
		t.Queue().Capture(j, l.all[i].Environ, l.environ, l.all[i].Umask)
		t.Queue().Edit(id, l.spec(i), cmp.Or(l.ranks[i], j.Rank))
	}
	if now, found := t.Jobs().Find(id); found && !l.reply.Jobs[i].Again {
		l.reply.Jobs[i] = l.known(i, now)
	}
}

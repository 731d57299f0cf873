package engine

import (
	"berth/internal/job"
	"berth/internal/sched"
)

// Rehearsal is a copy of what the next decision is based on, to try jobs without
// queueing them. It shares nothing with the engine, so trying needs no turn.
type Rehearsal struct {
	snapshot sched.Snapshot
	state    sched.State // computed on the first try: ordering a long queue takes a moment
	jobs     []sched.Pending
	blind    bool // no card was ever seen, so nothing can be refused
}

// Trial is what would happen to a job if it were queued now.
type Trial struct {
	Infeasible string // why it can never run here
	Starts     bool
	GPUs       []int
	Waits      string // why it would wait
}

// Rehearse prepares to try a user's jobs.
func (x *Explain) Rehearse(user string, specs ...job.Spec) *Rehearsal {
	r := &Rehearsal{snapshot: sched.NewSnapshot(x.State()), blind: x.cards.Unseen()}
	for i := range specs {
		spec := &specs[i]
		vramMiB := spec.VRAMMiB
		if spec.VRAMAuto {
			vramMiB, _ = x.Auto(user, spec)
		}
		trial := job.Job{User: user, Spec: *spec, VRAMMiB: vramMiB}
		r.jobs = append(r.jobs, sched.Pending{
			Job: "trial", User: user, Priority: spec.Priority, Rank: x.line.Roster.Last + 1, Seq: x.queue.NextSeq,
			Request: sched.NewRequest(*spec, vramMiB, x.cfg.Rules), Group: spec.Group,
			Since: x.changes.Now, Run: x.line.Span(&trial), Limit: x.cfg.Longest(spec), Preempt: x.cfg.GivesWay(&trial, "", x.line.Room),
		})
	}
	return r
}

// Try plans one of the jobs.
func (r *Rehearsal) Try(which int) Trial {
	if r.state.Queue == nil {
		r.state = r.snapshot.Restore()
	}
	p := r.jobs[which]
	if reason, ok := sched.FeasibleFor(r.state, p); !ok && !r.blind {
		return Trial{Infeasible: reason.String()}
	}
	r.state.Queue.Add(p)
	defer r.state.Queue.Remove(p.Job)
	for _, start := range sched.Decide(r.state).Starts {
		if start.Job == p.Job {
			return Trial{Starts: true, GPUs: start.Grant.GPUs}
		}
	}
	return Trial{Waits: sched.Explain(r.state, p.Job).String()}
}

// Together plans several of the jobs at once, in this order: which[i] is called
// names[i], and may be there more than once. All are feasible.
func (r *Rehearsal) Together(which []int, names []string) []Trial {
	if r.state.Queue == nil {
		r.state = r.snapshot.Restore()
	}
	s, at := r.state, map[string]int{}
	s.MaxStarts = 0
	for i, k := range which {
		p := r.jobs[k]
		p.Job, p.Rank, p.Seq = names[i], p.Rank+int64(i), p.Seq+int64(i)
		s.Queue.Add(p)
		at[p.Job] = i
	}
	trials := make([]Trial, len(which))
	for i, why := range sched.Sentences(s, names) {
		trials[i].Waits = why
	}
	for _, start := range sched.Decide(s).Starts {
		if i, tried := at[start.Job]; tried {
			trials[i] = Trial{Starts: true, GPUs: start.Grant.GPUs}
		}
	}
	for _, name := range names {
		s.Queue.Remove(name)
	}
	return trials
}

// Foresee is what the next decision would do with each of these queued jobs.
func (x *Explain) Foresee(ids []string) map[string]Trial {
	trials := make(map[string]Trial, len(ids))
	plan := sched.Decide(x.State())
	for _, refusal := range plan.Infeasible {
		trials[refusal.Job] = Trial{Infeasible: refusal.Reason.String()}
	}
	for _, start := range plan.Starts {
		trials[start.Job] = Trial{Starts: true, GPUs: start.Grant.GPUs}
	}
	var wait []string
	for _, id := range ids {
		if _, known := trials[id]; !known {
			wait = append(wait, id)
		}
	}
	for id, why := range x.Reasons(wait) {
		trials[id] = Trial{Waits: why}
	}
	return trials
}

package sim

import "berth/internal/predict"

// kind is what the job's command has in common with other runs of it; empty where
// nothing is learnt of commands. Commands of a workload are few.
func (g *guesser) kind(j *Job) string {
	if g.from != History || j.Command == "" || j.GPUs == 0 {
		return ""
	}
	kind, known := g.kinds[j.Command]
	if !known {
		kind = predict.Normalise(j.Command)
		g.kinds[j.Command] = kind
	}
	return kind
}

// learn takes in how a job ended, and expects anew how long those like it will run,
// as the engine does: what runs at once, and what waits after the first, the second,
// the fourth run and so on.
func (r *replay) learn(over *Job) {
	r.guess.learn(over)
	kind := r.guess.kind(over)
	if kind == "" {
		return
	}
	for _, a := range r.running {
		if r.guess.kind(a.job) == kind {
			a.held.Run = r.guess.span(a.job)
		}
	}
	waiting := r.alike[kind]
	if len(waiting) == 0 {
		return
	}
	r.learnt[kind]++
	if n := r.learnt[kind]; n&(n-1) == 0 {
		for place := range waiting {
			p := r.pending(place)
			if old, _ := r.queue.Get(p.Job); old.Run != p.Run {
				r.queue.Add(p)
			}
		}
	}
}

// lineUp notes that a job waits from which others like it can be told.
func (r *replay) lineUp(place int) {
	j, _ := r.jobAt(place)
	if kind := r.guess.kind(j); kind != "" {
		if r.alike[kind] == nil {
			r.alike[kind] = map[int]bool{}
		}
		r.alike[kind][place] = true
	}
}

// stepOut undoes lineUp.
func (r *replay) stepOut(place int) {
	j, _ := r.jobAt(place)
	kind := r.guess.kind(j)
	if delete(r.alike[kind], place); len(r.alike[kind]) == 0 {
		delete(r.alike, kind)
	}
}

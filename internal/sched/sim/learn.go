package sim

import "berth/internal/sched/predict"

// kind is the normalised form of the job's command; empty if estimates do not
// depend on commands. The cache is small: a workload has few commands.
func (g *estimator) kind(j *Job) string {
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

// learn adds an ended job to the history and renews the estimates of similar
// jobs, as the engine does: those of running jobs at once, those of waiting jobs
// after the first, the second, the fourth such job and so on. The job had its cards
// for so long.
func (r *replay) learn(ended *Job, ran Millis) {
	r.estimator.learn(ended, ran)
	kind := r.estimator.kind(ended)
	if kind == "" {
		return
	}
	for _, a := range r.running {
		if r.estimator.kind(a.job) == kind {
			a.held.Run = r.expected(a.job, &r.courses[r.order[a.place]])
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

// addAlike notes a waiting job under the kind of its command.
func (r *replay) addAlike(place int) {
	j, _ := r.jobAt(place)
	if kind := r.estimator.kind(j); kind != "" {
		if r.alike[kind] == nil {
			r.alike[kind] = map[int]bool{}
		}
		r.alike[kind][place] = true
	}
}

// removeAlike undoes addAlike.
func (r *replay) removeAlike(place int) {
	j, _ := r.jobAt(place)
	kind := r.estimator.kind(j)
	if delete(r.alike[kind], place); len(r.alike[kind]) == 0 {
		delete(r.alike, kind)
		delete(r.learnt, kind)
	}
}

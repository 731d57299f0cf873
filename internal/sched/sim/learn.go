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
// jobs, as the engine does. The job had its cards for so long.
func (r *replay) learn(ended *Job, ran Millis) {
	kind, waiting := r.estimator.learn(ended, ran)
	for _, a := range r.running {
		if kind != "" && r.estimator.kind(a.job) == kind {
			a.held.Run = r.estimator.expected(a.course)
		}
	}
	for c := range waiting {
		p := r.pending(c)
		if old, _ := r.queue.Get(p.Job); old.Run != p.Run {
			r.queue.Add(p)
		}
	}
}

// wait notes a waiting job under the kind of its command.
func (g *estimator) wait(c *course) {
	if kind := g.kind(c.job); kind != "" {
		if g.alike[kind] == nil {
			g.alike[kind] = map[*course]bool{}
		}
		g.alike[kind][c] = true
	}
}

// leave undoes wait.
func (g *estimator) leave(c *course) {
	kind := g.kind(c.job)
	if delete(g.alike[kind], c); len(g.alike[kind]) == 0 {
		delete(g.alike, kind)
		delete(g.learnt, kind)
	}
}

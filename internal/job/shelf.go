package job

import (
	"slices"
	"time"
)

// Shelf keeps queued jobs in little memory. Jobs of one kind share everything but
// what usually differs between them.
type Shelf struct {
	jobs  map[string]*shelved
	kinds map[likeness]*kind
}

// shelved is a job without what its kind says.
type shelved struct {
	of                           *kind
	id, key, name, shell, output string
	argv                         []string
	env                          []EnvVar
	after                        []Dependency
	trial                        *Trial // nil: none
	seq, rank                    int64
	vramMiB, declaredMiB         int64 // as the job has it now, and its spec
	submittedAt                  time.Time
}

// kind is what some jobs have in common; the fields of shelved are empty in it.
type kind struct {
	job  Job
	jobs int
}

// likeness finds the kind of a job without comparing it with many: the last one of
// those that are alike so far.
type likeness struct {
	user, environ, dir, batch, detail, gpuType, group string

	gpus, cpus, priority int
	share                float64
	memMiB               int64
	timeLimit            time.Duration
	held                 bool
}

func likenessOf(j *Job) likeness {
	s := &j.Spec
	return likeness{j.User, j.Environ, s.Dir, s.Batch, j.Detail, s.Type, s.Group, s.GPUs, s.CPUs, s.Priority, s.Share, s.MemMiB, s.TimeLimit, j.Held}
}

// NewShelf is an empty shelf.
func NewShelf() Shelf { return Shelf{jobs: map[string]*shelved{}, kinds: map[likeness]*kind{}} }

// Len counts the jobs.
func (s *Shelf) Len() int { return len(s.jobs) }

// Takes reports whether a job may be put away: it is queued, and never had an
// attempt.
func (s *Shelf) Takes(j *Job) bool {
	return j.State == Queued && j.Handover == Handover{} && j.Checkpoints == Checkpoints{} && j.Attempt.isNone() && j.Spec.Adopt == nil
}

// isNone reports whether it is the zero Attempt.
func (a *Attempt) isNone() bool {
	g, p := &a.Grant, &a.Parking
	return a.Number == 0 && a.Keep == "" && a.Stop == "" && a.PreemptAt.IsZero() && a.StartedAt.IsZero() && a.EndedAt.IsZero() &&
		a.ExitCode == nil && a.Signal == "" && a.PeakMiB == nil && a.AvgUtil == nil && a.OverGPUs == 0 && a.Log == "" &&
		a.IdleSince.IsZero() && a.LogDropped == 0 &&
		g.GPUs == nil && g.UUIDs == nil && g.BudgetMiB == 0 && g.CardMiB == 0 && g.Share == 0 && !g.Alone && !g.Exclusive &&
		p.Phase == "" && p.By == "" && p.CardMiB == nil && p.Since.IsZero() && p.Resumed.IsZero() && p.Served == 0 && p.Sliced == 0 &&
		p.Times == 0 && p.Refused == ""
}

func sameKind(a, b *Job) bool {
	return a.User == b.User && a.UID == b.UID && a.Environ == b.Environ && a.Umask == b.Umask && a.Held == b.Held &&
		a.Outcome == b.Outcome && a.Detail == b.Detail && a.NotBefore.Equal(b.NotBefore) && a.WaitsSince.Equal(b.WaitsSince) &&
		a.RetriesUsed == b.RetriesUsed && a.Requeues == b.Requeues && a.Preemptions == b.Preemptions &&
		a.PreemptedFor == b.PreemptedFor && a.TextGone == b.TextGone && a.Spec.sameTerms(&b.Spec)
}

// sameTerms compares everything but what is in shelved.
func (s *Spec) sameTerms(o *Spec) bool {
	return s.GPUs == o.GPUs && s.Share == o.Share && s.Type == o.Type && s.VRAMAuto == o.VRAMAuto && s.VRAMModel == o.VRAMModel &&
		slices.Equal(s.IDs, o.IDs) && slices.Equal(s.Allow, o.Allow) && s.Exclusive == o.Exclusive && s.CPUs == o.CPUs &&
		s.MemMiB == o.MemMiB && s.Pin == o.Pin && s.Inject == o.Inject && s.Priority == o.Priority && s.Interactive == o.Interactive &&
		s.TimeLimit == o.TimeLimit && s.WarnSignal == o.WarnSignal && s.WarnBefore == o.WarnBefore && s.OnTimeout == o.OnTimeout &&
		s.MaxRequeues == o.MaxRequeues && s.Retries == o.Retries && s.RetryOn == o.RetryOn && s.Grace == o.Grace &&
		s.Requeue == o.Requeue && s.Preemptible == o.Preemptible && s.Cap == o.Cap && s.Dir == o.Dir && s.Venv == o.Venv &&
		s.Conda == o.Conda && s.Setup == o.Setup && s.Pty == o.Pty && s.Export == o.Export &&
		s.ArrayLimit == o.ArrayLimit && s.Group == o.Group && s.Snapshot == o.Snapshot && slices.Equal(s.Notify, o.Notify) &&
		s.NoPark == o.NoPark && s.Checkpoint == o.Checkpoint && s.SavesTo == o.SavesTo && s.ParkTimeout == o.ParkTimeout && s.SlurmEnv == o.SlurmEnv && s.ArrayShape == o.ArrayShape &&
		s.To == o.To && s.Slurm == o.Slurm && s.Batch == o.Batch && s.CancelMarked == o.CancelMarked
}

// Alike reports whether two jobs that never had an attempt differ in no more than their
// numbers, ids, keys, ranks, names, memory as it is now, times of submission and shell
// lines.
func Alike(a, b *Job) bool {
	var s *Shelf
	x, y := &a.Spec, &b.Spec
	return x.VRAMMiB == y.VRAMMiB && sameKind(a, b) && x.Output == y.Output && slices.Equal(x.Argv, y.Argv) &&
		slices.Equal(x.Env, y.Env) && slices.Equal(x.After, y.After) && x.Trial.isNone() && y.Trial.isNone() && s.Takes(a) && s.Takes(b)
}

// Put copies a job, and replaces one with the same id.
func (s *Shelf) Put(j *Job) {
	s.Drop(j.ID)
	p := &shelved{
		id: j.ID, key: j.Key, name: j.Spec.Name, shell: j.Spec.Shell, argv: j.Spec.Argv, env: j.Spec.Env, after: j.Spec.After, output: j.Spec.Output,
		seq: j.Seq, rank: j.Rank, vramMiB: j.VRAMMiB, declaredMiB: j.Spec.VRAMMiB, submittedAt: j.SubmittedAt,
	}
	if !j.Spec.Trial.isNone() {
		trial := j.Spec.Trial
		p.trial = &trial
	}
	common := *j
	(&shelved{}).into(&common)
	p.of = s.kindOf(&common)
	p.of.jobs++
	s.jobs[j.ID] = p
}

func (s *Shelf) kindOf(common *Job) *kind {
	like := likenessOf(common)
	k := s.kinds[like]
	if k == nil || !sameKind(&k.job, common) {
		k = &kind{job: *common}
		s.kinds[like] = k
	}
	return k
}

// Look copies a job into j, and reports whether it is here.
func (s *Shelf) Look(id string, j *Job) bool {
	p, here := s.jobs[id]
	if here {
		*j = p.of.job
		p.into(j)
	}
	return here
}

func (p *shelved) into(j *Job) {
	j.ID, j.Key, j.Spec.Name, j.Spec.Shell, j.Spec.Argv, j.Spec.Env, j.Spec.After = p.id, p.key, p.name, p.shell, p.argv, p.env, p.after
	j.Spec.Output, j.Seq, j.Rank, j.SubmittedAt = p.output, p.seq, p.rank, p.submittedAt
	j.VRAMMiB, j.Spec.VRAMMiB = p.vramMiB, p.declaredMiB
	if j.Spec.Trial = (Trial{}); p.trial != nil {
		j.Spec.Trial = *p.trial
	}
}

// Has reports whether a job is here.
func (s *Shelf) Has(id string) bool { return s.jobs[id] != nil }

// Drop removes a job, if it is here.
func (s *Shelf) Drop(id string) {
	p, here := s.jobs[id]
	if !here {
		return
	}
	delete(s.jobs, id)
	if p.of.jobs--; p.of.jobs == 0 && s.kinds[likenessOf(&p.of.job)] == p.of {
		delete(s.kinds, likenessOf(&p.of.job))
	}
}

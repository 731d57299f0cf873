package sched

import (
	"cmp"
	"math"
	"time"
)

// Decayed is what GPU-seconds of this age count for now; a half-life of 0 means no
// decay. A negative age, after a clock was set back, changes nothing.
func Decayed(seconds map[string]float64, age, halfLife time.Duration) map[string]float64 {
	factor := 1.0
	if halfLife > 0 && age > 0 {
		factor = math.Exp2(-age.Hours() / halfLife.Hours())
	}
	left := make(map[string]float64, len(seconds))
	for user, s := range seconds {
		if s *= factor; s >= forgettable {
			left[user] = s
		}
	}
	return left
}

// Scale is what a CPU and a MiB of host memory count as in fair share, in GPUs: all
// CPUs of a machine, or all of its memory, count as all of its GPUs.
type Scale struct{ perCPU, perMiB float64 }

// Scale is that of a machine with this host and that many GPUs. Where nothing is
// known of the host, a CPU counts little.
func (h Host) Scale(gpus int) Scale {
	whole := float64(max(1, gpus))
	s := Scale{perCPU: cpuWeight}
	if h.CPUs > 0 {
		s.perCPU = whole / float64(h.CPUs)
	}
	if h.MemMiB > 0 {
		s.perMiB = whole / float64(h.MemMiB)
	}
	return s
}

// weight is the largest of a job's parts of the machine, in GPUs: other jobs can use
// the rest of what it leaves, but not what it has most of.
func (s Scale) weight(gpus float64, cpus int, memMiB int64) float64 {
	return max(gpus, s.perCPU*float64(cpus), s.perMiB*float64(memMiB))
}

// FairWeight is how many GPUs the request counts as in fair share.
func (r *Request) FairWeight(s Scale) float64 { return s.weight(r.CountedGPUs(), r.CPUs, r.MemMiB) }

// FairWeight is how many GPUs a running job counts as. Usage is this times the
// seconds it runs.
func (h *Allocation) FairWeight(s Scale) float64 { return s.weight(h.CountedGPUs(), h.CPUs, h.MemMiB) }

// weight is how large the request is beside others, whatever the machine.
func (r *Request) weight() float64 { return gpuWeight(r.CountedGPUs(), r.CPUs) }

// weight is the same by what was allocated: a job that takes more than it asked for
// is not harder to preempt.
func (h *Allocation) weight() float64 { return gpuWeight(h.declaredGPUs(), h.CPUs) }

func gpuWeight(gpus float64, cpus int) float64 {
	if gpus > 0 {
		return gpus
	}
	return cpuWeight * float64(cpus)
}

// charge adds a start to the user's usage. It never lowers it: the walk relies on
// users only moving back.
func (a *account) charge(s *State, g *class) {
	if s.Rules.Fair && s.FairQuantum > 0 {
		a.turn += s.FairQuantum * max(0, g.request.FairWeight(a.scale))
	}
}

// orderKey is a job's place in the order: priority, then service class, then its user's
// usage, then its own entry, which is total.
type orderKey struct {
	account *account
	entry   *entry
}

func (a orderKey) compare(b orderKey) int {
	if c := cmp.Compare(b.entry.priority, a.entry.priority); c != 0 {
		return c
	}
	if c := cmp.Compare(a.entry.service, b.entry.service); c != 0 {
		return c
	}
	if a.account != b.account && a.account.rules.inTurn(a.entry.service) {
		if c := cmp.Compare(a.account.turn, b.account.turn); c != 0 {
			return c
		}
	}
	return a.entry.compare(b.entry)
}

// Order gives the ids of the first n waiting jobs, or of all if there are fewer, as
// InOrder visits them.
func Order(s State, n int) []string {
	if s.Queue == nil {
		return nil
	}
	jobs := make([]string, 0, min(max(n, 0), s.Queue.Len()))
	InOrder(s, func(job string) bool {
		if len(jobs) == cap(jobs) {
			return false
		}
		jobs = append(jobs, job)
		return true
	})
	return jobs
}

// InOrder visits the waiting jobs in the order in which they would be considered if
// each one in front started, until visit returns false: under fair share the users
// take turns. Otherwise it is the order of First.
func InOrder(s State, visit func(job string) bool) {
	if s.Queue != nil {
		inTurn(&s, func(h *head) bool { return visit(h.job) })
	}
}

// Position is a job's place in Order, starting at 1; 0 if it is not queued. Under
// fair share it walks up to the job: use Order for many.
func Position(s State, job string) int {
	if _, found := s.Queue.member(job); !found {
		return 0
	}
	if !s.Rules.Fair && len(s.Queue.overdue(&s)) == 0 {
		return s.Queue.Position(job)
	}
	position := 0
	inTurn(&s, func(h *head) bool {
		position++
		return h.job != job
	})
	return position
}

// inTurn visits the queue as if each job started when it comes up, until visit
// returns false.
func inTurn(s *State, visit func(*head) bool) {
	w := s.Queue.walk(s)
	first := map[string]bool{}
	for _, m := range s.Queue.overdue(s) {
		h := m.class.head(m.entry)
		w.accountOf(m.class.userQueue).charge(s, m.class)
		if first[h.job] = true; !visit(&h) {
			return
		}
	}
	for next := w.next(); next != nil; next = w.next() {
		if !first[next.job] {
			if !visit(next) {
				return
			}
			w.account().charge(s, next.class)
		}
		w.again()
	}
}

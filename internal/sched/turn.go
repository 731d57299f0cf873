package sched

import (
	"cmp"
	"math"
	"time"
)

// Decayed is what GPU-seconds of that age count for now, where half of them are
// forgotten with each half-life; none are where that is 0. An age below zero, as
// of a clock that was set back, makes nothing grow.
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

// FairWeight is how many GPUs the request counts as where users take turns:
// what it counts as against a limit, or for a CPU job a little for each cpu.
func (r *Request) FairWeight() float64 { return fairWeight(r.CountedGPUs(), r.CPUs) }

// FairWeight is how many GPUs a running job counts as. Times the seconds it
// runs, it is what Usage is made of.
func (h *Held) FairWeight() float64 { return fairWeight(h.CountedGPUs(), h.CPUs) }

func fairWeight(gpus float64, cpus int) float64 {
	if gpus > 0 {
		return gpus
	}
	return cpuWeight * float64(cpus)
}

// charge puts a turn down to the user. It never makes a turn smaller: a walk
// relies on users only moving back.
func (a *account) charge(s *State, g *group) {
	if s.Rules.Fair && s.FairQuantum > 0 {
		a.turn += s.FairQuantum * max(0, g.request.FairWeight())
	}
}

// spot is where in the order a job stands: priority, then its class of service,
// then its user's turn, then its own entry, which is total.
type spot struct {
	account *account
	entry   *entry
}

func (a spot) compare(b spot) int {
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

// Order gives the first n queued jobs, or all where there are fewer, in the
// order in which they are considered when each one in front starts: under
// fair share the users take turns. Without it, it is the queue's First.
func Order(s State, n int) []Pending {
	if s.Queue == nil {
		return nil
	}
	jobs := make([]Pending, 0, min(max(n, 0), s.Queue.Len()))
	inTurn(&s, func(h *head) bool {
		if len(jobs) == cap(jobs) {
			return false
		}
		jobs = append(jobs, h.group.pending(h.entry))
		return true
	})
	return jobs
}

// Position is a job's place in Order, the first being 1; 0 if it is not
// queued. Under fair share it costs a walk up to the job: whoever wants many
// takes the Order.
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

// inTurn visits the queue as if each job started when it comes up, for as
// long as visit wants more.
func inTurn(s *State, visit func(*head) bool) {
	w := s.Queue.walk(s)
	first := map[string]bool{}
	for _, m := range s.Queue.overdue(s) {
		h := m.group.head(m.entry)
		w.accountOf(m.group.line).charge(s, m.group)
		if first[h.job] = true; !visit(&h) {
			return
		}
	}
	for next := w.next(); next != nil; next = w.next() {
		if !first[next.job] {
			if !visit(next) {
				return
			}
			w.account().charge(s, next.group)
		}
		w.again()
	}
}

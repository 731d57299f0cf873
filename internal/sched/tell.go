package sched

import "berth/internal/job/reason"

// Reasons is Explain for many jobs at once, at about the price of one decision: it
// looks back from the end of the queue, so jobs behind get their GPUs first too.
// Where no more jobs can start, the two agree.
func Reasons(s State, jobs []string) []reason.Reason {
	told := tell(&s, jobs)
	reasons := make([]reason.Reason, len(jobs))
	for i, k := range told.of {
		reasons[i] = told.reasons[k]
	}
	return reasons
}

// Sentences is Reasons in words. In a long list most jobs wait for the same, and
// each reason is put into words only once.
func Sentences(s State, jobs []string) []string {
	told := tell(&s, jobs)
	words := make([]string, len(told.reasons))
	for k := range words {
		words[k] = told.reasons[k].String()
	}
	sentences := make([]string, len(jobs))
	for i, k := range told.of {
		sentences[i] = words[k]
	}
	return sentences
}

// telling is why jobs wait: the reasons, and the reason of each job.
type telling struct {
	reasons   []reason.Reason
	of        []int
	byClass   map[*class]int
	byRequest map[asking]int
}

// asking is what a job asks for, and for how long.
type asking struct {
	Request
	term
}

func (t *telling) add(r reason.Reason) int {
	t.reasons = append(t.reasons, r)
	return len(t.reasons) - 1
}

func tell(s *State, jobs []string) *telling {
	d := newDecision(s)
	d.quiet = true
	d.run(nil)
	t := &telling{of: make([]int, len(jobs)), byClass: map[*class]int{}, byRequest: map[asking]int{}}
	starts, first := map[string]bool{}, t.add(reason.Reason{Kind: reason.StartsNow})
	for _, start := range d.plan.Starts {
		starts[start.Job] = true
	}
	kept := map[string]bool{}
	for _, r := range d.plan.Reservations {
		kept[r.Job] = true
	}
	for i, id := range jobs {
		m, found := s.Queue.member(id)
		switch {
		case !found:
			t.of[i] = t.add(reason.Reason{Kind: reason.NotQueued, Job: id})
		case starts[id]:
			t.of[i] = first
		case d.blocker != nil && d.blocker.Job == id:
			t.of[i] = t.add(d.blocked())
		case kept[id]: // its own claim counts against its user's limit already
			t.of[i] = t.add(d.explainRoom(&m))
		default:
			t.of[i] = t.class(d, &m)
		}
	}
	return t
}

// class finds the reason of a whole class. Unless a limit applies, all classes with
// the same request share it.
func (t *telling) class(d *decision, m *member) int {
	k, told := t.byClass[m.class]
	if told {
		return k
	}
	wanted := asking{m.class.request, m.class.term}
	if why, barred := d.explainLimit(m); barred {
		k = t.add(why)
	} else if k, told = t.byRequest[wanted]; !told {
		k = t.add(d.explainRoom(m))
		t.byRequest[wanted] = k
	}
	t.byClass[m.class] = k
	return k
}

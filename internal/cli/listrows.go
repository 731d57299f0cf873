package cli

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"berth/internal/api"
	"berth/internal/cli/render"
	"berth/internal/cli/session"
	"berth/internal/job"
	"berth/internal/text"
	"berth/internal/text/problem"
)

// listed has the rows that a list shows, and counts the others.
type listed struct {
	rows   []render.Row
	hidden api.Tasks // jobs that match and are not shown
	counts map[string]int
}

// mostChosen is how many rows the daemon chooses at once. A longer list is read
// page by page and put in order here.
const mostChosen = 1000

// fetch gets the first rows of the list, or with 0 all of them.
func (o *listOptions) fetch(ctx context.Context, s *session.Session, q api.Query, most int) (listed, error) {
	q.Queue = most > 0 && most <= mostChosen && len(o.sort) == 0 && !o.reverse
	q.Order = !q.Queue
	limit := 0
	if q.Queue {
		limit = most
	}
	views, page, err := fetchJobs(ctx, s, q, limit)
	if version := s.Client.Version(); problem.KindOf(err) == problem.Invalid && version != "" && version != session.Version {
		// An older daemon knows neither the order nor arrays: the list is as it has it.
		q.Queue, q.Order, q.Arrays, q.Batches = false, false, false, false
		views, page, err = fetchJobs(ctx, s, q, 0)
	}
	if err != nil {
		return listed{}, err
	}
	l := listed{counts: page.Counts, hidden: api.Tasks{Counts: map[string]int{}}}
	maps.Copy(l.hidden.Counts, page.Matching)
	if !q.Queue {
		arrange(views, page.Order)
		for i := range views {
			l.hidden.Counts[string(views[i].State)]++
		}
	}
	l.rows = render.Fold(views, page)
	o.sortRows(l.rows, time.Now())
	if o.lately {
		l.onlyLately(time.Now())
	}
	l.cut(most)
	return l, nil
}

// Without --all, jobs that have ended are shown for this long, and at most this
// many of them.
const (
	latelyFor  = time.Hour
	mostLately = 5
)

// onlyLately drops the jobs that ended long ago, and does not count any that have
// ended.
func (l *listed) onlyLately(now time.Time) {
	ended := 0
	l.rows = slices.DeleteFunc(l.rows, func(r render.Row) bool {
		if !r.State.Terminal() {
			return false
		}
		ended++
		return ended > mostLately || r.EndedAt == nil || now.Sub(*r.EndedAt) > latelyFor
	})
	for _, counts := range []map[string]int{l.counts, l.hidden.Counts} {
		maps.DeleteFunc(counts, func(state string, _ int) bool { return job.State(state).Terminal() })
	}
}

// cut keeps the first rows, or with 0 all of them, and counts the others.
func (l *listed) cut(most int) {
	if most > 0 {
		l.rows = l.rows[:min(most, len(l.rows))]
	}
	for i := range l.rows {
		if l.rows[i].Tasks == nil {
			l.hidden.Counts[string(l.rows[i].State)]--
			continue
		}
		for state, n := range l.rows[i].Tasks.Counts {
			l.hidden.Counts[state] -= n
		}
	}
}

// more says how many jobs are hidden; empty: none.
func (l *listed) more() string {
	total, states := 0, 0
	for _, n := range l.hidden.Counts {
		if n > 0 {
			total += n
			states++
		}
	}
	switch states {
	case 0:
		return ""
	case 1:
		number, state, _ := strings.Cut(l.hidden.String(), " ")
		return number + " more " + state
	}
	return text.Grouped(total) + " more: " + l.hidden.String()
}

// arrange puts jobs in the order of the queue: those that hold GPUs, oldest first,
// queued ones as they come up, the others by submission, then those that ended,
// latest first.
func arrange(views []job.View, order []string) {
	place := make(map[string]int, len(order))
	for i, id := range order {
		place[id] = i + 1
	}
	of := func(v *job.View) int {
		at, inLine := place[v.ID]
		switch {
		case v.State.Terminal():
			return len(order) + 2
		case v.State != job.Queued:
			return 0
		case inLine:
			return at
		}
		return len(order) + 1
	}
	slices.SortStableFunc(views, func(a, b job.View) int {
		placed := cmp.Compare(of(&a), of(&b))
		switch {
		case placed != 0 || a.State == job.Queued:
			return placed
		case a.State.Terminal():
			return compareTimes(b.EndedAt, a.EndedAt)
		}
		return compareTimes(a.StartedAt, b.StartedAt)
	})
}

func compareTimes(a, b *time.Time) int {
	if a == nil || b == nil {
		return 0
	}
	return a.Compare(*b)
}

// sortValue is what a row is sorted by. An unknown one comes last either way.
type sortValue struct {
	known  bool
	number float64
	text   string
}

func (a sortValue) compare(b sortValue, down bool) int {
	order := cmp.Or(cmp.Compare(a.number, b.number), cmp.Compare(a.text, b.text))
	switch {
	case a.known != b.known && a.known:
		return -1
	case a.known != b.known:
		return 1
	case down:
		return -order
	}
	return order
}

var sortWords = []string{"id", "name", "user", "state", "priority", "submitted", "started", "ended", "vram", "time"}

// sortBy is a row's value for a key of --sort.
func sortBy(key string, r *render.Row, now time.Time) sortValue {
	number := func(n float64) sortValue { return sortValue{known: true, number: n} }
	at := func(t *time.Time) sortValue {
		if t == nil {
			return sortValue{}
		}
		return number(float64(t.UnixMicro()))
	}
	switch key {
	case "id":
		array, task, _ := splitID(r.ID)
		if array == "" {
			return number(float64(task))
		}
		base, _ := strconv.ParseInt(array, 10, 64)
		return number(float64(base) + float64(task+1)/1e7)
	case "name":
		return sortValue{known: true, text: r.Name}
	case "user":
		return sortValue{known: true, text: r.User}
	case "state":
		return number(float64(slices.Index(sortedStates, r.State)))
	case "priority":
		return number(float64(r.Priority))
	case "submitted":
		return at(r.SubmittedAt)
	case "started":
		return at(r.StartedAt)
	case "ended":
		return at(r.EndedAt)
	case "vram":
		mib := memoryOf(&r.View)
		return sortValue{known: mib > 0, number: float64(mib)}
	case "time":
		span, known := render.SpanOf(r.View, now)
		return sortValue{known: known, number: span.Seconds()}
	}
	panic("bug: no key " + key)
}

var sortedStates = []job.State{job.Running, job.Parked, job.Queued, job.Failed, job.Cancelled, job.Finished}

// memoryOf is the declared memory, or else the highest that was measured.
func memoryOf(v *job.View) int64 {
	if v.VRAMMiB != nil {
		return *v.VRAMMiB
	}
	return render.PeakOf(v)
}

// checkSort checks the keys of --sort: -started is by start, latest first.
func (o *listOptions) checkSort() error {
	for _, key := range o.sort {
		if word := strings.TrimPrefix(key, "-"); !slices.Contains(sortWords, word) {
			return problem.Newf(problem.Invalid, text.DidYouMean(word, sortWords), "--sort: expected %s, found %q", text.Or(sortWords), word)
		}
	}
	return nil
}

// sortRows sorts by the keys of --sort; --reverse turns each of them round, or
// without any the list.
func (o *listOptions) sortRows(rows []render.Row, now time.Time) {
	switch {
	case len(o.sort) > 0:
		slices.SortStableFunc(rows, func(a, b render.Row) int {
			for _, key := range o.sort {
				word, down := strings.CutPrefix(key, "-")
				if order := sortBy(word, &a, now).compare(sortBy(word, &b, now), down != o.reverse); order != 0 {
					return order
				}
			}
			return 0
		})
	case o.reverse:
		slices.Reverse(rows)
	}
}

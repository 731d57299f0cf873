package daemon

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"berth/internal/api"
	"berth/internal/engine"
	"berth/internal/job"
	"berth/internal/jobfile"
	"berth/internal/problem"
	"berth/internal/store"
)

// everyone selects the jobs of all users.
const everyone = "*"

// heldState is the state name for queued jobs that are held.
const heldState = "held"

// choice is a parsed selection.
type choice struct {
	jobfile.Selection
	user   string
	name   string
	states []job.State
	held   bool // of the queued jobs, only those held
	narrow bool // the selection has some criterion
	idle   bool // of the running jobs, only those that do not use their GPUs
	ids    map[string]bool
}

// maxRanges bounds the ranges of one request, because every job is compared with
// all of them.
const maxRanges = 200

// maxLast bounds the @ of one request: each is a lookup in the store.
const maxLast = 100

// choose parses a selection. own restricts a selection without ids and user to
// the caller's own jobs, so that "all" never means every user's.
func (d *Daemon) choose(c api.Caller, s api.Select, own bool) (choice, error) {
	sel, err := jobfile.ParseSelection(s.Words)
	if err != nil {
		return choice{}, problem.Newf(problem.Invalid, "ids look like 7, 1-3,7, 17_0, @ or all", "%v", err)
	}
	ch := choice{Selection: sel, user: s.User, name: s.Name}
	ch.All = ch.All || s.All
	ch.narrow = !sel.Empty() || ch.All || s.Name != "" || s.User != "" || len(s.States) > 0
	if len(sel.Last) > maxLast {
		return choice{}, problem.Newf(problem.TooMuch, "name fewer at a time", "%d of your last jobs are named; at most %d are accepted", len(sel.Last), maxLast)
	}
	for _, back := range sel.Last {
		id, ok, err := d.store.LastOf(c.UID, c.Name, back)
		if err != nil {
			return choice{}, err
		}
		if !ok {
			return choice{}, problem.Newf(problem.NotFound, "", "you have no job %s", lastName(back))
		}
		ch.IDs = append(ch.IDs, id)
	}
	if err := ch.readStates(s.States); err != nil {
		return choice{}, err
	}
	if ch.Ranges = merged(ch.Ranges); len(ch.Ranges) > maxRanges {
		return choice{}, problem.Newf(problem.TooMuch, "name fewer at a time", "%d ranges of ids are given; at most %d are accepted", len(ch.Ranges), maxRanges)
	}
	ch.ids = make(map[string]bool, len(ch.IDs))
	for _, id := range ch.IDs {
		ch.ids[id] = true
	}
	if own && !ch.named() && ch.user == "" {
		ch.user = c.Name
	}
	if ch.user == everyone {
		ch.user = ""
	}
	return ch, nil
}

// readStates parses state names. A held job is also queued.
func (ch *choice) readStates(words []string) error {
	queued := false
	for _, word := range words {
		state := job.State(word)
		switch {
		case word == heldState:
			ch.held, state = true, job.Queued
		case !slices.Contains(states, state):
			return problem.Newf(problem.Invalid, "", "state: expected queued, held, running, parked, finished, failed or cancelled, found %.40q", word)
		}
		queued = queued || word == string(job.Queued)
		ch.states = append(ch.states, state)
	}
	ch.held = ch.held && !queued
	return nil
}

var states = []job.State{job.Queued, job.Running, job.Parked, job.Finished, job.Failed, job.Cancelled}

func lastName(back int) string {
	if back == 0 {
		return "yet"
	}
	return "@~" + strconv.Itoa(back)
}

// merged joins ranges that touch.
func merged(ranges []jobfile.Range) []jobfile.Range {
	ranges = slices.Clone(ranges)
	slices.SortFunc(ranges, func(a, b jobfile.Range) int {
		return cmp.Or(cmp.Compare(a.Array, b.Array), cmp.Compare(a.From, b.From))
	})
	var out []jobfile.Range
	for _, r := range ranges {
		if last := len(out) - 1; last >= 0 && out[last].Array == r.Array && r.From <= out[last].To+1 {
			out[last].To = max(out[last].To, r.To)
		} else {
			out = append(out, r)
		}
	}
	return out
}

func (ch *choice) named() bool { return len(ch.IDs)+len(ch.Ranges) > 0 }

func unused(t *engine.Turn, j *job.Job) bool {
	_, is := t.IdleSince(j.ID)
	return is
}

// matches reports whether a job is selected.
func (ch *choice) matches(t *engine.Turn, j *job.Job) bool {
	switch {
	case ch.user != "" && j.User != ch.user,
		ch.name != "" && j.Name() != ch.name,
		len(ch.states) > 0 && !slices.Contains(ch.states, j.State),
		ch.held && j.State == job.Queued && !j.Held,
		ch.idle && !unused(t, j):
		return false
	}
	return !ch.named() || ch.hasID(j.ID)
}

// whyNot says why a job is not selected.
func (ch *choice) whyNot(j *job.Job) string {
	switch {
	case ch.user != "" && j.User != ch.user:
		return "belongs to " + j.User
	case ch.name != "" && j.Name() != ch.name:
		return "is named " + j.Name()
	case ch.held && j.State == job.Queued && !j.Held:
		return "is not held"
	}
	return "is " + string(j.State)
}

func (ch *choice) hasID(id string) bool {
	base, task, isTask := strings.Cut(id, "_")
	if ch.ids[id] || isTask && ch.ids[base] {
		return true
	}
	if len(ch.Ranges) == 0 {
		return false
	}
	number, _ := strconv.ParseInt(base, 10, 64)
	index, _ := strconv.ParseInt(task, 10, 64)
	for _, r := range ch.Ranges {
		if r.Array == "" && r.From <= number && number <= r.To {
			return true
		}
		if isTask && r.Array == base && r.From <= index && index <= r.To {
			return true
		}
	}
	return false
}

// filter is the same selection for finished jobs.
func (ch *choice) filter() store.Filter {
	f := store.Filter{IDs: ch.IDs, User: ch.user, Name: ch.name}
	for _, r := range ch.Ranges {
		f.Ranges = append(f.Ranges, store.Range{Array: r.Array, From: r.From, To: r.To})
	}
	for _, state := range ch.states {
		if state.Terminal() {
			f.States = append(f.States, state)
		}
	}
	return f
}

// wantsOver reports whether finished jobs can match.
func (ch *choice) wantsOver() bool {
	return !ch.idle && (len(ch.states) == 0 || slices.ContainsFunc(ch.states, job.State.Terminal))
}

// wantsLive reports whether unfinished jobs can match.
func (ch *choice) wantsLive() bool {
	return len(ch.states) == 0 || slices.ContainsFunc(ch.states, func(s job.State) bool { return !s.Terminal() })
}

// everything reports whether every job matches.
func (ch *choice) everything() bool {
	return ch.user == "" && ch.name == "" && len(ch.states) == 0 && !ch.idle && !ch.named()
}

package daemon

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"strings"

	"berth/internal/api"
	"berth/internal/job"
	"berth/internal/job/jobfile"
	"berth/internal/queue/engine"
	"berth/internal/queue/fair"
	"berth/internal/queue/store"
	"berth/internal/text"
	"berth/internal/text/problem"
)

// heldState is the state name for queued jobs that are held.
const heldState = "held"

// choice is a parsed selection.
type choice struct {
	jobfile.Selection
	user   string
	name   string
	group  string
	batch  string
	states []job.State
	held   bool            // of the queued jobs, only those held
	narrow bool            // the selection has some criterion
	idle   bool            // of the running jobs, only those that do not use their GPUs
	ids    map[string]bool // the same; false: a pattern matched it
}

// maxRanges bounds the ranges of one request, because every job is compared with
// all of them.
const maxRanges = 200

// maxLast bounds the @ of one request: each is a lookup in the store.
const maxLast = 100

// maxNames bounds the names of one request: each is a scan of the history.
const maxNames = 100

// finder finds the jobs that a request means.
type finder struct {
	svc   *service
	slice int // how many jobs are copied or explained in one turn
}

// choose parses a selection to change or await jobs: without ids and user it is
// restricted to the caller's own jobs, so that "all" never means every user's.
func (f *finder) choose(ctx context.Context, c api.Caller, s api.Select) (choice, error) {
	return f.chooseBy(ctx, c, s, meaning{own: true})
}

// meaning is what a selection leaves open.
type meaning struct {
	own   bool // only the caller's own jobs, if nothing else is said
	every bool // a name means every job that has or had it
}

func (f *finder) chooseBy(ctx context.Context, c api.Caller, s api.Select, m meaning) (choice, error) {
	sel, err := jobfile.ParseSelection(s.Words)
	if err != nil {
		return choice{}, problem.Newf(problem.Invalid, "berth list shows ids and names", "%v", err)
	}
	ch := choice{Selection: sel, user: s.User, name: s.Name, group: s.Group}
	if ch.batch, err = f.svc.batchFile(s.Batch); err != nil {
		return choice{}, err
	}
	ch.All = ch.All || s.All
	ch.narrow = !sel.Empty() || ch.All || s.Name != "" || s.User != "" || s.Group != "" || s.Batch != "" || len(s.States) > 0
	if len(sel.Last) > maxLast {
		return choice{}, problem.Newf(problem.TooMuch, "name fewer at a time", "%d of your last jobs are named; at most %d are accepted", len(sel.Last), maxLast)
	}
	for _, back := range sel.Last {
		id, ok, err := f.svc.queue.Store.LastOf(c.UID, c.Name, back)
		if err != nil {
			return choice{}, err
		}
		if !ok {
			return choice{}, problem.Newf(problem.NotFound, "", "you have no job %s", lastName(back))
		}
		ch.IDs = append(ch.IDs, id)
	}
	if len(sel.Names) > maxNames {
		return choice{}, problem.Newf(problem.TooMuch, "use a pattern, as in 'sweep-*'", "%d names are given; at most %d are accepted", len(sel.Names), maxNames)
	}
	var matched []string
	for _, name := range sel.Names {
		ids, err := f.jobsNamed(ctx, c, name, s.User, m)
		if err != nil {
			return choice{}, err
		}
		ch.IDs = append(ch.IDs, ids...)
		if strings.ContainsAny(name, "*?") {
			matched = append(matched, ids...)
		}
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
	for _, id := range matched {
		ch.ids[id] = false
	}
	if m.own && !ch.named() && ch.user == "" {
		ch.user = c.Name
	}
	if ch.user == everyone {
		ch.user = ""
	}
	return ch, nil
}

// jobsNamed are the ids of the jobs that a name or a pattern means: of each name
// the unfinished ones, or else the newest. The caller's own jobs come first.
func (f *finder) jobsNamed(ctx context.Context, c api.Caller, pattern, user string, m meaning) ([]string, error) {
	users := []string{user}
	switch {
	case user == everyone:
		users = []string{""}
	case user == "" && m.own:
		users = []string{c.Name}
	case user == "":
		users = []string{c.Name, ""}
	}
	for _, user := range users {
		found, _, err := f.resolve(ctx, &choice{name: pattern, user: user}, true)
		if err != nil {
			return nil, err
		}
		if len(found) > 0 {
			return meantBy(found, m.every), nil
		}
	}
	whose, hint := "", "berth list --all shows all jobs"
	if m.own && user == "" {
		whose, hint = " of yours", hint+"; --user NAME selects those of another user"
	}
	return nil, problem.Newf(problem.NotFound, hint, "no job%s is named %.60s", whose, pattern)
}

// meantBy chooses among jobs in order of submission. An array counts as one job.
func meantBy(found []job.Job, every bool) (ids []string) {
	open, newest := map[string]bool{}, map[string]int{}
	for i := range found {
		open[found[i].Name()] = open[found[i].Name()] || !found[i].State.Terminal()
		newest[found[i].Name()] = i
	}
	for i := range found {
		j := &found[i]
		last := &found[newest[j.Name()]]
		id := cmp.Or(j.Array(), j.ID)
		if !every && j.State.Terminal() && (open[j.Name()] || id != cmp.Or(last.Array(), last.ID)) {
			continue
		}
		if len(ids) == 0 || ids[len(ids)-1] != id {
			ids = append(ids, id)
		}
	}
	return ids
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
	_, is := t.Running().Uses.IdleSince(j.ID)
	return is
}

// matches reports whether a job is selected.
func (ch *choice) matches(t *engine.Turn, j *job.Job) bool {
	switch {
	case ch.user != "" && j.User != ch.user,
		ch.name != "" && !text.Glob(ch.name, j.Name()),
		ch.group != "" && j.Spec.Group != ch.group,
		ch.batch != "" && j.Spec.Batch != ch.batch,
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
	case ch.name != "" && !text.Glob(ch.name, j.Name()):
		return "is named " + j.Name()
	case ch.group != "" && j.Spec.Group != ch.group:
		return "is not in group " + ch.group
	case ch.batch != "" && j.Spec.Batch != ch.batch:
		return "is no line of " + ch.batch
	case ch.held && j.State == job.Queued && !j.Held:
		return "is not held"
	}
	return "is " + string(j.State)
}

func (ch *choice) hasID(id string) bool {
	base, task, isTask := strings.Cut(id, "_")
	if _, named := ch.ids[id]; named {
		return true
	}
	if _, named := ch.ids[base]; named && isTask {
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
func (ch *choice) filter(ctx context.Context) store.Filter {
	f := store.Filter{IDs: ch.IDs, User: ch.user, Name: ch.name, Group: ch.group, Batch: ch.batch, Pause: pauses(ctx)}
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

// pauses lets the long work of other users pass between two steps of a read.
func pauses(ctx context.Context) func(rows int) error {
	return func(rows int) error { return fair.Spend(ctx, rows) }
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
	return ch.user == "" && ch.name == "" && ch.group == "" && ch.batch == "" && len(ch.states) == 0 && !ch.idle && !ch.named()
}

package daemon

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"berth/internal/api"
	"berth/internal/job"
	"berth/internal/jobfile"
	"berth/internal/store"
)

// everyone selects the jobs of all users.
const everyone = "*"

// heldState is the word for a queued job that is held.
const heldState = "held"

// choice is a selection, read.
type choice struct {
	jobfile.Selection
	user   string
	name   string
	states []job.State
	held   bool
}

// choose reads a selection. own restricts what names no ids and no user to
// the caller's own jobs: nobody means everyone's by "all".
func (d *Daemon) choose(c api.Caller, s api.Select, own bool) (choice, error) {
	sel, err := jobfile.ParseSelection(s.Words)
	if err != nil {
		return choice{}, api.Problemf(api.Invalid, "ids are like 7, 1-3,7, 17_0, @ or all", "%v", err)
	}
	ch := choice{Selection: sel, user: s.User, name: s.Name}
	ch.All = ch.All || s.All
	for _, back := range sel.Last {
		id, ok, err := d.store.LastOf(c.UID, c.Name, back)
		if err != nil {
			return choice{}, err
		}
		if !ok {
			return choice{}, api.Problemf(api.NotFound, "", "you have no job %s", lastName(back))
		}
		ch.IDs = append(ch.IDs, id)
	}
	for _, word := range s.States {
		if word == heldState {
			ch.held = true
			ch.states = append(ch.states, job.Queued)
			continue
		}
		state := job.State(word)
		if !slices.Contains(states, state) {
			return choice{}, api.Problemf(api.Invalid, "states are queued held running parked finished failed cancelled", "unknown state %.40q", word)
		}
		ch.states = append(ch.states, state)
	}
	named := len(ch.IDs)+len(ch.Ranges) > 0
	if own && !named && ch.user == "" {
		ch.user = c.Name
	}
	if ch.user == everyone {
		ch.user = ""
	}
	return ch, nil
}

var states = []job.State{job.Queued, job.Running, job.Parked, job.Finished, job.Failed, job.Cancelled}

func lastName(back int) string {
	if back == 0 {
		return "yet"
	}
	return "@~" + strconv.Itoa(back)
}

// narrows reports whether anything at all was said about which jobs.
func (ch *choice) narrows() bool {
	return ch.All || ch.name != "" || len(ch.states) > 0 || len(ch.IDs)+len(ch.Ranges) > 0
}

// named reports whether ids were given.
func (ch *choice) named() bool { return len(ch.IDs)+len(ch.Ranges) > 0 }

// matches reports whether a job is meant.
func (ch *choice) matches(j *job.Job) bool {
	switch {
	case ch.user != "" && j.User != ch.user,
		ch.name != "" && j.Name() != ch.name,
		len(ch.states) > 0 && !slices.Contains(ch.states, j.State),
		ch.held && j.State == job.Queued && !j.Held:
		return false
	}
	return !ch.named() || ch.hasID(j.ID)
}

func (ch *choice) hasID(id string) bool {
	base, task, isTask := strings.Cut(id, "_")
	if slices.Contains(ch.IDs, id) || isTask && slices.Contains(ch.IDs, base) {
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

// filter is the same for jobs that are over. Ranges of tasks are narrowed
// down by matches.
func (ch *choice) filter() store.Filter {
	f := store.Filter{IDs: slices.Clone(ch.IDs), User: ch.user, Name: ch.name}
	for _, r := range ch.Ranges {
		if r.Array != "" {
			f.IDs = append(f.IDs, r.Array)
		} else {
			f.Ranges = append(f.Ranges, store.Range{From: r.From, To: r.To})
		}
	}
	for _, state := range ch.states {
		if state.Terminal() {
			f.States = append(f.States, state)
		}
	}
	return f
}

// wantsOver reports whether jobs that are over can match.
func (ch *choice) wantsOver() bool {
	return len(ch.states) == 0 || slices.ContainsFunc(ch.states, job.State.Terminal)
}

// live copies the matching jobs that are not over, in the order of submission.
func (d *Daemon) live(ctx context.Context, ch *choice) ([]job.Job, error) {
	found, _, err := d.liveAfter(ctx, ch, 0, maxResolved)
	return found, err
}

// liveAfter copies at most limit of the matching jobs that are not over, from
// the first with a number above seq, and counts all that match. Where ids are
// few and exact, only those are looked at.
func (d *Daemon) liveAfter(ctx context.Context, ch *choice, seq int64, limit int) (found []job.Job, total int, err error) {
	take := func(j *job.Job) bool {
		if !ch.matches(j) {
			return true
		}
		if total++; j.Seq > seq && len(found) < limit {
			found = append(found, d.engine.Copy(j))
		}
		return true
	}
	err = d.do(ctx, func(time.Time) {
		if exact := d.exact(ch); exact != nil {
			for _, j := range exact {
				take(j)
			}
			return
		}
		if ch.everything() {
			queued, running := d.engine.Live()
			total = queued + running
			found = make([]job.Job, 0, min(limit, total))
			d.engine.Each(seq, func(j *job.Job) bool {
				found = append(found, d.engine.Copy(j))
				return len(found) < limit
			})
			return
		}
		d.engine.Each(0, take)
	})
	slices.SortFunc(found, func(a, b job.Job) int { return int(a.Seq - b.Seq) })
	return found, total, err
}

// everything reports whether no job is left out.
func (ch *choice) everything() bool {
	return ch.user == "" && ch.name == "" && len(ch.states) == 0 && !ch.named()
}

// exact is the selected jobs where every id is that of a job itself; nil
// where one may be an array's.
func (d *Daemon) exact(ch *choice) []*job.Job {
	if len(ch.Ranges) > 0 || len(ch.IDs) == 0 || ch.All {
		return nil
	}
	jobs := make([]*job.Job, 0, len(ch.IDs))
	for _, id := range ch.IDs {
		j, ok := d.engine.Find(id)
		if !ok && !strings.Contains(id, "_") {
			return nil
		}
		if ok {
			jobs = append(jobs, j)
		}
	}
	return jobs
}

// resolve finds the selected jobs, over or not, and says which ids name none.
func (d *Daemon) resolve(ctx context.Context, ch *choice, over bool) (found []job.Job, missing []string, err error) {
	if found, err = d.live(ctx, ch); err != nil {
		return nil, nil, err
	}
	if (over || ch.named()) && ch.wantsOver() {
		known := make(map[string]bool, len(found))
		for i := range found {
			known[found[i].ID] = true
		}
		err := d.store.EachOver(ch.filter(), func(j *job.Job) error {
			if len(found) >= maxResolved {
				return errTooMany
			}
			if !known[j.ID] && ch.matches(j) {
				found = append(found, *j)
			}
			return nil
		})
		if errors.Is(err, errTooMany) {
			return nil, nil, api.Problemf(api.TooMuch, "name fewer", "more than %d jobs are meant", maxResolved)
		}
		if err != nil {
			return nil, nil, err
		}
	}
	have := make(map[string]bool, 2*len(found))
	for i := range found {
		have[found[i].ID] = true
		have[found[i].Array()] = true
	}
	for _, id := range ch.IDs {
		if !have[id] {
			missing = append(missing, id)
		}
	}
	return found, missing, nil
}

// maxResolved bounds the jobs one request can be about.
const maxResolved = 200_000

var errTooMany = errors.New("too many jobs")

// find is one job, over or not.
func (d *Daemon) find(ctx context.Context, c api.Caller, word string) (job.Job, error) {
	ch, err := d.choose(c, api.Select{Words: []string{word}}, false)
	if err != nil {
		return job.Job{}, err
	}
	found, _, err := d.resolve(ctx, &ch, true)
	switch {
	case err != nil:
		return job.Job{}, err
	case len(found) == 0:
		return job.Job{}, api.Problemf(api.NotFound, "berth list --all shows what there is", "no job %.60s", word)
	case len(found) > 1:
		return job.Job{}, api.Problemf(api.Invalid, "name one: "+found[0].ID+", say", "%.60s is %d jobs", word, len(found))
	}
	return found[0], nil
}

package daemon

import (
	"cmp"
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"berth/internal/api"
	"berth/internal/engine"
	"berth/internal/job"
	"berth/internal/jobfile"
	"berth/internal/problem"
	"berth/internal/text"
)

// lines is a submission that has all the lines of a jobs file. It makes the file's
// jobs match them: new lines are submitted, the jobs of deleted ones that have not
// started are withdrawn, and changed ones get what their lines say now. Sending the
// same lines again changes nothing.
type lines struct {
	*submission
	batch *api.Batch
	all   []*job.Job            // of all lines
	rows  []*job.Job            // what the queue has of each; nil: the line is new
	gone  []string              // jobs whose lines were deleted
	after [][]job.Dependency    // as the lines say it
	reply map[int]api.Submitted // of new lines
}

// checkBatch refuses a file that cannot be one.
func (s *submission) checkBatch() error {
	b := s.request.Batch
	switch {
	case b == nil:
		return nil
	case !filepath.IsAbs(b.File) || filepath.Clean(b.File) != b.File || len(b.File) > maxDir || strings.IndexByte(b.File, 0) >= 0:
		return problem.Newf(problem.Invalid, "", "batch: expected an absolute path, found %.100q", b.File)
	case len(b.Lines) != len(s.request.Jobs):
		return problem.Newf(problem.Invalid, "", "batch: expected as many lines as jobs, %d, found %d", len(s.request.Jobs), len(b.Lines))
	case !slices.Contains([]string{"", api.RetryFailed, api.RetryAll}, b.Retry):
		return problem.Newf(problem.Invalid, "", "batch: retry: expected %s or %s, found %.40q", api.RetryFailed, api.RetryAll, b.Retry)
	}
	return nil
}

// acceptLines submits the lines of a jobs file.
func (s *submission) acceptLines(ctx context.Context) (api.SubmitReply, error) {
	l := &lines{submission: s, batch: s.request.Batch, all: s.jobs, reply: map[int]api.Submitted{}}
	turn, _ := s.d.batches.LoadOrStore(s.caller.UID, &sync.Mutex{})
	turn.(*sync.Mutex).Lock() // two requests for one file must not both find a line new
	defer turn.(*sync.Mutex).Unlock()
	if err := l.match(ctx); err != nil {
		return api.SubmitReply{}, err
	}
	fresh, err := l.resolve()
	if err == nil {
		err = l.checkKnown(ctx)
	}
	if err != nil {
		return api.SubmitReply{}, err
	}
	if !s.request.DryRun {
		if err := l.withdraw(ctx); err != nil {
			return api.SubmitReply{}, err
		}
	}
	if len(fresh) > 0 {
		accept := s.accept
		if s.request.DryRun {
			accept = s.try
		}
		reply, err := accept(ctx)
		if err != nil {
			return api.SubmitReply{}, err
		}
		for k, i := range fresh {
			l.reply[i] = reply.Jobs[k]
		}
	}
	if !s.request.DryRun {
		if err := l.change(ctx); err != nil {
			return api.SubmitReply{}, err
		}
	}
	return l.answer(), nil
}

// match finds the job of each line.
func (l *lines) match(ctx context.Context) error {
	found, _, err := l.d.resolve(ctx, &choice{user: l.caller.Name, batch: l.batch.File}, true)
	if err != nil {
		return err
	}
	known := make(map[string]*job.Job, len(found))
	for i := range found {
		known[found[i].Key] = &found[i]
	}
	occurrences := make(map[string]int, len(l.all))
	l.rows = make([]*job.Job, len(l.all))
	for i, j := range l.all {
		executed := jobfile.Executed(&j.Spec)
		occurrences[executed]++
		j.Key, j.Spec.Batch = jobfile.Key(executed, occurrences[executed]), l.batch.File
		l.rows[i] = known[j.Key]
		delete(known, j.Key)
	}
	for i := range found {
		if j := &found[i]; known[j.Key] == j && j.State == job.Queued {
			l.gone = append(l.gone, j.ID)
		}
	}
	return nil
}

// resolve leaves the new lines in the submission, which are returned, and finds out
// what each line waits for.
func (l *lines) resolve() (fresh []int, err error) {
	index, place := map[string]int{}, make([]int, len(l.all))
	items := l.items
	for i := range items {
		index[strconv.Itoa(l.batch.Lines[i].Number)] = i
	}
	for i := range items {
		if name := items[i].asked.Spec.Name; name != "" {
			index[name] = i
		}
	}
	l.items, l.jobs, l.after = nil, nil, make([][]job.Dependency, len(items))
	for i, it := range items {
		if l.rows[i] == nil && !l.batch.Lines[i].Cancel {
			place[i] = len(l.items)
			it.from, it.to = len(l.jobs), len(l.jobs)+1
			it.asked.Spec = l.all[i].Spec
			l.items, l.jobs, fresh = append(l.items, it), append(l.jobs, l.all[i]), append(fresh, i)
		}
	}
	l.lineOf = fresh
	for i := range items {
		after := items[i].asked.Spec.After
		l.all[i].Spec.After = nil
		for _, dep := range after {
			at, ok := index[dep.Job+dep.Name] // it has one of the two
			switch {
			case !ok || at == i:
				return nil, l.atLine(i, problem.Newf(problem.Invalid, "use the name of a job in the file, or the number of its line", "after: expected another job of the file, found %.60q", dep.Job+dep.Name))
			case l.rows[at] != nil:
				l.all[i].Spec.After = append(l.all[i].Spec.After, job.Dependency{Job: l.rows[at].ID, On: dep.On})
			case l.batch.Lines[at].Cancel:
				return nil, l.atLine(i, problem.Newf(problem.Invalid, "", "after: line %d is marked cancel", l.batch.Lines[at].Number))
			case l.rows[i] == nil && !l.batch.Lines[i].Cancel:
				it := &l.items[place[i]]
				it.siblings = append(it.siblings, sibling{place[at], dep})
			default:
				l.after[i] = append(l.after[i], job.Dependency{Job: strconv.Itoa(at), On: dep.On})
			}
		}
	}
	return fresh, nil
}

// checkKnown holds what the jobs that existed before are to become against the
// limits and the machine, as if they were submitted.
func (l *lines) checkKnown(ctx context.Context) error {
	again, text := 0, 0
	var specs []job.Spec
	var at []int
	seen := map[string]bool{}
	for i, row := range l.rows {
		switch {
		case row == nil || l.batch.Lines[i].Cancel:
			continue
		case row.State == job.Queued:
			text += l.all[i].Spec.TextBytes() - row.Spec.TextBytes()
		case row.State.Terminal() && l.runsAgain(i):
			again, text = again+1, text+l.all[i].Spec.TextBytes()
		default:
			continue
		}
		if key := requestKey(&l.all[i].Spec); !seen[key] {
			seen[key], specs, at = true, append(specs, l.all[i].Spec), append(at, i)
		}
	}
	if len(specs) == 0 {
		return nil
	}
	var refusal error
	err := l.d.do(ctx, func(t *engine.Turn) {
		if full := l.d.room(t, l.cfg, l.caller, l.caller.Name, again); full != nil {
			refusal = full
			return
		}
		if full := roomFor(t, l.cfg, l.caller.Name, text, ""); full != nil {
			refusal = full
			return
		}
		var bad mistakes
		for which, why := range t.Explain().Infeasible(l.caller.Name, specs...) {
			if !bad.add(l.atLine(at[which], neverFits(why))) {
				break
			}
		}
		refusal = bad.all()
	})
	return cmp.Or(err, refusal)
}

// withdraw removes the queued jobs of deleted lines.
func (l *lines) withdraw(ctx context.Context) error {
	for some := range slices.Chunk(l.gone, actJobs) {
		if err := l.d.change(ctx, func(t *engine.Turn) {
			for _, id := range some {
				t.Queue().Withdraw(id)
			}
		}); err != nil {
			return err
		}
	}
	return nil
}

// change makes the jobs that existed before match their lines.
func (l *lines) change(ctx context.Context) error {
	var ranks []int64 // of the queued ones: they get the order of the file
	for _, row := range l.rows {
		if row != nil && row.State == job.Queued {
			ranks = append(ranks, row.Rank)
		}
	}
	slices.Sort(ranks)
	known := make([]int, 0, len(l.rows))
	for i, row := range l.rows {
		if row != nil {
			known = append(known, i)
		}
	}
	for some := range slices.Chunk(known, actJobs) {
		if err := l.d.change(ctx, func(t *engine.Turn) {
			var again []*job.Job
			for _, i := range some {
				row, spec := l.rows[i], l.all[i].Spec
				for _, dep := range l.after[i] {
					at, _ := strconv.Atoi(dep.Job) // resolve wrote it
					spec.After = append(spec.After, job.Dependency{Job: l.reply[at].ID, On: dep.On})
				}
				rank := row.Rank
				if row.State == job.Queued {
					rank, ranks = ranks[0], ranks[1:]
				}
				if spec.Snapshot.Tree != "" && row.Spec.Snapshot.Path != "" {
					spec.Snapshot = row.Spec.Snapshot // it keeps the code of its submission
				}
				switch {
				case !row.State.Terminal() && l.batch.Lines[i].Cancel:
					t.Requests().Cancel(row.ID, "its line is marked cancel")
				case !row.State.Terminal():
					t.Queue().Edit(row.ID, spec, rank)
				case l.runsAgain(i):
					j := *row
					j.Spec, j.Rank = spec, t.Queue().TakeRank()
					again = append(again, &j)
				}
			}
			t.Queue().Again(again)
			l.d.twins.add(again)
		}); err != nil {
			return err
		}
	}
	return nil
}

// runsAgain reports whether the job of a line, which has ended, runs again.
func (l *lines) runsAgain(i int) bool {
	return !l.batch.Lines[i].Cancel && l.batch.Retry != "" && (l.batch.Retry == api.RetryAll || l.rows[i].State != job.Finished)
}

// answer lists all lines.
func (l *lines) answer() api.SubmitReply {
	reply := api.SubmitReply{Jobs: make([]api.Submitted, len(l.all)), Withdrawn: l.gone}
	for i, j := range l.all {
		row := l.rows[i]
		switch {
		case row == nil && l.batch.Lines[i].Cancel:
			reply.Jobs[i] = api.Submitted{Name: j.Spec.Name, State: string(job.Cancelled)}
		case row == nil:
			reply.Jobs[i] = l.reply[i]
		default:
			reply.Jobs[i] = api.Submitted{ID: row.ID, Name: row.Name(), State: string(row.State), Again: row.State.Terminal() && l.runsAgain(i)}
			if row.State.Terminal() {
				reply.Jobs[i].Reason = string(row.Outcome)
			}
		}
	}
	return reply
}

// atLine names the line of a problem.
func (s *submission) atLine(i int, err error) error {
	b := s.request.Batch
	return at(fmt.Sprintf("%s:%d", text.Line(filepath.Base(b.File)), b.Lines[i].Number), err)
}

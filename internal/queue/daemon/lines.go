package daemon

import (
	"cmp"
	"context"
	"fmt"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"

	"berth/internal/api"
	"berth/internal/job"
	"berth/internal/job/jobfile"
	"berth/internal/queue/engine"
	"berth/internal/text"
	"berth/internal/text/problem"
)

// lines is a submission that has all the lines of a jobs file. It makes the file's
// jobs match them: new lines are submitted, the jobs of deleted ones that have not
// started are withdrawn, and changed ones get what their lines say now. Sending the
// same lines again changes nothing.
type lines struct {
	*submission
	batch *api.Batch
	all   []*job.Job         // of all lines
	asked []item             // likewise
	rows  []*job.Job         // what the queue has of each; nil: the line is new
	other []bool             // those that are queued and not as their lines say
	ranks []int64            // the places they are to have; 0: as it is
	after [][]job.Dependency // of jobs that existed, on new ones: Job is the line
	fresh []int              // the new lines, and those that a dry run tries again
	tried map[int]string     // the ids of the latter
	gone  []goneLine
	reply api.SubmitReply
}

// goneLine is an unfinished job whose line was deleted.
type goneLine struct{ id, key string }

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
	case b.AnyFile && s.h.svc.runs == "":
		return problem.Newf(problem.Invalid, "", "batch: any_file: expected only in the queue of a berth run")
	}
	return nil
}

// acceptLines submits the lines of a jobs file.
func (s *submission) acceptLines(ctx context.Context) (api.SubmitReply, error) {
	l := &lines{submission: s, batch: s.request.Batch, all: s.jobs, asked: s.items, other: make([]bool, len(s.jobs)), tried: map[int]string{}, ranks: make([]int64, len(s.jobs))}
	s.captureEnviron() // waiting jobs get it too
	turn, _ := s.h.batches.LoadOrStore(s.caller.UID, &sync.Mutex{})
	turn.(*sync.Mutex).Lock() // two requests for one file must not both find a line new
	defer turn.(*sync.Mutex).Unlock()
	if err := l.match(ctx); err != nil {
		return api.SubmitReply{}, err
	}
	if err := l.resolve(); err != nil {
		return api.SubmitReply{}, err
	}
	l.answer()
	if err := l.checkKnown(ctx); err != nil {
		return api.SubmitReply{}, err
	}
	steps := []func(context.Context) error{l.withdraw, l.runAgain, l.submit, l.change, l.took}
	switch {
	case s.h.svc.still != nil: // nothing of it lasts
		steps = []func(context.Context) error{l.withdraw, l.runAgain, l.queue, l.change, l.foresee}
	case s.request.DryRun:
		steps = []func(context.Context) error{l.submit, l.waiting}
	}
	for _, step := range steps {
		if err := step(ctx); err != nil {
			return api.SubmitReply{}, err
		}
	}
	return l.reply, nil
}

// match finds the job of each line.
func (l *lines) match(ctx context.Context) error {
	file, err := l.h.svc.batchFile(l.batch.File)
	if err != nil {
		return err
	}
	choice := &choice{user: l.caller.Name, batch: file}
	if l.h.svc.runs != "" {
		choice.user, choice.batch = "", "" // older berths stored no file
	}
	found, _, err := l.h.find.resolve(ctx, choice, true)
	if err != nil {
		return err
	}
	known, keys := make(map[string]*job.Job, len(found)), make([]string, len(found))
	identities := identities{batch: file, anyFile: l.batch.AnyFile}
	for i := range found {
		if j := &found[i]; j.Key != "" {
			keys[i] = identities.key(j)
			known[keys[i]] = j
		}
	}
	occurrences := make(map[string]int, len(l.all))
	l.rows = make([]*job.Job, len(l.all))
	for i, j := range l.all {
		executed := l.asked[i].executed
		if executed == "" {
			executed = jobfile.Executed(&j.Spec)
		}
		occurrences[executed]++
		j.Key, j.Spec.Batch = jobfile.Key(executed, occurrences[executed]), file
		j.Spec.Trial.Params = l.batch.Lines[i].Params
		l.rows[i] = known[j.Key]
		delete(known, j.Key)
		if row := l.rows[i]; row != nil && l.request.DryRun && l.h.svc.still == nil && row.State.Terminal() && l.runsAgain(i) {
			l.rows[i], l.tried[i] = nil, row.ID
		}
	}
	for i := range found {
		if j := &found[i]; known[keys[i]] != j || j.State.Terminal() {
			continue
		} else if j.Spec.Batch == file || j.Spec.Batch == "" || l.batch.AnyFile || l.batch.First {
			l.gone = append(l.gone, goneLine{j.ID, keys[i]})
			if j.State == job.Queued {
				l.reply.Withdrawn = append(l.reply.Withdrawn, j.ID)
			}
		}
	}
	return l.readNumbers(ctx, found)
}

// resolve leaves the new lines in the submission, and finds out what each line waits
// for.
func (l *lines) resolve() error {
	numbered, named, place, fresh := map[string][]int{}, map[string][]int{}, make([]int, len(l.all)), 0
	for i := range l.asked { // the trials of a sweep share a line
		number := strconv.Itoa(l.batch.Lines[i].Number)
		numbered[number] = append(numbered[number], i)
		if name := l.asked[i].spec.Name; name != "" {
			named[name] = append(named[name], i)
		}
	}
	for _, row := range l.rows {
		if row == nil {
			fresh++
		}
	}
	l.items, l.jobs, l.fresh = make([]item, 0, fresh), make([]*job.Job, 0, fresh), make([]int, 0, fresh)
	if fresh == len(l.asked) {
		l.items = l.asked[:0] // each stays in its place
	}
	l.after = make([][]job.Dependency, len(l.asked))
	for i, it := range l.asked {
		if l.rows[i] == nil {
			place[i] = len(l.items)
			it.from, it.to = len(l.jobs), len(l.jobs)+1
			it.hold = it.hold || l.batch.Lines[i].Cancel // a dry run starts it as little
			l.items, l.jobs, l.fresh = append(l.items, it), append(l.jobs, l.all[i]), append(l.fresh, i)
			// A line that is marked is held until it is cancelled, so that it never starts.
			l.all[i].Held = l.all[i].Held || l.batch.Lines[i].Cancel
		}
	}
	l.lines = l
	for i := range l.asked {
		after := l.asked[i].spec.After
		l.all[i].Spec.After = nil
		for _, dep := range after {
			word := dep.Job + dep.Name // it has one of the two
			targets := named[word]
			if len(targets) == 0 {
				targets = numbered[word]
			}
			if len(targets) == 0 || slices.Contains(targets, i) {
				return atLine(l.batch, i, problem.Newf(problem.Invalid, "use the name of a job in the file, or the number of its line", "after: expected another job of the file, found %.60q", word))
			}
			dep.Name = ""
			for _, at := range targets {
				switch {
				case l.rows[at] != nil && l.request.DryRun && l.rows[at].State.Terminal() && dep.On.Holds(l.rows[at].Outcome):
					// It waits no longer.
				case l.rows[at] != nil:
					dep.Job = l.rows[at].ID
					l.all[i].Spec.After = append(l.all[i].Spec.After, dep)
				case l.rows[i] == nil:
					it := &l.items[place[i]]
					it.siblings = append(it.siblings, sibling{place[at], dep})
				default:
					dep.Job = strconv.Itoa(at)
					l.after[i] = append(l.after[i], dep)
				}
			}
		}
		l.compare(i)
	}
	return nil
}

// compare finds out whether a waiting job is as its line says, which costs the engine
// nothing.
func (l *lines) compare(i int) {
	row, line := l.rows[i], l.all[i]
	if row == nil {
		return
	}
	if code := &row.Spec.Snapshot; !l.batch.First && code.Path != "" && code.Tree == line.Spec.Snapshot.Tree {
		line.Spec.Snapshot = *code // it keeps the code of its submission
	}
	l.other[i] = row.State == job.Queued && (l.after[i] != nil || row.Key != line.Key || row.Environ != line.Environ ||
		row.Umask != line.Umask || !reflect.DeepEqual(&row.Spec, &line.Spec))
}

// answer says what became of the jobs that existed before. What the request does
// to them is added when it is done.
func (l *lines) answer() {
	l.reply.Jobs = make([]api.Submitted, len(l.all))
	for i, row := range l.rows {
		switch {
		case row != nil:
			l.reply.Jobs[i] = l.known(i, row)
			l.reply.Jobs[i].Again = row.State.Terminal() && l.runsAgain(i)
		case l.batch.Lines[i].Cancel && l.request.DryRun:
			l.reply.Jobs[i] = api.Submitted{Name: l.all[i].Spec.Name, State: string(job.Cancelled)}
		}
	}
}

// known says what state the job of a line is in.
func (l *lines) known(i int, j *job.Job) api.Submitted {
	reason := ""
	if j.State.Terminal() {
		reason = string(j.Outcome)
	}
	return api.Submitted{ID: j.ID, Name: j.Name(), State: string(j.State), Reason: reason, Notes: l.asked[i].notes}
}

// submit accepts the new lines.
func (l *lines) submit(ctx context.Context) error {
	if len(l.fresh) == 0 {
		l.order()
		return nil
	}
	accept := l.accept
	if l.request.DryRun {
		accept = l.try
	} else if own := l.h.svc.own; own != nil {
		own.Admit(l.jobs)
	}
	reply, err := accept(ctx)
	if err != nil {
		return err
	}
	for k, i := range l.fresh {
		if !l.request.DryRun || !l.batch.Lines[i].Cancel {
			l.reply.Jobs[i] = reply.Jobs[k]
		}
		if id := l.tried[i]; id != "" {
			l.reply.Jobs[i].ID, l.reply.Jobs[i].Again = id, true
		}
	}
	return nil
}

// waiting says why the jobs wait that are in the queue already.
func (l *lines) waiting(ctx context.Context) error {
	return l.h.svc.Do(ctx, func(t *engine.Turn) {
		var ids []string
		for i, row := range l.rows {
			if row != nil && row.State == job.Queued {
				ids = append(ids, l.reply.Jobs[i].ID)
			}
		}
		why := t.Explain().Reasons(ids)
		for i := range l.reply.Jobs {
			j := &l.reply.Jobs[i]
			j.Reason = cmp.Or(why[j.ID], j.Reason)
		}
	})
}

// took tells an own queue of the lines, and lets it start jobs.
func (l *lines) took(ctx context.Context) error {
	own := l.h.svc.own
	if own == nil {
		return nil
	}
	ids := make([]string, len(l.reply.Jobs))
	for i, j := range l.reply.Jobs {
		ids[i] = j.ID
	}
	return l.h.svc.Do(ctx, func(t *engine.Turn) {
		own.Took(t, l.batch.File, ids)
		t.Settings().Open()
	})
}

// queue is submit where nothing lasts.
func (l *lines) queue(ctx context.Context) error {
	return l.h.svc.Do(ctx, func(t *engine.Turn) {
		l.number(t)
		t.Queue().Submit(l.jobs)
		for k, i := range l.fresh {
			l.reply.Jobs[i] = api.Submitted{ID: l.jobs[k].ID, Name: l.jobs[k].Name()}
		}
	})
}

// foresee says what would become of the waiting jobs.
func (l *lines) foresee(ctx context.Context) error {
	var waiting []int
	var ids []string
	for i, j := range l.reply.Jobs {
		if state := job.State(j.State); state == "" || state == job.Queued || j.Again {
			waiting, ids = append(waiting, i), append(ids, j.ID)
		}
	}
	return l.h.svc.Do(ctx, func(t *engine.Turn) {
		trials := t.Explain().Foresee(ids)
		for k, i := range waiting {
			trial, state, why := trials[ids[k]], "waits", trials[ids[k]].Waits
			switch {
			case trial.Infeasible != "":
				state, why = "infeasible", trial.Infeasible
			case trial.Starts:
				state = "starts"
			}
			j := l.reply.Jobs[i]
			l.reply.Jobs[i] = api.Submitted{ID: j.ID, Name: j.Name, Again: j.Again, Notes: j.Notes, State: state, Reason: why, GPUIDs: trial.GPUs}
		}
	})
}

// runsAgain reports whether the job of a line, which has ended, runs again.
func (l *lines) runsAgain(i int) bool {
	return !l.batch.Lines[i].Cancel && l.batch.Retry != "" && (l.batch.Retry == api.RetryAll || l.rows[i].State != job.Finished)
}

// called is a new job in the reasons of a dry run: by its line, which the trials of a
// sweep share.
func (l *lines) called(item int) string {
	at := l.fresh[item]
	number, same := l.batch.Lines[at].Number, 0
	for at-same > 0 && l.batch.Lines[at-same-1].Number == number {
		same++
	}
	if same > 0 {
		return fmt.Sprintf("(line %d, %d)", number, same+1)
	}
	return fmt.Sprintf("(line %d)", number)
}

// atLine names the line of a problem.
func atLine(b *api.Batch, i int, err error) error {
	return at(fmt.Sprintf("%s:%d", text.Line(filepath.Base(b.File)), b.Lines[i].Number), err)
}

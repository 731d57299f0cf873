package daemon

import (
	"cmp"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"berth/internal/api"
	"berth/internal/job"
	"berth/internal/job/sweep"
	"berth/internal/queue/engine"
	"berth/internal/queue/fair"
	"berth/internal/queue/store"
	"berth/internal/text/problem"
)

// Bounds on the table of a sweep: a log is as long as its user lets it grow.
const (
	mostTrials = 10_000
	logsRead   = 20 * time.Second // for the logs of one request
	logMost    = 16 << 20         // of one log, its end
	logPart    = 256 << 10
)

// noMetrics asks for a table without any.
const noMetrics = "-"

// Trials is the table of a sweep, an array or a jobs file.
func (h *sweeps) Trials(ctx context.Context, c api.Caller, q api.TrialQuery) (api.TrialTable, error) {
	jobs, sum, err := h.trialsOf(ctx, c, q)
	if err != nil {
		return api.TrialTable{}, err
	}
	first := &jobs[0]
	if !h.svc.maySee(c, first) {
		return api.TrialTable{}, problem.Newf(problem.Forbidden, "", "job %s belongs to %s", cmp.Or(first.Array(), first.ID), first.User)
	}
	wanted := q.Metrics
	if len(wanted) == 0 {
		wanted = first.Spec.Trial.Metrics
	}
	if slices.Equal(wanted, []string{noMetrics}) {
		wanted = nil
	}
	metrics, err := sweep.ParseMetrics(wanted)
	if err != nil {
		return api.TrialTable{}, problem.Newf(problem.Invalid, "berth help howto/sweep has examples", "metric: %v", err)
	}
	table := api.TrialTable{ID: first.Array(), Name: first.Name(), User: first.User, Params: paramsOf(jobs), Metrics: []api.MetricColumn{}, Tasks: sum, Trials: make([]api.TrialRow, len(jobs))}
	switch trial := &first.Spec.Trial; {
	case first.Array() == "":
		table.File = h.svc.batchPath(first.Spec.Batch)
		table.Name = filepath.Base(table.File)
	case trial.Template != nil:
		table.Command = h.svc.sweptCommand(c, first)
		table.Name = cmp.Or(trial.Sweep, "job"+first.Array())
	case first.Spec.Name == "":
		table.Name = "job" + first.Array()
	}
	for i, m := range metrics {
		table.Metrics = append(table.Metrics, api.MetricColumn{Name: m.Name, Best: string(m.Best), From: wanted[i]})
	}
	now := time.Now()
	for i := range jobs {
		table.Trials[i] = trialRow(&jobs[i], now)
	}
	if len(metrics) > 0 && mayTouch(c, first) {
		table.Unread, err = h.pickAll(ctx, jobs, metrics, wanted, table.Trials)
	}
	return table, err
}

// trialsOf are the jobs of a table, and their sum.
func (h *sweeps) trialsOf(ctx context.Context, c api.Caller, q api.TrialQuery) (jobs []job.Job, sum api.Tasks, err error) {
	var r row
	switch {
	case (q.ID == "") == (q.Batch == ""):
		return nil, sum, problem.Newf(problem.Invalid, "", "expected an id or a jobs file")
	case q.ID != "":
		if jobs, err = h.findSweep(ctx, c, q.ID); err != nil {
			return nil, sum, err
		}
		if r.id = jobs[0].Array(); r.id == "" {
			return nil, sum, problem.Newf(problem.Refused, "berth show "+jobs[0].ID, "job %s is no sweep and no array", jobs[0].ID)
		}
		r.batch.User = jobs[0].User
	default:
		ch, err := h.find.choose(ctx, c, api.Select{Batch: q.Batch})
		if err == nil {
			jobs, _, err = h.find.resolve(ctx, &ch, true)
		}
		if err != nil {
			return nil, sum, err
		}
		if len(jobs) == 0 {
			return nil, sum, problem.Newf(problem.NotFound, "berth submit "+filepath.Base(q.Batch), "no job is a line of %.200s", q.Batch)
		}
		slices.SortStableFunc(jobs, func(a, b job.Job) int { return cmp.Compare(a.Rank, b.Rank) })
		r.batch = jobs[0].Batch()
	}
	if len(jobs) > mostTrials {
		return nil, sum, problem.Newf(problem.TooMuch, "berth history shows them page by page", "expected at most %d jobs in one table, found %d", mostTrials, len(jobs))
	}
	sums, err := h.jobs.sumRows(ctx, &listing{h: h.jobs, ch: &choice{}, folds: folding{arrays: true, file: func(*job.Job) bool { return true }}}, []row{r}, true)
	if err != nil {
		return nil, sum, err
	}
	return jobs, sums[0], nil
}

// findSweep is the tasks of an array by its id, by the name of one of them, or by the
// name of the sweep.
func (h *sweeps) findSweep(ctx context.Context, c api.Caller, word string) ([]job.Job, error) {
	if strings.Contains(word, "{") { // no name of a job
		sums, err := h.Sweeps(ctx, c, api.SweepQuery{All: true})
		if err != nil {
			return nil, err
		}
		for _, s := range sums { // the newest first
			if s.Name == word {
				return h.find.findTasks(ctx, c, s.ID)
			}
		}
	}
	tasks, err := h.find.findTasks(ctx, c, word)
	if err != nil || len(tasks) != 1 || tasks[0].Array() == "" {
		return tasks, err
	}
	return h.find.findTasks(ctx, c, tasks[0].Array())
}

// paramsOf are the columns of a table, in order: of an array the index.
func paramsOf(jobs []job.Job) (names []string) {
	names = []string{}
	known := map[string]bool{}
	for i := range jobs {
		for _, p := range jobs[i].Spec.Trial.Params {
			if !known[p.Name] {
				known[p.Name] = true
				names = append(names, p.Name)
			}
		}
	}
	if len(names) == 0 && jobs[0].Array() != "" {
		names = append(names, indexParam)
	}
	return names
}

// indexParam is the parameter of an array that is no sweep.
const indexParam = "index"

func trialRow(j *job.Job, now time.Time) api.TrialRow {
	v := j.View()
	row := api.TrialRow{ID: j.ID, Name: v.Name, State: v.State, Outcome: v.Outcome, Params: v.Params, StartedAt: v.StartedAt, Attempt: v.Attempt, Metrics: map[string]any{}}
	if row.Params == nil {
		row.Params = map[string]string{}
		if _, index, task := strings.Cut(j.ID, "_"); task {
			row.Params[indexParam] = index
		}
	}
	if !j.StartedAt.IsZero() {
		seconds := j.Worked(now).Seconds()
		row.Seconds = &seconds
	}
	if _, mib := job.Highest(j.PeakMiB); mib > 0 {
		row.PeakVRAMMiB = &mib
	}
	return row
}

// pickAll picks the metrics of all trials from the logs of their last attempts. They
// were written so.
func (h *sweeps) pickAll(ctx context.Context, jobs []job.Job, metrics []sweep.Metric, written []string, rows []api.TrialRow) (unread int, err error) {
	end := time.Now().Add(logsRead)
	for i := range jobs {
		for _, m := range metrics {
			rows[i].Metrics[m.Name] = nil
		}
		if jobs[i].Attempt.Number == 0 {
			continue
		}
		values, known := h.picked.get(&jobs[i], written)
		if !known {
			if time.Now().After(end) {
				unread++
				continue
			}
			if err := fair.Spend(ctx, 1); err != nil {
				return unread, err
			}
			whole := false
			values, whole = h.pick(ctx, &jobs[i], metrics, end)
			if err := ctx.Err(); err != nil {
				return unread, err
			}
			switch {
			case !whole:
				unread++
			case values != nil: // there is a log
				h.picked.put(&jobs[i], written, values)
			}
		}
		for k, v := range values {
			if v != nil {
				rows[i].Metrics[metrics[k].Name] = v.JSON()
			}
		}
	}
	return unread, nil
}

// pick picks the metrics of one job, with the rights of its user. A log that cannot
// be opened has none.
func (h *sweeps) pick(ctx context.Context, j *job.Job, metrics []sweep.Metric, end time.Time) (values []*sweep.Value, whole bool) {
	path := cmp.Or(j.Log, h.svc.people.LogPath(j))
	file, err := h.svc.people.OpenAsOwner(ctx, j, path)
	if err != nil {
		return nil, errors.Is(err, os.ErrNotExist)
	}
	r := &logReader{h: h.logs, file: file, over: true, id: j.ID}
	r.ctx, r.cancel = context.WithCancel(ctx)
	defer func() { _ = r.Close() }() // it was only read
	size, err := file.Seek(0, io.SeekEnd)
	if err != nil {
		return nil, false
	}
	r.offset = max(0, size-logMost)
	whole = r.offset == 0
	picker, part := sweep.NewPicker(metrics), make([]byte, logPart)
	for read := 0; read < logMost && ctx.Err() == nil; {
		n, err := r.Read(part)
		var gap *api.LogGap
		switch {
		case errors.As(err, &gap):
			picker.Gap()
			continue
		case err != nil:
			return picker.Values(), whole && errors.Is(err, io.EOF)
		}
		_, _ = picker.Write(part[:n])
		if read += n; time.Now().After(end) {
			return picker.Values(), false
		}
	}
	return picker.Values(), whole
}

// Sweeps lists sweeps, the newest first.
func (h *sweeps) Sweeps(ctx context.Context, c api.Caller, q api.SweepQuery) ([]api.SweepSum, error) {
	user := whose(c, q.User)
	list := listing{h: h.jobs, ch: &choice{}, folds: folding{arrays: true}}
	var rows []row
	seen := map[row]int{}
	var sums []api.SweepSum
	var commands []string
	take := func(j *job.Job) {
		if j.Spec.Trial.Template == nil || user != "" && j.User != user || !h.svc.maySee(c, j) {
			return
		}
		r := list.folds.row(j)
		if _, known := seen[r]; known || len(rows) == mostSums {
			return
		}
		seen[r] = len(rows)
		rows = append(rows, r)
		at := j.SubmittedAt
		commands = append(commands, h.svc.sweptCommand(c, j))
		one := api.SweepSum{ID: j.Array(), Name: cmp.Or(j.Spec.Trial.Sweep, "job"+j.Array()), User: j.User, SubmittedAt: &at}
		for _, p := range j.Spec.Trial.Params {
			one.Params = append(one.Params, p.Name)
		}
		sums = append(sums, one)
	}
	if err := h.svc.Do(ctx, func(t *engine.Turn) {
		t.Jobs().Each(0, func(j *job.Job) bool { take(j); return true })
	}); err != nil {
		return nil, err
	}
	if q.All {
		over, err := h.svc.queue.Store.Find(store.Filter{User: user, Pause: pauses(ctx), Newest: true, Limit: mostTrials})
		if err != nil {
			return nil, err
		}
		for _, j := range over {
			take(j)
		}
	}
	counts, err := h.jobs.sumRows(ctx, &list, rows, true)
	if err != nil {
		return nil, err
	}
	for i := range sums {
		sums[i].Tasks = counts[i]
		sums[i].Command = commands[i]
	}
	slices.SortStableFunc(sums, func(a, b api.SweepSum) int { return b.SubmittedAt.Compare(*a.SubmittedAt) })
	return slices.Clip(append([]api.SweepSum{}, sums...)), nil
}

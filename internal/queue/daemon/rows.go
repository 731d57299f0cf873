package daemon

import (
	"context"
	"slices"
	"sync"
	"time"

	"berth/internal/api"
	"berth/internal/job"
	"berth/internal/queue/engine"
	"berth/internal/queue/fair"
)

// row is what jobs are listed under: a job, an array, or the lines of a jobs file.
type row struct {
	id    string    // of the job or the array
	batch job.Batch // of an array, only the user
}

// folding says which jobs are listed as one.
type folding struct {
	arrays bool
	file   func(*job.Job) bool // whether a line is listed with the others of its file; nil: none is
}

func (f folding) row(j *job.Job) row {
	if array := j.Array(); f.arrays && array != "" {
		return row{id: array, batch: job.Batch{User: j.User}}
	}
	if j.Spec.Batch != "" && f.file != nil && f.file(j) {
		return row{batch: j.Batch()}
	}
	return row{id: j.ID}
}

// one reports whether a row is only this job.
func (r row) one(j *job.Job) bool { return r.id == j.ID }

// each visits the unfinished jobs of a row that is an array or a jobs file.
func (r row) each(t *engine.Turn, fn func(*job.Job)) {
	if r.id != "" {
		t.Jobs().EachTask(r.id, fn)
	} else {
		t.Jobs().EachLine(r.batch, fn)
	}
}

// fewLines is how many jobs are listed one by one if all are lines of one file: the
// list of a small berth run is its jobs.
const fewLines = 20

// onlyAFewLines reports that the list is the lines of one file, and not many.
func (l *listing) onlyAFewLines() bool {
	if len(l.page) == 0 || l.more || l.total > fewLines {
		return false
	}
	only := l.folds.row(&l.page[0])
	return only.id == "" && !slices.ContainsFunc(l.page, func(j job.Job) bool { return l.folds.row(&j) != only })
}

// rowsPerTurn is how many arrays and jobs files are counted in one turn.
const rowsPerTurn = 20

// sumUp sums up the arrays and jobs files of a page.
func (h *jobs) sumUp(ctx context.Context, c api.Caller, list *listing, reasons bool) (map[string]api.Tasks, []api.BatchSum, error) {
	var rows []row
	var commands []string
	for i := range list.page {
		j := &list.page[i]
		if r := list.folds.row(j); !r.one(j) && !slices.Contains(rows, r) {
			rows, commands = append(rows, r), append(commands, h.svc.sweptCommand(c, j))
		}
	}
	sums, err := h.sumRows(ctx, list, rows, reasons)
	if err != nil {
		return nil, nil, err
	}
	var batches []api.BatchSum
	arrays := map[string]api.Tasks{}
	for i, r := range rows {
		sums[i].Command = commands[i]
		if r.id != "" {
			arrays[r.id] = sums[i]
		} else if all(sums[i].Counts) > 1 { // a single line is a job like others
			batches = append(batches, api.BatchSum{File: h.svc.batchPath(r.batch.File), User: r.batch.User, Tasks: sums[i]})
		}
	}
	return arrays, batches, nil
}

func all(counts map[string]int) (n int) {
	for _, of := range counts {
		n += of
	}
	return n
}

// sumRows sums up the selected jobs of each row.
func (h *jobs) sumRows(ctx context.Context, list *listing, rows []row, reasons bool) ([]api.Tasks, error) {
	sums := make([]api.Tasks, len(rows))
	for i := range sums {
		sums[i].Counts = map[string]int{}
	}
	for from := 0; from < len(rows); from += rowsPerTurn {
		to := min(from+rowsPerTurn, len(rows))
		if err := h.svc.Do(ctx, func(t *engine.Turn) { sumUpLive(t, list.ch, rows[from:to], sums[from:to], reasons) }); err != nil {
			return nil, err
		}
	}
	live := false
	for i, r := range rows {
		if sums[i].Reason != "" && h.svc.over != "" {
			sums[i].Reason = h.svc.over
		}
		live = live || len(sums[i].Counts) > 0
		if !list.ch.wantsOver() {
			continue
		}
		f := list.filter(ctx)
		if r.id != "" {
			f.IDs, f.Ranges = []string{r.id}, nil
		} else {
			f.User, f.Batch = r.batch.User, r.batch.File
		}
		counts, err := h.svc.queue.Store.CountOver(f)
		if err != nil {
			return nil, err
		}
		for state, n := range counts {
			sums[i].Counts[string(state)] += n
		}
	}
	if !live || !reasons || h.svc.still != nil {
		return sums, nil
	}
	done, err := h.dones.get(ctx, h.svc)
	for i, r := range rows {
		if at, known := done[r]; known && at.After(time.Now()) {
			sums[i].DoneAt = &at
		}
	}
	return sums, err
}

// sumUpLive counts the unfinished jobs of some rows, and says why the first queued
// one waits.
func sumUpLive(t *engine.Turn, ch *choice, rows []row, sums []api.Tasks, reasons bool) {
	type queued struct {
		id  string
		seq int64
	}
	first := make([]queued, len(rows))
	var waiting []string
	for i, r := range rows {
		r.each(t, func(j *job.Job) {
			if !ch.matches(t, j) {
				return
			}
			sums[i].Counts[string(j.State)]++
			if j.State == job.Queued && reasons && (first[i].id == "" || j.Seq < first[i].seq) {
				first[i] = queued{j.ID, j.Seq}
			}
		})
		if first[i].id != "" {
			waiting = append(waiting, first[i].id)
		}
	}
	if len(waiting) == 0 {
		return
	}
	why := t.Explain().Reasons(waiting)
	for i := range first {
		sums[i].Reason = why[first[i].id]
	}
}

// dones is when arrays and jobs files are expected to be done. In a long queue that
// takes the engine some time, so it is kept for a hundred times as long as it took.
type dones struct {
	mu    sync.Mutex
	until time.Time
	rows  map[row]time.Time
}

const donesShare = 100

func (x *dones) get(ctx context.Context, svc *service) (map[row]time.Time, error) {
	x.mu.Lock()
	rows, until := x.rows, x.until
	x.mu.Unlock()
	if time.Now().Before(until) {
		return rows, nil
	}
	if err := fair.Spend(ctx, fair.Long); err != nil {
		return nil, err
	}
	var took time.Duration
	if err := svc.Do(ctx, func(t *engine.Turn) {
		began := time.Now()
		rows = donesOf(t)
		took = time.Since(began)
	}); err != nil {
		return nil, err
	}
	x.mu.Lock()
	x.rows, x.until = rows, time.Now().Add(donesShare*took)
	x.mu.Unlock()
	return rows, nil
}

// donesOf is when rows are expected to be done: those of which every unfinished job
// is expected to end.
func donesOf(t *engine.Turn) map[row]time.Time {
	every := folding{arrays: true, file: func(*job.Job) bool { return true }}
	open := map[row]int{}
	t.Jobs().Each(0, func(j *job.Job) bool {
		if r := every.row(j); !r.one(j) {
			open[r]++
		}
		return true
	})
	if len(open) == 0 {
		return nil
	}
	last := map[row]time.Time{}
	t.Explain().Ends(func(j *job.Job, at time.Time) {
		r := every.row(j)
		if open[r]--; at.After(last[r]) {
			last[r] = at
		}
	})
	for r := range last {
		if open[r] != 0 {
			delete(last, r)
		}
	}
	return last
}

// Bounds on a list of jobs files and arrays.
const mostSums = 200

// Batches sums up jobs files and arrays.
func (h *jobs) Batches(ctx context.Context, c api.Caller, q api.BatchQuery) ([]api.BatchSum, error) {
	user := whose(c, q.User)
	file, err := h.svc.batchFile(q.File)
	if err != nil {
		return nil, err
	}
	folds := folding{arrays: q.File == "", file: func(j *job.Job) bool { return h.svc.maySee(c, j) }}
	var rows []row
	if err := h.svc.Do(ctx, func(t *engine.Turn) { rows = openRows(t, folds, user, file) }); err != nil {
		return nil, err
	}
	if own := (row{batch: job.Batch{User: c.Name, File: file}}); file != "" && (user == "" || user == c.Name) && !slices.Contains(rows, own) {
		rows = append(rows, own) // all of its jobs may have ended
	}
	list := listing{h: h, ch: &choice{}, folds: folds}
	sums, err := h.sumRows(ctx, &list, rows, true)
	if err != nil {
		return nil, err
	}
	var reply []api.BatchSum
	for i, r := range rows {
		if all(sums[i].Counts) > 0 {
			reply = append(reply, api.BatchSum{File: h.svc.batchPath(r.batch.File), Array: r.id, User: r.batch.User, Tasks: sums[i]})
		}
	}
	return reply, nil
}

// openRows are the arrays and jobs files with unfinished jobs, the oldest first; with
// a file, only that one.
func openRows(t *engine.Turn, folds folding, user, file string) (rows []row) {
	seen := map[row]bool{}
	t.Jobs().Each(0, func(j *job.Job) bool {
		if user != "" && j.User != user || file != "" && j.Spec.Batch != file {
			return true
		}
		if r := folds.row(j); !r.one(j) && !seen[r] {
			seen[r] = true
			rows = append(rows, r)
		}
		return len(rows) < mostSums
	})
	return rows
}

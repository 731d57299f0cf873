package daemon

import (
	"context"
	"strconv"
	"strings"
	"sync"

	"berth/internal/job"
	"berth/internal/queue/engine"
)

// deleted is what is remembered of the lines of jobs files that were deleted.
type deleted struct {
	// unwanted jobs, by id, run without a line: they are not queued again. After a
	// restart, the next request of their file says so again.
	unwanted sync.Map
	// numbers are those of jobs in the queue of a berth run that never started, by
	// the keys of their lines, which get them back when they return. Nil: not read.
	// Only for the engine's goroutine.
	numbers map[string]string
}

// maxNumbers bounds the numbers that are kept. A line beyond it gets a new one.
const maxNumbers = 100_000

// numberKey begins the store's keys for them.
const numberKey = "number "

// wanted reports whether a job is queued again if that comes up.
func (d *deleted) wanted(id string) bool {
	_, unwanted := d.unwanted.Load(id)
	return !unwanted
}

// letRun lets a job run to its end without a line, and forgets those that have ended.
func (d *deleted) letRun(t *engine.Turn, id string) {
	d.unwanted.Store(id, nil)
	d.unwanted.Range(func(id, _ any) bool {
		if !t.Jobs().Has(id.(string)) {
			d.unwanted.Delete(id)
		}
		return true
	})
}

// keep keeps the number of a job that is withdrawn, on disk too.
func (d *deleted) keep(t *engine.Turn, key, id string) {
	if d.numbers != nil && len(d.numbers) < maxNumbers {
		d.numbers[key] = id
		t.Queue().Changes.Meta[numberKey+key] = id
	}
}

// giveBack gives new jobs the numbers that their lines had.
func (d *deleted) giveBack(t *engine.Turn, jobs []*job.Job) {
	for _, j := range jobs {
		if id, kept := d.numbers[j.Key]; kept {
			delete(d.numbers, j.Key)
			t.Queue().Changes.Meta[numberKey+j.Key] = ""
			j.Seq, _ = strconv.ParseInt(id, 10, 64) // it was made from one
		}
	}
}

// readNumbers reads the numbers that an earlier process kept, except those of jobs
// that exist, and those of a queue that was started over since.
func (l *lines) readNumbers(ctx context.Context, found []job.Job) error {
	if l.h.svc.runs == "" || l.h.deleted.numbers != nil {
		return nil
	}
	stored, err := l.h.svc.queue.Store.Metas(numberKey)
	if err != nil {
		return err
	}
	used := make(map[string]bool, len(found))
	for i := range found {
		used[found[i].ID] = true
	}
	return l.h.svc.Do(ctx, func(t *engine.Turn) {
		l.h.deleted.numbers = map[string]string{}
		for key, id := range stored {
			if number, err := strconv.ParseInt(id, 10, 64); err == nil && number < t.Queue().NextSeq && !used[id] {
				l.h.deleted.numbers[strings.TrimPrefix(key, numberKey)] = id
			} else if id != "" {
				t.Queue().Changes.Meta[key] = ""
			}
		}
	})
}

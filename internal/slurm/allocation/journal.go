package allocation

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"strconv"
	"time"

	"berth/internal/job"
)

// record is one line of a journal.jsonl, and of --json: of an allocation's berth run,
// or of this one, which says besides where the job runs.
type record struct {
	Time       time.Time     `json:"time"`
	Event      job.EventKind `json:"event"`
	Text       string        `json:"text,omitempty"`
	Allocation int           `json:"allocation,omitempty"`
	Node       string        `json:"node,omitempty"`
	Seq        int64         `json:"seq,omitempty"` // in the allocation's own journal
	Job        *job.View     `json:"job,omitempty"`
}

// journal reads what a berth run writes, whole lines only.
type journal struct{ at int64 }

// journalName is a journal in a log directory.
const journalName = "journal.jsonl"

// maxRead bounds what is read at once.
const maxRead = 8 << 20

// read passes on the lines that are new.
func (j *journal) read(path string, take func(record)) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	for {
		raw := make([]byte, maxRead)
		n, err := file.ReadAt(raw, j.at)
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		whole := raw[:bytes.LastIndexByte(raw[:n], '\n')+1]
		for line := range bytes.Lines(whole) {
			var r record
			if json.Unmarshal(line, &r) == nil {
				take(r)
			}
		}
		j.at += int64(len(whole))
		if n < maxRead || len(whole) == 0 {
			return nil
		}
	}
}

// index is the place of an event's job in jobs.txt: the berth run numbers the
// lines of a file that only grows from 1. 0: the event is not about a job.
func (n *record) index() int {
	if n.Job == nil {
		return 0
	}
	index, err := strconv.Atoi(n.Job.ID)
	if err != nil {
		return 0
	}
	return index
}

// beforeNotice is how long before an allocation was told to end its jobs may have
// noticed: Slurm signals all of its processes at once.
const beforeNotice = 5 * time.Second

// stoppedWith reports whether a job that failed was stopped with its allocation.
func stoppedWith(told time.Time, v *job.View) bool {
	if told.IsZero() || v.Outcome == nil || *v.Outcome == job.OK || v.EndedAt == nil {
		return false
	}
	return !v.EndedAt.Before(told.Add(-beforeNotice))
}

// signalled reports whether a job ended as one that Slurm stops: a notice that its
// allocation ends may follow.
func signalled(o job.Outcome) bool {
	switch o {
	case job.Signalled("TERM"), job.Signalled("KILL"), job.Exited(128 + 15), job.Exited(128 + 9):
		return true
	}
	return false
}

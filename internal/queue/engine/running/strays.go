package running

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"berth/internal/job"
	"berth/internal/machine/gpu"
	"berth/internal/machine/keep"
	"berth/internal/machine/run"
	"berth/internal/queue/engine/cards"
	"berth/internal/queue/store"
)

// StrayEntry is a supervisor with a job that the store does not know: the store was
// emptied, or replaced by an older one. It is left alone. Its cards stay booked,
// and the job can be adopted from the copy in the supervisor's directory.
type StrayEntry struct {
	Found   run.Found
	Job     *job.Job // nil: the berth that started it left no copy
	Environ []byte
	Over    *run.Event // its end, once that is known
	Park    keep.ParkNews
}

// Stray is one of them, for people.
type Stray struct {
	Found run.Found
	Job   *job.Job // as it was when it started; nil: not known
	State StrayState
	PID   int
}

// StrayState is what became of a stray's job.
type StrayState string

// The states of a stray.
const (
	StrayRunning StrayState = "running"
	StrayEnded   StrayState = "ended"
	StrayLost    StrayState = "lost"
)

// jobCopy is what a berth leaves about a job beside its supervisor.
type jobCopy struct {
	Job     json.RawMessage `json:"job"`
	Environ []byte          `json:"environ,omitempty"` // separated by NUL
}

// EncodeCopy is the copy of a job that is about to start with this environment.
func EncodeCopy(j *job.Job, environ []string) ([]byte, error) {
	text, err := store.EncodeJob(j)
	if err != nil {
		return nil, fmt.Errorf("copy job %s: %w", j.ID, err)
	}
	return json.Marshal(jobCopy{Job: text, Environ: []byte(strings.Join(environ, "\x00"))})
}

// CopyOf reads the copy of the job that a supervisor holds, or nil if it has none,
// or it is of another job.
func CopyOf(f run.Found) (j *job.Job, environ []byte) {
	var c jobCopy
	if len(f.Copy) == 0 || json.Unmarshal(f.Copy, &c) != nil {
		return nil, nil
	}
	j, err := store.DecodeJob(c.Job)
	if err != nil || j.State != job.Running || j.ID != f.Job || j.Attempt.Number != f.Attempt || j.Keep != f.Token {
		return nil, nil
	}
	return j, c.Environ
}

func (st *StrayEntry) State() StrayState {
	switch {
	case st.Over != nil && st.Over.Kind == run.Ended:
		return StrayEnded
	case st.Over != nil || st.Found.Kind == run.FoundLost:
		return StrayLost
	}
	return StrayRunning
}

// StrayBookings is what strays hold. To placement they are another berth's jobs:
// nothing here may preempt or account for them.
func (hs *holdings) StrayBookings() []gpu.Entry {
	var entries []gpu.Entry
	all := hs.set.cards.Book.List()
	for _, token := range slices.Sorted(maps.Keys(hs.set.Strays)) {
		st := hs.set.Strays[token]
		switch {
		case st.Over != nil:
		case st.Job != nil:
			entries = append(entries, hs.booking(st.Job, all))
		default:
			r := st.Found.Record
			entries = append(entries, gpu.Entry{Key: cards.BookingKey(token, st.Found.Job), Job: st.Found.Job, HolderPID: r.KeepPID, HolderStart: r.KeepStart})
		}
	}
	return entries
}

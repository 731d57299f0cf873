package engine

import (
	"errors"
	"log/slog"
	"testing"

	"berth/internal/job"
	"berth/internal/queue/engine/journal"
	"berth/internal/queue/engine/remote"
	"berth/internal/queue/engine/settings"
	"berth/internal/queue/engine/waiting"
	"berth/internal/queue/store"
	"berth/internal/sched"
)

// disk is a store that may be full.
type disk struct {
	full bool
	txs  []store.Tx
}

func (d *disk) Commit(tx store.Tx) error {
	if d.full {
		return errDisk
	}
	d.txs = append(d.txs, tx)
	return nil
}

func (d *disk) Job(string) (*job.Job, error)                       { return nil, store.ErrNotFound }
func (d *disk) PeakFor(_, _ string) (mib int64, runs int, e error) { return 0, 0, nil }

func (d *disk) Present() error { return nil }

func queuedJob(id string, seq int64, change ...func(*job.Spec)) *job.Job {
	j := &job.Job{ID: id, Seq: seq, Rank: seq, User: "ann", Spec: spec(change...)}
	j.Submitted(start0)
	return j
}

// TestChangesAlone: facts stay until they are on disk, new jobs are refused, and
// those who wait are told which.
func TestChangesAlone(t *testing.T) {
	d := &disk{full: true}
	c := journal.New(d, slog.New(slog.DiscardHandler))
	c.Fact(queuedJob("1", 1))
	c.Tell(start0, job.EventHeld, nil, "")
	var refused error
	c.Stage(journal.Batch{Jobs: []*job.Job{queuedJob("2", 2)}, Done: func(err error) { refused = err }})
	if _, _, err := c.Commit(start0, nil); !errors.Is(err, store.ErrFull) || !errors.Is(refused, store.ErrFull) {
		t.Fatalf("a full disk: %v, and for the new job %v", err, refused)
	}
	if c.Written() || len(c.Shown()) == 0 {
		t.Error("the fact is forgotten, or nobody hears of the disk")
	}
	d.full = false
	tx, _, err := c.Commit(start0, []journal.Decision{{Job: queuedJob("1", 1), Kind: job.EventStarted}})
	if err != nil || len(tx.Put) != 1 || len(tx.Events) != 2 {
		t.Fatalf("%v: %d rows and %d events, want 1 and 2", err, len(tx.Put), len(tx.Events))
	}
	if staged := c.Settle(); len(staged) != 0 || !c.Written() {
		t.Errorf("%d staged, written: %v", len(staged), c.Written())
	}
}

// TestTheLineAlone: a chain of jobs is let go link by link, or breaks.
func TestTheLineAlone(t *testing.T) {
	l := waiting.New(&settings.Settings{Rules: sched.DefaultRules(), Log: slog.New(slog.DiscardHandler)}, journal.New(&disk{}, slog.New(slog.DiscardHandler)))
	l.Cluster = remote.New(nil, l.Changes)
	first, then, other := queuedJob("1", 1), queuedJob("2", 2, after("1", job.AfterOK)), queuedJob("3", 3, after("1", job.AfterFail))
	for _, j := range []*job.Job{first, then, other} {
		l.Roster.Know(j)
	}
	for _, j := range []*job.Job{first, then, other} {
		if broken := l.Enqueue(start0, j); broken != "" {
			t.Fatalf("job %s: %s", j.ID, broken)
		}
	}
	if l.Queue.Len() != 1 || l.Why(start0, "2", l.Roster.Look("2")) == "" {
		t.Fatalf("%d wait for room; job 2 waits for %q", l.Queue.Len(), l.Why(start0, "2", l.Roster.Look("2")))
	}
	l.Unqueue("1")
	first.MustTo(job.Running)
	first.MustTo(job.Finished)
	first.Outcome = job.OK
	l.Roster.Forget(first)
	never := l.Settle(start0, first)
	if len(never) != 1 || never[0].Job != other {
		t.Errorf("%d can never start, want job 3 alone", len(never))
	}
	if _, queued := l.Queue.Get("2"); !queued || l.Why(start0, "2", l.Roster.Look("2")) != "" {
		t.Errorf("job 2 waits for %q", l.Why(start0, "2", l.Roster.Look("2")))
	}
}

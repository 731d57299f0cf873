package store

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/binary"
	"encoding/json"

	"berth/internal/job"
	"berth/internal/text"
)

// batch is the arguments of one statement.
type batch struct {
	args      []any
	statement *sql.Stmt
	err       error
}

// insertRows inserts n rows, many per statement, because most of the cost of a
// row is the fixed cost of a statement. render appends the columns of row i. For
// large numbers it runs ahead, so that one core encodes JSON while another works
// in the database.
func insertRows(ctx context.Context, one, many *sql.Stmt, n int, render func(args []any, i int) ([]any, error)) error {
	next := func(at int) (batch, int) {
		b, end := batch{statement: one}, at+1
		if n-at >= rowsPerInsert {
			b.statement, end = many, at+rowsPerInsert
			b.args = make([]any, 0, rowsPerInsert*jobColumnCount)
		}
		for ; at < end && b.err == nil; at++ {
			b.args, b.err = render(b.args, at)
		}
		return b, end
	}
	if n < 4*rowsPerInsert {
		for at := 0; at < n; {
			var b batch
			if b, at = next(at); b.err != nil {
				return b.err
			}
			if _, err := b.statement.ExecContext(ctx, b.args...); err != nil {
				return err
			}
		}
		return nil
	}
	ahead := make(chan batch, 4)
	stop := make(chan struct{})
	go func() {
		defer close(ahead)
		for at := 0; at < n; {
			var b batch
			b, at = next(at)
			select {
			case ahead <- b:
			case <-stop:
				return
			}
		}
	}()
	// The rows belong to the caller: they may not be read after this returns.
	defer func() {
		close(stop)
		for range ahead {
		}
	}()
	for b := range ahead {
		if b.err != nil {
			return b.err
		}
		if _, err := b.statement.ExecContext(ctx, b.args...); err != nil {
			return err
		}
	}
	return nil
}

// isNew reports whether a job is still as submitted, so that the other columns
// have their defaults.
func isNew(j *job.Job) bool {
	return j.State == job.Queued && j.Outcome == "" && j.Attempt.Number == 0 && j.PeakMiB == nil && !j.TextGone &&
		j.StartedAt.IsZero() && j.EndedAt.IsZero() && isText(j)
}

// encoder encodes the two JSON columns of one job after another. The jobs of a large
// request are of few kinds, each of which is encoded once.
type encoder struct {
	spec, rest string // of the last job

	kinds [4]kind
	next  int // the one that is replaced
}

// kind is the columns of jobs that are alike, the spec without their names.
type kind struct {
	of         *job.Job // nil: none
	spec, rest string
}

func (e *encoder) encode(j *job.Job, wide bool) error {
	k, err := e.kindOf(j, wide)
	if err != nil {
		return err
	}
	if e.spec, e.rest = k.spec, k.rest; j.Spec.Name != "" {
		e.spec = `{"name":` + string(text.MustJSON(j.Spec.Name)) + "," + k.spec[1:]
	}
	return nil
}

func (e *encoder) kindOf(j *job.Job, wide bool) (*kind, error) {
	for i := range e.kinds {
		if k := &e.kinds[i]; !wide && k.of != nil && job.Alike(k.of, j) {
			return k, nil
		}
	}
	unnamed := j.Spec
	unnamed.Name = ""
	spec, err := encodeSpec(unnamed)
	if err != nil {
		return nil, err
	}
	rest, err := encodeRest(j, wide)
	k := &e.kinds[e.next]
	*k, e.next = kind{j, string(spec), string(rest)}, (e.next+1)%len(e.kinds)
	if wide {
		k.of = nil
	}
	return k, err
}

// newArgs appends the columns of a new job, in the order of newColumns.
func newArgs(args []any, j *job.Job, command int64, e *encoder) []any {
	shell := sql.NullString{String: j.Spec.Shell, Valid: j.Spec.Shell != ""}
	return append(args, j.Seq, j.ID, j.Key, j.User, j.Rank, j.VRAMMiB, nanos(j.SubmittedAt), command, shell, e.spec, e.rest)
}

// jobArgs appends every column of a job, in the order of jobColumns.
func jobArgs(args []any, j *job.Job, long *longTexts, e *encoder) ([]any, error) {
	command := commandHash(j)
	j, blob := long.row(j)
	wide := !isText(j)
	inside := j // the version that goes into JSON
	if wide {
		inside = widened(j)
	}
	if err := e.encode(inside, wide); err != nil {
		return nil, err
	}
	return append(newArgs(args, j, command, e), string(j.State), string(j.Outcome), j.Attempt.Number, highest(j.PeakMiB),
		nanos(j.StartedAt), nanos(j.EndedAt), blob), nil
}

// eventArgs appends an event's row.
func eventArgs(args []any, seq int64, event *job.Event) ([]any, error) {
	var snapshot, card sql.NullString
	if event.Card != nil {
		text, err := json.Marshal(event.Card)
		if err != nil {
			return nil, err
		}
		card = sql.NullString{String: string(text), Valid: true}
	}
	if event.Job != nil {
		text, err := encodeSnapshot(event.Job)
		if err != nil {
			return nil, err
		}
		snapshot = sql.NullString{String: string(text), Valid: true}
	}
	return append(args, seq, nanos(event.At), string(event.Kind), event.Text, snapshot, card), nil
}

func commandHash(j *job.Job) int64 { return hashCommand(j.Spec.CommandHead(job.KindBytes)) }

// hashCommand is short enough to index and long enough not to collide.
func hashCommand(command string) int64 {
	sum := sha256.Sum256([]byte(command))
	return int64(binary.BigEndian.Uint64(sum[:8]))
}

func highest(peaks map[int]int64) int64 {
	var peak int64
	for _, mib := range peaks {
		peak = max(peak, mib)
	}
	return peak
}

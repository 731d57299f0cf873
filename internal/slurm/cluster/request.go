package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"berth/internal/machine/site"
	"berth/internal/slurm"
	"berth/internal/slurm/client"
	"berth/internal/slurm/handover"
)

// The requests are what is done on the cluster with a user's rights. Slurm's
// programs, and the files in a user's directories, are touched nowhere else.

// request is one of the requests, whose answer is an R.
type request[R any] interface {
	do(ctx context.Context, s client.Client) (R, error)
}

// none is the answer to a request that has none.
type none struct{}

// unreachable is why Slurm could not be asked.
func unreachable(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("Slurm cannot be reached: %w", err)
}

// jobName is a job in Slurm by its id and its name. By the id alone it may be another
// one: slurmctld gives the id of a job that it forgot to the next.
type jobName struct{ ID, Name string }

// startMarker is the start marker of one job.
type startMarker struct {
	Dir   string
	Index int
	Make  bool // the directory with all above it, which may never have been there
}

// submitRequest hands over a batch. After an error Slurm may have it nevertheless.
type submitRequest struct {
	Dir       string
	Own       string // the directory above it that no other user may write to
	Orders    []handover.Order
	Script    []byte
	Arguments []string
	Programs  []handover.Program
}

// submitAnswer is Slurm's answer to sbatch.
type submitAnswer struct {
	ID      string
	Unsent  string // why sbatch was not called
	Full    string // for now: there are too many jobs in Slurm's queue
	Refused string // for good
	// MaxArray is Slurm's own bound of an array, if it refuses one; nil: not known.
	MaxArray *int
}

func (s submitRequest) do(ctx context.Context, c client.Client) (submitAnswer, error) {
	if err := s.write(); err != nil {
		return submitAnswer{Unsent: err.Error()}, nil
	}
	id, err := c.Submit(ctx, s.Arguments)
	switch {
	case err == nil:
		return submitAnswer{ID: id}, nil
	case client.Is(err, client.Full):
		return submitAnswer{Full: err.Error()}, nil
	case client.Is(err, client.Refused):
		refused := submitAnswer{Refused: err.Error()}
		if aboutArrays(refused.Refused) {
			refused.MaxArray = c.MaxArraySize(ctx)
		}
		return refused, nil
	}
	return submitAnswer{}, unreachable(err)
}

// write puts everything that sbatch and the node need where they see it.
func (s submitRequest) write() error {
	if s.Own != "" {
		// Another user who could write there would choose what runs as this one.
		if err := os.MkdirAll(s.Own, 0o700); err != nil {
			return err
		}
		if err := site.OwnPlace(s.Own); err != nil {
			return err
		}
	}
	if err := handover.Install(s.Programs); err != nil {
		return err
	}
	return handover.Create(s.Dir, s.Orders, s.Script)
}

// aboutArrays reports whether Slurm may refuse a job for its array.
func aboutArrays(why string) bool { return strings.Contains(strings.ToLower(why), "array") }

// takeRequest takes start markers, so that the jobs never begin. The answer says for each
// whether berth has it now, the error why one could be neither taken nor found.
type takeRequest struct{ Markers []startMarker }

func (t takeRequest) do(context.Context, client.Client) (taken []bool, err error) {
	for _, m := range t.Markers {
		// If that fails, the marker cannot be made, and says why.
		if m.Make {
			_ = os.MkdirAll(m.Dir, 0o700)
		} else {
			_ = os.Mkdir(m.Dir, 0o700) // somebody removed it; without the one above it is not mounted
		}
		is, failed := handover.Take(m.Dir, m.Index)
		if taken = append(taken, is); failed != nil {
			err = failed
		}
	}
	return taken, err
}

// stopRequest has the wrappers of jobs stop them.
type stopRequest struct{ Markers []startMarker }

func (s stopRequest) do(context.Context, client.Client) (_ none, err error) {
	for _, m := range s.Markers {
		if failed := there(m.Dir, handover.Stop(m.Dir, m.Index)); failed != nil {
			err = failed
		}
	}
	return none{}, err
}

// cancelRequest cancels those of the jobs that Slurm has under these names. scancel's own
// filter will not do: it ends the waiting tasks of an array together.
type cancelRequest struct{ Jobs []jobName }

func (q cancelRequest) do(ctx context.Context, c client.Client) (none, error) {
	entries, err := c.Queue(ctx)
	if err != nil {
		return none{}, unreachable(err)
	}
	var ids []string
	for _, e := range entries {
		if slices.Contains(q.Jobs, jobName{e.ID, e.Name}) {
			ids = append(ids, e.ID)
		}
	}
	if err := c.Cancel(ctx, ids); err != nil && !client.Is(err, client.Refused) {
		return none{}, unreachable(err)
	}
	return none{}, nil
}

// holdRequest keeps waiting jobs from starting, and lets others start.
type holdRequest struct{ Hold, Release []string }

func (h holdRequest) do(ctx context.Context, c client.Client) (none, error) {
	return none{}, unreachable(errors.Join(c.Hold(ctx, h.Hold), c.Release(ctx, h.Release)))
}

// listRequest lists the user's jobs in Slurm's queue whose comments begin so.
type listRequest struct{ Comment string }

// listAnswer is Slurm's queue, and how long it took to list.
type listAnswer struct {
	Queue []slurm.Entry
	Cost  time.Duration
}

func (l listRequest) do(ctx context.Context, c client.Client) (listAnswer, error) {
	begun := time.Now()
	all, err := c.Queue(ctx)
	ours := slices.DeleteFunc(all, func(e slurm.Entry) bool { return !strings.HasPrefix(e.Comment, l.Comment) })
	return listAnswer{ours, time.Since(begun)}, unreachable(err)
}

// accountRequest asks how jobs ended.
type accountRequest struct{ IDs []string }

func (a accountRequest) do(ctx context.Context, c client.Client) ([]slurm.Account, error) {
	accounts, err := c.Accounts(ctx, a.IDs)
	return accounts, unreachable(err)
}

// memoryRequest asks what Slurm printed about killing a job for its host memory; empty:
// nothing of the kind.
type memoryRequest struct{ Marker startMarker }

// maxSlurmLog is how much of what Slurm printed about a batch is read.
const maxSlurmLog = 256 << 10

func (m memoryRequest) do(context.Context, client.Client) (string, error) {
	b, _ := handover.ReadBegun(m.Marker.Dir, m.Marker.Index) // without it there is no number to look for
	file, err := os.Open(slurmLog(m.Marker.Dir))
	if b == nil || err != nil {
		return "", nil //nolint:nilerr // Slurm may not have printed anything
	}
	defer file.Close()
	if info, err := file.Stat(); err == nil && info.Size() > maxSlurmLog {
		_, _ = file.Seek(-maxSlurmLog, io.SeekEnd) // the end is what matters
	}
	out, _ := io.ReadAll(io.LimitReader(file, maxSlurmLog))
	return slurm.MemoryWords(string(out), b.Step), nil
}

// lookRequest reads what the wrappers of jobs have written.
type lookRequest struct{ Batches []watchedBatch }

// watchedBatch is a batch to look at, and what is known of its jobs already.
type watchedBatch struct {
	Dir  string
	Jobs map[int]handover.Has
}

// batchNews is what is new about the jobs of a batch.
type batchNews struct {
	Begun map[int]handover.Begun
	Now   map[int]handover.Now
	NowAt map[int]time.Time // of its file
	Ended map[int]handover.Record
	Error string // why not all could be read
}

func (l lookRequest) do(context.Context, client.Client) (seen []batchNews, err error) {
	for _, w := range l.Batches {
		seen = append(seen, w.look())
	}
	return seen, nil
}

func (w watchedBatch) look() (s batchNews) {
	all, err := handover.Look(w.Dir)
	if err = there(w.Dir, err); err != nil {
		return batchNews{Error: err.Error()}
	}
	s = batchNews{Begun: map[int]handover.Begun{}, Now: map[int]handover.Now{}, NowAt: map[int]time.Time{}, Ended: map[int]handover.Record{}}
	fail := func(err error) {
		// A file that is not one of berth's will not become one.
		if _, unread := errors.AsType[*fs.PathError](err); unread {
			s.Error = err.Error()
		}
	}
	for index, known := range w.Jobs {
		is := all[index]
		if is.Begun && !known.Begun {
			b, err := handover.ReadBegun(w.Dir, index)
			if fail(err); b != nil {
				s.Begun[index] = *b
			}
		}
		if is.Now && !is.NowAt.Equal(known.NowAt) && !is.Ended {
			n, err := handover.ReadNow(w.Dir, index)
			if fail(err); n != nil {
				s.Now[index], s.NowAt[index] = *n, is.NowAt
			}
		}
		if is.Ended && !known.Ended {
			r, err := handover.ReadRecord(w.Dir, index)
			if fail(err); r != nil {
				s.Ended[index] = *r
			}
		}
	}
	return s
}

// there drops the error that a batch has no directory, if the file system is there:
// somebody removed it.
func there(dir string, err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		_, err = os.Stat(filepath.Dir(dir))
	}
	return err
}

// removeRequest removes what batches that are over need no more.
type removeRequest struct{ Dir string }

func (r removeRequest) do(context.Context, client.Client) (none, error) {
	// What is left of it is a few files, which are swept one day.
	return none{}, handover.Remove(r.Dir)
}

// sweepRequest removes what is left of old batches: markers, records and logs.
type sweepRequest struct {
	Dir    string // that all batches of a queue are in
	Before time.Time
	Keep   []string // batches whose jobs have not ended
}

// do removes what it can; the rest is tried again another day.
func (s sweepRequest) do(context.Context, client.Client) (none, error) {
	entries, err := os.ReadDir(s.Dir)
	for _, e := range entries {
		info, err := e.Info()
		if err == nil && e.IsDir() && info.ModTime().Before(s.Before) && !slices.Contains(s.Keep, e.Name()) {
			_ = os.RemoveAll(filepath.Join(s.Dir, e.Name()))
		}
	}
	return none{}, err
}

// slurmLog is what the scripts of a batch print, and Slurm itself.
func slurmLog(dir string) string { return filepath.Join(dir, "slurm.out") }

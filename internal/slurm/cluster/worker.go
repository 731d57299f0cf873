package cluster

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"berth/internal/job"
	"berth/internal/machine/site"
	"berth/internal/queue/engine"
	"berth/internal/queue/engine/remote"
	"berth/internal/slurm"
	"berth/internal/slurm/client"
	"berth/internal/slurm/handover"
)

// worker is one user's jobs on the cluster. Its goroutine alone touches it, except
// for the inbox.
type worker struct {
	c   *Cluster
	uid int

	mu    sync.Mutex
	inbox []changeSet
	knock chan struct{}

	user      site.User
	jobs      map[string]*remoteJob // by berth's id
	sender    sender
	queue     comparison
	trouble   string         // why Slurm cannot be asked; empty: it can
	explained remote.Trouble // as the engine was told
	swept     time.Time
	lookCost  time.Duration
	unread    string // why files of jobs cannot be read
}

// remoteJob is a job as its worker knows it.
type remoteJob struct {
	job     job.Job
	has     handover.Has // files that were read
	handed  time.Time    // when this worker handed it over; zero: an earlier one did
	looked  time.Time    // when its files were last looked for, and could be
	missing time.Time    // since when Slurm does not list it; zero: it does
	stuck   time.Time    // since when Slurm says that it runs, although it has not begun
	name    string       // in Slurm; empty: not known yet
	told    time.Time    // when Slurm was last told to stop it
	fenced  time.Time    // when its wrapper was told to stop it, or was last heard of since
	ended   *handover.Record
	verdict *slurm.Account // how Slurm said that it ended; nil: not yet
}

func newWorker(c *Cluster, uid int) *worker {
	w := &worker{c: c, uid: uid, knock: make(chan struct{}, 1), jobs: map[string]*remoteJob{}}
	w.sender = sender{w: w, array: maxBatch + 1, most: maxBatch, doubted: map[string]bool{}}
	w.queue = comparison{w: w, failed: map[string]int{}}
	return w
}

func (w *worker) tell(news changeSet) {
	w.mu.Lock()
	w.inbox = append(w.inbox, news)
	w.mu.Unlock()
	select {
	case w.knock <- struct{}{}:
	default:
	}
}

func (w *worker) run(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.knock:
			// Others may follow at once, and go with it.
			select {
			case <-time.After(w.c.pace.gather):
			case <-ctx.Done():
				return
			}
		case <-timer.C:
		}
		w.receive()
		if w.step(ctx); ctx.Err() != nil {
			return
		}
		timer.Reset(w.next())
	}
}

// next is when there is something to do without being told.
func (w *worker) next() time.Duration {
	if len(w.jobs) == 0 {
		return time.Hour
	}
	if w.trouble != "" {
		return max(w.c.pace.look, time.Until(w.queue.asked.Add(w.c.pace.troubled)))
	}
	return max(w.c.pace.look, time.Duration(w.c.pace.looks)*w.lookCost)
}

// receive takes in news from the engine.
func (w *worker) receive() {
	w.mu.Lock()
	inbox := w.inbox
	w.inbox = nil
	w.mu.Unlock()
	for _, news := range inbox {
		for _, id := range news.gone {
			if h := w.jobs[id]; h == nil || !h.handed.After(news.at) {
				delete(w.jobs, id)
				delete(w.sender.doubted, id)
				delete(w.queue.failed, id)
			}
		}
		for i := range news.jobs {
			w.update(&news.jobs[i], news.at)
		}
	}
}

// update takes in how a job was at that time.
func (w *worker) update(j *job.Job, at time.Time) {
	h := w.jobs[j.ID]
	switch {
	case h != nil && h.handed.After(at): // it is from before the job was handed over
	case h == nil || h.job.Handover.Batch != j.Handover.Batch:
		w.jobs[j.ID] = &remoteJob{job: *j, has: handover.Has{Begun: j.State == job.Running}}
	default:
		w.queue.want = w.queue.want || h.job.Held != j.Held // Slurm is to know soon
		j.Handover.Slurm = cmp.Or(j.Handover.Slurm, h.job.Handover.Slurm)
		h.job = *j
	}
}

// step is one look at everything.
func (w *worker) step(ctx context.Context) {
	if len(w.jobs) == 0 {
		return
	}
	if w.user.Home == "" {
		for _, h := range w.jobs {
			user, err := w.c.User(ctx, &h.job)
			if err != nil {
				w.troubles(ctx, fmt.Errorf("their user's home is not known: %w", err))
				return
			}
			w.user = user
			break
		}
	}
	for _, do := range []func(context.Context){w.sweep, w.follow, w.stop, w.queue.compare, w.sender.handOver, w.explain} {
		if do(ctx); ctx.Err() != nil {
			return // the engine may still be working on the last request, with data of the worker's
		}
	}
}

// do carries out a request with the rights of the worker's user: in this process, or
// in one of the user's own.
func do[R any](ctx context.Context, w *worker, q request[R]) (R, error) {
	if w.c.As == nil {
		return q.do(ctx, client.Client{Environ: w.c.Vars})
	}
	var a answer[R]
	input, err := encode(append(w.c.Vars[:len(w.c.Vars):len(w.c.Vars)], "HOME="+w.user.Home, "USER="+w.user.Name, "LOGNAME="+w.user.Name), q)
	if err == nil {
		input, err = w.c.As(ctx, w.uid, input)
	}
	if err == nil {
		err = json.Unmarshal(input, &a)
	}
	switch {
	case err != nil:
		return a.Reply, fmt.Errorf("berth cannot act for this user: %w", err)
	case a.Error != "":
		return a.Reply, errors.New(a.Error)
	}
	return a.Reply, nil
}

// report passes news on to the engine, which has them on disk when it returns.
func (w *worker) report(ctx context.Context, news []func(*engine.Turn)) error {
	if len(news) == 0 {
		return nil
	}
	return w.c.Engine.Change(ctx, func(t *engine.Turn) {
		for _, tell := range news {
			tell(t)
		}
	})
}

// sweep removes the files of batches that ended long ago, once a day.
func (w *worker) sweep(ctx context.Context) {
	keep := w.c.Config().Keep
	if keep <= 0 || time.Since(w.swept) < sweepEvery {
		return
	}
	w.swept = time.Now()
	s := sweepRequest{Dir: filepath.Dir(w.dir("any")), Before: time.Now().Add(-keep)}
	for batch := range w.batches() {
		s.Keep = append(s.Keep, batch)
	}
	_, _ = do(ctx, w, s)
}

// dir is the directory of a batch.
func (w *worker) dir(batch string) string {
	return filepath.Join(w.directory(), w.c.Queue, batch)
}

// directory is where the nodes see what is this user's own.
func (w *worker) directory() string {
	dir := w.c.Config().Directory
	dir = cmp.Or(dir, DefaultDirectory)
	if rest, found := strings.CutPrefix(dir, "~/"); found {
		return filepath.Join(w.user.Home, rest)
	}
	uid := w.uid
	if os.Geteuid() != 0 {
		uid = os.Geteuid() // jobs of a run have none
	}
	return filepath.Join(dir, strconv.Itoa(uid)) // all users have it
}

// troubles records why Slurm cannot be asked, or that it can.
func (w *worker) troubles(ctx context.Context, err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	if text == w.trouble {
		return
	}
	if text != "" && w.trouble == "" {
		w.c.Log.Warn("Slurm cannot be asked; jobs for it wait here", "uid", w.uid, "why", text)
	} else if text == "" {
		w.c.Log.Info("Slurm answers again")
	}
	w.trouble = text
	w.explain(ctx)
}

// sorted is the jobs in the order of the queue.
func (w *worker) sorted(want func(*remoteJob) bool) []*remoteJob {
	var list []*remoteJob
	for _, h := range w.jobs {
		if want(h) {
			list = append(list, h)
		}
	}
	slices.SortFunc(list, func(x, y *remoteJob) int {
		a, b := &x.job, &y.job
		return cmp.Or(cmp.Compare(b.Spec.Priority, a.Spec.Priority), cmp.Compare(a.Rank, b.Rank), cmp.Compare(a.Seq, b.Seq))
	})
	return list
}

// batch is the jobs of a batch by their index.
type batch map[int]*remoteJob

// find is the job with Slurm's id: 120 of a job alone, 120_3 of the one with index 3.
func (b batch) find(id string) *remoteJob {
	_, task, isTask := strings.Cut(id, "_")
	if !isTask {
		task = "0"
	}
	index, err := strconv.Atoi(task)
	if h := b[index]; err == nil && h != nil && h.job.Handover.Alone != isTask {
		return h
	}
	return nil
}

// batches groups handed-over jobs by batch.
func (w *worker) batches() map[string]batch {
	all := map[string]batch{}
	for _, h := range w.jobs {
		if !h.job.HandedOver() {
			continue
		}
		of := all[h.job.Handover.Batch]
		if of == nil {
			of = batch{}
			all[h.job.Handover.Batch] = of
		}
		of[h.job.Handover.Index] = h
	}
	return all
}

// explain tells the engine why nothing goes on.
func (w *worker) explain(ctx context.Context) {
	trouble := remote.Trouble{Ask: w.trouble, Submit: w.sender.full}
	if trouble.Ask != "" && !w.queue.good.IsZero() {
		trouble.Ask += "; last answer at " + w.queue.good.Local().Format(time.TimeOnly)
	}
	if trouble != w.explained {
		w.explained = trouble
		w.c.Engine.Do(ctx, func(t *engine.Turn) { t.Remote().SetTrouble(w.uid, trouble) })
	}
}

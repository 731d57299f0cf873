package cluster

import (
	"cmp"
	"context"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"berth/internal/job"
	"berth/internal/queue/engine"
	"berth/internal/queue/engine/remote"
	"berth/internal/slurm"
	"berth/internal/slurm/handover"
)

// desk is one user's jobs on the cluster. Its goroutine alone touches it, except
// for the inbox.
type desk struct {
	c   *Cluster
	uid int

	mu    sync.Mutex
	inbox []update
	knock chan struct{}

	home      string
	jobs      map[string]*held // by berth's id
	array     int              // Slurm's MaxArraySize, as far as is known: indices are below it
	most      int              // jobs of a batch that Slurm takes
	trouble   string
	explained remote.Trouble // as the engine was told
	full      string         // why Slurm gets no more jobs
	fullUntil time.Time
	asked     time.Time     // when Slurm's queue was last listed
	good      time.Time     // when that last worked
	cost      time.Duration // of listing it
	swept     time.Time
	lookCost  time.Duration
	unread    string              // why files of jobs cannot be read
	strays    map[Named]time.Time // jobs in Slurm that are of no use, and since when
	doubted   map[string]bool     // jobs that Slurm refused once, by berth's id
	failed    map[string]int      // how often jobs ended before they began, by berth's id
	want      bool                // something needs Slurm's word
}

// update is news from the engine about one job.
type update struct {
	job  *job.Job
	gone string
	at   time.Time
}

// held is a job as the desk knows it.
type held struct {
	job     job.Job
	has     handover.Has // files that were read
	handed  time.Time    // when this desk handed it over; zero: an earlier one did
	looked  time.Time    // when its files were last looked for, and could be
	missing time.Time    // since when Slurm does not list it; zero: it does
	stuck   time.Time    // since when Slurm says that it runs, although it has not begun
	name    string       // in Slurm; empty: not known yet
	told    time.Time    // when Slurm was last told to stop it
	fenced  time.Time    // when its wrapper was told to stop it, or was last heard of since
	ended   *handover.Record
	verdict *slurm.Account // how Slurm said that it ended; nil: not yet
}

func newDesk(c *Cluster, uid int) *desk {
	return &desk{c: c, uid: uid, array: maxBatch + 1, most: maxBatch, knock: make(chan struct{}, 1), jobs: map[string]*held{}, doubted: map[string]bool{}, failed: map[string]int{}}
}

func (d *desk) tell(news []update) {
	d.mu.Lock()
	d.inbox = append(d.inbox, news...)
	d.mu.Unlock()
	select {
	case d.knock <- struct{}{}:
	default:
	}
}

func (d *desk) run(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-d.knock:
			// Others may follow at once, and go with it.
			select {
			case <-time.After(d.c.pace.gather):
			case <-ctx.Done():
				return
			}
		case <-timer.C:
		}
		d.receive()
		if d.step(ctx); ctx.Err() != nil {
			return
		}
		timer.Reset(d.next())
	}
}

// next is when there is something to do without being told.
func (d *desk) next() time.Duration {
	if len(d.jobs) == 0 {
		return time.Hour
	}
	if d.trouble != "" {
		return max(d.c.pace.look, time.Until(d.asked.Add(d.c.pace.troubled)))
	}
	return max(d.c.pace.look, lookShare*d.lookCost)
}

// receive takes in news from the engine.
func (d *desk) receive() {
	d.mu.Lock()
	news := d.inbox
	d.inbox = nil
	d.mu.Unlock()
	for _, u := range news {
		before := d.jobs[cmp.Or(u.gone, idOf(u.job))]
		if before != nil && before.handed.After(u.at) {
			continue // it is from before the job was handed over
		}
		if u.job == nil {
			delete(d.jobs, u.gone)
			delete(d.doubted, u.gone)
			delete(d.failed, u.gone)
			continue
		}
		if before == nil || before.job.Handover.Batch != u.job.Handover.Batch {
			d.jobs[u.job.ID] = &held{job: *u.job, has: handover.Has{Begun: u.job.State == job.Running}}
			continue
		}
		d.want = d.want || before.job.Held != u.job.Held // Slurm is to know soon
		u.job.Handover.Slurm = cmp.Or(u.job.Handover.Slurm, before.job.Handover.Slurm)
		before.job = *u.job
	}
}

func idOf(j *job.Job) string {
	if j == nil {
		return ""
	}
	return j.ID
}

// step is one look at everything.
func (d *desk) step(ctx context.Context) {
	if len(d.jobs) == 0 {
		return
	}
	if d.home == "" {
		for _, h := range d.jobs {
			home, err := d.c.Home(ctx, &h.job)
			if err != nil {
				d.troubles(ctx, "their user's home is not known: "+err.Error())
				return
			}
			d.home = home
			break
		}
	}
	for _, do := range []func(context.Context){d.sweep, d.follow, d.stop, d.compare, d.handOver, d.explain} {
		if do(ctx); ctx.Err() != nil {
			return // the engine may still be working on the last request, with data of the desk's
		}
	}
}

// sweep removes the files of batches that ended long ago, once a day.
func (d *desk) sweep(ctx context.Context) {
	keep := d.c.Config().Keep
	if keep <= 0 || time.Since(d.swept) < sweepEvery {
		return
	}
	d.swept = time.Now()
	s := &Sweep{Dir: filepath.Dir(d.dir("any")), Before: time.Now().Add(-keep)}
	for batch := range d.batches() {
		s.Keep = append(s.Keep, batch)
	}
	_, _ = d.do(ctx, Request{Sweep: s})
}

// dir is the directory of a batch.
func (d *desk) dir(batch string) string {
	return filepath.Join(d.directory(), d.c.Queue, batch)
}

// directory is where the nodes see what is this user's own.
func (d *desk) directory() string {
	dir := d.c.Config().Directory
	if dir == "" {
		dir = DefaultDirectory
	}
	if rest, found := strings.CutPrefix(dir, "~/"); found {
		return filepath.Join(d.home, rest)
	}
	uid := d.uid
	if os.Geteuid() != 0 {
		uid = os.Geteuid() // jobs of a run have none
	}
	return filepath.Join(dir, strconv.Itoa(uid)) // all users have it
}

// do carries out a request with the user's rights.
func (d *desk) do(ctx context.Context, r Request) (Reply, error) {
	r.Environ = d.c.Vars
	reply, err := d.c.Do(ctx, d.uid, r)
	if err != nil && ctx.Err() == nil {
		d.c.Log.Warn("ask the cluster", "uid", d.uid, "err", err)
	}
	return reply, err
}

// unreachable says why Slurm's programs or berth's own process for a user failed.
func unreachable(reply string, err error) string {
	if err != nil {
		return "berth cannot act for this user: " + err.Error()
	}
	return "Slurm cannot be reached: " + reply
}

// troubles records why Slurm cannot be asked, or that it can.
func (d *desk) troubles(ctx context.Context, text string) {
	if text == d.trouble {
		return
	}
	if text != "" && d.trouble == "" {
		d.c.Log.Warn("Slurm cannot be asked; jobs for it wait here", "uid", d.uid, "why", text)
	} else if text == "" {
		d.c.Log.Info("Slurm answers again")
	}
	d.trouble = text
	d.explain(ctx)
}

// sorted is the jobs in the order of the queue.
func (d *desk) sorted(want func(*held) bool) []*held {
	var list []*held
	for _, h := range d.jobs {
		if want(h) {
			list = append(list, h)
		}
	}
	slices.SortFunc(list, func(a, b *held) int { return inOrder(&a.job, &b.job) })
	return list
}

// batch is the jobs of a batch by their index.
type batch map[int]*held

// find is the job with Slurm's id: 120 of a job alone, 120_3 of the one with index 3.
func (b batch) find(id string) *held {
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
func (d *desk) batches() map[string]batch {
	all := map[string]batch{}
	for _, h := range d.jobs {
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
func (d *desk) explain(ctx context.Context) {
	trouble := remote.Trouble{Ask: d.trouble, Submit: d.full}
	if trouble.Ask != "" && !d.good.IsZero() {
		trouble.Ask += "; last answer at " + d.good.Local().Format(time.TimeOnly)
	}
	if trouble != d.explained {
		d.explained = trouble
		d.c.Engine.Do(ctx, func(t *engine.Turn) { t.Remote().SetTrouble(d.uid, trouble) })
	}
}

package cluster

import (
	"context"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"time"

	"berth/internal/job"
	"berth/internal/machine/site"
	"berth/internal/queue/engine"
	"berth/internal/slurm"
)

// Config is how jobs are handed over. It may change while a cluster is used.
type Config struct {
	Slurm     slurm.Cluster
	Directory string        // where the nodes see a user's files; ~ is the user's home
	Patience  time.Duration // for files that another node wrote
	Program   string        // berth on the nodes; empty: a copy in the directory
	Keep      time.Duration // how long the files of ended batches are kept; 0: for ever
	Unread    error         // why it could not be read; nil: it was
}

// DefaultDirectory is in each user's home, which clusters usually share.
const DefaultDirectory = "~/.local/state/berth/slurm"

// Setup is what a Cluster needs.
type Setup struct {
	Engine  *engine.Engine
	Log     *slog.Logger
	Queue   string                                                   // names this queue among all that hand over to the same Slurm
	Config  func() Config                                            // as it is now
	User    func(ctx context.Context, j *job.Job) (site.User, error) // whose job it is
	Environ func(j *job.Job) ([]string, error)                       // captured at submission
	Dir     string                                                   // of a job that names none, and of relative paths; empty: every job names its own
	Logs    bool                                                     // LogPath is right for every job: the nodes see these files
	LogPath func(j *job.Job) string                                  // of a job with an output of its own
	Vars    []string                                                 // of Slurm's programs

	// As runs berth with the argument Word as a user, and returns what it prints. Nil:
	// all jobs are this process's user's.
	As func(ctx context.Context, uid int, input []byte) ([]byte, error)
}

// Cluster hands over the jobs of one queue.
type Cluster struct {
	Setup
	pace    pace
	wake    chan struct{}
	workers map[int]*worker // by uid; only for the goroutine of Run
	wait    sync.WaitGroup
}

// New makes a cluster; Run uses it.
func New(s Setup) *Cluster {
	return &Cluster{Setup: s, pace: usualPace, wake: make(chan struct{}, 1), workers: map[int]*worker{}}
}

// Wake tells it that jobs have changed. It does not block.
func (c *Cluster) Wake() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// Run hands over and follows jobs until ctx ends. What is in Slurm's queue stays
// there.
func (c *Cluster) Run(ctx context.Context) {
	defer c.leave()
	c.Wake()
	for {
		select {
		case <-ctx.Done():
			return
		case <-c.wake:
		}
		changed, err := c.changes(ctx)
		if err != nil {
			continue // it could not be written; the next round says that something changed
		}
		c.tell(ctx, changed)
	}
}

// leave waits for the workers. A process that hangs in a user's file system cannot be
// killed, and must not keep everybody's queue from ending.
func (c *Cluster) leave() {
	ended := make(chan struct{})
	go func() {
		c.wait.Wait()
		close(ended)
	}()
	select {
	case <-ended:
	case <-time.After(leaveTime):
		c.Log.Warn("stopped without waiting for a user's file system or Slurm")
	}
}

// changeSet is what changed among the jobs for Slurm.
type changeSet struct {
	jobs []job.Job
	gone []string // ids of those that are not Slurm's any more
	at   time.Time
}

// tell passes on what changed. Each worker gets all of it at once: what Slurm has and
// the worker does not know, it cancels.
func (c *Cluster) tell(ctx context.Context, changed changeSet) {
	jobs := map[int][]job.Job{}
	for _, j := range changed.jobs {
		jobs[j.UID] = append(jobs[j.UID], j)
		if c.workers[j.UID] == nil {
			w := newWorker(c, j.UID)
			c.workers[j.UID] = w
			c.wait.Go(func() { w.run(ctx) })
		}
	}
	for uid, w := range c.workers {
		if len(jobs[uid])+len(changed.gone) > 0 {
			w.tell(changeSet{jobs[uid], changed.gone, changed.at})
		}
	}
}

// changes returns what changed, once it is on disk.
func (c *Cluster) changes(ctx context.Context) (changed changeSet, err error) {
	// Until the answer comes, these belong to the engine.
	err = c.Engine.Change(ctx, func(t *engine.Turn) {
		changed.jobs, changed.gone = t.Remote().Changes()
		changed.at = t.Now
	})
	if err != nil {
		_ = c.Engine.Do(ctx, func(t *engine.Turn) { t.Remote().KeepChanges(changed.jobs, changed.gone) })
	}
	return changed, err
}

// Attachment is the arguments of the process, to be run as the job's user, whose
// input and output are connected to the job's supervisor on its node.
func Attachment(h job.Handover) []string {
	return []string{attachWord, h.Dir, strconv.Itoa(h.Index)}
}

// prefix begins the comments of this queue's jobs.
func (c *Cluster) prefix() string { return anyPrefix + c.Queue + ":" }

// anyPrefix begins the comments of every queue's jobs.
const anyPrefix = "berth:"

// batchOf is the batch that a comment names; empty: none. A batch is random and
// names itself: the queue may have had another name when it handed it over, before
// its directory was moved or restored, or before a reboot.
func batchOf(comment string) string {
	if rest, ours := strings.CutPrefix(comment, anyPrefix); ours {
		return rest[strings.LastIndex(rest, ":")+1:]
	}
	return ""
}

// pace is the times of a worker.
type pace struct {
	look     time.Duration // at the files of handed-over jobs
	queue    time.Duration // at Slurm's queue, at least
	troubled time.Duration // after Slurm could not be asked
	stop     time.Duration // until Slurm is told again to stop a job
	patience time.Duration // for files that another node wrote; NFS may hide them for a minute
	stuck    time.Duration // for a job that runs, as Slurm says, to begin
	fence    time.Duration // for a wrapper to stop its job
	full     time.Duration // for which a user's full share of Slurm's queue is left alone
	gather   time.Duration // for jobs that are submitted one after the other
	looks    int           // after looking at files, this many times what it took
	lists    int           // the same after listing Slurm's queue
}

// DefaultPatience is longer than NFS hides a new file.
const DefaultPatience = 75 * time.Second

var usualPace = pace{
	look: time.Second, queue: 5 * time.Second, troubled: 15 * time.Second, stop: 30 * time.Second,
	patience: DefaultPatience, stuck: 10 * time.Minute, fence: 30 * time.Second, full: time.Minute, gather: 100 * time.Millisecond,
	looks: 50, lists: 100, // at most 2 % and 1 % of the time
}

const (
	sweepEvery = 24 * time.Hour
	leaveTime  = 10 * time.Second
	senders    = 4    // sbatch at a time
	maxParcels = 64   // batches that are recorded together
	maxBatch   = 1000 // jobs; Slurm's own bound is 1001 unless configured

	mostFailures = 4   // of a job's script before the job begins, until it is given up
	noProgram    = 127 // status of a script whose node has no berth
)

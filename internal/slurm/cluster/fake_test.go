package cluster

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"berth/internal/job"
	"berth/internal/slurm"
	"berth/internal/slurm/client"
	"berth/internal/slurm/handover"
)

// fakeSlurm is a cluster that can lose what it acknowledged, give an id to another
// job, accept without answering, start a job late or twice, and be unreachable. Its
// nodes obey the start marker, and count every run.
type fakeSlurm struct {
	t        *testing.T
	mu       sync.Mutex
	chance   *rand.Rand
	wild     bool        // faults are on
	down     bool        // until the next tick
	restarts bool        // whenever sbatch is called
	away     bool        // squeue does not answer
	dead     atomic.Bool // sbatch is not reached
	next     int
	queue    map[string]*fakeJob // what slurmctld knows
	late     []*fakeJob          // what it forgot, and a node may start nevertheless
	active   []*fakeJob          // on nodes
	ran      map[string]int      // how often each of berth's jobs ran
	refuse   string
	calls    int // of sbatch
	tasks    int // submitted
}

type fakeJob struct {
	entry slurm.Entry
	dir   string
	index int
	order handover.Order
}

func newFake(t *testing.T, seed uint64) *fakeSlurm {
	return &fakeSlurm{t: t, chance: rand.New(rand.NewPCG(seed, 1)), next: 100, queue: map[string]*fakeJob{}, ran: map[string]int{}}
}

// restart makes sbatch fail in these words, and squeue after it; none: it is over.
func (f *fakeSlurm) restart(words string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.refuse, f.restarts, f.away = words, words != "", false
}

func (f *fakeSlurm) often(percent int) bool { return f.wild && f.chance.IntN(100) < percent }

// do answers a request in place of the process of a user.
func (f *fakeSlurm) do(ctx context.Context, request any) (any, error) {
	if _, submits := request.(submitRequest); submits && f.dead.Load() {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	switch q := request.(type) {
	case submitRequest:
		return f.sbatch(&q)
	case takeRequest:
		return q.do(ctx, client.Client{})
	case stopRequest:
		return q.do(ctx, client.Client{})
	case lookRequest:
		return q.do(ctx, client.Client{})
	case removeRequest:
		return q.do(ctx, client.Client{})
	case cancelRequest:
		for _, n := range q.Jobs {
			if f.down || f.often(20) {
				return none{}, unreachable(errors.New("scancel: unreachable"))
			}
			f.scancel(n)
		}
	case holdRequest:
		f.hold(q.Hold, "JobHeldUser")
		f.hold(q.Release, "Priority")
	case listRequest:
		var listed listAnswer
		if f.down || f.away || f.often(20) {
			return listed, unreachable(errors.New("squeue: unreachable"))
		}
		for _, j := range f.queue {
			if strings.HasPrefix(j.entry.Comment, q.Comment) {
				listed.Queue = append(listed.Queue, j.entry)
			}
		}
		return listed, nil
	case accountRequest:
		return []slurm.Account{}, nil
	case memoryRequest:
		return "", nil
	}
	return none{}, nil
}

func (f *fakeSlurm) hold(ids []string, reason string) {
	for _, id := range ids {
		if j := f.queue[id]; j != nil {
			j.entry.Reason = reason
		}
	}
}

func (f *fakeSlurm) scancel(n jobName) {
	if j := f.queue[n.ID]; j != nil && j.entry.Name == n.Name {
		delete(f.queue, n.ID)
		for i, running := range f.active {
			if running == j { // its wrapper gets a TERM and leaves a record
				f.active = append(f.active[:i], f.active[i+1:]...)
				f.finish(j, handover.Record{Outcome: job.Signalled("TERM"), Stopped: job.StopInterrupt, EndedAt: time.Now()})
				return
			}
		}
	}
}

func (f *fakeSlurm) sbatch(s *submitRequest) (submitAnswer, error) {
	f.calls++
	f.tasks += len(s.Orders)
	if err := handover.Create(s.Dir, s.Orders, s.Script); err != nil {
		return submitAnswer{}, err
	}
	if f.down || f.often(15) {
		return submitAnswer{}, unreachable(errors.New("sbatch: unreachable"))
	}
	if f.refuse != "" {
		f.away = f.restarts
		return submitAnswer{Refused: f.refuse}, nil
	}
	f.next++
	id := strconv.Itoa(f.next)
	comment, title, array := "", "", false
	for _, word := range s.Arguments {
		if text, found := strings.CutPrefix(word, "--comment="); found {
			comment = text
		}
		if text, found := strings.CutPrefix(word, "--job-name="); found {
			title = text
		}
		array = array || strings.HasPrefix(word, "--array=")
	}
	var all []*fakeJob
	for _, o := range s.Orders {
		name := id
		if array {
			name = fmt.Sprintf("%s_%d", id, o.Index)
		}
		all = append(all, &fakeJob{entry: slurm.Entry{ID: name, Comment: comment, Name: title, State: "PENDING", Reason: "Priority"}, dir: s.Dir, index: o.Index, order: o})
	}
	if f.often(20) { // acknowledged, and lost; its id is given to another job
		f.next--
		f.late = append(f.late, all...)
		return submitAnswer{ID: id}, nil
	}
	for _, j := range all {
		f.queue[j.entry.ID] = j
	}
	if f.often(20) {
		return submitAnswer{}, unreachable(errors.New("sbatch: no answer"))
	}
	return submitAnswer{ID: id}, nil
}

// tick lets the cluster do something.
func (f *fakeSlurm) tick() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.down = f.often(10)
	for _, j := range f.active { // all that run end well
		f.leave(j)
		f.finish(j, handover.Record{Outcome: job.OK, EndedAt: time.Now(), PeakMiB: map[int]int64{0: 77}})
	}
	f.active = nil
	for _, j := range f.queue {
		if j.entry.State == "PENDING" && j.entry.Reason != "JobHeldUser" && f.chance.IntN(3) > 0 {
			if f.often(5) { // its node refuses it, and nobody hears of that
				j.entry.State, j.entry.Reason = "RUNNING", ""
				continue
			}
			f.start(j)
			if f.often(20) {
				f.start(j) // a requeue that berth did not ask for
			}
		}
	}
	if n := len(f.late); n > 0 && f.often(30) {
		f.start(f.late[n-1])
		f.late = f.late[:n-1]
	}
}

// start is what the batch script does on a node.
func (f *fakeSlurm) start(j *fakeJob) {
	err := handover.Begin(j.dir, j.index, handover.Begun{Slurm: j.entry.ID, Node: "n1", At: time.Now(), GPUs: []handover.GPU{{Index: 0, TotalMiB: 1000}}})
	if err != nil {
		f.leave(j)
		return
	}
	f.ran[j.order.Job.ID]++
	j.entry.State, j.entry.Reason = "RUNNING", ""
	f.active = append(f.active, j)
}

// leave takes a job out of the queue, but not another one of the same id.
func (f *fakeSlurm) leave(j *fakeJob) {
	if f.queue[j.entry.ID] == j {
		delete(f.queue, j.entry.ID)
	}
}

func (f *fakeSlurm) finish(j *fakeJob, r handover.Record) {
	r.StartedAt = r.EndedAt
	if err := handover.Finish(j.dir, j.index, r); err != nil {
		f.t.Error(err)
	}
}

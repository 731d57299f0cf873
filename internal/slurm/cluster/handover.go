package cluster

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"berth/internal/job"
	"berth/internal/queue/engine"
	"berth/internal/queue/engine/fault"
	"berth/internal/slurm"
	"berth/internal/slurm/handover"
)

// group is ready jobs that are alike to Slurm.
type group struct {
	options []string
	limit   int // how many may run at a time; 0: all
	jobs    []*remoteJob
}

// outgoing is one batch on its way to Slurm.
type outgoing struct {
	group  *group
	jobs   []*remoteJob
	batch  string
	dir    string
	answer submitAnswer
	err    error // why there is no answer: Slurm may have it or not
}

// sender hands over a user's jobs.
type sender struct {
	w         *worker
	array     int    // Slurm's MaxArraySize, as far as is known: indices are below it
	most      int    // jobs of a batch that Slurm takes
	full      string // why Slurm gets no more jobs; empty: it does
	fullUntil time.Time
	doubted   map[string]bool // jobs that Slurm refused once, by berth's id
}

// handOver gives Slurm the jobs that are ready.
func (s *sender) handOver(ctx context.Context) {
	if s.w.trouble != "" || time.Now().Before(s.fullUntil) {
		return
	}
	if s.full != "" {
		s.full, s.most = "", s.batchSize()
	}
	var batches []*outgoing
	for _, g := range s.group(ctx) {
		for some := range slices.Chunk(g.jobs, s.most) {
			var raw [8]byte
			_, _ = rand.Read(raw[:]) // it never fails
			batch := hex.EncodeToString(raw[:])
			batches = append(batches, &outgoing{group: g, jobs: some, batch: batch, dir: s.w.dir(batch)})
			if g.limit > 0 {
				break // the limit counts in one Slurm array: the rest follows when it is done
			}
		}
	}
	most, together := s.most, maxParcels
	if most < s.batchSize() {
		together = 1 // there may not be room for all, so keep to the order of the queue
	}
	for some := range slices.Chunk(batches, together) {
		if s.w.trouble != "" || s.full != "" || s.most < most || ctx.Err() != nil || !s.record(ctx, some) {
			return
		}
		s.send(ctx, some)
		s.settle(ctx, some)
	}
}

// group sorts the ready jobs into groups, in the order of the queue.
func (s *sender) group(ctx context.Context) []*group {
	ready := s.w.sorted(func(h *remoteJob) bool { return !h.job.HandedOver() })
	if len(ready) == 0 {
		return nil
	}
	busy := map[string]bool{} // limited arrays of which Slurm has tasks
	for _, h := range s.w.jobs {
		if h.job.HandedOver() && h.job.Spec.ArrayLimit > 0 {
			busy[h.job.Array()] = true
		}
	}
	var groups []*group
	known := map[string]*group{}
	limited := map[string]string{} // which group of each limited array goes first
	cluster := s.w.c.Config().Slurm
	for _, h := range ready {
		j := &h.job
		options, err := slurm.Translate(&j.Spec, j.VRAMMiB, cluster)
		if err != nil {
			s.refuse(ctx, h, err.Error())
			continue
		}
		key := strings.Join(options, "\x00")
		if j.Array() != "" && j.Spec.ArrayLimit == 0 {
			key += "\x00\x00" + j.Array() // its tasks keep their indices
		}
		if j.Spec.ArrayLimit > 0 {
			if busy[j.Array()] {
				continue
			}
			key += "\x00\x00" + j.Array()
			if limited[j.Array()] = cmp.Or(limited[j.Array()], key); limited[j.Array()] != key {
				continue // Slurm would count each group for itself
			}
		}
		g := known[key]
		if g == nil {
			g = &group{options: options, limit: j.Spec.ArrayLimit}
			known[key] = g
			groups = append(groups, g)
		}
		g.jobs = append(g.jobs, h)
	}
	return groups
}

func (s *sender) refuse(ctx context.Context, h *remoteJob, why string) {
	id, batch := h.job.ID, h.job.Handover.Batch
	if s.w.c.Engine.Change(ctx, func(t *engine.Turn) { t.Remote().Refused(id, batch, why) }) == nil {
		delete(s.w.jobs, id)
		delete(s.doubted, id)
	}
}

// record makes it known on disk which jobs are in which batch, before Slurm hears of
// them.
func (s *sender) record(ctx context.Context, batches []*outgoing) bool {
	now := time.Now()
	var gone []*remoteJob
	err := s.w.c.Engine.Change(ctx, func(t *engine.Turn) {
		for _, p := range batches {
			var kept []*remoteJob
			for _, h := range p.jobs {
				switch ready, same := t.Remote().Ready(&h.job); {
				case !ready: // it was cancelled meanwhile
					gone = append(gone, h)
				case same && t.Starting():
					kept = append(kept, h)
				default: // it was changed, which this worker is about to hear, or berth is stopping
				}
			}
			p.jobs = kept
			numbers := numbered(p.jobs, s.array)
			for i, h := range p.jobs {
				h.job.Handover = job.Handover{Batch: p.batch, Dir: p.dir, Index: i, Alone: numbers == nil && len(p.jobs) == 1, At: now}
				if numbers != nil {
					h.job.Handover.Index = numbers[i]
				}
				h.handed = t.Now
				t.Remote().HandOver(h.job.ID, h.job.Handover)
			}
		}
	})
	if ctx.Err() != nil {
		return false // the engine may still be at it
	}
	for _, h := range gone {
		delete(s.w.jobs, h.job.ID)
	}
	fault.Point("handed over")
	// What is not on disk yet will be. Without an answer from Slurm, the jobs are
	// taken back then.
	s.w.queue.want = s.w.queue.want || err != nil
	return err == nil
}

// numbered is the indices of the user's own array that a batch consists of, all
// below a bound: its tasks have the same ones in Slurm. They are in order.
func numbered(jobs []*remoteJob, bound int) (list []int) {
	for _, h := range jobs {
		_, index, _ := strings.Cut(h.job.ID, "_")
		n, err := strconv.Atoi(index)
		ordered := len(list) == 0 || list[len(list)-1] < n
		if err != nil || max(n, h.job.Spec.ArrayShape.Max) >= bound || !ordered || h.job.Array() != jobs[0].job.Array() {
			return nil
		}
		list = append(list, n)
	}
	return list
}

// send calls sbatch for each batch, several at a time.
func (s *sender) send(ctx context.Context, batches []*outgoing) {
	var all sync.WaitGroup
	next := make(chan *outgoing)
	for range min(senders, len(batches)) {
		all.Go(func() {
			for p := range next {
				batch, err := s.submission(p)
				if err != nil {
					p.answer.Unsent = err.Error()
					continue
				}
				p.answer, p.err = do(ctx, s.w, batch)
			}
		})
	}
	for _, p := range batches {
		if len(p.jobs) > 0 {
			next <- p
		}
	}
	close(next)
	all.Wait()
	fault.Point("submitted")
}

// settle records what Slurm answered.
func (s *sender) settle(ctx context.Context, batches []*outgoing) {
	var named []*remoteJob
	for _, p := range batches {
		answer := p.answer
		switch {
		case len(p.jobs) == 0:
		case p.err != nil:
			s.w.queue.want = true // its queue will tell whether Slurm has it
			s.w.troubles(ctx, p.err)
		case answer.Unsent != "":
			s.unsent(ctx, p.jobs, answer.Unsent)
		case answer.Full != "":
			s.crowded(ctx, p.jobs, answer.Full)
		case answer.Refused != "":
			s.refused(ctx, p.jobs, answer)
		default:
			for _, h := range p.jobs {
				h.name, h.job.Handover.Slurm = name(&p.jobs[0].job), slurmID(answer.ID, &h.job.Handover)
				delete(s.doubted, h.job.ID)
			}
			named = append(named, p.jobs...)
		}
	}
	if len(named) == 0 {
		return
	}
	_ = s.w.c.Engine.Change(ctx, func(t *engine.Turn) {
		for _, h := range named {
			t.Remote().Named(h.job.ID, h.job.Handover.Batch, h.job.Handover.Slurm)
		}
	}) // if it is not on disk, the queue tells it again
}

// unsent deals with a batch that Slurm was not asked to take, because its files could
// not be written. There is no marker to take: nothing of it can begin.
func (s *sender) unsent(ctx context.Context, jobs []*remoteJob, why string) {
	s.w.c.Log.Warn("a batch for Slurm cannot be written", "uid", s.w.uid, "why", why)
	s.fullUntil, s.full = time.Now().Add(s.w.c.pace.troubled), "its files cannot be written: "+why
	err := s.w.c.Engine.Change(ctx, func(t *engine.Turn) {
		for _, h := range jobs {
			t.Remote().TakenBack(h.job.ID, h.job.Handover.Batch, "")
		}
	})
	if err != nil {
		return // it is taken back when Slurm does not list it
	}
	for _, h := range jobs {
		s.w.forget(ctx, h)
	}
}

// submission is the batch as files and a command line.
func (s *sender) submission(p *outgoing) (submit submitRequest, err error) {
	submit = submitRequest{Dir: p.dir, Own: s.w.directory()}
	program := s.w.c.Config().Program
	if program == "" {
		self, err := os.Executable()
		if err == nil {
			submit.Programs, program, err = handover.Programs(self, s.w.directory(), "berth-gpu") // without it nothing is measured
		}
		if err != nil {
			return submit, err
		}
	}
	for _, h := range p.jobs {
		j, index := orderedAs(&h.job), h.job.Handover.Index
		s.w.c.place(&j.Spec)
		o := handover.Order{Job: *j, Index: index, Log: s.logOf(j, p.dir, index)}
		if o.Environ, err = s.w.c.Environ(j); err != nil {
			return submit, err
		}
		submit.Orders = append(submit.Orders, o)
	}
	submit.Script = slurm.Script(program, p.dir)
	b := slurm.Batch{
		Name: name(&p.jobs[0].job), Comment: s.w.c.prefix() + p.batch, Script: handover.Script(p.dir),
		Log: slurmLog(p.dir), Limit: p.group.limit,
	}
	for _, h := range p.jobs {
		if !h.job.Handover.Alone {
			b.Tasks = append(b.Tasks, h.job.Handover.Index)
		}
	}
	submit.Arguments = slurm.Arguments(p.group.options, b)
	return submit, nil
}

// place makes the paths of a job whole, as they are for a job of this machine.
func (c *Cluster) place(spec *job.Spec) {
	whole := func(path string) string {
		if c.Dir == "" || path == "~" || strings.HasPrefix(path, "~/") || filepath.IsAbs(path) {
			return path
		}
		return filepath.Join(c.Dir, path)
	}
	spec.Dir = whole(spec.Dir)
	if spec.Venv != "" {
		spec.Venv = whole(spec.Venv)
	}
}

// name is how a batch is listed by Slurm's own programs: with berth's id, so that a
// user finds it, and with the batch, which some sites do not store otherwise.
func name(j *job.Job) string {
	return "berth-" + cmp.Or(j.Array(), j.ID) + "-" + j.Name() + mark(j.Handover.Batch)
}

// mark ends the name of a batch.
func mark(batch string) string { return "." + batch }

// logOf is where a job prints to.
func (s *sender) logOf(j *job.Job, dir string, index int) string {
	if s.w.c.Logs || j.Spec.Output != "" {
		return s.w.c.LogPath(j)
	}
	return handover.Log(dir, index)
}

// slurmID is the id of one job of a batch.
func slurmID(id string, h *job.Handover) string {
	if h.Alone {
		return id
	}
	return id + "_" + strconv.Itoa(h.Index)
}

// batchSize is how many jobs an array of Slurm can have. Without arrays it is one,
// which is a job alone.
func (s *sender) batchSize() int { return min(max(s.array, 1), maxBatch) }

// refused deals with a batch that Slurm did not take. Its jobs are alike, so it
// takes none of them, unless the array was too large.
func (s *sender) refused(ctx context.Context, jobs []*remoteJob, answer submitAnswer) {
	why := answer.Refused
	if size := answer.MaxArray; size != nil && *size < s.array {
		s.array = *size
		s.most = min(s.most, s.batchSize())
		s.w.takeBack(ctx, jobs, "")
		return
	}
	if len(jobs) > 1 && aboutArrays(why) {
		s.most = len(jobs) / 2
		s.w.takeBack(ctx, jobs, "")
		return
	}
	// Slurm's words may be misread, most of all while it restarts. They count if it
	// answers a question in between and refuses the job again.
	if !s.doubted[jobs[0].job.ID] {
		for _, h := range jobs {
			s.doubted[h.job.ID] = true
		}
		s.w.queue.asked = time.Time{}
		s.w.takeBack(ctx, jobs, "")
		return
	}
	// What is refused must not begin after all.
	taken, err := s.w.take(ctx, jobs)
	if err != nil {
		s.w.queue.want = true // its queue will tell
	}
	for _, h := range taken {
		s.refuse(ctx, h, "Slurm refused it: "+why)
	}
}

// crowded deals with a batch for which there is no room. There may be for half of
// it; if not even for one job, jobs have to end first.
func (s *sender) crowded(ctx context.Context, jobs []*remoteJob, why string) {
	if len(jobs) > 1 {
		s.most = len(jobs) / 2
	} else {
		s.fullUntil, s.full = time.Now().Add(s.w.c.pace.full), "Slurm takes no more of this user's jobs for now: "+why
	}
	s.w.takeBack(ctx, jobs, "")
}

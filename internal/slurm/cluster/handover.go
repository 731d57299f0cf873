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
	"berth/internal/queue/engine/fault"
	"berth/internal/slurm"
	"berth/internal/slurm/handover"
)

func inOrder(a, b *job.Job) int {
	return cmp.Or(cmp.Compare(b.Spec.Priority, a.Spec.Priority), cmp.Compare(a.Rank, b.Rank), cmp.Compare(a.Seq, b.Seq))
}

// group is ready jobs that are alike to Slurm.
type group struct {
	options []string
	limit   int // how many may run at a time; 0: all
	jobs    []*held
}

// parcel is one batch on its way to Slurm.
type parcel struct {
	group *group
	jobs  []*held
	batch string
	dir   string
	reply Reply
	err   error
}

// handOver gives Slurm the jobs that are ready.
func (d *desk) handOver(ctx context.Context) {
	if d.trouble != "" || time.Now().Before(d.fullUntil) {
		return
	}
	if d.full != "" {
		d.full, d.most = "", d.batchSize()
	}
	var parcels []*parcel
	for _, g := range d.group(ctx) {
		for some := range slices.Chunk(g.jobs, d.most) {
			batch := newBatch()
			parcels = append(parcels, &parcel{group: g, jobs: some, batch: batch, dir: d.dir(batch)})
			if g.limit > 0 {
				break // the limit counts in one Slurm array: the rest follows when it is done
			}
		}
	}
	most, together := d.most, maxParcels
	if most < d.batchSize() {
		together = 1 // there may not be room for all, so keep to the order of the queue
	}
	for some := range slices.Chunk(parcels, together) {
		if d.trouble != "" || d.full != "" || d.most < most || ctx.Err() != nil || !d.record(ctx, some) {
			return
		}
		d.send(ctx, some)
		d.settle(ctx, some)
	}
}

// group sorts the ready jobs into groups, in the order of the queue.
func (d *desk) group(ctx context.Context) []*group {
	ready := d.sorted(func(h *held) bool { return !h.job.HandedOver() })
	if len(ready) == 0 {
		return nil
	}
	busy := map[string]bool{} // limited arrays of which Slurm has tasks
	for _, h := range d.jobs {
		if h.job.HandedOver() && h.job.Spec.ArrayLimit > 0 {
			busy[h.job.Array()] = true
		}
	}
	var groups []*group
	known := map[string]*group{}
	limited := map[string]string{} // which group of each limited array goes first
	cluster := d.c.Config().Slurm
	for _, h := range ready {
		j := &h.job
		options, err := slurm.Translate(&j.Spec, j.VRAMMiB, cluster)
		if err != nil {
			d.refuse(ctx, h, err.Error())
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

func (d *desk) refuse(ctx context.Context, h *held, why string) {
	id, batch := h.job.ID, h.job.Handover.Batch
	if d.c.Engine.Change(ctx, func(t *engine.Turn) { t.Remote().Refused(id, batch, why) }) == nil {
		delete(d.jobs, id)
		delete(d.doubted, id)
	}
}

// record makes it known on disk which jobs are in which batch, before Slurm hears of
// them.
func (d *desk) record(ctx context.Context, parcels []*parcel) bool {
	now := time.Now()
	var gone []*held
	err := d.c.Engine.Change(ctx, func(t *engine.Turn) {
		for _, p := range parcels {
			var kept []*held
			for _, h := range p.jobs {
				switch ready, same := t.Remote().Ready(&h.job); {
				case !ready: // it was cancelled meanwhile
					gone = append(gone, h)
				case same && t.Starting():
					kept = append(kept, h)
				default: // it was changed, which this desk is about to hear, or berth is stopping
				}
			}
			p.jobs = kept
			numbers := numbered(p.jobs, d.array)
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
		delete(d.jobs, h.job.ID)
	}
	fault.Point("handed over")
	// What is not on disk yet will be. Without an answer from Slurm, the jobs are
	// taken back then.
	d.want = d.want || err != nil
	return err == nil
}

// numbered is the indices of the user's own array that a batch consists of, all
// below a bound: its tasks have the same ones in Slurm. They are in order.
func numbered(jobs []*held, bound int) (list []int) {
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
func (d *desk) send(ctx context.Context, parcels []*parcel) {
	var all sync.WaitGroup
	next := make(chan *parcel)
	for range min(senders, len(parcels)) {
		all.Go(func() {
			for p := range next {
				s, err := d.submission(p)
				if err != nil {
					p.reply.Submitted.Unsent = err.Error()
					continue
				}
				p.reply, p.err = d.do(ctx, Request{Submit: s})
			}
		})
	}
	for _, p := range parcels {
		if len(p.jobs) > 0 {
			next <- p
		}
	}
	close(next)
	all.Wait()
	fault.Point("submitted")
}

// settle records what Slurm answered.
func (d *desk) settle(ctx context.Context, parcels []*parcel) {
	var named []*held
	for _, p := range parcels {
		answer := p.reply.Submitted
		switch {
		case len(p.jobs) == 0:
		case p.err != nil:
			d.want = true
			d.troubles(ctx, unreachable("", p.err))
		case answer.Unsent != "":
			d.unsent(ctx, p.jobs, answer.Unsent)
		case answer.Crowded != "":
			d.crowded(ctx, p.jobs, answer.Crowded)
		case answer.Refused != "":
			d.refused(ctx, p.jobs, answer)
		case answer.Trouble != "":
			// Slurm may have it or not: its queue will tell.
			d.want = true
			d.troubles(ctx, unreachable(answer.Trouble, nil))
		default:
			for _, h := range p.jobs {
				h.name, h.job.Handover.Slurm = name(&p.jobs[0].job), slurmID(answer.ID, &h.job.Handover)
				delete(d.doubted, h.job.ID)
			}
			named = append(named, p.jobs...)
		}
	}
	if len(named) == 0 {
		return
	}
	_ = d.c.Engine.Change(ctx, func(t *engine.Turn) {
		for _, h := range named {
			t.Remote().Named(h.job.ID, h.job.Handover.Batch, h.job.Handover.Slurm)
		}
	}) // if it is not on disk, the queue tells it again
}

// unsent deals with a batch that Slurm was not asked to take, because its files could
// not be written. There is no marker to take: nothing of it can begin.
func (d *desk) unsent(ctx context.Context, jobs []*held, why string) {
	d.c.Log.Warn("a batch for Slurm cannot be written", "uid", d.uid, "why", why)
	d.fullUntil, d.full = time.Now().Add(d.c.pace.troubled), "its files cannot be written: "+why
	err := d.c.Engine.Change(ctx, func(t *engine.Turn) {
		for _, h := range jobs {
			t.Remote().TakenBack(h.job.ID, h.job.Handover.Batch, "")
		}
	})
	if err != nil {
		return // it is taken back when Slurm does not list it
	}
	for _, h := range jobs {
		d.forget(ctx, h)
	}
}

// submission is the batch as files and a command line.
func (d *desk) submission(p *parcel) (*Submission, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	s := &Submission{Dir: p.dir, Own: d.directory()}
	program := d.c.Config().Program
	if program == "" {
		s.Programs, program = programsFor(d.directory(), self)
	}
	for _, h := range p.jobs {
		j, index := orderedAs(&h.job), h.job.Handover.Index
		d.c.place(&j.Spec)
		o := handover.Order{Job: *j, Index: index, Log: d.logOf(j, p.dir, index)}
		if o.Environ, err = d.c.Environ(j); err != nil {
			return nil, err
		}
		s.Orders = append(s.Orders, o)
	}
	s.Script = slurm.Script(program, p.dir)
	b := slurm.Batch{
		Name: name(&p.jobs[0].job), Comment: d.c.comment(p.batch), Dir: p.dir, Script: handover.Script(p.dir),
		Log: slurmLog(p.dir), Limit: p.group.limit,
	}
	for _, h := range p.jobs {
		if !h.job.Handover.Alone {
			b.Tasks = append(b.Tasks, h.job.Handover.Index)
		}
	}
	s.Arguments = slurm.Arguments(p.group.options, b)
	return s, nil
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
func (d *desk) logOf(j *job.Job, dir string, index int) string {
	if d.c.Logs || j.Spec.Output != "" {
		return d.c.LogPath(j)
	}
	return handover.Log(dir, index)
}

// slurmLog is what the scripts of a batch print, and Slurm itself.
func slurmLog(dir string) string { return filepath.Join(dir, "slurm.out") }

// slurmID is the id of one job of a batch.
func slurmID(id string, h *job.Handover) string {
	if h.Alone {
		return id
	}
	return id + "_" + strconv.Itoa(h.Index)
}

// batchSize is how many jobs an array of Slurm can have. Without arrays it is one,
// which is a job alone.
func (d *desk) batchSize() int { return min(max(d.array, 1), maxBatch) }

// refused deals with a batch that Slurm did not take. Its jobs are alike, so it
// takes none of them, unless the array was too large.
func (d *desk) refused(ctx context.Context, jobs []*held, answer Submitted) {
	why := answer.Refused
	if size := answer.MaxArray; size != nil && *size < d.array {
		d.array = *size
		d.most = min(d.most, d.batchSize())
		d.takeBack(ctx, jobs, "")
		return
	}
	if len(jobs) > 1 && aboutArrays(why) {
		d.most = len(jobs) / 2
		d.takeBack(ctx, jobs, "")
		return
	}
	// Slurm's words may be misread, most of all while it restarts. They count if it
	// answers a question in between and refuses the job again.
	if !d.doubted[jobs[0].job.ID] {
		for _, h := range jobs {
			d.doubted[h.job.ID] = true
		}
		d.asked = time.Time{}
		d.takeBack(ctx, jobs, "")
		return
	}
	var r Request
	for _, h := range jobs {
		r.Take = append(r.Take, d.marker(h))
	}
	// What is refused must not begin after all.
	reply, err := d.do(ctx, r)
	if err != nil || len(reply.Taken) != len(jobs) {
		d.want = true // its queue will tell
		return
	}
	for i, h := range jobs {
		if reply.Taken[i] {
			d.refuse(ctx, h, "Slurm refused it: "+why)
		}
	}
}

// crowded deals with a batch for which there is no room. There may be for half of
// it; if not even for one job, jobs have to end first.
func (d *desk) crowded(ctx context.Context, jobs []*held, why string) {
	if len(jobs) > 1 {
		d.most = len(jobs) / 2
	} else {
		d.fullUntil, d.full = time.Now().Add(d.c.pace.full), "Slurm takes no more of this user's jobs for now: "+why
	}
	d.takeBack(ctx, jobs, "")
}

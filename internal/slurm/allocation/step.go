package allocation

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"berth/internal/job"
	"berth/internal/queue"
	"berth/internal/slurm"
	"berth/internal/text"
)

// How often Slurm is asked, in polls: rarely while all allocations show that they
// live.
const (
	lookEvery  = 5
	lookRarely = 30
)

// doubtTime is how long the end of a job by a signal is in doubt: the notice that
// its allocation ends may come a little later.
const doubtTime = 10 * time.Second

// step is one round: take in what happened, decide, write it down, do it.
func (f *front) step(ctx context.Context) (done bool, err error) {
	now := time.Now()
	if err := f.reread(); err != nil {
		return false, err
	}
	if now.Sub(f.asked) >= f.lookAfter(now) && len(f.alive()) > 0 {
		f.compare(ctx, now)
	}
	for _, g := range f.alive() {
		if err := f.visit(ctx, g, now); err != nil {
			return false, err
		}
	}
	f.breakDependents()
	if err := f.dealOut(now); err != nil {
		return false, err
	}
	if err := f.ask(ctx); err != nil {
		return false, err
	}
	f.board(now)
	return f.done(), nil
}

// alive are the allocations that have not ended.
func (f *front) alive() (open []*grant) {
	for _, g := range f.grants {
		if !g.closed {
			open = append(open, g)
		}
	}
	return open
}

// lookAfter is when Slurm is asked again.
func (f *front) lookAfter(now time.Time) time.Duration {
	for _, g := range f.alive() {
		if g.state != "RUNNING" || g.began == nil || now.Sub(g.silent) > lookEvery*time.Second {
			return lookEvery * f.opt.Poll
		}
	}
	return lookRarely * f.opt.Poll
}

// left is how many jobs are still to be dealt out.
func (f *front) left() (n int) {
	for _, t := range f.tasks {
		if t.waits() {
			n++
		}
	}
	return n
}

// reread follows edits to the jobs file. A version that cannot be read is ignored.
func (f *front) reread() error {
	info, err := os.Stat(f.opt.File)
	if err != nil || stampOf(info) == f.stamp {
		return nil //nolint:nilerr // the file is being replaced; the last version counts
	}
	f.stamp = stampOf(info)
	lines, _, err := f.opt.read()
	if err == nil {
		err = f.unusable(lines)
	}
	if err != nil {
		f.voice.warn(fmt.Sprintf("%v; keeping the last good queue", err))
		return nil
	}
	return f.accept(lines)
}

// compare takes in what Slurm says about the allocations.
func (f *front) compare(ctx context.Context, now time.Time) {
	found := f.look(ctx)
	if found == nil {
		return
	}
	for _, g := range f.alive() {
		e, listed := found[f.tag(g)]
		if !listed {
			g.absent++
			g.state = ""
			continue
		}
		g.absent, g.slurm, g.state = 0, e.ID, e.State
		if over(e.State) {
			g.absent++
		}
		if e.State == "RUNNING" && e.Limit > 0 && !e.Start.IsZero() {
			g.ends, g.whole = e.Start.Add(e.Limit-f.warning()), e.Limit-f.warning()
		}
		if why := slurm.Why(e); e.State == "PENDING" && why != g.why && why != "" && now.Sub(e.Submit) > 10*time.Second {
			g.why = why
			f.voice.say(fmt.Sprintf("allocation %d waits in Slurm: %s", g.number, why))
		}
	}
}

// warning is how long before its end an allocation is told: its jobs have their
// grace period to end.
func (f *front) warning() time.Duration {
	grace := 10 * time.Second
	for _, t := range f.tasks {
		grace = max(grace, t.spec.Grace)
	}
	return grace + 50*time.Second
}

// visit looks at one allocation, and closes it if it has ended for certain.
func (f *front) visit(ctx context.Context, g *grant, now time.Time) error {
	if g.began == nil {
		b, err := g.place.begun()
		if err != nil {
			return err
		}
		if b == nil || b.Taken {
			return f.awaitStart(ctx, g, now)
		}
		f.begins(g, b)
	}
	if f.stopping > 0 && !g.place.has(stopName) {
		if err := g.place.mark(stopName); err != nil {
			return err
		}
	}
	ended, ran := g.place.has(endName), g.place.ran()
	if err := f.follow(g); err != nil {
		return err
	}
	f.resolve(g, now, false)
	if alive := g.place.alive(); alive != g.alive || g.silent.IsZero() {
		g.alive, g.silent = alive, now
	}
	switch {
	case ended, g.absent > 0 && now.Sub(g.silent) >= f.opt.Silent:
		return f.end(g, now, ended)
	case !g.noMore && ran == given(g.lines) && len(g.backlog()) > 0 && g.place.told().IsZero():
		// Its berth run ended, and left jobs undone: another allocation may do better.
		f.voice.warn(fmt.Sprintf("allocation %d on %s does not run its jobs; it printed:", g.number, g.began.Node), g.place.lastWords(5)...)
		return f.enough(g)
	}
	return nil
}

// awaitStart looks at an allocation that has not begun: whether it ever will.
func (f *front) awaitStart(ctx context.Context, g *grant, now time.Time) error {
	forgotten := g.state == "" && g.absent >= 2
	unwanted := f.stopping > 0 || f.left() == 0
	if !forgotten && !unwanted && (g.state == "" || !over(g.state)) {
		return nil
	}
	taken, err := g.place.take(now)
	if err != nil || !taken {
		return err // it has begun at this moment
	}
	g.closed, g.never = true, true
	switch {
	case unwanted && g.slurm != "":
		if err := f.opt.cancel(ctx, g.slurm, f.tag(g)); err != nil && !errors.Is(err, errAway) {
			f.voice.warn(fmt.Sprintf("allocation %d is not needed any more, but: %v", g.number, err))
		}
	case forgotten && f.lost < mostLost:
		f.voice.warn(fmt.Sprintf("Slurm does not know allocation %d any more; asking for another one", g.number))
		f.lost++
	case !unwanted:
		f.voice.warn(fmt.Sprintf("allocation %d ended in Slurm before it began (%s)", g.number, g.state), g.place.lastWords(5)...)
		f.failed(false)
	}
	return f.ledger.write(entry{Close: g.number, Never: true})
}

// mostLost bounds how often an allocation that Slurm forgot is asked for again.
const mostLost = 10

// begins takes in that an allocation has begun.
func (f *front) begins(g *grant, b *began) {
	g.began = b
	if f.opt.Sim > 0 {
		b.GPUs, b.GPUMiB = f.opt.Sim, f.opt.SimMiB
	}
	f.voice.allocation("began", g, fmt.Sprintf("allocation %d began on %s with %s", g.number, b.Node, text.Count(b.GPUs, "GPU")))
}

// backlog are the jobs of an allocation that have not ended.
func (g *grant) backlog() (list []*task) {
	for _, t := range g.tasks {
		if _, doubted := g.doubt[t]; !doubted && t.in == g.number && !t.ended() {
			list = append(list, t)
		}
	}
	return list
}

// follow takes in what an allocation's jobs did.
func (f *front) follow(g *grant) error {
	list, err := g.journal.read(g.place.file("journal.jsonl"))
	if err != nil {
		return err
	}
	if g.began == nil && len(list) > 0 {
		if g.began, err = g.place.begun(); err != nil {
			return err
		}
	}
	for _, n := range list {
		if index := n.index(); index > 0 && index <= len(g.tasks) {
			f.happened(g, g.tasks[index-1], n)
		}
	}
	if g.closed {
		f.resolve(g, time.Now(), true)
	}
	return nil
}

// happened takes in one event of a job.
func (f *front) happened(g *grant, t *task, n news) {
	if t.in != g.number || t.ended() {
		return
	}
	if g.began != nil {
		t.node = g.began.Node
	}
	if n.Job.Log != nil {
		t.log = *n.Job.Log
	}
	switch n.Event {
	case job.EventStarted:
		t.begun, g.started = true, true
	case job.EventEnded:
		told := g.place.told()
		switch {
		case n.Job.Outcome == nil || stoppedWith(told, n.Job):
			return
		case signalled(*n.Job.Outcome) && told.IsZero():
			g.doubt[t] = verdict{n, time.Now()}
			return
		}
		f.ends(g, t, n)
		return
	}
	f.voice.job(g, t, n)
}

// ends takes in that a job has ended.
func (f *front) ends(g *grant, t *task, n news) {
	t.outcome, t.code, t.begun = *n.Job.Outcome, n.Job.ExitCode, true
	if n.Job.Reason != nil {
		t.detail = *n.Job.Reason
	}
	if n.Job.StartedAt != nil && n.Job.EndedAt != nil {
		t.took = n.Job.EndedAt.Sub(*n.Job.StartedAt)
		f.pace.ended++
		f.pace.total += t.took
	}
	g.finished++
	f.voice.job(g, t, n)
}

// resolve decides about jobs that ended by a signal: with their allocation, or by
// themselves.
func (f *front) resolve(g *grant, now time.Time, final bool) {
	if len(g.doubt) == 0 {
		return
	}
	told := g.place.told()
	for t, v := range g.doubt {
		switch {
		case stoppedWith(told, v.news.Job):
			delete(g.doubt, t)
		case final || now.Sub(v.since) >= doubtTime:
			delete(g.doubt, t)
			f.ends(g, t, v.news)
		}
	}
}

// end closes an allocation that has ended for certain.
func (f *front) end(g *grant, now time.Time, marked bool) error {
	if err := f.follow(g); err != nil { // to its end
		return err
	}
	f.resolve(g, now, true)
	if err := f.ledger.write(entry{Close: g.number}); err != nil {
		return err
	}
	g.closed = true
	back := f.free(g)
	sentence := fmt.Sprintf("allocation %d on %s ended: %s done in it", g.number, g.began.Node, text.Count(g.finished, "job"))
	if back > 0 {
		sentence += fmt.Sprintf(", %d to run elsewhere", back)
	}
	f.voice.allocation("ended", g, sentence)
	if !marked {
		f.voice.warn(fmt.Sprintf("allocation %d was killed; jobs that ended in its last moments may run again", g.number))
	}
	switch {
	case g.finished > 0:
		f.fruitless, f.barren = 0, 0
	case back > 0 || !marked || !g.place.told().IsZero(): // not for want of work
		f.failed(g.started)
	}
	return nil
}

// failed counts an allocation that ended without finishing a job.
func (f *front) failed(started bool) {
	before := f.gaveUp()
	f.fruitless++
	f.barren++
	if started {
		f.barren = 0
	}
	if f.gaveUp() && !before && len(f.alive()) > 0 {
		f.voice.warn(f.fruits() + "; berth asks for no more unless another one finishes a job")
	}
}

// fruits says what the last allocations had in common.
func (f *front) fruits() string {
	if f.barren >= mostBarren {
		return fmt.Sprintf("the last %s ended before they started a job", text.Count(f.barren, "allocation"))
	}
	return fmt.Sprintf("the last %s ended before they finished a job", text.Count(f.fruitless, "allocation"))
}

// free takes the jobs that an allocation did not finish back.
func (f *front) free(g *grant) (n int) {
	for _, t := range g.tasks {
		if t.in == g.number && !t.ended() {
			t.in, t.begun, n = 0, false, n+1
		}
	}
	return n
}

// breakDependents ends the jobs whose dependencies can no longer hold, and those
// that lack what their dependencies should have made.
func (f *front) breakDependents() {
	for changed := true; changed; {
		changed = false
		for _, t := range f.tasks {
			if len(t.after) == 0 || !t.waits() {
				continue
			}
			ready, broken := t.ready()
			switch {
			case broken != nil:
				t.outcome = job.Depends
				t.detail = fmt.Sprintf("it needed job %d to %s, but that job %s", broken.on.id, broken.cond.Words(), broken.on.outcome.Words())
			case ready:
				t.outcome, t.detail = f.lacks(t)
			}
			if t.ended() {
				f.voice.broken(t)
				changed = true
			}
		}
	}
}

// lacks is the end of a job whose places cannot work now that its dependencies have
// ended; empty: they can.
func (f *front) lacks(t *task) (job.Outcome, string) {
	spec := t.spec
	spec.After = nil
	if bad := queue.Unusable(&spec, f.opt.origin()); len(bad) > 0 {
		return job.Launch, errors.Join(bad...).Error()
	}
	return "", ""
}

// dealOut gives the allocations that have begun more jobs, and ends those for
// which there are none.
func (f *front) dealOut(now time.Time) error {
	var rooms []*room
	open := map[int]*grant{}
	for _, g := range f.alive() {
		if g.began == nil || g.noMore || f.stopping > 0 || g.place.has(stopName) || !g.place.told().IsZero() || g.place.has(endName) {
			continue
		}
		r := &room{number: g.number, gpus: g.began.GPUs, gpuMiB: g.began.GPUMiB, cpus: g.began.CPUs, backlog: g.backlog(), whole: g.whole}
		if !g.ends.IsZero() {
			r.left = max(g.ends.Sub(now), time.Nanosecond)
		}
		rooms, open[g.number] = append(rooms, r), g
	}
	dealt := deal(f.tasks, rooms, f.pace)
	for _, r := range rooms {
		g := open[r.number]
		switch {
		case len(dealt[r.number]) > 0:
			if err := f.give(g, dealt[r.number]); err != nil {
				return err
			}
		case len(r.backlog) == 0 && len(g.doubt) == 0 && !f.blocked():
			if err := f.enough(g); err != nil {
				return err
			}
		}
	}
	return nil
}

// blocked reports whether jobs wait, and each of them for another job.
func (f *front) blocked() bool {
	any := false
	for _, t := range f.tasks {
		if t.waits() {
			if ready, _ := t.ready(); ready {
				return false
			}
			any = true
		}
	}
	return any
}

// give deals jobs to an allocation.
func (f *front) give(g *grant, tasks []*task) error {
	ids := make([]int, len(tasks))
	for i, t := range tasks {
		ids[i] = t.id
	}
	if err := f.ledger.write(entry{Deal: g.number, IDs: ids}); err != nil {
		return err
	}
	for _, t := range tasks {
		g.take(t)
	}
	return g.complete()
}

// enough lets an allocation end when its jobs have ended.
func (f *front) enough(g *grant) error {
	g.noMore = true
	return g.place.mark(noMoreName)
}

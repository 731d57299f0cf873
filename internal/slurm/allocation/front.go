package allocation

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"berth/internal/job/jobfile"
	"berth/internal/queue"
	"berth/internal/queue/batch"
	"berth/internal/slurm"
	"berth/internal/text"
	"berth/internal/text/problem"
)

// front is one `berth run --allocations`.
type front struct {
	opt         Options
	source      *batch.Source
	dir         string // of the allocations
	lock        *lock
	ledger      *ledger
	run         string // names it in Slurm
	jobs        *jobList
	allocations []*allocation
	narrator    *narrator
	board       board
	began       time.Time

	asked    time.Time // when Slurm was last asked
	away     bool      // it does not answer
	accepted int       // allocations at a time that Slurm accepts, as far as is known
	lost     int       // allocations that Slurm forgot
	streak   *streak
	refusal  error // what sbatch said
	stopping int   // how often the user interrupted
}

func newFront(o Options, dir string) *front {
	f := &front{opt: o, dir: dir, jobs: &jobList{byKey: map[string]*task{}}, streak: &streak{most: o.Count}, began: time.Now(), accepted: o.Count}
	f.source = batch.NewSource(&f.opt.Options, func(file jobfile.File) error {
		_, err := linesOf(f.opt.File, file, f.source.Text())
		return err
	})
	return f
}

// Run drains the jobs file and returns the exit status. It returns an error if
// nothing could be asked for.
func Run(ctx context.Context, o Options) (int, error) {
	logDir, err := filepath.Abs(o.LogDir)
	if err != nil {
		return 0, problem.Wrap(problem.Unable, "", err)
	}
	f := newFront(o, dirOf(logDir))
	defer f.close()
	if err := f.begin(ctx, logDir); err != nil {
		return 0, err
	}
	f.greet()
	ticker := time.NewTicker(o.Poll)
	defer ticker.Stop()
	for {
		if f.lock.wanted() {
			f.narrator.say("leaving the allocations to another berth run")
			return 0, nil
		}
		done, err := f.step(ctx)
		if err != nil {
			return 0, problem.Wrap(problem.Unable, "the allocations go on with what they have; fix this, then run the same command again", err)
		}
		if done {
			return f.finish(), f.refusal
		}
		select {
		case <-ticker.C:
		case sig := <-o.Signals:
			if sig != syscall.SIGHUP {
				f.interrupt()
			} else if err := f.lock.hangUp(); err != nil {
				f.narrator.warn(err.Error())
			}
		}
	}
}

// How often Slurm is asked, in polls: rarely while all allocations show that they
// live.
const (
	lookEvery  = 5
	lookRarely = 30
)

// step is one round: take in what happened, decide, write it down, do it.
func (f *front) step(ctx context.Context) (done bool, err error) {
	now := time.Now()
	if err := f.reread(); err != nil {
		return false, err
	}
	if now.Sub(f.asked) >= f.lookAfter(now) && len(f.open()) > 0 {
		f.compare(ctx, now)
	}
	for _, a := range f.open() {
		if err := f.visit(ctx, a, now); err != nil {
			return false, err
		}
	}
	f.jobs.endBroken(queue.Origin{Dir: f.opt.Dir, Home: os.Getenv("HOME"), Env: f.opt.Env}, f.narrator.broken)
	if err := f.dealOut(now); err != nil {
		return false, err
	}
	if err := f.ask(ctx); err != nil {
		return false, err
	}
	if f.board.due(len(f.jobs.all)) {
		f.board.write(f.jobs, f.narrator)
	}
	return f.done(), nil
}

// done reports whether there is nothing left to do.
func (f *front) done() bool {
	if f.stopping > 1 {
		return true
	}
	return len(f.open()) == 0 && (f.stopping > 0 || f.jobs.left() == 0 || f.refusal != nil || f.streak.gaveUp())
}

// interrupt lets the next round stop the jobs; the second time nobody waits for
// them.
func (f *front) interrupt() {
	f.stopping++
	open := f.open()
	if f.stopping == 1 && len(open) > 0 {
		f.narrator.say(fmt.Sprintf("stopping %s; the same command goes on from here (Ctrl-C again: do not wait for them to end)", text.Count(len(open), "allocation")))
	}
}

// open are the allocations that have not ended.
func (f *front) open() (open []*allocation) {
	for _, a := range f.allocations {
		if !a.closed {
			open = append(open, a)
		}
	}
	return open
}

// lookAfter is when Slurm is asked again.
func (f *front) lookAfter(now time.Time) time.Duration {
	for _, a := range f.open() {
		if a.state != "RUNNING" || a.marker == nil || now.Sub(a.silent) > lookEvery*time.Second {
			return lookEvery * f.opt.Poll
		}
	}
	return lookRarely * f.opt.Poll
}

func (f *front) newAllocation(number int) *allocation {
	return &allocation{
		number: number, tag: fmt.Sprintf("berth-%s-%d", f.run, number), directory: directory(filepath.Join(f.dir, strconv.Itoa(number))), narrator: f.narrator, jobs: f.jobs, doubt: map[*task]doubtful{},
	}
}

// reread follows edits to the jobs file. A version that cannot be used is ignored.
func (f *front) reread() error {
	file, changed, complaint := f.source.Look()
	if changed {
		err := f.source.CheckPlaces(file.Lines, f.jobs.over(file.Lines))
		if err == nil {
			return f.accept(file)
		}
		complaint = fmt.Sprintf("%v; keeping the last good queue", err)
	}
	if complaint != "" {
		f.narrator.warn(complaint)
	}
	return nil
}

// accept brings the jobs up to date with the jobs file.
func (f *front) accept(file jobfile.File) error {
	texts, err := linesOf(f.opt.File, file, f.source.Text())
	if err != nil {
		return err
	}
	if fresh := f.jobs.unknown(file.Lines); len(fresh) > 0 {
		if err := f.ledger.write(entry{Jobs: fresh}); err != nil {
			return err
		}
		for _, key := range fresh {
			f.jobs.add(key)
		}
	}
	f.jobs.accept(file.Lines, texts)
	return nil
}

// linesOf are those of the jobs file as an allocation gets them. What cannot be done in
// one is refused.
func linesOf(name string, file jobfile.File, text []byte) (texts []string, err error) {
	if len(file.Lines) == 0 {
		return nil, problem.Newf(problem.Invalid, "write one command per line", "%s has no jobs", name)
	}
	all := strings.Split(string(bytes.TrimPrefix(text, []byte("\xef\xbb\xbf"))), "\n")
	for _, l := range file.Lines {
		if err := possible(&l.Spec); err != nil {
			return nil, problem.Newf(problem.Invalid, "leave it out, or run the line without --allocations", "%s:%d: %w in an allocation", name, l.Number, err)
		}
		text, err := jobfile.WithoutAfter(all[l.Number-1])
		if err != nil {
			return nil, problem.Newf(problem.Invalid, "", "%s:%d: %w", name, l.Number, err)
		}
		texts = append(texts, text)
	}
	return texts, nil
}

// compare takes in what Slurm says about the allocations.
func (f *front) compare(ctx context.Context, now time.Time) {
	f.asked = time.Now()
	found, err := f.opt.queue(ctx, func(name string) bool { return strings.HasPrefix(name, "berth-"+f.run+"-") })
	switch {
	case err == nil && f.away:
		f.narrator.say("Slurm answers again")
	case err != nil && !f.away:
		why := ""
		if !away(err) {
			why = " (" + explained(err).Error() + ")"
		}
		f.narrator.warn("Slurm does not answer; running allocations go on, and berth waits for it" + why)
	}
	if f.away = err != nil; f.away {
		return
	}
	for _, a := range f.open() {
		e, listed := found[a.tag]
		if !listed {
			a.absent++
			a.state = ""
			continue
		}
		a.absent, a.slurm, a.state = 0, e.ID, e.State
		if e.Over() {
			a.absent++
		}
		if e.State == "RUNNING" && e.Limit > 0 && !e.Start.IsZero() {
			a.whole = e.Limit - f.jobs.warning()
			a.ends = e.Start.Add(a.whole)
		}
		if why := slurm.Why(e); e.State == "PENDING" && why != a.why && why != "" && now.Sub(e.Submit) > 10*time.Second {
			a.why = why
			f.narrator.say(fmt.Sprintf("allocation %d waits in Slurm: %s", a.number, why))
		}
	}
}

// visit looks at one allocation, and closes it if it has ended for certain.
func (f *front) visit(ctx context.Context, a *allocation, now time.Time) error {
	if a.marker == nil {
		m, err := a.directory.begun()
		if err != nil {
			return err
		}
		if m == nil || m.Taken {
			return f.awaitStart(ctx, a)
		}
		if f.opt.Sim > 0 {
			m.GPUs, m.GPUMiB = f.opt.Sim, f.opt.SimVRAMMiB
		}
		a.marker = m
		a.narrator.allocation("began", a, fmt.Sprintf("allocation %d began on %s with %s", a.number, m.Node, text.Count(m.GPUs, "GPU")))
	}
	if f.stopping > 0 && !a.directory.has(stopName) {
		if err := a.directory.mark(stopName); err != nil {
			return err
		}
	}
	ended, ran := a.directory.has(endName), a.directory.ran()
	if err := a.follow(); err != nil {
		return err
	}
	a.resolve(now, false)
	if alive := a.directory.alive(); alive != a.alive || a.silent.IsZero() {
		a.alive, a.silent = alive, now
	}
	switch {
	case ended, a.absent > 0 && now.Sub(a.silent) >= f.opt.Silent:
		return f.end(a, now, ended)
	case !a.noMore && ran == sizeOf(a.lines) && len(a.backlog()) > 0 && a.directory.told().IsZero():
		// Its berth run ended, and left jobs undone: another allocation may do better.
		f.narrator.warn(fmt.Sprintf("allocation %d on %s does not run its jobs; it printed:", a.number, a.marker.Node), batch.LastLines(a.directory.file(outName))...)
		return a.enough()
	}
	return nil
}

// end closes an allocation that has ended for certain.
func (f *front) end(a *allocation, now time.Time, marked bool) error {
	if err := a.follow(); err != nil { // to its end
		return err
	}
	a.resolve(now, true)
	if err := f.ledger.write(entry{Close: a.number}); err != nil {
		return err
	}
	a.closed = true
	back := a.release()
	sentence := fmt.Sprintf("allocation %d on %s ended: %s done in it", a.number, a.marker.Node, text.Count(a.finished, "job"))
	if back > 0 {
		sentence += fmt.Sprintf(", %d to run elsewhere", back)
	}
	f.narrator.allocation("ended", a, sentence)
	if !marked {
		f.narrator.warn(fmt.Sprintf("allocation %d was killed; jobs that ended in its last moments may run again", a.number))
	}
	switch {
	case a.finished > 0:
		f.streak.worked()
	case back > 0 || !marked || !a.directory.told().IsZero(): // not for want of work
		f.failed(a.started)
	}
	return nil
}

// failed counts an allocation that ended without finishing a job.
func (f *front) failed(started bool) {
	if f.streak.failed(started) && len(f.open()) > 0 {
		f.narrator.warn(f.streak.String() + "; berth asks for no more unless another one finishes a job")
	}
}

// dealOut gives the allocations that have begun more jobs, and ends those for
// which there are none.
func (f *front) dealOut(now time.Time) error {
	if f.stopping > 0 {
		return nil
	}
	takers := slices.DeleteFunc(f.open(), func(a *allocation) bool { return !a.open() })
	rooms := make([]*room, len(takers))
	for i, a := range takers {
		rooms[i] = a.room(now)
	}
	deal(f.jobs.all, rooms, f.jobs.pace)
	for i, a := range takers {
		switch r := rooms[i]; {
		case len(r.dealt) > 0:
			given := entry{Deal: a.number}
			for _, t := range r.dealt {
				given.IDs = append(given.IDs, t.id)
			}
			if err := f.ledger.write(given); err != nil {
				return err
			}
			for _, t := range r.dealt {
				a.take(t)
			}
			if err := a.complete(); err != nil {
				return err
			}
		case len(r.backlog) == 0 && len(a.doubt) == 0 && (f.jobs.left() == 0 || f.jobs.ready() > 0): // no job waits only for another one
			if err := a.enough(); err != nil {
				return err
			}
		}
	}
	return nil
}

func (f *front) close() {
	if f.narrator != nil {
		f.narrator.close()
	}
	if f.ledger != nil {
		_ = f.ledger.file.Close()
	}
	if f.lock != nil {
		f.lock.close()
	}
}

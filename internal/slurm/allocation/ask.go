package allocation

import (
	"context"
	"fmt"

	"berth/internal/queue/batch"
	"berth/internal/slurm"
	"berth/internal/slurm/client"
	"berth/internal/text"
)

// mostBarren is how many allocations in a row may end before they start a job.
const mostBarren = 3

// streak counts the allocations in a row that were of no use.
type streak struct {
	fruitless int // no job ended in them
	barren    int // no job started in them
	most      int // of the fruitless ones
}

// gaveUp reports whether there were too many. One that finishes a job, among those
// that are left, changes it.
func (s *streak) gaveUp() bool {
	return s.barren >= mostBarren || s.fruitless >= max(mostBarren, s.most)
}

// worked ends the streak.
func (s *streak) worked() { s.fruitless, s.barren = 0, 0 }

// failed counts one more, and reports whether that is one too many.
func (s *streak) failed(started bool) (tooMany bool) {
	before := s.gaveUp()
	s.fruitless++
	s.barren++
	if started {
		s.barren = 0
	}
	return s.gaveUp() && !before
}

// String says what they had in common.
func (s *streak) String() string {
	if s.barren >= mostBarren {
		return fmt.Sprintf("the last %s ended before they started a job", text.Count(s.barren, "allocation"))
	}
	return fmt.Sprintf("the last %s ended before they finished a job", text.Count(s.fruitless, "allocation"))
}

// ask asks for as many allocations as are missing, if there are jobs for them.
func (f *front) ask(ctx context.Context) error {
	if f.stopping > 0 || f.refusal != nil || f.streak.gaveUp() {
		return nil
	}
	open, idle := f.open(), 0
	if len(open) == 0 {
		f.accepted = f.opt.Count
	}
	for _, a := range open {
		if a.marker == nil {
			idle++
		}
	}
	for n := min(f.jobs.ready()-idle, f.accepted-len(open)); n > 0 && !f.away; n-- {
		if accepted, err := f.askOne(ctx); err != nil || !accepted {
			return err
		}
	}
	return nil
}

// askOne asks Slurm for one allocation. If Slurm does not answer, it may have
// accepted it: its tag tells later.
func (f *front) askOne(ctx context.Context) (accepted bool, err error) {
	a := f.newAllocation(len(f.allocations) + 1)
	if err := a.directory.create(script(&f.opt, a.directory)); err != nil {
		return false, err
	}
	if err := f.ledger.write(entry{Ask: a.number}); err != nil {
		return false, err
	}
	f.allocations = append(f.allocations, a)
	sbatch := client.Client{Environ: f.opt.environ(), Dir: f.opt.Dir} // an allocation gets both
	id, err := sbatch.Submit(ctx, f.opt.arguments(a.directory, a.tag, f.jobs.warning()))
	switch {
	case away(err):
		f.narrator.warn("Slurm does not answer; berth waits for it")
		f.away = true
		return false, nil
	case err != nil:
		return false, f.refused(a, explained(err))
	}
	a.slurm = id
	f.narrator.allocation("asked", a, fmt.Sprintf("allocation %d asked for: Slurm job %s", a.number, id))
	return true, f.ledger.write(entry{Got: a.number, Slurm: id})
}

// refused takes in that Slurm refuses an allocation. The others, if there are any,
// do the work.
func (f *front) refused(a *allocation, why error) error {
	a.closed = true
	if others := len(f.open()); others > 0 {
		f.accepted = others
		f.narrator.warn(fmt.Sprintf("Slurm refuses more than %s: %v", text.Count(others, "allocation"), why))
	} else {
		f.refusal = why
	}
	if _, err := a.directory.take(); err != nil {
		return err
	}
	return f.ledger.write(entry{Close: a.number})
}

// awaitStart looks at an allocation that has not begun: whether it ever will.
func (f *front) awaitStart(ctx context.Context, a *allocation) error {
	forgotten := a.state == "" && a.absent >= 2
	unwanted := f.stopping > 0 || f.jobs.left() == 0
	if !forgotten && !unwanted && (a.state == "" || !(slurm.Entry{State: a.state}).Over()) {
		return nil
	}
	taken, err := a.directory.take()
	if err != nil || !taken {
		return err // it has begun at this moment
	}
	a.closed = true
	switch {
	case unwanted && a.slurm != "":
		// Its name goes with its id: the id may be another job's by now.
		if err := f.opt.asker().Cancel(ctx, []string{a.slurm}, "--name="+a.tag); err != nil && !away(err) {
			f.narrator.warn(fmt.Sprintf("allocation %d is not needed any more, but: %v", a.number, explained(err)))
		}
	case forgotten && f.lost < mostLost:
		f.narrator.warn(fmt.Sprintf("Slurm does not know allocation %d any more; asking for another one", a.number))
		f.lost++
	case !unwanted:
		f.narrator.warn(fmt.Sprintf("allocation %d ended in Slurm before it began (%s)", a.number, a.state), batch.LastLines(a.directory.file(outName))...)
		f.failed(false)
	}
	return f.ledger.write(entry{Close: a.number})
}

// mostLost bounds how often an allocation that Slurm forgot is asked for again.
const mostLost = 10

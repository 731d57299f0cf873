package allocation

import (
	"context"
	"errors"
	"fmt"
	"time"

	"berth/internal/text"
)

// mostBarren is how many allocations in a row may end before they start a job.
const mostBarren = 3

// gaveUp reports whether too many allocations in a row did no work. One that
// finishes a job, among those that are left, changes it.
func (f *front) gaveUp() bool {
	return f.barren >= mostBarren || f.fruitless >= max(mostBarren, f.opt.Count)
}

// ask asks for as many allocations as are missing, if there are jobs for them.
func (f *front) ask(ctx context.Context) error {
	if f.stopping > 0 || f.refusal != nil || f.gaveUp() {
		return nil
	}
	open := len(f.alive())
	if open == 0 {
		f.accepted = f.opt.Count
	}
	for n := min(f.ready()-f.idle(), f.accepted-open); n > 0; n-- {
		away, err := f.askOne(ctx)
		if err != nil || away {
			return err
		}
	}
	return nil
}

// ready is how many jobs wait for an allocation, and for nothing else.
func (f *front) ready() (n int) {
	for _, t := range f.tasks {
		if t.waits() {
			if ready, _ := t.ready(); ready {
				n++
			}
		}
	}
	return n
}

// idle is how many allocations have not begun.
func (f *front) idle() (n int) {
	for _, g := range f.alive() {
		if g.began == nil {
			n++
		}
	}
	return n
}

// askOne asks Slurm for one allocation. If Slurm does not answer, it may have
// accepted it: its tag tells later.
func (f *front) askOne(ctx context.Context) (away bool, err error) {
	if f.away {
		return true, nil
	}
	g := f.newGrant(len(f.grants) + 1)
	if err := g.place.create(script(&f.opt, g.place)); err != nil {
		return false, err
	}
	if err := f.ledger.write(entry{Ask: g.number}); err != nil {
		return false, err
	}
	f.grants = append(f.grants, g)
	id, err := f.opt.submit(ctx, g.place, f.tag(g), f.warning())
	switch {
	case errors.Is(err, errAway):
		f.voice.warn("Slurm does not answer; berth waits for it")
		f.away = true
		return true, nil
	case err != nil:
		return true, f.refused(g, err)
	}
	g.slurm = id
	f.voice.allocation("asked", g, fmt.Sprintf("allocation %d asked for: Slurm job %s", g.number, id))
	return false, f.ledger.write(entry{Got: g.number, Slurm: id})
}

// refused takes in that Slurm refuses an allocation. The others, if there are any,
// do the work.
func (f *front) refused(g *grant, why error) error {
	g.closed, g.never = true, true
	if others := len(f.alive()); others > 0 {
		f.accepted = others
		f.voice.warn(fmt.Sprintf("Slurm refuses more than %s: %v", text.Count(others, "allocation"), why))
	} else {
		f.refusal = why
	}
	if _, err := g.place.take(time.Now()); err != nil {
		return err
	}
	return f.ledger.write(entry{Close: g.number, Never: true})
}

// done reports whether there is nothing left to do.
func (f *front) done() bool {
	if f.stopping > 1 {
		return true
	}
	return len(f.alive()) == 0 && (f.stopping > 0 || f.left() == 0 || f.refusal != nil || f.gaveUp())
}

// interrupt lets the next round stop the jobs; the second time nobody waits for
// them.
func (f *front) interrupt() {
	f.stopping++
	open := f.alive()
	if f.stopping == 1 && len(open) > 0 {
		f.voice.say(fmt.Sprintf("stopping %s; the same command goes on from here (Ctrl-C again: do not wait for them to end)", text.Count(len(open), "allocation")))
	}
}

package allocation

import (
	"context"
	"errors"
	"fmt"
	"time"

	"berth/internal/text"
)

// most is how many allocations in a row may end without a finished job.
func (f *front) most() int { return max(3, f.opt.Count) }

// ask asks for allocations if jobs are left and all of them have ended.
func (f *front) ask(ctx context.Context) error {
	left := f.left()
	if f.stopping > 0 || f.refusal != nil || left == 0 {
		f.toAsk = 0
		return nil
	}
	open := len(f.alive())
	if open == 0 && f.toAsk == 0 && f.fruitless < f.most() {
		f.toAsk = f.opt.Count
	}
	for f.toAsk = min(f.toAsk, left-f.idle(), f.opt.Count-open); f.toAsk > 0; f.toAsk-- {
		away, err := f.askOne(ctx)
		if err != nil || away {
			return err
		}
	}
	f.toAsk = max(f.toAsk, 0)
	return nil
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
		f.toAsk--
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
	g.closed, g.never, f.toAsk = true, true, 0
	if others := len(f.alive()); others > 0 {
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
	return len(f.alive()) == 0 && (f.stopping > 0 || f.left() == 0 || f.refusal != nil || f.toAsk <= 0 && f.fruitless >= f.most())
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

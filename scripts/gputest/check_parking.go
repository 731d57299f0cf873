package main

import (
	"context"
	"fmt"
	"time"

	"berth/internal/api"
	"berth/internal/job"
)

// parking: a job leaves the GPU without losing its work, although the daemon is
// killed while it does; another job uses the GPU meanwhile.
func parking(ctx context.Context, t *trial) error {
	size := t.slice(0.1, 4000)
	d, id, used, err := t.holding(ctx, program{with: t.usual(), mib: size, hold: 5 * time.Second, compute: true}, vram(size+1500), "--name", "long")
	if err != nil {
		return err
	}
	began := time.Now()
	if err := d.act(ctx, api.ActPark, id); err != nil {
		return err
	}
	d.kill()
	if err := d.start(ctx); err != nil {
		return fmt.Errorf("start the daemon again: %w", err)
	}
	if err := d.becomes(ctx, id, job.Parked); err != nil {
		return err
	}
	t.seen("parked %.1f s after it was asked for, with the daemon killed in between", time.Since(began).Seconds())
	if err := t.memoryBack(ctx, used); err != nil {
		return err
	}
	next, err := d.run(ctx, program{with: t.bare(), mib: size, hold: 200 * time.Millisecond}, vram(size+1500), "--name", "next")
	if err != nil {
		return err
	}
	if _, err := d.allWell(ctx, next); err != nil {
		return err
	}
	began = time.Now()
	if err := d.act(ctx, api.ActUnpark, id); err != nil {
		return err
	}
	if err := d.becomes(ctx, id, job.Running); err != nil {
		return err
	}
	ends, err := d.allWell(ctx, id)
	if err != nil {
		return err
	}
	t.expect(ends[0].Parkings == 1 && ends[0].Attempt == 1, "parked %d times, in attempt %d", ends[0].Parkings, ends[0].Attempt)
	t.seen("it ended well %.1f s after it was unparked, having been parked for %.1f s", time.Since(began).Seconds(), ends[0].ParkedS)
	return nil
}

// act does something to a job.
func (d *daemon) act(ctx context.Context, action, id string) error {
	reply, err := api.Call(ctx, d.client, api.Act, api.ActRequest{Action: action, Select: api.Select{Words: []string{id}}})
	if err != nil {
		return err
	}
	if len(reply.Jobs) != 1 || !reply.Jobs[0].Done {
		return fmt.Errorf("%s %s: %+v", action, id, reply.Jobs)
	}
	return nil
}

// becomes waits until a job is in that state.
func (d *daemon) becomes(ctx context.Context, id string, state job.State) error {
	return pollFor(ctx, 40*time.Second, fmt.Sprintf("job %s to be %s", id, state), func() (bool, error) {
		v, err := d.job(ctx, id)
		if err == nil && v.State.Terminal() && v.State != state {
			return false, fmt.Errorf("it is %s: %s", v.State, d.explain(ctx, v))
		}
		return err == nil && v.State == state, nil
	})
}

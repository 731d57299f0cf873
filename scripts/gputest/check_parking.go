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
func parking(ctx context.Context, t *trial) {
	size := t.slice(0.1, 4000)
	d, id, used := t.holding(ctx, program{with: t.usual(), mib: size, hold: 5 * time.Second, compute: true}, vram(size+1500), "--name", "long")
	began := time.Now()
	d.act(ctx, api.ActPark, id)
	d.kill()
	needTo("start the daemon again", d.start(ctx))
	d.becomes(ctx, id, job.Parked)
	t.seen("parked %.1f s after it was asked for, with the daemon killed in between", time.Since(began).Seconds())
	t.memoryBack(ctx, used)
	next := must(d.run(ctx, program{with: t.bare(), mib: size, hold: 200 * time.Millisecond}, vram(size+1500), "--name", "next"))
	must(d.allWell(ctx, next))
	began = time.Now()
	d.act(ctx, api.ActUnpark, id)
	d.becomes(ctx, id, job.Running)
	ends := must(d.allWell(ctx, id))
	t.expect(ends[0].Parkings == 1 && ends[0].Attempt == 1, "parked %d times, in attempt %d", ends[0].Parkings, ends[0].Attempt)
	t.seen("it ended well %.1f s after it was unparked, having been parked for %.1f s", time.Since(began).Seconds(), ends[0].ParkedS)
}

// act does something to a job.
func (d *daemon) act(ctx context.Context, action, id string) {
	reply := must(api.Call(ctx, d.client, api.Act, api.ActRequest{Action: action, Select: api.Select{Words: []string{id}}}))
	if len(reply.Jobs) != 1 || !reply.Jobs[0].Done {
		need(fmt.Errorf("%s %s: %+v", action, id, reply.Jobs))
	}
}

// becomes waits until a job is in that state.
func (d *daemon) becomes(ctx context.Context, id string, state job.State) {
	need(pollFor(ctx, 40*time.Second, fmt.Sprintf("job %s to be %s", id, state), func() (bool, error) {
		v, err := d.job(ctx, id)
		if err == nil && v.State.Terminal() && v.State != state {
			return false, fmt.Errorf("it is %s: %s", v.State, d.explain(ctx, v))
		}
		return err == nil && v.State == state, nil
	}))
}

package soak

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"berth/internal/api"
	"berth/internal/job"
	"berth/internal/text/problem"
)

// mostLive is how many jobs a crowd keeps in the daemon at a time.
const mostLive = 60

// crowd is people who submit, cancel, release and requeue all the while,
// through a daemon that comes and goes.
type crowd struct {
	*host
	enough context.CancelFunc // nothing more is submitted
	open   context.Context
	giveUp context.CancelFunc // and nothing more is done at all
	life   context.Context

	submitters sync.WaitGroup
	errands    sync.WaitGroup

	mu sync.Mutex
	wishes
	acked []*wish
}

func newCrowd(h *host, rng *rand.Rand) *crowd {
	c := &crowd{host: h, wishes: wishes{rng: rng}}
	c.life, c.giveUp = context.WithCancel(context.Background())
	c.open, c.enough = context.WithCancel(c.life)
	h.t.Cleanup(func() {
		c.giveUp()
		c.submitters.Wait()
		c.errands.Wait()
	})
	return c
}

// gather lets people come, some with a program of their own, some with the
// command line.
func (c *crowd) gather(clients, shells int) {
	for range clients {
		client := api.Dial(c.socket)
		c.t.Cleanup(client.Close)
		c.come(func(w *wish) ([]string, error) { return c.handIn(client, w) })
	}
	for range shells {
		c.come(c.typeIn)
	}
}

func (c *crowd) come(hand func(*wish) ([]string, error)) {
	c.mu.Lock()
	rng := rand.New(rand.NewPCG(c.rng.Uint64(), 2))
	c.mu.Unlock()
	c.submitters.Go(func() {
		for c.awaitRoom() {
			c.ask(c.wish(rng), hand)
			c.pause(c.open, upTo(rng, 60*time.Millisecond))
		}
	})
}

// wish makes the next one, which may wait for an acknowledged one.
func (c *crowd) wish(rng *rand.Rand) *wish {
	c.mu.Lock()
	defer c.mu.Unlock()
	var earlier *wish
	if n := len(c.acked); n > 0 {
		earlier = c.acked[max(0, n-1-rng.IntN(20))]
	}
	return c.next(earlier)
}

// ask hands a wish in until it is known, or may be, that it got there.
func (c *crowd) ask(w *wish, hand func(*wish) ([]string, error)) {
	for {
		ids, err := hand(w)
		var nobody *api.Unreachable
		if errors.As(err, &nobody) {
			if !c.pause(c.open, 10*time.Millisecond) {
				return
			}
			continue
		}
		var refused *problem.Problem
		if errors.As(err, &refused) && refused.Kind != problem.Unable {
			c.t.Errorf("refused: %v\n%+v", err, w.specs)
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		w.sent, w.answer = true, err
		if err == nil {
			w.acked, w.ids = true, ids
			c.acked = append(c.acked, w)
			c.errands.Go(func() { c.followUp(w) })
		}
		return
	}
}

func (c *crowd) handIn(client *api.Client, w *wish) ([]string, error) {
	reply, err := api.Call(c.ctx(), client, api.Submit, api.SubmitRequest{Jobs: w.specs, Dir: c.dir, Environ: c.environ()})
	var ids []string
	for _, s := range reply.Jobs {
		ids = append(ids, s.ID)
	}
	return ids, err
}

// typeIn submits as a person would. Batches have no command line.
func (c *crowd) typeIn(w *wish) ([]string, error) {
	if len(w.specs) > 1 {
		return c.handIn(c.client, w)
	}
	args := []string{"submit", "--json"}
	for _, pair := range w.specs[0].Pairs() {
		flag := strings.ReplaceAll(pair.Key, "_", "-")
		if pair.Key == "timeout" {
			flag = "time"
		}
		args = append(args, "--"+flag+"="+pair.Value)
	}
	stdout, stderr, status := c.cli(append(args, "--", w.specs[0].Command.Shell)...)
	var reply struct{ ID string }
	switch {
	case strings.Contains(stderr, "no daemon answers"):
		return nil, &api.Unreachable{Socket: c.socket, Err: errors.New(stderr)}
	case status == 0:
		if err := json.Unmarshal([]byte(stdout), &reply); err != nil || reply.ID == "" {
			c.t.Errorf("submit --json printed %q: %v", stdout, err)
		}
		return []string{reply.ID}, nil
	case status != 1:
		c.t.Errorf("submit ended with %d: %s", status, stderr)
	}
	return nil, fmt.Errorf("submit ended with %d: %s", status, stderr)
}

// pause waits, and reports false if that is not wanted any more.
func (c *crowd) pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// awaitRoom waits until there are few enough jobs.
func (c *crowd) awaitRoom() bool {
	for c.open.Err() == nil {
		status, err := api.Call(c.ctx(), c.client, api.GetStatus, api.None{})
		if err == nil && status.Counts["queued"]+status.Counts["running"] < mostLive {
			return true
		}
		c.pause(c.open, 10*time.Millisecond)
	}
	return false
}

// followUp does to a wish what was meant to be done, whatever becomes of the
// daemon meanwhile. It is done when the daemon says so.
func (c *crowd) followUp(w *wish) {
	if w.then == "" {
		return
	}
	for {
		over, err := c.act(w)
		if over {
			return
		}
		var refused *problem.Problem
		if errors.As(err, &refused) && refused.Kind != problem.Unable {
			c.t.Errorf("%s of job %s: %v", w.then, w.ids[0], err)
			return
		}
		if !c.pause(c.life, 10*time.Millisecond) {
			return
		}
	}
}

// act does it once, and reports whether nothing is left to do.
func (c *crowd) act(w *wish) (done bool, err error) {
	if w.ripe {
		v, err := api.Call(c.ctx(), c.client, api.GetJob, api.JobID{ID: w.ids[0]})
		if err != nil {
			return false, err
		}
		if v.State.Terminal() || w.then == "requeue" && v.Attempt > 1 {
			return true, nil // an earlier request got there, and its answer did not
		}
		if v.State != job.Running {
			return false, nil
		}
	}
	reply, err := api.Call(c.ctx(), c.client, api.Act, api.ActRequest{Action: w.then, Select: api.Select{Words: w.ids[:1]}})
	if err != nil {
		return false, err
	}
	if len(reply.Jobs) != 1 {
		c.t.Errorf("%s of job %s: %+v", w.then, w.ids[0], reply.Jobs)
	}
	return w.then != "requeue", nil
}

// settle ends the submissions, looks for what got there unanswered, and waits
// for everything to end.
func (c *crowd) settle() {
	c.t.Helper()
	c.enough()
	c.submitters.Wait()
	byName := map[string][]job.View{}
	for _, v := range c.host.all() {
		byName[v.Name] = append(byName[v.Name], v)
	}
	for _, w := range c.wishes.all {
		if w.acked || !w.sent {
			continue
		}
		for _, spec := range w.specs {
			if found := byName[string(spec.Name)]; len(found) > 0 {
				base, _, _ := strings.Cut(found[0].ID, "_")
				w.ids = append(w.ids, base)
			}
		}
		if len(w.ids) > 0 && len(w.ids) != len(w.specs) {
			c.t.Errorf("of a batch of %d only %v are there", len(w.specs), w.ids)
			w.ids = nil
		}
		if len(w.ids) > 0 {
			c.errands.Go(func() { c.followUp(w) })
		}
	}
	c.errands.Wait()
	c.drain()
}

// counts sums up a crowd's work for the log.
func (c *crowd) counts() string {
	acked, there, gone := 0, 0, 0
	for _, w := range c.wishes.all {
		switch {
		case w.acked:
			acked++
		case w.sent && w.ids != nil:
			there++
		case w.sent:
			gone++
		}
	}
	return fmt.Sprintf("%d requests acknowledged; %d without an answer, of which %d got there; %d jobs", acked, there+gone, there, len(c.lines))
}

// sameNames reports whether the views are exactly these lines' jobs.
func sameNames(views []job.View, ids []string) bool {
	var got []string
	for _, v := range views {
		got = append(got, v.ID)
	}
	want := slices.Clone(ids)
	slices.Sort(got)
	slices.Sort(want)
	return slices.Equal(got, want)
}

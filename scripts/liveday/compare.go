package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"

	"berth/internal/api"
	"berth/internal/job"
	"berth/internal/sched"
	"berth/internal/sched/sim"
)

// comparison is a day as it was and as it is replayed.
type comparison struct {
	Simulated float64 // the mean wait that berth simulate prints
	Jobs      []compared
}

// compared is one job. Waits are seconds.
type compared struct {
	View           job.View
	Live, Replayed float64
	Fate           sim.Fate
}

// replay asks berth simulate about the day. That prints means only, so the day is
// replayed here too, for the figures of each job.
func (d *daemon) replay(ctx context.Context) (*comparison, error) {
	var figures []struct {
		Mean float64 `json:"wait_mean_s"`
	}
	if err := d.output(ctx, &figures, "simulate", "--history", "--json", "--policy", sim.Default, "--min-run", minRun.String()); err != nil {
		return nil, err
	}
	var views []job.View
	if err := d.output(ctx, &views, "history", "--json"); err != nil {
		return nil, err
	}
	status, err := api.Call(ctx, d.client, api.GetStatus, api.None{})
	if err != nil {
		return nil, err
	}
	policy, err := sim.ParsePolicy(sim.Default)
	if err != nil {
		return nil, err
	}
	policy.Rules.MinRun = minRun
	park := &sim.Parking{
		Who: sim.ThatAskFor, Pace: &sched.Pace{Out: status.Parking.OutMiBs, Back: status.Parking.BackMiBs},
		MemoryMiB: hostCards * cardGiB << 10, Restart: sim.MillisOf(restart.Seconds()),
	}
	w := sim.FromHistory(views, sim.Machine{GPUs: d.gpus, VRAMMiB: cardGiB << 10}, park.Restart)
	replays, _ := sim.Compare(w, []sim.Policy{policy}, sim.Choices{Park: park}, 0, sim.Watch{})
	if own := replays[0].WaitMeanS; math.Abs(own-figures[0].Mean) > 1e-6 {
		return nil, fmt.Errorf("berth simulate says a mean wait of %.3f s, and the replay here %.3f s", figures[0].Mean, own)
	}
	c := &comparison{Simulated: figures[0].Mean}
	byID := map[string]*job.View{}
	for i := range views {
		byID[views[i].ID] = &views[i]
	}
	for i := range w.Jobs {
		j, f := &w.Jobs[i], replays[0].Result.Fates[i]
		v := byID[j.ID]
		c.Jobs = append(c.Jobs, compared{
			View: *v, Fate: f,
			Live:     v.EndedAt.Sub(*v.SubmittedAt).Seconds() - j.Duration.Seconds(),
			Replayed: (f.End - j.Submit - j.Duration).Seconds(),
		})
	}
	data, err := json.Marshal(c)
	if err != nil {
		return nil, err
	}
	return c, os.WriteFile(filepath.Join(d.dir, "day.json"), data, 0o644)
}

// print prints the figures, and the jobs that differ most.
func (c *comparison) print(out io.Writer, jobs []liveJob, show int) {
	mean := func(of func(*compared) float64) (m float64) {
		for i := range c.Jobs {
			m += of(&c.Jobs[i]) / float64(len(c.Jobs))
		}
		return m
	}
	live := mean(func(j *compared) float64 { return j.Live })
	parked, ended, again, near := 0, 0, 0, 0
	for i := range c.Jobs {
		j := &c.Jobs[i]
		if j.View.State != job.Finished {
			fmt.Fprintf(out, "job %s: %s\n", j.View.ID, j.View.State)
		}
		if again += j.Fate.Preemptions; math.Abs(j.Replayed-j.Live) < 1 {
			near++
		}
		if j.View.Name != "warm-up" {
			parked, ended = parked+j.View.Parkings, ended+j.View.Preemptions
		}
	}
	fmt.Fprintf(out, "%d jobs: mean wait %.1f s live, %.1f s replayed (%+.1f %%); %d differ by less than a second\n",
		len(c.Jobs), live, c.Simulated, 100*(c.Simulated/live-1), near)
	fmt.Fprintf(out, "live, jobs were parked %d times and ended for others %d times; replayed, they gave way %d times\n", parked, ended, again)
	slices.SortFunc(c.Jobs, func(a, b compared) int {
		return cmp.Compare(math.Abs(b.Replayed-b.Live), math.Abs(a.Replayed-a.Live))
	})
	for _, of := range c.Jobs[:min(show, len(c.Jobs))] {
		var n int
		if _, err := fmt.Sscanf(of.View.Name, "j%d", &n); err != nil {
			continue
		}
		j := &jobs[n]
		fmt.Fprintf(out, "%5s %-19s %d GPUs %6.1f s at %6.1f s: waited %6.1f s, replayed %6.1f s\n",
			of.View.ID, j.kind, j.gpus, j.work.Seconds(), j.at.Seconds(), of.Live, of.Replayed)
	}
}

package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"time"
)

// spikes: twenty allocations of 200 ms, each larger than the last, so that each
// that is seen raises the job's peak.
func spikes(ctx context.Context, t *trial) {
	d := must(t.onCard(ctx))
	const count = 20
	id := must(d.run(ctx, program{with: t.usual(), spikes: count}, vram(t.slice(0.9, 16000))))
	need(d.ready(ctx, id))
	distinct := map[int64]bool{}
	highest := int64(0)
	need(poll(ctx, 25*time.Millisecond, "the spikes to end", func() (bool, error) {
		c, err := d.card(ctx)
		if err != nil {
			return false, err
		}
		// The first spike is 2048 MiB: less is the program itself.
		if _, peak := c.of(id); peak >= 2048 {
			distinct[peak] = true
			highest = max(highest, peak)
		}
		v, err := d.job(ctx, id)
		if err == nil && over(v.State) {
			if peak := v.PeakVRAMMiB[fmt.Sprint(d.index())]; peak >= 2048 {
				distinct[peak] = true
			}
			return true, nil
		}
		return false, err
	}))
	must(d.allWell(ctx, id))
	t.seen("%d of %d allocations of 2 to 3.2 GiB for 200 ms raised the peak, to %d MiB", min(len(distinct), count), count, highest)
	if len(childrenOf(d.pid(), "berth-gpu")) == 0 {
		t.seen("without the helper: not counted as a failure")
		return
	}
	t.expect(len(distinct) >= count-1, "only %d of %d were seen", len(distinct), count)
}

// cost: CPU time of the daemon and its helper while a job runs, and the time
// of a reading.
func cost(ctx context.Context, t *trial) {
	d := must(t.onCard(ctx))
	id := must(d.run(ctx, program{with: t.bare(), mib: t.slice(0.05, 2000), hold: time.Minute, compute: true}, vram(t.slice(0.1, 4000))))
	need(d.ready(ctx, id))
	d.latencies(ctx)
	// A starting job is sampled more often; that has ended by now.
	stretch := 15 * time.Second
	if t.Sim {
		stretch = 2 * time.Second
	} else if err := pause(ctx, 10*time.Second); err != nil {
		need(err)
	}
	helpers := childrenOf(d.pid(), "berth-gpu")
	own, theirs := processorTime(d.pid()), sumTime(helpers)
	need(pause(ctx, stretch))
	own, theirs = processorTime(d.pid())-own, sumTime(helpers)-theirs
	share := func(used time.Duration) float64 { return 100 * used.Seconds() / stretch.Seconds() }
	t.seen("while a job runs: daemon %.2f %%, helper %.2f %% of one CPU (%v)", share(own), share(theirs), stretch)
	t.expect(t.Sim || share(own)+share(theirs) < 5, "reading the GPUs takes %.1f %% of a CPU", share(own)+share(theirs))
	if t.Sim || !t.hasHelper() {
		return
	}
	t.costOfSample(ctx)
}

func sumTime(pids []int) time.Duration {
	sum := time.Duration(0)
	for _, pid := range pids {
		sum += processorTime(pid)
	}
	return sum
}

// latencies measures berth gpus, and the request in it.
func (d *daemon) latencies(ctx context.Context) {
	var command, request []time.Duration
	for range 50 {
		began := time.Now()
		must(d.berth(ctx, "gpus", "--json"))
		command = append(command, time.Since(began))
		began = time.Now()
		must(d.cards(ctx))
		request = append(request, time.Since(began))
	}
	d.t.seen("berth gpus, 50 times: median %s, p99 %s; the request alone %s, %s",
		milliseconds(median(command)), milliseconds(quantile(command, 0.99)), milliseconds(median(request)), milliseconds(quantile(request, 0.99)))
	d.t.expect(d.t.Sim || median(command) <= 20*time.Millisecond, "berth gpus takes %s", milliseconds(median(command)))
}

// The CPU time budget for a sample of that many GPUs.
const (
	sampleBudget = time.Millisecond
	budgetCards  = 8
)

// helperCosts is the helper's own report of its costs.
type helperCosts struct {
	Cards int          `json:"cards"`
	Calls []helperCall `json:"calls"`
	// Samples as berth takes them, ten per second.
	Sample struct {
		Wall    time.Duration `json:"wall_ns"`
		CPU     time.Duration `json:"cpu_ns"`
		CardCPU time.Duration `json:"card_cpu_ns"`
		AllCPU  time.Duration `json:"all_cpu_ns"`
	} `json:"sample"`
}

type helperCall struct {
	What string        `json:"what"`
	CPU  time.Duration `json:"cpu_ns"`
}

// costOfSample makes a helper measure itself.
func (t *trial) costOfSample(ctx context.Context) {
	limited, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	cmd := exec.CommandContext(limited, t.program("berth-gpu"), "cost", "-json")
	cmd.Env = t.environ()
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		need(fmt.Errorf("berth-gpu cost: %w: %.200s", err, said.Bytes()))
	}
	var costs helperCosts
	if err := json.Unmarshal(out, &costs); err != nil {
		need(fmt.Errorf("berth-gpu cost printed %.200s: %w", out, err))
	}
	t.judgeCosts(costs)
}

func (t *trial) judgeCosts(costs helperCosts) {
	t.seen("one sample, ten per second: %v of CPU per GPU in the helper, %v in total; %v of CPU when everything is read",
		costs.Sample.CardCPU.Round(time.Microsecond), costs.Sample.Wall.Round(time.Microsecond), costs.Sample.AllCPU.Round(time.Microsecond))
	slices.SortStableFunc(costs.Calls, func(a, b helperCall) int { return cmp.Compare(b.CPU, a.CPU) })
	var dearest []string
	for _, call := range costs.Calls[:min(3, len(costs.Calls))] {
		dearest = append(dearest, fmt.Sprintf("%s %v", call.What, call.CPU.Round(100*time.Nanosecond)))
	}
	t.seen("the most expensive calls: %s", strings.Join(dearest, ", "))
	t.expect(costs.Cards > 0 && costs.Sample.CPU > 0, "nothing was measured")
	t.expect(costs.Sample.CardCPU*budgetCards <= sampleBudget, "a sample of %d such GPUs takes %v of CPU, more than %v",
		budgetCards, costs.Sample.CardCPU*budgetCards, sampleBudget)
}

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"time"
)

// spikes: twenty allocations of 200 ms, each larger than the last, so that each
// that is seen raises the job's peak.
func spikes(ctx context.Context, t *trial) error {
	d, err := t.onCard(ctx)
	if err != nil {
		return err
	}
	const count = 20
	id, err := d.run(ctx, program{with: t.usual(), spikes: count}, vram(t.slice(0.9, 16000)))
	if err != nil {
		return err
	}
	if err := d.ready(ctx, id); err != nil {
		return err
	}
	distinct := map[int64]bool{}
	highest := int64(0)
	err = poll(ctx, 25*time.Millisecond, "the spikes to be over", func() (bool, error) {
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
	})
	if err != nil {
		return err
	}
	if _, err := d.allWell(ctx, id); err != nil {
		return err
	}
	t.seen("%d of %d allocations of 2 to 3.2 GiB for 200 ms raised the peak, to %d MiB", min(len(distinct), count), count, highest)
	if len(childrenOf(d.pid(), "berth-gpu")) == 0 {
		t.seen("without the helper: not counted as a failure")
		return nil
	}
	t.expect(len(distinct) >= count-1, "only %d of %d were seen", len(distinct), count)
	return nil
}

// cost: processor time of the daemon and its helper while a job runs, and how
// long a look takes.
func cost(ctx context.Context, t *trial) error {
	d, err := t.onCard(ctx)
	if err != nil {
		return err
	}
	id, err := d.run(ctx, program{with: t.bare(), mib: t.slice(0.05, 2000), hold: time.Minute, compute: true}, vram(t.slice(0.1, 4000)))
	if err != nil {
		return err
	}
	if err := d.ready(ctx, id); err != nil {
		return err
	}
	if err := d.latencies(ctx); err != nil {
		return err
	}
	// A job that starts is looked at more often: that is over by now.
	stretch := 15 * time.Second
	if t.Sim {
		stretch = 2 * time.Second
	} else if err := pause(ctx, 10*time.Second); err != nil {
		return err
	}
	helpers := childrenOf(d.pid(), "berth-gpu")
	own, theirs := processorTime(d.pid()), sumTime(helpers)
	if err := pause(ctx, stretch); err != nil {
		return err
	}
	own, theirs = processorTime(d.pid())-own, sumTime(helpers)-theirs
	share := func(used time.Duration) float64 { return 100 * used.Seconds() / stretch.Seconds() }
	t.seen("while a job runs: daemon %.2f %%, helper %.2f %% of one CPU (%v)", share(own), share(theirs), stretch)
	t.expect(t.Sim || share(own)+share(theirs) < 5, "looking at the cards takes %.1f %% of a CPU", share(own)+share(theirs))
	if t.Sim || !t.hasHelper() {
		return nil
	}
	return t.costOfSample(ctx)
}

func sumTime(pids []int) time.Duration {
	sum := time.Duration(0)
	for _, pid := range pids {
		sum += processorTime(pid)
	}
	return sum
}

// latencies measures berth gpus, and the request in it.
func (d *daemon) latencies(ctx context.Context) error {
	var command, request []time.Duration
	for range 50 {
		began := time.Now()
		if _, err := d.berth(ctx, "gpus", "--json"); err != nil {
			return err
		}
		command = append(command, time.Since(began))
		began = time.Now()
		if _, err := d.cards(ctx); err != nil {
			return err
		}
		request = append(request, time.Since(began))
	}
	d.t.seen("berth gpus, 50 times: median %s, p99 %s; the request alone %s, %s",
		milliseconds(median(command)), milliseconds(quantile(command, 0.99)), milliseconds(median(request)), milliseconds(quantile(request, 0.99)))
	d.t.expect(d.t.Sim || median(command) <= 20*time.Millisecond, "berth gpus takes %s", milliseconds(median(command)))
	return nil
}

// costOfSample speaks to a helper of its own: its replies say how much
// processor time it has used.
func (t *trial) costOfSample(ctx context.Context) error {
	const samples = 200
	limited, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	cmd := exec.CommandContext(limited, t.program("berth-gpu"), "serve")
	cmd.Env = t.environ()
	in, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start berth-gpu: %w", err)
	}
	defer func() {
		_ = in.Close()
		_ = cmd.Wait()
	}()
	lines := bufio.NewReaderSize(out, 1<<20)
	ask := func(id int, what string) (time.Duration, error) {
		if _, err := fmt.Fprintf(in, `{"id":%d,"do":"%s"}`+"\n", id, what); err != nil {
			return 0, fmt.Errorf("ask berth-gpu: %w", err)
		}
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return 0, fmt.Errorf("hear berth-gpu: %w", err)
		}
		var reply struct {
			Error string        `json:"error"`
			CPU   time.Duration `json:"cpu"`
		}
		if err := json.Unmarshal(line, &reply); err != nil || reply.Error != "" {
			return 0, fmt.Errorf("berth-gpu said %.200s", line)
		}
		return reply.CPU, nil
	}
	if _, err := ask(1, "hello"); err != nil {
		return err
	}
	first, err := ask(2, "sample")
	if err != nil {
		return err
	}
	began, last := time.Now(), first
	for i := range samples {
		if last, err = ask(3+i, "sample"); err != nil {
			return err
		}
	}
	wall, used := time.Since(began)/samples, (last-first)/samples
	t.seen("one sample of %d cards: %v of CPU in the helper (%v a card), %v in all", len(t.Cards), used.Round(time.Microsecond), (used / time.Duration(len(t.Cards))).Round(time.Microsecond), wall.Round(time.Microsecond))
	t.expect(used <= time.Millisecond*time.Duration((len(t.Cards)+7)/8), "a sample of %d cards takes %v of CPU", len(t.Cards), used)
	return nil
}

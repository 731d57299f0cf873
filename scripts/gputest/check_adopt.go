package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"berth/internal/job"
)

// adopt: berth accounts for a program that was started by hand, and does
// nothing else to it.
func adopt(ctx context.Context, t *trial) {
	d := must(t.onCard(ctx))
	size := t.slice(0.1, 3000)
	pid := must(d.byHand(ctx, size))
	foreign := int64(0)
	need(pollFor(ctx, 10*time.Second, "the external process to be seen", func() (bool, error) {
		c, err := d.card(ctx)
		foreign = c.ForeignMiB
		return foreign >= size, err
	}))
	text := known(d.berth(ctx, "adopt", strconv.Itoa(pid), "--json"))
	var reply struct{ ID string }
	if err := json.Unmarshal([]byte(text), &reply); err != nil || reply.ID == "" {
		need(fmt.Errorf("berth adopt printed %.200q", text))
	}
	d.accounted(ctx, reply.ID, pid, size, foreign)
	must(d.berth(ctx, "cancel", reply.ID))
	ends := must(d.ended(ctx, reply.ID))
	t.expect(ends[0].State == job.Cancelled, "after cancel: %s", d.explain(ctx, ends[0]))
	need(pause(ctx, time.Second))
	t.expect(alive(pid), "cancel killed a process that was only adopted")
	t.seen("cancelled: the process keeps running")
}

// byHand starts a GPU program that is not a job, and waits until it has its
// memory.
func (d *daemon) byHand(ctx context.Context, mib int64) (int, error) {
	ready := filepath.Join(d.t.dir, "ready")
	p := program{with: d.t.usual(), mib: mib, hold: time.Minute, compute: true, ready: ready}
	if d.t.credential != nil { // it writes as an ordinary user
		p.ready = filepath.Join(os.TempDir(), d.t.mark+"-ready")
		ready = p.ready
		d.t.later(func() { _ = os.Remove(ready) })
	}
	words := must(p.words(d.t.host))
	if d.t.Sim {
		words = append(words, "--gpu", "0")
	}
	cmd := d.t.command(context.WithoutCancel(ctx), words[0], words[1:]...)
	cmd.Env = append(cmd.Env, "CUDA_VISIBLE_DEVICES="+d.t.Card.UUID, "BERTH_SIM_DIR="+filepath.Join(d.state, "sim"))
	if err := cmd.Start(); err != nil {
		return 0, fmt.Errorf("start a program by hand: %w", err)
	}
	exited := make(chan struct{})
	go func() {
		_ = cmd.Wait()
		close(exited)
	}()
	d.t.later(func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		<-exited
	})
	return cmd.Process.Pid, poll(ctx, 50*time.Millisecond, "the program started by hand", func() (bool, error) {
		select {
		case <-exited:
			return false, fmt.Errorf("the program started by hand has ended: %v", cmd.ProcessState)
		default:
		}
		_, err := os.Stat(ready)
		return err == nil || d.t.Sim, nil
	})
}

// accounted expects that external memory has become the job's.
func (d *daemon) accounted(ctx context.Context, id string, pid int, size, foreign int64) {
	t := d.t
	var now, peak, left, want int64
	err := pollFor(ctx, 10*time.Second, "the adopted process to be accounted for", func() (bool, error) {
		c, err := d.card(ctx)
		if err != nil {
			return false, err
		}
		now, peak = c.of(id)
		left, want = c.ForeignMiB, size
		if !t.Sim {
			listed, err := t.smiProcesses(ctx)
			if err != nil {
				return false, err
			}
			want = 0
			for _, p := range familyOf(pid) {
				want += listed[p]
			}
		}
		return now > 0 && near(now, want, 1) && left < foreign/2, nil
	})
	t.seen("adopted: %d MiB, peak %d, %s %d; external %d, was %d", now, peak, t.witness(), want, left, foreign)
	need(err)
}

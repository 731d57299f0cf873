package soak

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"berth/internal/job"
	"berth/internal/tests/testkit"
)

// TestKillMgpu kills mgpu_scheduler_server again and again while people hand
// in jobs with mgpu_srun. What it took must run exactly once, and what it
// refused, or did not answer for, at most once.
func TestKillMgpu(t *testing.T) {
	rng, begun := chance(t), time.Now()
	h := newHost(t, 4)
	p := &mgpuPeople{host: h, taken: map[int]string{}}
	enough := p.come(rand.New(rand.NewPCG(rng.Uint64(), 2)))
	for wanted := kills(t, 8); h.toll.kills < wanted && !t.Failed() && (unbounded() || time.Since(begun) < enoughTime); h.toll.kills++ {
		b := h.mgpuServe()
		timer := time.AfterFunc(upTo(rng, 700*time.Millisecond), func() { b.signal(syscall.SIGKILL) })
		if b.wait(); !b.killed() {
			t.Errorf("it ended by itself: %s%s", b.said(), b.stderr.String())
		}
		timer.Stop()
	}
	b := h.mgpuServe()
	h.awaitAnswer(b)
	testkit.Eventually(t, "somebody is served", func() bool { return p.served() > 0 })
	enough()
	h.drain()
	p.mustHaveRunOnce()
	h.toll.log(t, begun, "")
	b.signal(syscall.SIGTERM)
	b.mustEnd(0)
	h.mustBeClean()
}

func (h *host) mgpuServe() *berth {
	h.t.Helper()
	cmd := h.verb("compat", "mgpu_scheduler_server", "--state-dir", h.logDir, "--socket", h.socket, "--sim", "4")
	return h.launch(cmd, nil)
}

// mgpuPeople hand in one job after the other, whether or not a server is
// there.
type mgpuPeople struct {
	*host
	mu    sync.Mutex
	lines []line
	taken map[int]string // the ids of lines that were taken
}

// come lets three of them hand in until the returned function is called.
func (p *mgpuPeople) come(rng *rand.Rand) (enough func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var people sync.WaitGroup
	for range 3 {
		people.Go(func() {
			for p.room(ctx) {
				p.handIn(rng)
			}
		})
	}
	enough = func() {
		cancel()
		people.Wait()
	}
	p.t.Cleanup(enough)
	return enough
}

// room waits until the queue is short enough to be worked off at the end, and
// reports false if nothing more is wanted.
func (p *mgpuPeople) room(ctx context.Context) bool {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for p.served()-p.count("end") > 40 {
		select {
		case <-ctx.Done():
			return false
		case <-tick.C:
		}
	}
	return ctx.Err() == nil
}

func (p *mgpuPeople) served() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.taken)
}

func (p *mgpuPeople) wish(rng *rand.Rand) (l line, ids string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	l = line{number: len(p.lines) + 1, alone: true, kind: "plain", cards: 1 + rng.IntN(2), hold: upTo(rng, 100*time.Millisecond)}
	first := rng.IntN(4)
	if ids = fmt.Sprint(first); l.cards == 2 {
		ids = fmt.Sprintf("%d,%d", first, (first+1)%4)
	}
	p.lines = append(p.lines, l)
	return l, ids
}

func (p *mgpuPeople) handIn(rng *rand.Rand) {
	l, ids := p.wish(rng)
	said, errSaid, status := p.cli("compat", "mgpu_srun", "--gpu-ids", ids, "--", l.text())
	id, taken := strings.CutPrefix(strings.TrimSpace(said), "Job submitted. ID: ")
	id, _, _ = strings.Cut(id, " ")
	if taken != (status == 0) || !taken && !strings.HasPrefix(said, "Submit failed: ") || strings.Contains(said+errSaid, "panic") {
		p.t.Errorf("mgpu_srun ended with %d and said %s%s", status, said, errSaid)
	}
	if taken {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.taken[l.number] = id
	}
}

func (p *mgpuPeople) mustHaveRunOnce() {
	p.t.Helper()
	b, all, known := p.mustBeSound(p.lines), p.all(), map[string]job.View{}
	for id, v := range all {
		known[job.Code(id)] = v
		if v.State != job.Finished || v.Attempt != 1 {
			p.t.Errorf("job %s is %s in attempt %d", id, v.State, v.Attempt)
		}
	}
	if len(b.runs) != len(all) {
		p.t.Errorf("%d jobs ran; the server knows %d", len(b.runs), len(all))
	}
	p.toll.jobs = len(p.taken)
	for number, id := range p.taken {
		if r := b.runs[[2]int{number, 1}]; r == nil || r.ends != 1 {
			p.reportLost("job %s was taken, and did not run to its end", id)
		}
		if v, there := known[id]; !there || v.Log == nil || filepath.Base(*v.Log) != ".mgpu_job_"+id+".log" {
			p.t.Errorf("job %s: %+v", id, v)
		}
	}
}

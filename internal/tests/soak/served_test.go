package soak

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"berth/internal/tests/testkit"
)

// steps are where the daemon can be told to die, and how often it may come
// there first.
var steps = map[string]int{
	"restored": 1, "leased": 4, "before commit": 15, "committed": 15, "before go": 4, "gone": 4,
	"before ack": 4, "acked": 4, "before stop": 2, "stopped": 2, "before reply": 4, "before answer": 3,
}

// TestKillDaemon kills the daemon again and again, at a random moment or at a
// given step, while people submit, cancel and requeue jobs of every kind.
// Nothing acknowledged may be lost, nothing run twice, and no end be wrong.
func TestKillDaemon(t *testing.T) {
	t.Run("of one user", func(t *testing.T) { killDaemon(t, kills(t, 30), false) })
	t.Run("of all users", func(t *testing.T) { killDaemon(t, kills(t, 20), true) })
}

func killDaemon(t *testing.T, wanted int, shared bool) {
	rng, begun := chance(t), time.Now()
	died, n := map[string]int{}, &toll{}
	for n.kills < wanted && !t.Failed() {
		most := min(n.kills+500, wanted)
		serveRound(t, rng, n, most, shared, died)
		if n.kills < most && !unbounded() {
			t.Logf("this machine is too busy for %d kills", wanted)
			break
		}
	}
	n.log(t, begun, fmt.Sprintf("; died at %v", died))
	for step := range steps {
		if n.kills >= 300 && died[step] == 0 && !t.Failed() {
			t.Errorf("the daemon never died at %q: that step was not tested", step)
		}
	}
}

// enoughTime bounds one round of kills where the machine is busy with others.
const enoughTime = 75 * time.Second

// serveRound kills until there were so many kills.
func serveRound(t *testing.T, rng *rand.Rand, n *toll, most int, shared bool, died map[string]int) {
	const cards = 6
	h := newHost(t, cards)
	h.toll = n
	if shared {
		h.open(cards)
	}
	h.mustBeFaulty()
	c := newCrowd(h, rand.New(rand.NewPCG(rng.Uint64(), 3)))
	first := h.up()
	w := h.watch()
	c.gather(3, 1)
	testkit.Eventually(t, "the first events come", w.connected)
	first.kill()
	for begun := time.Now(); n.kills < most && !t.Failed() && time.Since(begun) < enoughTime; n.kills++ {
		died[h.die(rng)]++
	}
	b := h.up()
	c.settle()
	t.Log(c.counts())
	c.verify()
	w.mustHaveSeen(c)
	if shared {
		h.mustHaveServedGuest()
	}
	h.down(b)
	h.mustBeClean()
}

// mustBeFaulty has the site use programs that can be told where to die.
func (h *host) mustBeFaulty() {
	h.t.Helper()
	dir, err := faulty()
	if err != nil {
		h.t.Fatal(err)
	}
	h.program = dir
}

// die starts a daemon and has it die. It returns where.
func (h *host) die(rng *rand.Rand) string {
	h.t.Helper()
	step, after := "", upTo(rng, 250*time.Millisecond)
	switch p := rng.IntN(10); {
	case p < 5:
		names := slices.Sorted(maps.Keys(steps))
		step = names[rng.IntN(len(names))]
		after = 800 * time.Millisecond // the step may not come
	case p < 6: // before it can answer anybody
		return h.dieStarting(upTo(rng, 60*time.Millisecond))
	}
	cmd := h.serving()
	if step != "" {
		linger := time.Duration(rng.IntN(2)) * upTo(rng, 20*time.Millisecond)
		cmd.Env = append(cmd.Env, fmt.Sprintf("BERTH_FAULT=%s:%d:%s", step, 1+rng.IntN(steps[step]), linger))
	}
	// From here on it listens.
	var armed, shot atomic.Bool
	b := h.launch(cmd, func(b *berth, _ int) {
		if armed.CompareAndSwap(false, true) {
			time.AfterFunc(after, func() {
				shot.Store(b.running())
				b.signal(syscall.SIGKILL)
			})
		}
	})
	h.mustHaveDied(b)
	if step == "" || shot.Load() {
		return "a random moment"
	}
	return step
}

func (h *host) dieStarting(after time.Duration) string {
	h.t.Helper()
	b := h.serve()
	time.AfterFunc(after, func() { b.signal(syscall.SIGKILL) })
	h.mustHaveDied(b)
	return "start"
}

// mustHaveDied checks that only a kill ended a daemon.
func (h *host) mustHaveDied(b *berth) {
	h.t.Helper()
	status := b.wait()
	if !b.killed() {
		h.t.Errorf("the daemon ended by itself with %d; it said\n%s%s", status, b.said(), b.stderr.String())
	}
	if said := b.stderr.String(); strings.Contains(said, "panic") || strings.Contains(said, "berth:") {
		h.t.Errorf("the daemon said %s", said)
	}
}

// mustHaveServedGuest checks that there were jobs of somebody else, and that
// their logs are theirs.
func (h *host) mustHaveServedGuest() {
	h.t.Helper()
	guests := 0
	for _, v := range h.all() {
		if v.User == "root" || v.ExitCode == nil {
			continue // one that was given up may not have come to its log
		}
		guests++
		info, err := os.Stat(*v.Log)
		if err != nil || info.Sys().(*syscall.Stat_t).Uid != h.guest {
			h.t.Errorf("the log of job %s of %s: %+v, %v", v.ID, v.User, info, err)
		}
	}
	if guests == 0 {
		h.t.Error("nobody but root had a job")
	}
}

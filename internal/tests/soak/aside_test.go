package soak

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"berth/internal/job"
	"berth/internal/tests/testkit"
)

// leaving are the steps of a daemon that has jobs make room for others.
var leaving = map[string]int{
	"restored": 1, "before commit": 8, "committed": 8, "before warning": 2, "warned": 2,
	"before stop": 2, "stopped": 2, "before ack": 3, "acked": 3, "before go": 3, "gone": 3,
}

// TestKillWhileJobsMakeRoom kills the daemon, and supervisors with it, while
// jobs are set aside for others of several priorities. Nobody may run twice or
// beside those it made room for, and everybody comes to an end of its own.
func TestKillWhileJobsMakeRoom(t *testing.T) {
	for who, wanted := range map[string]int{"the daemon": 20, "the daemon and supervisors": 10} {
		t.Run(who, func(t *testing.T) {
			t.Parallel()
			killAsides(t, kills(t, wanted), who != "the daemon")
		})
	}
}

func killAsides(t *testing.T, wanted int, supervisors bool) {
	rng, begun, died := chance(t), time.Now(), map[string]int{}
	asides, n := 0, &toll{}
	for n.kills < wanted && !t.Failed() {
		asides += asideRound(t, rng, n, wanted, supervisors, died)
	}
	n.log(t, begun, fmt.Sprintf("; %d preempted; died at %v", asides, died))
	if asides == 0 && !supervisors && !t.Failed() {
		t.Error("no job was preempted: nothing was tested")
	}
	for step := range leaving {
		if n.kills >= 300 && !supervisors && died[step] == 0 && !t.Failed() {
			t.Errorf("the daemon never died at %q: that step was not tested", step)
		}
	}
}

// yielding are jobs that give way, and those that they give way to one after
// the other while the round lasts.
func yielding(rng *rand.Rand) []line {
	var lines []line
	add := func(l line, keys string, hold time.Duration) {
		l.number, l.hold, l.code = len(lines)+1, hold, rng.IntN(2)*7
		lines = append(lines, l.but(keys, l.kind))
	}
	whole := line{cards: 1, alone: true, kind: "plain"}
	for range 8 {
		kind := []string{"plain", "polite", "stubborn", "warned", "warned"}[rng.IntN(5)]
		keys := fmt.Sprintf("preemptible=requeue grace=0.2s priority=%d", rng.IntN(2))
		if kind == "warned" {
			keys += " signal=USR1@0.3"
		}
		l := whole
		l.kind = kind
		add(l, keys, 2*time.Second+upTo(rng, 2*time.Second))
	}
	for at := range 12 {
		l := whole
		if rng.IntN(4) == 0 {
			l.block, l.cards = "gpus=2", 2
		}
		add(l, fmt.Sprintf("priority=%d begin=now+%ds", 1+rng.IntN(3), 1+at), 100*time.Millisecond+upTo(rng, 400*time.Millisecond))
	}
	return lines
}

// asideRound kills until there were so many kills, or the jobs are done.
func asideRound(t *testing.T, rng *rand.Rand, n *toll, most int, supervisors bool, died map[string]int) (asides int) {
	h := newHost(t, 2)
	h.toll = n
	h.flags = append(h.flags, "--min-run", "1s")
	h.mustBeFaulty()
	lines := yielding(rng)
	b := h.up()
	ids := h.submit(lines...)
	b.kill()
	lost := 0
	for begun := time.Now(); n.kills < most && h.count("end")+lost < len(lines) && !t.Failed() && time.Since(begun) < enoughTime; n.kills++ {
		if supervisors && rng.IntN(3) == 0 {
			b := h.up()
			pause(b, upTo(rng, 600*time.Millisecond))
			lost += h.killOne(rng)
			b.kill()
			continue
		}
		died[h.dieAt(rng, leaving, 900*time.Millisecond)]++
	}
	b = h.up()
	h.drain()
	n.jobs += len(lines)
	books := h.mustBeSound(lines)
	for i, l := range lines {
		v := h.job(ids[i])
		if outcome(v) == "lost" {
			lost--
			continue
		}
		h.mustHaveGivenWay(l, v, books)
		asides += v.Preemptions
	}
	if lost < 0 {
		t.Errorf("%d more jobs are lost than supervisors were killed", -lost)
	}
	h.down(b)
	h.mustBeClean()
	return asides
}

// mustHaveGivenWay checks a job that may have been set aside any number of
// times: each of these was an attempt, and the last one ran to its end.
func (h *host) mustHaveGivenWay(l line, v job.View, b books) {
	h.t.Helper()
	if outcome(v) != l.outcome() || v.Attempt != v.Preemptions+1 {
		h.t.Errorf("line %d ended %s in attempt %d, set aside %d times: %s", l.number, outcome(v), v.Attempt, v.Preemptions, l.text())
	}
	if r := b.runs[[2]int{l.number, v.Attempt}]; r == nil || r.ends != 1 || r.code != l.code {
		h.t.Errorf("line %d is said to have ended %s in attempt %d, but itself says %+v", l.number, outcome(v), v.Attempt, r)
	}
	if b.runs[[2]int{l.number, v.Attempt + 1}] != nil {
		h.t.Errorf("line %d ran once more than berth knows", l.number)
	}
	for attempt := 1; attempt <= v.Attempt; attempt++ {
		text := testkit.Read(h.t, filepath.Join(h.logDir, "jobs", v.ID, fmt.Sprintf("%d.log", attempt)))
		begin, end := l.log(attempt)
		// On a busy machine a job may be told to end before it has printed all.
		if r := b.runs[[2]int{l.number, attempt}]; (r == nil || !r.printed) && attempt < v.Attempt && strings.HasPrefix(begin, text) {
			continue
		}
		if !strings.HasPrefix(text, begin) || attempt == v.Attempt && text != begin+end {
			h.t.Errorf("line %d attempt %d: its log is not what it printed:\n%s", l.number, attempt, text)
		}
	}
}

// dieAt starts a daemon and has it die at one of the steps, or at a random
// moment. It returns where.
func (h *host) dieAt(rng *rand.Rand, steps map[string]int, longest time.Duration) string {
	h.t.Helper()
	cmd, step, after := h.serving(), "", upTo(rng, longest)
	if rng.IntN(3) > 0 {
		names := slices.Sorted(maps.Keys(steps))
		step, after = names[rng.IntN(len(names))], 2*longest // it may not come
		linger := time.Duration(rng.IntN(2)) * upTo(rng, 50*time.Millisecond)
		cmd.Env = append(cmd.Env, fmt.Sprintf("BERTH_FAULT=%s:%d:%s", step, 1+rng.IntN(steps[step]), linger))
	}
	b := h.launch(cmd, nil)
	timer := time.AfterFunc(after, func() { b.signal(syscall.SIGKILL) })
	h.mustHaveDied(b)
	if timer.Stop() && step != "" {
		return step
	}
	return "a random moment"
}

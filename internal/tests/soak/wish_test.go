package soak

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"berth/internal/api"
)

// wish is one request to the daemon, and what is known of it.
type wish struct {
	lines []line     // what it becomes: one job, an array's tasks, or a batch
	specs []api.Spec // one, or a batch's
	then  string     // what is done to it afterwards: cancel, requeue or release
	ripe  bool       // and only once it runs
	after *wish      // what it waits for
	on    string     // to end how

	ids    []string // of its specs, where it is known to be there
	acked  bool     // the daemon said so
	sent   bool     // it may have got there
	answer error    // the daemon's, where there was one but no id
}

// lineIDs are the ids of its lines' jobs.
func (w *wish) lineIDs() []string {
	if len(w.specs) == len(w.lines) {
		return w.ids
	}
	ids := make([]string, len(w.lines))
	for i := range ids {
		ids[i] = fmt.Sprintf("%s_%d", w.ids[0], i)
	}
	return ids
}

// holds reports whether what the wish waits for lets it run.
func (w *wish) holds() bool {
	if w.after == nil {
		return true
	}
	good := func(l line) bool { return w.after.want(l) == "ok" }
	waited := w.after.lines // all tasks of an array, but only the first of a batch
	if len(w.after.specs) > 1 {
		waited = waited[:1]
	}
	switch w.on {
	case "ok":
		return !slices.ContainsFunc(waited, func(l line) bool { return !good(l) })
	case "fail":
		return !slices.ContainsFunc(waited, good)
	}
	return true
}

// want is how a line of the wish has to end.
func (w *wish) want(l line) string {
	if !w.holds() {
		return "dependency"
	}
	return l.outcome()
}

// wishes makes requests with a bit of everything. The lines they become are
// numbered through.
type wishes struct {
	rng   *rand.Rand
	lines []line
	all   []*wish
}

func (ws *wishes) number(l line) line {
	l.number = len(ws.lines) + 1
	ws.lines = append(ws.lines, l)
	return l
}

const forever = 5 * time.Minute

// tenth is a job of which ten fit a card.
var tenth = line{block: "gpus=0.1", cards: 1, needMiB: 2334, kind: "plain"}

// but is the line with more keys and another kind.
func (l line) but(keys, kind string) line {
	l.block, l.kind = strings.TrimSpace(l.block+" "+keys), kind
	return l
}

// next makes a wish. An earlier one may be what it waits for.
func (ws *wishes) next(earlier *wish) *wish {
	w := ws.make(earlier)
	ws.all = append(ws.all, w)
	return w
}

func (ws *wishes) make(earlier *wish) *wish {
	l := mixture(ws.rng, 1, 280*time.Millisecond)[0]
	small := tenth
	small.hold, small.code = l.hold, l.code
	switch p := ws.rng.IntN(100); {
	case p < 8: // long enough to see several daemons
		small.hold += time.Second + upTo(ws.rng, 2*time.Second)
		return ws.single(small)
	case p < 20: // given up, queued or running
		victim := tenth.but("grace=0.2s", []string{"polite", "stubborn"}[ws.rng.IntN(2)])
		victim.hold, victim.ends = forever, "cancelled"
		if ws.rng.IntN(3) == 0 {
			victim.block += " hold"
		}
		w := ws.single(victim)
		w.then, w.ripe = "cancel", !strings.Contains(victim.block, "hold") && ws.rng.IntN(2) == 0
		return w
	case p < 26:
		back := small.but("grace=0.2s", "again")
		back.hold, back.retried = forever, true
		w := ws.single(back)
		w.then, w.ripe = "requeue", true
		return w
	case p < 31:
		l.block = strings.TrimSpace(l.block + " hold")
		w := ws.single(l)
		w.then = "release"
		return w
	case p < 37:
		return ws.array()
	case p < 41:
		return ws.batch()
	case p < 47:
		tried := tenth.but("retries=2 retry_on=fail", "fails")
		tried.retried = true
		return ws.single(tried)
	case p < 52:
		late := tenth.but("timeout=1 grace=0.2s", []string{"polite", "stubborn"}[ws.rng.IntN(2)])
		late.hold, late.ends = forever, "timeout"
		return ws.single(late)
	case p < 56:
		return ws.single(small.but("", "suicide"))
	case p < 66 && earlier != nil:
		w := ws.single(l)
		w.after, w.on = earlier, []string{"ok", "any", "fail"}[ws.rng.IntN(3)]
		if ws.rng.IntN(2) == 0 { // with a limit that it does not come near
			w.specs[0].Timeout = "1h"
		}
		w.specs[0].After = api.Text(earlier.ids[0] + ":" + w.on)
		return w
	}
	return ws.single(l)
}

func (ws *wishes) single(l line) *wish {
	l = ws.number(l)
	return &wish{lines: []line{l}, specs: []api.Spec{l.spec()}}
}

// array is one spec of several tasks, each with a line and an exit code of its
// own.
func (ws *wishes) array() *wish {
	w := &wish{}
	tasks := 2 + ws.rng.IntN(4)
	for i := range tasks {
		task := tenth
		task.code = i % 3
		w.lines = append(w.lines, ws.number(task))
	}
	spec := w.lines[0].spec()
	spec.Array = api.Text(fmt.Sprintf("0-%d%%2", tasks-1))
	spec.Command.Shell = fmt.Sprintf(`exec sh "$SOAK/job.sh" $((%d + BERTH_ARRAY_INDEX)) -s 0.05 $((BERTH_ARRAY_INDEX %% 3)) plain`, w.lines[0].number)
	w.specs = []api.Spec{spec}
	return w
}

// batch is several jobs that are taken together or not at all.
func (ws *wishes) batch() *wish {
	w := &wish{}
	for range 2 + ws.rng.IntN(3) {
		l := ws.number(mixture(ws.rng, 1, 100*time.Millisecond)[0])
		w.lines, w.specs = append(w.lines, l), append(w.specs, l.spec())
	}
	return w
}

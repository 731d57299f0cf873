package soak

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"berth/internal/job"
)

// verify holds what the daemon says of every job against what was asked for
// and against what the jobs themselves wrote down.
func (c *crowd) verify() {
	c.t.Helper()
	jobs := c.host.all()
	books := c.mustBeSound(c.lines)
	byName := map[string][]job.View{}
	for _, v := range jobs {
		byName[v.Name] = append(byName[v.Name], v)
	}
	known := map[int]job.View{} // by line
	for _, w := range c.wishes.all {
		c.mustBeThere(w, byName)
		if w.ids == nil {
			continue
		}
		if w.acked {
			c.toll.jobs += len(w.lines)
		}
		for i, id := range w.lineIDs() {
			v, there := jobs[id]
			if !there {
				c.reportLost("job %s (acknowledged: %t) is lost: %s", id, w.acked, w.lines[i].text())
				continue
			}
			known[w.lines[i].number] = v
			delete(jobs, id)
			c.mustHaveEnded(w, w.lines[i], v, books)
		}
	}
	for id, v := range jobs {
		c.t.Errorf("job %s (%s) is nobody's", id, v.Name)
	}
	for _, r := range books.runs {
		if v, there := known[r.line]; !there || r.attempt > v.Attempt {
			c.t.Errorf("line %d ran in attempt %d, of which the daemon knows nothing", r.line, r.attempt)
		}
	}
	c.checkArrays(books)
}

// mustBeThere checks that a wish was taken once and whole: where it was
// acknowledged under the ids that were said, and otherwise perhaps not at all.
func (c *crowd) mustBeThere(w *wish, byName map[string][]job.View) {
	c.t.Helper()
	if !w.sent {
		for _, spec := range w.specs {
			if found := byName[string(spec.Name)]; len(found) > 0 {
				c.t.Errorf("%s is there, although no daemon was", spec.Name)
			}
		}
		return
	}
	var views []job.View
	for _, spec := range w.specs {
		views = append(views, byName[string(spec.Name)]...)
	}
	var ids []string
	if w.ids != nil {
		ids = w.lineIDs()
	}
	if !sameNames(views, ids) {
		c.t.Errorf("%s (acknowledged: %t, answer %v) should be jobs %v; the daemon has %d of that name", w.specs[0].Name, w.acked, w.answer, ids, len(views))
	}
}

// mustHaveEnded checks one job.
func (c *crowd) mustHaveEnded(w *wish, l line, v job.View, b books) {
	c.t.Helper()
	want := w.want(l)
	fail := func(format string, args ...any) {
		c.t.Helper()
		c.t.Errorf("job %s, line %d: %s\n\t%s", v.ID, l.number, fmt.Sprintf(format, args...), l.text())
	}
	if !v.State.Terminal() || outcome(v) != want {
		fail("it is %s, outcome %q, reason %s; want %s", v.State, outcome(v), text(v.Reason), want)
		return
	}
	last := b.runs[[2]int{l.number, v.Attempt}]
	switch want {
	case "cancelled":
		if v.Attempt > 1 {
			fail("it had %d attempts", v.Attempt)
		}
		return
	case "dependency":
		if v.Attempt > 0 {
			fail("it ran although what it waited for ended otherwise")
		}
		return
	case "timeout":
		if ran := v.EndedAt.Sub(*v.StartedAt); ran < time.Second {
			fail("it ran %s with a limit of 1s", ran)
		}
		return
	}
	if wrong := statusFault(v, l); wrong != "" {
		fail("%s", wrong)
	}
	if v.Attempt != l.attempts() && (w.then != "requeue" || v.Attempt < l.attempts()) {
		fail("it had %d attempts, not %d", v.Attempt, l.attempts())
	}
	for attempt := 1; attempt <= v.Attempt; attempt++ {
		r := b.runs[[2]int{l.number, attempt}]
		// Sent back, it may have been ended before it could say a word.
		if r == nil && (w.then != "requeue" || attempt == v.Attempt) {
			fail("attempt %d never ran", attempt)
		}
	}
	if last == nil || last.ends != 1 || last.code != l.code {
		fail("it is said to have ended, but itself says %+v", last)
	}
	if w.then != "requeue" && l.kind != "fails" {
		c.mustHaveWhole(l, v.ID, v.Attempt)
	}
}

// checkArrays walks the ledger for arrays of which more tasks ran at a time
// than they allow.
func (c *crowd) checkArrays(b books) {
	c.t.Helper()
	arrayOf := map[int]*wish{}
	for _, w := range c.wishes.all {
		if len(w.lines) > len(w.specs) {
			for _, l := range w.lines {
				arrayOf[l.number] = w
			}
		}
	}
	running := map[*wish]int{}
	for _, words := range b.words {
		number, _ := strconv.Atoi(words[1])
		w := arrayOf[number]
		if w == nil {
			continue
		}
		switch words[0] {
		case "start":
			running[w]++
		case "end":
			running[w]--
		}
		if _, limit, _ := strings.Cut(string(w.specs[0].Array), "%"); strconv.Itoa(running[w]-1) == limit {
			c.t.Errorf("array %s had %d tasks at a time", w.ids[0], running[w])
		}
	}
}

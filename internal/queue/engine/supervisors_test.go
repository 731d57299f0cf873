package engine

import (
	"errors"
	"slices"
	"strconv"
	"time"

	"berth/internal/job"
	"berth/internal/machine/keep"
	"berth/internal/machine/run"
)

// This file is the world's supervisors and the commands they hold.

func (w *world) Lease() (string, error) {
	w.mayCrash()
	if w.stopping {
		w.wrong("a supervisor was taken after the engine was told to stop")
	}
	if w.chance(50) {
		return "", errors.New("fork: resource temporarily unavailable")
	}
	for _, k := range w.sortedKeeps() {
		if k.alive && !k.leased && k.order == nil {
			k.leased = true
			return k.token, nil
		}
	}
	w.nextID++
	k := &fakeKeep{token: "t" + strconv.Itoa(w.nextID), alive: true, leased: true}
	w.keeps[k.token] = k
	w.mayCrash()
	return k.token, nil
}

func (w *world) sortedKeeps() []*fakeKeep {
	list := make([]*fakeKeep, 0, len(w.keeps))
	for _, k := range w.keeps {
		list = append(list, k)
	}
	slices.SortFunc(list, func(a, b *fakeKeep) int {
		x, _ := strconv.Atoi(a.token[1:])
		y, _ := strconv.Atoi(b.token[1:])
		return x - y
	})
	return list
}

func (w *world) Release(token string) { w.keeps[token].leased = false }

// Go hands over the order. The frame may reach the supervisor after berth is
// gone; it then runs the job all the same.
func (w *world) Go(token string, o keep.Order) error {
	w.mayCrash()
	k := w.keeps[token]
	if !k.alive {
		w.report(run.Event{Kind: run.NeverRan, Token: token, Job: o.Job, Attempt: o.Attempt})
		return nil
	}
	k.leased, k.order = false, &o
	if w.chance(30) {
		// Killed with the order in its hands, before it wrote a word.
		k.alive, k.order = false, nil
		w.report(run.Event{Kind: run.NeverRan, Token: token, Job: o.Job, Attempt: o.Attempt})
		return nil
	}
	w.begin(k)
	w.mayCrash()
	return nil
}

func (w *world) begin(k *fakeKeep) {
	o := k.order
	k.started = &keep.Record{Token: k.token, Job: o.Job, Attempt: o.Attempt, BootID: w.bootID}
	k.ended = nil
	row := w.rows[o.Job]
	if row == nil || row.State != job.Running || row.Attempt.Number != o.Attempt || row.Keep != k.token {
		w.wrong("job %s attempt %d ran before its placement was on disk", o.Job, o.Attempt)
		return
	}
	x := &execution{
		job: o.Job, attempt: o.Attempt, token: k.token, cards: row.Grant.GPUs, useMiB: row.Grant.BudgetMiB,
		alone: row.Grant.Alone, alive: true, pid: 1000 + len(w.history), declaredMiB: row.VRAMMiB,
	}
	x.realMiB = max(1, x.useMiB*int64(30+w.rng.IntN(71))/100)
	if x.alone {
		x.realMiB = int64(1000 + w.rng.IntN(15000))
	}
	w.checkStart(x)
	w.checkCards(x)
	w.checkMayRun(row, x)
	x.code, x.oom = w.fate()
	w.history = append(w.history, x)
	k.running = x
	w.report(run.Event{Kind: run.Started, Token: k.token, Job: o.Job, Attempt: o.Attempt})
	token := k.token
	w.at(time.Duration(1+w.rng.IntN(5000))*time.Millisecond*w.pace, func() { w.exit(token, x, "") })
}

// checkStart is where "never twice" and "never over-committed" are held
// against the truth.
func (w *world) checkStart(x *execution) {
	held := map[int]int64{}
	for _, y := range w.history {
		if y.job == x.job && y.attempt == x.attempt {
			w.wrong("job %s attempt %d ran twice", x.job, x.attempt)
		}
		if !y.alive {
			continue
		}
		if y.job == x.job {
			w.wrong("job %s started while its attempt %d still ran", x.job, y.attempt)
		}
		if y.parked {
			continue
		}
		for _, card := range y.cards {
			held[card] += y.useMiB
			if slices.Contains(x.cards, card) && (x.alone || y.alone) {
				w.wrong("job %s joined job %s on gpu%d, where one of them must be alone", x.job, y.job, card)
			}
		}
	}
	for _, card := range x.cards {
		if held[card]+x.useMiB > w.total {
			w.wrong("gpu%d over-committed by job %s: %d + %d MiB", card, x.job, held[card], x.useMiB)
		}
	}
}

// checkMayRun: a job runs only when what it waits for came true, never after
// it was given up, and after an out-of-memory failure with a larger
// declaration, whatever happened to berth in between.
func (w *world) checkMayRun(row *job.Job, x *execution) {
	if w.givenUp[row.ID] {
		w.wrong("job %s ran after it was cancelled", row.ID)
	}
	if len(row.Spec.After) > 0 && !slices.ContainsFunc(row.Spec.After, func(d job.Dependency) bool { // each is an alternative
		dep := w.rows[d.Job]
		return dep.State.Terminal() && cameTrue(d.On, dep.Outcome) || d.On == job.AfterStart && w.placed[d.Job]
	}) {
		w.wrong("job %s ran too early: it needed one of %+v", row.ID, row.Spec.After)
	}
	for _, y := range slices.Backward(w.history) {
		if y.job != x.job {
			continue
		}
		asked := w.people.again[x.job] // then nothing else has to be a reason
		if y.cut && !row.Spec.Requeue && !asked && !y.leaving {
			w.wrong("job %s runs again though the machine went down under it", x.job)
		}
		atLeast := min(y.declaredMiB, w.total-512)
		if y.ended && y.oom && y.stopped == "" && !asked {
			atLeast = min((y.declaredMiB*5+3)/4, w.total-512)
		}
		if x.declaredMiB < atLeast || x.declaredMiB > w.total-512 {
			w.wrong("job %s declares %d MiB after an attempt (%+v) with %d", x.job, x.declaredMiB, *y, y.declaredMiB)
		}
		return
	}
}

// cameTrue is the truth about a condition, told apart from the engine's own.
func cameTrue(on job.Condition, outcome job.Outcome) bool {
	well := outcome == job.OK
	return on == job.AfterAny || on == job.AfterStart || (on == job.AfterOK && well) || (on == job.AfterFail && !well)
}

func (w *world) fate() (code int, oom bool) {
	switch w.rng.IntN(8) {
	case 0:
		return 1 + w.rng.IntN(5), false
	case 1:
		return 1, true
	}
	return 0, false
}

// exit is the end of a command under its supervisor.
func (w *world) exit(token string, x *execution, stop string) {
	k := w.keeps[token]
	if !x.alive || !k.alive || k.running != x {
		return
	}
	if x.parked && stop == "" { // it goes on when it is back
		w.at(500*time.Millisecond*w.pace, func() { w.exit(token, x, stop) })
		return
	}
	x.alive, x.ended, x.stopped = false, true, stop
	record := *k.started
	record.ExitCode, record.Stop = x.code, stop
	k.ended, k.oom, k.running = &record, x.oom, nil
	w.leave(x)
	w.report(run.Event{Kind: run.Ended, Token: token, Job: x.job, Attempt: x.attempt, Record: record, OOM: x.oom})
}

func (w *world) Stop(token string, why job.Stop, _ time.Duration) error {
	w.mayCrash()
	k := w.keeps[token]
	if k.running == nil {
		return nil
	}
	x := k.running
	unsaved := why != job.StopPreempt && w.full // a stop does not wait for the disk
	if row := w.rows[x.job]; (row.State == job.Running || row.State == job.Parked) && row.Keep == token && row.Stop != why && !unsaved {
		w.wrong("job %s was stopped (%s) before that was on disk", x.job, why)
	}
	if why == job.StopPreempt && w.rows[x.job].PreemptAt.After(w.now) {
		w.wrong("job %s was told to leave %s before it was to be", x.job, w.rows[x.job].PreemptAt.Sub(w.now))
	}
	w.at(time.Duration(w.rng.IntN(500))*time.Millisecond*w.pace, func() { w.exit(token, x, string(why)) })
	return nil
}

// Warn is a signal that the job may well take for its end.
func (w *world) Warn(token, _ string) error {
	w.mayCrash()
	x := w.keeps[token].running
	if x == nil {
		return nil
	}
	if row := w.rows[x.job]; row.State == job.Running && row.Keep == token && (row.Stop != job.StopPreempt || row.Spec.WarnSignal == "") {
		w.wrong("job %s was warned of an end (%q) that is not on disk", x.job, row.Stop)
	}
	w.warnings++
	if w.rng.IntN(4) == 0 {
		w.at(time.Duration(w.rng.IntN(500))*time.Millisecond*w.pace, func() { w.exit(token, x, "") })
	}
	return nil
}

func (w *world) Lose(token, id string, attempt int) {
	w.report(run.Event{Kind: run.Lost, Token: token, Job: id, Attempt: attempt})
}

func (w *world) Ack(token string) {
	w.mayCrash()
	k := w.keeps[token]
	for _, row := range w.rows {
		if (row.State == job.Running || row.State == job.Parked) && row.Keep == token {
			w.wrong("supervisor %s was acknowledged before the end of job %s was on disk", token, row.ID)
		}
	}
	k.order = nil
	if !k.alive {
		k.removed = true
	}
	w.mayCrash()
}

func (w *world) Identity(token string) (run.Identity, bool) {
	return run.Identity{Token: token, KeepPID: 1}, true
}

// report sends an event to the engine after a while; if that engine is gone
// by then, a later one has to scan.
func (w *world) report(ev run.Event) {
	boot := w.boots
	w.at(time.Duration(w.rng.IntN(20))*time.Millisecond, func() {
		if boot == w.boots {
			w.inbox = append(w.inbox, ev)
		}
	})
}

func (w *world) at(d time.Duration, do func()) {
	w.later = append(w.later, delayed{w.now.Add(d), do})
}

// killKeep is kill -9 of a supervisor. Its processes live on until the
// runner has ended them; only then is the job lost.
func (w *world) killKeep(k *fakeKeep) {
	k.alive = false
	if k.running == nil {
		if k.order != nil && k.ended != nil {
			w.report(run.Event{Kind: run.Ended, Token: k.token, Job: k.order.Job, Attempt: k.order.Attempt, Record: *k.ended, OOM: k.oom})
		}
		return
	}
	w.hunt(k)
}

func (w *world) hunt(k *fakeKeep) {
	x := k.running
	started := *k.started
	w.noteLeaving(x)
	w.at(time.Duration(w.rng.IntN(2000))*time.Millisecond, func() {
		if x.alive {
			x.alive, x.lost = false, true
		}
		k.running = nil
		w.report(run.Event{Kind: run.Lost, Token: k.token, Job: x.job, Attempt: x.attempt, Record: started})
	})
}

// powerCut takes the machine down: every process is gone at once, and what
// was not written never will be.
func (w *world) powerCut() {
	w.later, w.inbox = nil, nil
	for _, k := range w.sortedKeeps() {
		k.alive, k.leased, k.before = false, false, true
		if k.running != nil {
			w.noteLeaving(k.running)
			k.running.alive, k.running.lost, k.running.cut = false, true, true
			k.running = nil
		}
		for _, record := range []*keep.Record{k.started, k.ended} {
			if record != nil {
				record.BootID = "an earlier boot"
			}
		}
		if k.ended == nil && w.rng.IntN(2) == 0 {
			k.started = nil // its last words went with the power
		}
	}
}

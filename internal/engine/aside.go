package engine

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"berth/internal/job"
	"berth/internal/reason"
	"berth/internal/sched"
)

// leaver is a running job on its way off its cards: a changed copy of it that
// replaces the old one once it is on disk.
type leaver struct{ job *job.Job }

// leavers are the jobs that a plan sets aside. One that ended, or that somebody
// else is ending, meanwhile needs nothing more.
func (t *Turn) leavers(planned []sched.SetAside) []leaver {
	var list []leaver
	for _, p := range planned {
		a := t.active[p.Job]
		if a == nil || a.job.Stop != job.NoStop || p.Mode != sched.Requeue {
			continue
		}
		j := a.job.Clone()
		j.Stop, j.AsideFor, j.AsideAt = job.StopAside, p.For, t.Now.Add(warning(&j.Spec))
		j.Detail = leavingText(p.For)
		list = append(list, leaver{j})
	}
	slices.SortFunc(list, func(a, b leaver) int { return int(a.job.Seq - b.job.Seq) })
	return list
}

// leavingText is what a leaver says of itself.
func leavingText(other string) string { return "is being " + reason.SetAside(other) }

// depart lets the committed leavers know: first the signal that they wanted to
// hear before, where they wanted one.
func (t *Turn) depart(list []leaver) {
	for _, l := range list {
		id := l.job.ID
		t.jobs[id], t.active[id].job = l.job, l.job
		t.hurry(t.active[id])
	}
}

// urgeLeavers tells leavers to end whose warning is over, and leaves those
// alone whose cards nobody needs any more.
func (t *Turn) urgeLeavers() {
	for _, id := range t.activeIDs() {
		if a := t.active[id]; a.job.Leaving() && !a.told {
			t.hurry(a)
		}
	}
}

// hurry does what is due for a leaver that was not told to end yet.
func (t *Turn) hurry(a *attempt) {
	j := a.job
	if latest := t.Now.Add(warning(&j.Spec)); j.AsideAt.After(latest) {
		j.AsideAt = latest // the clock was set back
		t.fact(j)
	}
	_, wanted := t.queue.Get(j.AsideFor)
	switch {
	case !j.AsideAt.After(t.Now):
		a.told = true
		t.stops = append(t.stops, stopOrder{j.Keep, j.Stop, j.Spec.Grace})
	case !wanted:
		t.stay(a)
	case !a.warnedOf.Equal(j.AsideAt):
		a.warnedOf = j.AsideAt
		t.warns = append(t.warns, warnOrder{j.Keep, strconv.FormatInt(j.AsideAt.UnixMilli(), 10)})
	}
}

// stay leaves a job on its cards that was warned and no more. Who held it meant
// the wait that does not come now: a running job cannot be held, nor released.
func (t *Turn) stay(a *attempt) {
	j := a.job
	text := fmt.Sprintf("job %s stays on its cards: job %s does not wait for them any more", j.ID, j.AsideFor)
	if j.Held {
		text += "; it is not held"
	}
	j.Stop, j.AsideFor, j.AsideAt, j.Detail, j.Held = job.NoStop, "", time.Time{}, "", false
	t.moved = true
	t.fact(j)
	t.tell(job.EventNotice, j, text)
}

// urgeAt is when the next leaver is told to end.
func (t *Turn) urgeAt() (at time.Time) {
	for _, a := range t.active {
		if a.job.Leaving() && !a.told && (at.IsZero() || a.job.AsideAt.Before(at)) {
			at = a.job.AsideAt
		}
	}
	return at
}

// wasTold is true of a leaver that had, or may have had, its TERM: a berth that
// was killed cannot say whether it got to send it.
func (t *Turn) wasTold(j *job.Job) bool {
	return j.Stop == job.StopAside && !j.AsideAt.After(t.Now)
}

// gaveWay is the end of a job that was set aside. It uses up no retry.
func gaveWay(j *job.Job) ruling {
	return ruling{again: job.EventSetAside, detail: reason.SetAside(j.AsideFor), aside: true}
}

// warnOrder asks for a job's warning signal.
type warnOrder struct{ token, stamp string }

// setAside says first, of a job that waits again, that it was set aside.
func setAside(j *job.Job, why string) string {
	if j == nil || j.State != job.Queued {
		return why
	}
	return reason.AfterAside(j.AsideFor, why)
}

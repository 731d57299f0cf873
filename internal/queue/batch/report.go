package batch

import (
	"time"

	"berth/internal/job"
	"berth/internal/job/reason"
	"berth/internal/queue/engine"
	"berth/internal/queue/engine/running"
	"berth/internal/sched"
)

// report keeps the status board of an own queue up to date.
type report struct {
	board   board
	file    string     // whose lines were taken last
	ended   []*job.Job // newest last, bounded
	written time.Time
	changed bool // since then
}

// due reports whether the board is to be written.
func (r *report) due(t *engine.Turn, every time.Duration) bool {
	queued, running := t.Explain().Live()
	return (r.changed || queued+running > 0) && t.Now.Sub(r.written) >= every
}

func (r *report) write(t *engine.Turn, jobs *jobList, began time.Time) error {
	r.written, r.changed = t.Now, false
	return r.board.write(r.snapshot(t, jobs, began))
}

func (r *report) snapshot(t *engine.Turn, jobs *jobList, began time.Time) snapshot {
	snap := snapshot{
		at: t.Now, file: r.file, tally: jobs.counts, total: jobs.total, cards: t.Cards().List(), paused: t.Explain().Blocked(), began: began,
		running: append(t.Running().List(), running.Elsewhere(t.Remote().Running())...),
	}
	if t.Stopping() {
		snap.paused = ""
	}
	snap.doneAt = expectedEnd(t)
	next := t.Explain().Next(boardPending)
	ids := make([]string, len(next))
	for i, j := range next {
		ids[i] = j.ID
	}
	stories := make([]reason.Story, len(ids))
	if !t.Stopping() {
		copy(stories, sched.NewPreview(t.Explain().State(), ids).Stories())
	}
	for i, j := range next {
		w := waitingJob{job: j}
		if story := stories[i]; story.ID != "" {
			story.WasPreempted(j.PreemptedFor)
			w.reason = story.String()
		} else {
			w.reason = t.Explain().Why(j.ID)
		}
		snap.pending = append(snap.pending, w)
	}
	for i := len(r.ended) - 1; i >= 0 && len(snap.ended) < boardEnded; i-- {
		snap.ended = append(snap.ended, r.ended[i])
	}
	return snap
}

// remember puts an ended job on the board, in place of the oldest.
func (r *report) remember(j *job.Job) {
	r.ended = append(r.ended, j)
	if len(r.ended) > 2*boardEnded {
		r.ended = append([]*job.Job(nil), r.ended[len(r.ended)-boardEnded:]...)
	}
}

// mostForeseen bounds the jobs whose ends are foreseen for the board: in a long queue
// that takes too long to do at each poll.
const mostForeseen = 1000

// expectedEnd is when all jobs are expected to have ended; zero: that is not known.
func expectedEnd(t *engine.Turn) (last time.Time) {
	open := t.Jobs().Size()
	if open > mostForeseen {
		return time.Time{}
	}
	t.Explain().Ends(func(_ *job.Job, at time.Time) {
		open--
		if at.After(last) {
			last = at
		}
	})
	if open > 0 {
		return time.Time{}
	}
	return last
}

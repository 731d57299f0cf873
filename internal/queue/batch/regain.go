package batch

import (
	"context"
	"fmt"
	"time"

	"berth/internal/job"
	"berth/internal/machine/run"
	"berth/internal/queue"
	"berth/internal/queue/engine"
	"berth/internal/queue/engine/cards"
	"berth/internal/queue/store"
	"berth/internal/text"
	"berth/internal/text/problem"
)

// regain takes back the jobs that earlier runs left under supervisors and that
// the store does not know: it was emptied, or is a copy from earlier. A job whose
// line is unknown could run a second time, so it is refused.
func (h *Host) regain(found []run.Found) error {
	last, err := h.store.LastSeq()
	if err != nil {
		return err
	}
	if ids := engine.Beside(last, found); len(ids) > 0 && !h.opt.AcceptEmptyStore {
		return problem.Newf(problem.Unable,
			"bring the store back; or use --accept-empty-store to take them back and run all other lines; or --fresh, which stops them",
			"the store in %s is empty, but an earlier run left %s running; lines that have finished would run again", h.opt.LogDir, text.Count(len(ids), "job"))
	}
	regained, err := engine.Regain(h.store, found, true)
	if err != nil {
		return problem.Wrap(problem.Unable, "", fmt.Errorf("save the jobs that the store does not know: %w", err))
	}
	if len(regained) > 0 {
		h.tell(fmt.Sprintf("took back %s that the store did not know", text.Count(len(regained), "job")))
	}
	for _, f := range found {
		row, err := h.store.Job(f.Job)
		held := err == nil && (row.State == job.Running || row.State == job.Parked) && row.Keep == f.Token && row.Attempt.Number == f.Attempt
		if f.Kind == run.FoundRunning && !held {
			return problem.Newf(problem.Unable, fmt.Sprintf("wait for it, stop it with kill %d, or use --fresh, which stops it", f.Record.PID),
				"job %s of an earlier run is still running, and the store does not know which line it is; that line would run twice", f.Job)
		}
	}
	return nil
}

// freshGrace is the grace period for jobs of an earlier run before a fresh
// start.
const freshGrace = 10 * time.Second

// startOver stops what an earlier run left running and forgets all its jobs. Logs
// and journal are moved, not deleted.
func (h *Host) startOver(ctx context.Context, m *queue.Queue, found []run.Found) error {
	waiting := map[string]bool{}
	for _, f := range found {
		switch f.Kind {
		case run.FoundRunning:
			waiting[f.Token] = true
			if err := m.Runner.Stop(f.Token, job.StopInterrupt, freshGrace); err != nil {
				h.log.Warn("stop", "token", f.Token, "err", err)
			}
		case run.FoundLost:
			waiting[f.Token] = true
		case run.FoundEnded:
			m.Runner.Ack(f.Token)
		}
	}
	if len(waiting) > 0 {
		h.tell(fmt.Sprintf("starting over: stopping %s that an earlier run left running", text.Count(len(waiting), "job")))
	}
	for len(waiting) > 0 {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case ev := <-m.Runner.Events():
			if ev.Kind.Final() {
				delete(waiting, ev.Token)
				m.Runner.Ack(ev.Token)
			}
		}
	}
	if err := h.store.Wipe(); err != nil {
		return fmt.Errorf("forget the earlier run: %w", err)
	}
	if err := h.store.Commit(store.Tx{Meta: map[string]string{cards.HealthKey: "", cards.PausedKey: ""}}); err != nil {
		return fmt.Errorf("forget the health of the GPUs: %w", err)
	}
	if err := m.Samples.Forget(func(string, string) bool { return true }); err != nil {
		h.log.Warn("forget the samples of the earlier run", "err", err)
	}
	if err := h.journal.Close(); err != nil {
		h.log.Warn("close", "err", err)
	}
	moved, err := h.layout.archive(time.Now())
	if err != nil {
		return err
	}
	if moved != "" {
		h.tell("starting over: earlier logs moved to " + moved)
	}
	h.journal, err = openJournal(h.layout.journal())
	return err
}

// tell says something to the run that started the host.
func (h *Host) tell(sentence string) { h.say(Word{Say: sentence}) }

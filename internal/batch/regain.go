package batch

import (
	"fmt"

	"berth/internal/engine"
	"berth/internal/job"
	"berth/internal/problem"
	"berth/internal/run"
	"berth/internal/text"
)

// regain takes back the jobs that earlier runs left under supervisors and that
// the store does not know: it was emptied, or is a copy from earlier. A job whose
// line is unknown could run a second time, so it is refused.
func (s *session) regain(found []run.Found) error {
	if ids := engine.Beside(s.lastSeq, found); len(ids) > 0 && !s.opt.AcceptEmptyStore {
		return problem.Newf(problem.Unable,
			"bring the store back; or use --accept-empty-store to take them back and run all other lines; or --fresh, which stops them",
			"the store in %s is empty, but an earlier run left %s running; lines that have finished would run again", s.opt.LogDir, text.Count(len(ids), "job"))
	}
	regained, err := engine.Regain(s.store, found, true)
	if err != nil {
		return problem.Wrap(problem.Unable, "", fmt.Errorf("save the jobs that the store does not know: %w", err))
	}
	if len(regained) > 0 {
		s.say(fmt.Sprintf("took back %s that the store did not know", text.Count(len(regained), "job")))
	}
	for _, f := range found {
		row, err := s.store.Job(f.Job)
		held := err == nil && (row.State == job.Running || row.State == job.Parked) && row.Keep == f.Token && row.Attempt.Number == f.Attempt
		if f.Kind == run.FoundRunning && !held {
			return problem.Newf(problem.Unable, fmt.Sprintf("wait for it, stop it with kill %d, or use --fresh, which stops it", f.Record.PID),
				"job %s of an earlier run is still running, and the store does not know which line it is; that line would run twice", f.Job)
		}
	}
	s.lastSeq, err = s.store.LastSeq()
	return err
}

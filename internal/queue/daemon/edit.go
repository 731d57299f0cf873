package daemon

import (
	"slices"
	"time"

	"berth/internal/api"
	"berth/internal/job"
	"berth/internal/job/jobfile"
	"berth/internal/queue/engine"
	"berth/internal/text/problem"
)

// changedKeys are the keys that an edit sets or unsets, by their canonical names.
func changedKeys(ch *api.EditRequest) (keys []string) {
	for _, pair := range ch.Set.Pairs() {
		keys = append(keys, pair.Key)
	}
	for _, key := range ch.Unset {
		if field, err := jobfile.Lookup(key); err == nil {
			key = field.Key
		}
		keys = append(keys, key)
	}
	return keys
}

// onlyPlans reports whether an edit leaves alone what the job executes.
func onlyPlans(ch *api.EditRequest) bool {
	return ch.Set.Command.Shell == "" && len(ch.Set.Command.Argv) == 0 && !slices.ContainsFunc(changedKeys(ch), func(key string) bool {
		field, err := jobfile.Lookup(key)
		return err != nil || !field.Admin && field.Fixed == ""
	})
}

// edit applies changed keys to a queued job.
func (h *actions) edit(t *engine.Turn, c api.Caller, j *job.Job, ch *api.EditRequest) (notes []string, err error) {
	asked, notes, err := h.edited(t, c, j, ch)
	if err != nil {
		return nil, err
	}
	t.Queue().Edit(j.ID, asked.Spec, j.Rank)
	if slices.Contains(changedKeys(ch), "begin") {
		t.Queue().Begin(j.ID, asked.NotBefore)
	}
	return notes, nil
}

// edited is a job with changed keys, if it may have them, and notes on it.
func (h *actions) edited(t *engine.Turn, c api.Caller, j *job.Job, ch *api.EditRequest) (asked jobfile.Asked, notes []string, err error) {
	if asked, err = readChanges(j, t.Now, ch); err != nil {
		return asked, nil, err
	}
	notes, err = h.allow(t, c, j, &asked.Spec, ch.Set.Command)
	return asked, append(notes, notesOn(&asked, h.svc.Config(), h.svc.cannotPark())...), err
}

// readChanges puts the changes over what the job has.
func readChanges(j *job.Job, now time.Time, ch *api.EditRequest) (asked jobfile.Asked, err error) {
	for _, key := range changedKeys(ch) {
		if field, err := jobfile.Lookup(key); err == nil && field.Fixed != "" {
			return asked, problem.Newf(problem.Refused, field.Fixed, "%s cannot be edited", key)
		}
	}
	asked.Spec = j.Spec
	if ch.Set.GPUs != "" && ch.Set.IDs == "" {
		asked.Spec.IDs = nil // a count replaces named GPUs
	}
	for _, key := range ch.Unset {
		if err := jobfile.Reset(&asked, key); err != nil {
			return asked, problem.Newf(problem.Invalid, "berth help jobspec lists the keys", "unset: %v", err)
		}
	}
	if asked, err = jobfile.Ask(ch.Set.Pairs(), now, asked.Spec, 0); err != nil {
		return asked, problem.Newf(problem.Invalid, "berth help jobspec lists the keys", "%v", err)
	}
	return asked, nil
}

// allow checks a changed job as if it were submitted, and completes it.
func (h *actions) allow(t *engine.Turn, c api.Caller, j *job.Job, spec *job.Spec, command api.Command) (notes []string, err error) {
	// Relative paths are relative to the job's directory: the caller's is not
	// known.
	s := terms{caller: c, cfg: h.svc.Config()}
	setPlaces(spec, j.Spec.Dir)
	s.boundTime(spec)
	if spec.Priority > j.Spec.Priority {
		if err := s.checkPriority(spec.Priority); err != nil {
			return nil, err
		}
	}
	if spec.Grace > j.Spec.Grace {
		if err := s.cfg.BoundGrace(spec.Grace); err != nil {
			return nil, err
		}
	}
	if spec.MemMiB > j.Spec.MemMiB {
		if err := s.cfg.BoundMemory(spec); err != nil {
			return nil, err
		}
	}
	if command.Shell != "" || len(command.Argv) > 0 {
		if err := setCommand(spec, command); err != nil {
			return nil, err
		}
	}
	if err := checkWords(spec); err != nil {
		return nil, err
	}
	if err := jobfile.CheckInject(spec); err != nil {
		return nil, problem.Newf(problem.Invalid, "give the command as separate words: berth submit -- python train.py", "%v", err)
	}
	if spec.To == job.ToLocal && j.Spec.To == job.ToLocal {
		spec.To = job.ToHere // the config may have changed; the job's place has not
	}
	if err := s.place(spec); err != nil {
		return nil, err
	}
	if err := h.svc.capable(spec); err != nil {
		return nil, err
	}
	if full := roomFor(t, h.svc.Config(), j.User, spec.TextBytes()-j.Spec.TextBytes(), ""); full != nil {
		return nil, full
	}
	for _, why := range t.Explain().Infeasible(j.User, *spec) {
		return nil, neverFits(why)
	}
	return s.notes, nil
}

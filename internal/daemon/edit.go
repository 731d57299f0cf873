package daemon

import (
	"slices"

	"berth/internal/api"
	"berth/internal/engine"
	"berth/internal/job"
	"berth/internal/jobfile"
	"berth/internal/problem"
)

// onlyPlans reports whether an edit leaves alone what the job executes.
func onlyPlans(set *api.Spec) bool {
	return set.Command.Shell == "" && len(set.Command.Argv) == 0 && !slices.ContainsFunc(set.Pairs(), func(pair jobfile.Pair) bool {
		field, err := jobfile.Lookup(pair.Key)
		return err != nil || !field.Admin && field.Fixed == ""
	})
}

// edit applies changed keys to a queued job.
func (d *Daemon) edit(t *engine.Turn, c api.Caller, j *job.Job, r api.EditRequest) error {
	pairs := r.Set.Pairs()
	for _, pair := range pairs {
		if field, err := jobfile.Lookup(pair.Key); err == nil && field.Fixed != "" {
			return problem.Newf(problem.Refused, field.Fixed, "%s cannot be edited", pair.Key)
		}
	}
	from := j.Spec
	if r.Set.GPUs != "" && r.Set.IDs == "" {
		from.IDs = nil // a count replaces named GPUs
	}
	asked, err := jobfile.Ask(pairs, t.Now, from, 0)
	if err != nil {
		return problem.Newf(problem.Invalid, "berth help jobspec lists the keys", "%v", err)
	}
	spec := asked.Spec
	// Relative paths are relative to the job's directory: the caller's is not
	// known.
	s := submission{d: d, caller: c, cfg: d.config(), request: &api.SubmitRequest{Dir: j.Spec.Dir}}
	s.setPlaces(&spec)
	s.boundTime(&spec)
	if spec.Priority > j.Spec.Priority {
		if err := s.checkPriority(spec.Priority); err != nil {
			return err
		}
	}
	if spec.Grace > j.Spec.Grace {
		if err := s.cfg.boundGrace(spec.Grace); err != nil {
			return err
		}
	}
	if spec.MemMiB > j.Spec.MemMiB {
		if err := s.cfg.boundMemory(&spec); err != nil {
			return err
		}
	}
	command := r.Set.Command
	if command.Shell != "" || len(command.Argv) > 0 {
		if err := s.setCommand(&spec, command); err != nil {
			return err
		}
	}
	if err := checkWords(&spec); err != nil {
		return err
	}
	if err := jobfile.CheckInject(&spec); err != nil {
		return problem.Newf(problem.Invalid, "give the command as separate words: berth submit -- python train.py", "%v", err)
	}
	if err := d.capable(&spec); err != nil {
		return err
	}
	if more := specBytes(&spec); more > plainJob {
		if full := d.roomFor(t, c, more-specBytes(&j.Spec)); full != nil {
			return full
		}
	}
	if _, why := t.Feasible(j.User, spec); why != "" {
		return problem.Newf(problem.Refused, "berth gpus shows what this machine has", "%s", why)
	}
	t.Edit(j.ID, spec, j.Rank)
	if r.Set.Begin != "" {
		t.Begin(j.ID, asked.NotBefore)
	}
	return nil
}

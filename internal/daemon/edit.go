package daemon

import (
	"maps"
	"slices"
	"time"

	"berth/internal/api"
	"berth/internal/job"
	"berth/internal/jobfile"
	"berth/internal/problem"
)

// fixed are the keys that mean a job's submission, and cannot be changed on
// one that is there.
var fixed = map[string]string{
	"array": "an array cannot be made of a job", "dedup": "it was submitted already",
	"hold": "use berth hold and berth release", "export": "the environment was captured when it was submitted",
	"after": "what it waits for cannot be changed; submit it anew",
}

// planned are the keys that say when and on what a job runs. All others say
// what it does, and that is its owner's alone: an administrator who could
// change it would be that user.
var planned = map[string]bool{
	"name": true, "gpus": true, "type": true, "vram": true, "ids": true, "allow": true, "exclusive": true, "cpus": true, "mem": true,
	"priority": true, "timeout": true, "on_timeout": true, "max_requeues": true, "retries": true, "retry_on": true, "begin": true,
	"requeue": true, "grace": true, "preemptible": true, "cap": true, "pin": true,
}

// onlyPlans reports whether an edit leaves alone what a job does.
func onlyPlans(set *api.Spec) bool {
	only := set.Command.Shell == "" && len(set.Command.Argv) == 0 && len(set.Env) == 0
	set.Each(func(key, _ string) { only = only && (planned[key] || fixed[key] != "") })
	return only
}

// edit applies changed keys to a queued job.
func (d *Daemon) edit(now time.Time, c api.Caller, j *job.Job, r api.EditRequest) error {
	var pairs []jobfile.Pair
	var refused *problem.Problem
	begin := false
	r.Set.Each(func(key, value string) {
		if why, is := fixed[key]; is && refused == nil {
			refused = problem.Newf(problem.Refused, why, "%s cannot be edited", key)
		}
		begin = begin || key == "begin"
		pairs = append(pairs, jobfile.Pair{Key: key, Value: value})
	})
	if refused != nil {
		return refused
	}
	for _, name := range slices.Sorted(maps.Keys(r.Set.Env)) {
		pairs = append(pairs, jobfile.Pair{Key: "env." + name, Value: r.Set.Env[name]})
	}
	from := j.Spec
	if r.Set.GPUs != "" && r.Set.IDs == "" {
		from.IDs = nil // a count replaces the cards that were named
	}
	asked, err := jobfile.Ask(pairs, now, from, 0)
	if err != nil {
		return problem.Newf(problem.Invalid, "docs/jobspec.md lists the keys", "%v", err)
	}
	spec := asked.Spec
	// Where the caller stands is not known; where the job stands is.
	s := submission{d: d, caller: c, cfg: d.config(), request: &api.SubmitRequest{Dir: j.Spec.Dir}}
	s.setPlaces(&spec)
	s.boundTime(&spec)
	if spec.Priority > j.Spec.Priority {
		if err := s.checkPriority(spec.Priority); err != nil {
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
		return problem.Newf(problem.Invalid, "berth submit -- python train.py: words are told apart, a shell line is not", "%v", err)
	}
	if err := d.capable(&spec); err != nil {
		return err
	}
	if more := specBytes(&spec); more > plainJob {
		if full := d.roomFor(c, more-specBytes(&j.Spec)); full != nil {
			return full
		}
	}
	if _, why := d.engine.Feasible(j.User, spec); why != "" {
		return problem.Newf(problem.Refused, "berth gpus shows what this machine has", "%s", why)
	}
	d.engine.Edit(now, j.ID, spec, j.Rank)
	if begin {
		d.engine.Begin(now, j.ID, asked.NotBefore)
	}
	return nil
}

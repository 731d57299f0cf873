package cli

import (
	"berth/internal/api"
	"berth/internal/job"
	"berth/internal/job/sweep"
)

// sweepMost bounds a sweep before the daemon does, whose limit is lower.
const sweepMost = 1_000_000

// makerOf makes the trials of a spec.
func makerOf(spec *api.Spec, axes []sweep.Axis) (*sweep.Maker, error) {
	template := &job.Template{Shell: spec.Command.Shell, Argv: spec.Command.Argv, Name: string(spec.Name), Dir: string(spec.Dir), Output: string(spec.Output)}
	for name, value := range spec.Env {
		template.Env = append(template.Env, job.EnvVar{Key: name, Value: value})
	}
	return sweep.NewMaker(template, sweep.Names(axes))
}

// eachPlace calls tell with the directory and output of each trial of a spec, without
// repeating any. Other mistakes in the spec are left to the daemon, which reports them
// better.
func eachPlace(spec *api.Spec, tell func(dir, output string)) {
	trials, err := sweep.Trials(spec.Sweep.Axes, sweepMost)
	if err != nil {
		return
	}
	maker, err := makerOf(spec, spec.Sweep.Axes)
	if err != nil {
		return
	}
	told := map[[2]string]bool{}
	for _, trial := range trials {
		made, err := maker.Make(trial)
		if place := [2]string{made.Dir, made.Output}; err == nil && !told[place] {
			told[place] = true
			tell(made.Dir, made.Output)
		}
	}
}

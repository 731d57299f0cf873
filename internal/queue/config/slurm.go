package config

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"berth/internal/job"
	"berth/internal/slurm"
	"berth/internal/text/problem"
)

const (
	maxKinds  = 100
	maxShards = 1024
)

var slurmKeys = []knownKey{
	keyFor("engine", func(c *Config) *job.Place { return &c.Engine }, readEngine),
	keyFor("slurm.options", func(c *Config) *[]string { return &c.Slurm.Slurm.Options }, readOptions),
	keyFor("slurm.directory", func(c *Config) *string { return &c.Slurm.Directory }, readText("an absolute path, or one that begins with ~/", inHome)),
	keyFor("slurm.program", func(c *Config) *string { return &c.Slurm.Program }, readText("an absolute path, or \"\" for a copy in the directory", absolute)),
	keyFor("slurm.patience", func(c *Config) *time.Duration { return &c.Slurm.Patience }, readDuration(time.Second, "")),
	keyFor("slurm.gpus", func(c *Config) *[]slurm.Kind { return &c.Slurm.Slurm.Kinds }, readKinds),
	keyFor("slurm.shards", func(c *Config) *int { return &c.Slurm.Slurm.Shards }, readCount(0, maxShards)),
}

// readEngine reads where jobs run that do not say so.
func readEngine(value any) (job.Place, error) {
	place, err := readWord(job.ToHere, job.ToSlurm)(value)
	if place == job.ToHere {
		place = job.ToLocal
	}
	return place, err
}

// inHome accepts a path that is absolute for each user.
func inHome(path string) bool {
	below, found := strings.CutPrefix(path, "~")
	return absolute(path) || found && absolute(below) && below != "/"
}

// readOptions reads options for sbatch, under the same rules as those of a job.
func readOptions(value any) ([]string, error) {
	written, ok := value.(string)
	if !ok {
		return nil, mismatch(value, "options of sbatch: \"--account=lab --qos=long\"")
	}
	options, err := slurm.Words(written)
	if p, isProblem := errors.AsType[*problem.Problem](err); isProblem {
		return nil, fmt.Errorf("%s (%s)", strings.TrimPrefix(p.What, "--slurm: "), p.Hint)
	}
	return options, err
}

// readKinds reads the cluster's models of GPU.
func readKinds(value any) ([]slurm.Kind, error) {
	list, ok := value.([]any)
	if !ok || len(list) > maxKinds {
		return nil, mismatch(value, "a list of up to 100 GPU types: [\"a100=80G\"]")
	}
	var kinds []slurm.Kind
	for _, part := range list {
		written, ok := part.(string)
		if !ok {
			return nil, mismatch(part, slurm.ExpectedKind)
		}
		kind, err := slurm.ParseKind(written)
		if err != nil {
			return nil, err
		}
		kinds = append(kinds, kind)
	}
	return kinds, nil
}

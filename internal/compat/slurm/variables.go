package slurm

import (
	"slices"
	"strings"

	"berth/internal/job"
	"berth/internal/text"
)

// variables is the environment of a step.
type variables struct{ list []string }

func environment(list []string) *variables { return &variables{list: slices.Clone(list)} }

func (v *variables) get(name string) string { return job.Getenv(v.list, name) }

func (v *variables) set(name, value string) {
	v.list = slices.DeleteFunc(v.list, func(pair string) bool { return strings.HasPrefix(pair, name+"=") })
	v.list = append(v.list, name+"="+value)
}

// only keeps what --export lists, and Slurm's and berth's own.
func (v *variables) only(export string) error {
	if export == "" {
		return nil
	}
	all, names := false, []string{}
	for part := range strings.SplitSeq(export, ",") {
		name, value, isSet := strings.Cut(part, "=")
		switch {
		case name == "":
			return text.Mismatch(export, "ALL, NONE or names of variables")
		case isSet:
			v.set(name, value)
			names = append(names, name)
		case name == "ALL":
			all = true
		case name != "NONE":
			names = append(names, name)
		}
	}
	if !all {
		v.list = slices.DeleteFunc(v.list, func(pair string) bool {
			name, _, _ := strings.Cut(pair, "=")
			return !slices.Contains(names, name) && !strings.HasPrefix(name, "SLURM") && !strings.HasPrefix(name, "BERTH_") && name != "CUDA_VISIBLE_DEVICES"
		})
	}
	return nil
}

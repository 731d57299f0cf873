package slurm

import (
	"slices"
	"strings"

	"berth/internal/text/problem"
)

// given are options that users and the config gave, in order: the last of a name
// counts.
type given []string

// merge puts a user's options after the config's, and drops the ones they replace.
func merge(defaults, own []string) given {
	var all given
	for _, option := range slices.Concat(defaults, own) {
		name, _, _ := strings.Cut(option, "=")
		all = slices.DeleteFunc(all, func(other string) bool { n, _, _ := strings.Cut(other, "="); return n == name })
		all = append(all, option)
	}
	return all
}

// with adds what the GPUs need to the options of the same name.
func (g given) with(gres string, features []string) (given, error) {
	if gres != "" {
		if others := g.take("--gres"); others != "" {
			gres += "," + others
		}
		g = append(g.without("--gres"), "--gres="+gres)
	}
	if len(features) == 0 {
		return g, nil
	}
	constraint := strings.Join(features, "|")
	if others := g.take("--constraint"); others != "" {
		if len(features) > 1 || strings.ContainsAny(others, "|[]()*") {
			return nil, problem.Newf(problem.Refused, "leave out the constraint, or --gpu-type and --vram",
				"the GPU's type and memory need --constraint=%s, which cannot be combined with --constraint=%s", constraint, others)
		}
		constraint = others + "&" + constraint
	}
	return append(g.without("--constraint"), "--constraint="+constraint), nil
}

func (g given) take(name string) string {
	for _, option := range g {
		if value, found := strings.CutPrefix(option, name+"="); found {
			return value
		}
	}
	return ""
}

func (g given) without(name string) given {
	return slices.DeleteFunc(slices.Clone(g), func(option string) bool { return strings.HasPrefix(option, name+"=") })
}

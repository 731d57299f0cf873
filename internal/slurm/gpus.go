package slurm

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"berth/internal/job"
	"berth/internal/text"
	"berth/internal/text/problem"
)

// gpus translates the GPUs of a job: the gres, and the node features of which one
// is required.
func gpus(spec *job.Spec, vramMiB int64, c Cluster) (gres string, features []string, err error) {
	if spec.GPUs == 0 {
		return "", nil, nil
	}
	kinds, err := suitable(spec, vramMiB, c)
	if err != nil {
		return "", nil, err
	}
	if spec.Share > 0 {
		return shards(spec, vramMiB, c, kinds)
	}
	count := strconv.Itoa(spec.GPUs)
	switch {
	case kinds == nil:
		return "gpu:" + count, nil, nil
	case haveFeatures(kinds):
		return "gpu:" + count, featuresOf(kinds), nil
	}
	// Slurm takes one type per request: the smallest that is large enough leaves
	// the larger ones to the jobs that need them.
	kind := smallest(kinds)
	if kind.Type == "" {
		return "gpu:" + count, []string{kind.Feature}, nil
	}
	return "gpu:" + kind.Type + ":" + count, nil, nil
}

// suitable are the kinds that a job accepts; nil: any.
func suitable(spec *job.Spec, vramMiB int64, c Cluster) ([]Kind, error) {
	if len(c.Kinds) == 0 {
		if spec.Type == "" {
			return nil, nil
		}
		if !word(spec.Type) {
			return nil, problem.Newf(problem.Refused, "see the types with: berth doctor --slurm",
				"--gpu-type: expected a GPU type of the cluster, found %q", spec.Type)
		}
		return []Kind{{Type: spec.Type}}, nil
	}
	var typed, large []Kind
	for _, k := range c.Kinds {
		if spec.Type == "" || k.matches(spec.Type) {
			typed = append(typed, k)
			if k.MiB >= vramMiB {
				large = append(large, k)
			}
		}
	}
	switch {
	case len(typed) == 0:
		return nil, problem.Newf(problem.Refused, "use --gpu-type with one of: "+names(c.Kinds),
			"the cluster has no GPU of type %q", spec.Type)
	case len(large) == 0:
		best := largest(typed)
		return nil, problem.Newf(problem.Refused, fmt.Sprintf("lower --vram to %dG, or use several GPUs", best.MiB>>10),
			"job asks for %s GiB on each GPU; the largest GPU it accepts in the cluster, %s, has %s GiB", gib(vramMiB), best.name(), gib(best.MiB))
	case len(large) == len(c.Kinds):
		return nil, nil
	}
	return large, nil
}

// shards translates a part of a GPU.
func shards(spec *job.Spec, vramMiB int64, c Cluster, kinds []Kind) (gres string, features []string, err error) {
	if c.Shards == 0 {
		return "", nil, problem.Newf(problem.Refused, "use --gpus 1, or set slurm.shards to the shards of each GPU: berth doctor --slurm counts them and prints the line",
			"job asks for %s of a GPU, which Slurm gives in shards; slurm.shards in the config is 0", text.Share(spec.Share))
	}
	if kinds != nil && !haveFeatures(kinds) {
		return "", nil, problem.Newf(problem.Refused, "use --gpus 1, or name the node feature of each type in slurm.gpus",
			"Slurm cannot choose the type of a GPU that is shared: the job accepts only %s", names(kinds))
	}
	share := spec.Share
	if usable := cmp.Or(len(kinds), len(c.Kinds)); usable > 0 {
		if kinds == nil {
			kinds = c.Kinds
		} else {
			features = featuresOf(kinds)
		}
		// Memory beyond the share has to be the job's too, on any GPU it may get.
		share = max(share, float64(vramMiB)/float64(smallest(kinds).MiB))
	}
	const rounding = 1e-9 // 3 tenths of 10 shards are 3, not 4
	count := min(max(int(math.Ceil(share*float64(c.Shards)-rounding)), 1), c.Shards)
	return "shard:" + strconv.Itoa(count), features, nil
}

func haveFeatures(kinds []Kind) bool {
	for _, k := range kinds {
		if k.Feature == "" {
			return false
		}
	}
	return true
}

func featuresOf(kinds []Kind) (features []string) {
	for _, k := range kinds {
		if !slices.Contains(features, k.Feature) {
			features = append(features, k.Feature)
		}
	}
	return features
}

func smallest(kinds []Kind) Kind { return slices.MinFunc(kinds, byMemory) }
func largest(kinds []Kind) Kind  { return slices.MaxFunc(kinds, byMemory) }

func byMemory(a, b Kind) int { return cmp.Compare(a.MiB, b.MiB) }

func names(kinds []Kind) string {
	list := make([]string, len(kinds))
	for i, k := range kinds {
		list[i] = k.name()
	}
	return strings.Join(list, ", ")
}

func gib(mib int64) string {
	return strings.TrimSuffix(strconv.FormatFloat(float64(mib)/1024, 'f', 1, 64), ".0")
}

package allocation

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"berth/internal/slurm"
	"berth/internal/slurm/client"
	"berth/internal/text"
	"berth/internal/text/problem"
)

// away reports whether Slurm cannot be reached or takes no more for now.
func away(err error) bool { return client.Is(err, client.Away) || client.Is(err, client.Full) }

// explained is why one of Slurm's programs failed, with what to do about it.
func explained(err error) error {
	e, ok := errors.AsType[*client.Error](err)
	switch {
	case !ok:
		return err
	case e.Kind == client.Missing:
		return problem.Newf(problem.Unable, "run this on a machine of the cluster", "Slurm is not installed here: no program %s", e.Program)
	case e.Program == "sbatch":
		return problem.Newf(problem.Refused, "correct --alloc", "sbatch: %s", text.Line(strings.TrimSpace(e.Said)))
	}
	return problem.Newf(problem.Refused, "", "%s: %s", e.Program, text.Line(strings.TrimSpace(e.Said)))
}

// arguments is the command line of sbatch for an allocation. What berth relies on
// comes last, because the last of a repeated option counts.
func (o *Options) arguments(d directory, tag string, warn time.Duration) []string {
	return append(append([]string{"--parsable"}, o.Alloc...),
		"--job-name="+tag, "--comment="+tag, "--nodes=1", "--ntasks=1", "--no-requeue", "--export=ALL", "--chdir="+o.Dir,
		"--signal=B:TERM@"+strconv.Itoa(int(warn/time.Second)),
		"--output="+strings.ReplaceAll(d.file(outName), "%", "%%"), "--open-mode=append", d.file(scriptName))
}

// environ is the environment of an allocation: the user's, without variables that
// give sbatch options, describe a job of Slurm that berth itself runs in, or name
// GPUs of this machine.
func (o *Options) environ() []string {
	return slices.DeleteFunc(slices.Clone(o.Env), func(variable string) bool {
		switch name, _, _ := strings.Cut(variable, "="); name {
		case "SLURM_CONF", "SLURM_CONF_SERVER":
			return false
		case "CUDA_VISIBLE_DEVICES", "BERTH_TOKEN":
			return true
		default:
			return strings.HasPrefix(name, "SLURM") || strings.HasPrefix(name, "SBATCH_")
		}
	})
}

// asker is Slurm for everything but sbatch.
func (o *Options) asker() client.Client { return client.Client{Environ: slurm.Environ(o.Env)} }

// queue is what Slurm says about the allocations of this run, by their tag. Slurm
// may have given an id to another job: only the tag counts.
func (o *Options) queue(ctx context.Context, tags func(string) bool) (map[string]slurm.Entry, error) {
	entries, err := o.asker().Queue(ctx)
	if err != nil {
		return nil, err
	}
	found := map[string]slurm.Entry{}
	for _, e := range entries {
		if !tags(e.Name) || e.Comment != "" && e.Comment != e.Name {
			continue
		}
		// One that has ended counts less than one that has not.
		if before, twice := found[e.Name]; !twice || before.Over() {
			found[e.Name] = e
		}
	}
	return found, nil
}

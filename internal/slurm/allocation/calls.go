package allocation

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"

	"berth/internal/slurm"
	"berth/internal/text"
	"berth/internal/text/problem"
)

// callTime bounds one call of a program of Slurm.
const callTime = time.Minute

// errAway means that Slurm cannot be reached or is busy.
var errAway = errors.New("Slurm cannot be reached")

// call runs a program of Slurm.
func call(ctx context.Context, env []string, name string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env, cmd.WaitDelay = env, time.Second
	var said strings.Builder
	cmd.Stderr = &said
	out, err := cmd.Output()
	switch {
	case err == nil:
		return string(out), nil
	case errors.Is(err, exec.ErrNotFound):
		return "", problem.Newf(problem.Unable, "run this on a machine of the cluster", "Slurm is not installed here: no program %s", name)
	case ctx.Err() != nil || slurm.Temporary(said.String()):
		return "", fmt.Errorf("%s: %w", name, errAway)
	}
	hint := ""
	if name == "sbatch" {
		hint = "correct --alloc"
	}
	return "", problem.Newf(problem.Refused, hint, "%s: %s", name, text.Line(strings.TrimSpace(said.String())))
}

// submit asks for an allocation and returns Slurm's id.
func (o *Options) submit(ctx context.Context, p place, tag string, warn time.Duration) (id string, err error) {
	out, err := call(ctx, o.environ(), "sbatch", o.arguments(p, tag, warn)...)
	if err != nil {
		return "", err
	}
	return slurm.Submitted(out)
}

// arguments is the command line of sbatch for an allocation. What berth relies on
// comes last, because the last of a repeated option counts.
func (o *Options) arguments(p place, tag string, warn time.Duration) []string {
	return append(append([]string{"--parsable"}, o.Slurm...),
		"--job-name="+tag, "--comment="+tag, "--nodes=1", "--ntasks=1", "--no-requeue", "--export=ALL", "--chdir="+o.Dir,
		"--signal=B:TERM@"+strconv.Itoa(int(warn/time.Second)),
		"--output="+strings.ReplaceAll(p.file(outName), "%", "%%"), "--open-mode=append", p.file(scriptName))
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

// queue is what Slurm says about the allocations of this run, by their tag. Slurm
// may have given an id to another job: only the tag counts.
func (o *Options) queue(ctx context.Context, tags func(string) bool) (map[string]slurm.Entry, error) {
	out, err := call(ctx, slurm.Environ(o.Env), "squeue", slurm.QueueCommand(strconv.Itoa(os.Getuid()))...)
	if err != nil {
		return nil, err
	}
	entries, err := slurm.Queue(out)
	if err != nil {
		return nil, err
	}
	found := map[string]slurm.Entry{}
	for _, e := range entries {
		if !tags(e.Name) || e.Comment != "" && e.Comment != e.Name {
			continue
		}
		// One that has ended counts less than one that has not.
		if before, twice := found[e.Name]; !twice || over(before.State) {
			found[e.Name] = e
		}
	}
	return found, nil
}

// over reports whether a job of Slurm has ended, and none of its processes is left.
func over(state string) bool {
	switch state {
	case "PENDING", "RUNNING", "SUSPENDED", "CONFIGURING", "COMPLETING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "RESIZING",
		"SIGNALING", "SPECIAL_EXIT", "STAGE_OUT", "STOPPED", "RESV_DEL_HOLD":
		return false
	}
	return true
}

// cancel takes an allocation out of Slurm's queue. Its name goes with its id: the
// id may be another job's by now.
func (o *Options) cancel(ctx context.Context, id, tag string) error {
	_, err := call(ctx, slurm.Environ(o.Env), "scancel", "--name="+tag, id)
	return err
}

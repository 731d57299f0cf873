package daemon

import (
	"cmp"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"berth/internal/api"
	"berth/internal/job"
	"berth/internal/queue/config"
	"berth/internal/slurm"
	"berth/internal/text/problem"
)

// terms are the conditions under which a caller's jobs are accepted, and what there
// is to note about the one that is looked at.
type terms struct {
	caller api.Caller
	cfg    *config.Config
	notes  []string
}

// place decides where a job runs, and refuses what Slurm could not do.
func (t *terms) place(spec *job.Spec) error {
	spec.To = cmp.Or(spec.To, t.cfg.Engine)
	if spec.To != job.ToSlurm {
		if spec.Slurm != "" && !spec.SlurmEnv {
			return problem.Newf(problem.Invalid, "add --to slurm, or leave it out", "slurm: these are options for Slurm, and the job runs on this machine")
		}
		// Of a script that was written for Slurm.
		for _, word := range strings.Fields(spec.Slurm) {
			if name, _, _ := strings.Cut(word, "="); name == "--exclusive" || name == "--container" {
				return problem.Newf(problem.Refused, "leave it out; --exclusive of berth keeps other jobs off the job's GPUs, and a container runs in its command", "slurm: %s changes what the job is, and is not possible on this machine", name)
			}
		}
		if spec.Slurm != "" && spec.Slurm != "--no-requeue" {
			t.notes = append(t.notes, "slurm: ignored on this machine: "+spec.Slurm)
		}
		spec.To, spec.Slurm = job.ToLocal, ""
		return nil
	}
	if _, err := slurm.Translate(spec, spec.VRAMMiB, t.cfg.Slurm.Slurm); err != nil {
		return err
	}
	t.notes = append(t.notes, slurm.Notes(spec)...)
	return nil
}

// boundTime lowers a time limit to the longest allowed, which is shorter for
// interactive jobs, and adds a note.
func (t *terms) boundTime(spec *job.Spec) {
	if limit := t.cfg.JobTime; exceeds(spec, limit) {
		if spec.TimeLimit > 0 {
			t.notes = append(t.notes, fmt.Sprintf("jobs are limited to %s here", limit))
		}
		spec.TimeLimit = limit
	}
	if limit := t.cfg.InteractiveTime; spec.Interactive && exceeds(spec, limit) && !t.caller.Admin {
		t.notes = append(t.notes, fmt.Sprintf("interactive jobs are limited to %s here", limit))
		spec.TimeLimit = limit
	}
}

// exceeds reports whether a job may run longer than the limit, if there is one.
func exceeds(spec *job.Spec, limit time.Duration) bool {
	return limit > 0 && (spec.TimeLimit <= 0 || spec.TimeLimit > limit)
}

// checkPriority keeps users from overtaking everyone: priority comes before fair
// share.
func (t *terms) checkPriority(priority int) error {
	if t.caller.Admin || priority <= t.cfg.MaxPriority {
		return nil
	}
	return problem.Newf(problem.Refused, "only an administrator may exceed max_priority of the config", "priority: expected at most %[2]d, found %[1]d", priority, t.cfg.MaxPriority)
}

// setCommand gives a job its command, if that is one.
func setCommand(spec *job.Spec, command api.Command) error {
	size, longest := len(command.Shell), len(command.Shell)
	for _, word := range command.Argv {
		size, longest = size+len(word)+1, max(longest, len(word))
	}
	switch {
	case size == 0 || len(command.Argv) > 0 && command.Argv[0] == "" || len(command.Argv) == 0 && strings.TrimSpace(command.Shell) == "":
		return problem.Newf(problem.Invalid, "berth submit -- python train.py", "the job has no command")
	case size > maxCommand:
		return problem.Newf(problem.TooMuch, "put it into a script", "the command has %d bytes; at most %d are accepted", size, maxCommand)
	case longest > maxWord:
		return problem.Newf(problem.TooMuch, "put it into a script", "an argument of the command has %d bytes; the system accepts at most %d", longest, maxWord)
	case strings.IndexByte(command.Shell+strings.Join(command.Argv, ""), 0) >= 0:
		return problem.Newf(problem.Invalid, "", "the command contains a NUL byte")
	}
	spec.Shell, spec.Argv = command.Shell, command.Argv
	return nil
}

// setPlaces makes paths absolute that are relative to the caller's directory.
func setPlaces(spec *job.Spec, from string) {
	from = cmp.Or(from, "~")
	whole := func(path string) string {
		if path == "" || filepath.IsAbs(path) || path == "~" || strings.HasPrefix(path, "~/") {
			return path
		}
		return filepath.Join(from, path)
	}
	spec.Venv = whole(spec.Venv)
	if spec.Dir = whole(spec.Dir); spec.Dir == "" {
		spec.Dir = from
	}
}

// A command is bounded by what the kernel accepts: a length per argument, and
// not much more than this in all.
const (
	maxWord    = 128<<10 - 1
	maxCommand = 1 << 20
)

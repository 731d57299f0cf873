package job

import (
	"regexp"
	"strconv"
)

// Numbers of jobs in SLURM_ variables. Slurm's own ids end at 67,043,328, so its
// commands find no job by these: a script that reaches the real scancel by accident
// ends nobody's job.
const (
	slurmJobs  = 2_000_000_000 // jobs and arrays, on a machine that has Slurm too
	slurmTasks = 2_100_000_000 // tasks of arrays, whose ids are not numbers
)

// SlurmIDs are the ids in a job's SLURM_ variables: its own, and its array's if it is
// a task. apart means that Slurm must not know them.
func (j *Job) SlurmIDs(apart bool) (id, array string) {
	number := func(id string) string {
		n, err := strconv.ParseInt(id, 10, 64)
		if !apart || err != nil {
			return id
		}
		return strconv.FormatInt(slurmJobs+n, 10)
	}
	if array = j.Array(); array != "" {
		return strconv.FormatInt(slurmTasks+j.Seq, 10), number(array)
	}
	return number(j.ID), ""
}

// FromSlurm replaces the ids of SLURM_ variables in a word by berth's. Those of tasks
// stay as they are: only the task itself knows its id.
func FromSlurm(word string) string {
	return regexp.MustCompile(`[0-9]+`).ReplaceAllStringFunc(word, func(found string) string {
		n, err := strconv.ParseInt(found, 10, 64)
		if err != nil || n <= slurmJobs || n >= slurmTasks {
			return found
		}
		return strconv.FormatInt(n-slurmJobs, 10)
	})
}

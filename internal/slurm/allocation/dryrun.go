package allocation

import (
	"fmt"
	"path/filepath"

	"berth/internal/job"
	"berth/internal/text"
)

// DryRun says what Run would ask of Slurm. It asks and writes nothing.
func DryRun(o Options) (int, error) {
	lines, _, err := o.read()
	if err != nil {
		return 0, err
	}
	logDir, err := filepath.Abs(o.LogDir)
	if err != nil {
		return 0, err
	}
	var jobs jobList
	for _, l := range lines {
		jobs.all = append(jobs.all, &task{spec: l.Spec})
	}
	d := directory(filepath.Join(dirOf(logDir), "1"))
	fmt.Fprintf(o.Out, "%s in %s would run in up to %s; nothing was asked for\neach: sbatch %s\n",
		text.Count(len(lines), "job"), o.File, text.Count(min(o.Count, len(lines)), "allocation"), job.QuoteArgv(o.arguments(d, "berth-RUN-1", jobs.warning())))
	return 0, nil
}

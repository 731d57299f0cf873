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
	f := front{opt: o}
	for _, l := range lines {
		f.tasks = append(f.tasks, &task{spec: l.Spec})
	}
	count := min(o.Count, len(lines))
	p := place(filepath.Join(dirOf(logDir), "1"))
	fmt.Fprintf(o.Out, "%s in %s would run in up to %s; nothing was asked for\neach: sbatch %s\n",
		text.Count(len(lines), "job"), o.File, text.Count(count, "allocation"), job.QuoteArgv(o.arguments(p, "berth-RUN-1", f.warning())))
	return 0, nil
}

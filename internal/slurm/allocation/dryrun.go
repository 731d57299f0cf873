package allocation

import (
	"context"
	"fmt"
	"path/filepath"

	"berth/internal/job"
	"berth/internal/text"
)

// DryRun says what Run would ask of Slurm. It asks and writes nothing.
func DryRun(ctx context.Context, o Options) error {
	logDir, err := filepath.Abs(o.LogDir)
	if err != nil {
		return err
	}
	f := newFront(o, dirOf(logDir))
	if err := f.read(ctx); err != nil {
		return err
	}
	lines := f.source.Lines()
	for _, l := range lines {
		f.jobs.all = append(f.jobs.all, &task{spec: l.Spec})
	}
	d := directory(filepath.Join(f.dir, "1"))
	fmt.Fprintf(o.Out, "%s in %s would run in up to %s; nothing was asked for\neach: sbatch %s\n",
		text.Count(len(lines), "job"), o.File, text.Count(min(o.Count, len(lines)), "allocation"), job.QuoteArgv(o.arguments(d, "berth-RUN-1", f.jobs.warning())))
	return nil
}

package batch

import (
	"context"
	"fmt"

	"berth/internal/cluster"
	"berth/internal/job"
	"berth/internal/jobfile"
	"berth/internal/slurm"
)

// newCluster connects the queue to Slurm, for the lines that run there.
func (s *session) newCluster() *cluster.Cluster {
	return cluster.New(cluster.Setup{
		Engine: s.engine, Log: s.log, Queue: s.machine.Name(), Config: func() cluster.Config { return s.opt.Slurm },
		Home:    func(context.Context, *job.Job) (string, error) { return s.getenv("HOME"), nil },
		Environ: func(*job.Job) ([]string, error) { return s.opt.Env, nil },
		Do: func(ctx context.Context, _ int, r cluster.Request) (cluster.Reply, error) {
			return cluster.Do(ctx, r), nil
		},
		Dir: s.opt.Dir, LogPath: s.machine.Launcher.LogPath, Logs: true, Vars: slurm.Environ(s.opt.Env),
	})
}

// wakeCluster tells the cluster that its jobs have changed.
func (s *session) wakeCluster() {
	if s.cluster != nil { // not while the session is still opening
		s.cluster.Wake()
	}
}

// allAway reports whether every job of a file runs on Slurm, so that this machine
// needs no GPU.
func allAway(file jobfile.File) bool {
	for _, line := range file.Lines {
		if line.Spec.To != job.ToSlurm {
			return false
		}
	}
	return len(file.Lines) > 0
}

// place settles where a line's job runs, and refuses what Slurm could not do.
func (s *session) place(line *jobfile.Line) error {
	spec := &line.Spec
	switch spec.To {
	case job.ToSlurm:
		if s.opt.Slurm.Unread != nil {
			return s.opt.Slurm.Unread
		}
		_, err := slurm.Translate(spec, spec.VRAMMiB, s.opt.Slurm.Slurm)
		return err
	case job.ToHere:
		spec.To = job.ToLocal
	}
	if spec.Slurm != "" && spec.Slurm != s.opt.SlurmOptions {
		return fmt.Errorf("slurm: these are options for Slurm, and the job runs on this machine; add to=slurm")
	}
	spec.Slurm = ""
	return nil
}

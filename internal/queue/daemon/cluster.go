package daemon

import (
	"cmp"
	"context"
	"time"

	"berth/internal/job"
	"berth/internal/machine/site"
	"berth/internal/slurm"
	"berth/internal/slurm/cluster"
)

// newCluster connects the queue to Slurm. On a machine without Slurm, jobs for it
// wait and say so.
func (d *Daemon) newCluster() *cluster.Cluster {
	setup := cluster.Setup{
		Engine: d.svc.queue.Engine, Log: d.svc.queue.Log, Queue: d.svc.queue.Name(),
		Config: func() cluster.Config {
			cfg := d.svc.Config()
			of := cfg.Slurm
			of.Keep = cmp.Or(cfg.Logs, cfg.History)
			return of
		},
		User:    func(ctx context.Context, j *job.Job) (site.User, error) { return d.people.RunsAs(ctx, j.UID, j.User) },
		Environ: d.people.Inherited, LogPath: d.people.LogPath, Logs: d.svc.own != nil, Vars: slurm.Environ(d.opt.Env),
	}
	if d.svc.places.Shared {
		// It is root, and a user controls the files and what Slurm's programs read.
		setup.As = func(ctx context.Context, uid int, input []byte) ([]byte, error) {
			user, err := d.people.RunsAs(ctx, uid, "")
			if err != nil {
				return nil, err
			}
			return d.people.Ask(ctx, user, clusterTime, cluster.Word, input)
		}
	}
	return cluster.New(setup)
}

// wakeCluster tells the cluster that its jobs have changed.
func (d *Daemon) wakeCluster() {
	if c := d.svc.cluster.Load(); c != nil {
		c.Wake()
	}
}

// clusterTime bounds one request to Slurm, which may run several of its programs
// with a deadline each.
const clusterTime = 15 * time.Minute

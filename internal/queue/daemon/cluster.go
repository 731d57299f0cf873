package daemon

import (
	"cmp"
	"context"
	"io"
	"slices"
	"time"

	"berth/internal/api"
	"berth/internal/job"
	"berth/internal/machine/keep"
	"berth/internal/machine/run"
	"berth/internal/machine/site"
	"berth/internal/slurm"
	"berth/internal/slurm/cluster"
	"berth/internal/text/problem"
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

// attachAway connects to the terminal of a job on the node of a cluster, through an
// srun that runs as the job's user.
func (h *terminals) attachAway(ctx context.Context, c api.Caller, j *job.Job) (io.ReadWriteCloser, error) {
	if j.State != job.Running {
		return nil, problem.Newf(problem.Refused, "", "job %s is %s", j.ID, j.State)
	}
	hand := h.svc.cluster.Load()
	if hand == nil {
		return nil, stopping()
	}
	user, err := h.svc.people.RunsAs(ctx, j.UID, j.User)
	var as *keep.Credential
	if err == nil {
		as, err = h.svc.people.Credential(user)
	}
	var conn io.ReadWriteCloser
	if err == nil {
		conn, err = h.svc.queue.Runner.Connect(run.Helper{
			As: as, Args: append([]string{cluster.Word}, cluster.Attachment(j.Handover)...), Env: slices.Concat(hand.Vars, []string{"HOME=" + user.Home}),
		})
	}
	if err != nil {
		return nil, problem.Newf(problem.Unable, "", "the terminal of job %s cannot be reached: %v", j.ID, err)
	}
	h.svc.Note(c, "attach", []string{j.ID}, "", nil)
	return conn, nil
}

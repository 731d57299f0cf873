package daemon

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
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
		Engine: d.engine, Log: d.log, Queue: d.machine.Name(),
		Config: func() cluster.Config {
			cfg := d.config()
			of := cfg.Slurm
			of.Keep = cmp.Or(cfg.Logs, cfg.History)
			return of
		},
		User:    func(ctx context.Context, j *job.Job) (site.User, error) { return d.runsAs(ctx, j.UID, j.User) },
		Environ: d.inherited, LogPath: d.logPath, Logs: d.opt.Own != nil, Vars: slurm.Environ(d.opt.Env),
	}
	if d.opt.Places.Shared {
		// It is root, and a user controls the files and what Slurm's programs read.
		setup.As = func(ctx context.Context, uid int, input []byte) ([]byte, error) {
			user, err := d.runsAs(ctx, uid, "")
			if err != nil {
				return nil, err
			}
			return d.ask(ctx, user, clusterTime, cluster.Word, input)
		}
	}
	return cluster.New(setup)
}

// wakeCluster tells the cluster that its jobs have changed.
func (d *Daemon) wakeCluster() {
	if c := d.cluster.Load(); c != nil {
		c.Wake()
	}
}

// inherited is the environment that a job inherits.
func (d *Daemon) inherited(j *job.Job) ([]string, error) {
	captured, err := d.environs.get(d.store, j.Environ)
	if err != nil {
		return nil, fmt.Errorf("read the environment of job %s: %w", j.ID, err)
	}
	if !d.opt.Places.Shared {
		return d.ownerHere(j, captured).Env, nil
	}
	user, err := d.runsAs(context.Background(), j.UID, j.User)
	if err != nil {
		return nil, err
	}
	return jobEnviron(captured, j.Spec, user.Name, user.Home, user.Shell), nil
}

// runsAs is the user whose jobs these are. A later owner of the same number is not.
func (d *Daemon) runsAs(ctx context.Context, uid int, name string) (site.User, error) {
	if !d.opt.Places.Shared {
		// Always the same after a restart: handed-over jobs are followed below it.
		return site.User{Name: name, UID: d.uid, GID: os.Getegid(), Home: cmp.Or(lookup(d.opt.Env, "HOME"), d.home(d.uid))}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, lookupTime)
	defer cancel()
	found, err := d.users.Within(ctx, uid, userTTL)
	if err == nil && name != "" && found.Name != name {
		err = successor(uid, name, found.Name)
	}
	return found, err
}

// clusterTime bounds one request to Slurm, which may run several of its programs
// with a deadline each.
const clusterTime = 15 * time.Minute

// place decides where a job runs, and refuses what Slurm could not do.
func (s *submission) place(spec *job.Spec) error {
	if spec.To == "" {
		spec.To = s.cfg.Engine
	}
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
			s.notes = append(s.notes, "slurm: ignored on this machine: "+spec.Slurm)
		}
		spec.To, spec.Slurm = job.ToLocal, ""
		return nil
	}
	if _, err := slurm.Translate(spec, spec.VRAMMiB, s.cfg.Slurm.Slurm); err != nil {
		return err
	}
	s.notes = append(s.notes, slurm.Notes(spec)...)
	return nil
}

// attachAway connects to the terminal of a job on the node of a cluster, through an
// srun that runs as the job's user.
func (d *Daemon) attachAway(ctx context.Context, c api.Caller, j *job.Job) (io.ReadWriteCloser, error) {
	if j.State != job.Running {
		return nil, problem.Newf(problem.Refused, "", "job %s is %s", j.ID, j.State)
	}
	hand := d.cluster.Load()
	if hand == nil {
		return nil, stopping()
	}
	user, err := d.runsAs(ctx, j.UID, j.User)
	var as *keep.Credential
	if err == nil {
		as, err = d.credential(user)
	}
	var conn io.ReadWriteCloser
	if err == nil {
		conn, err = d.machine.Runner.Connect(run.Helper{
			As: as, Args: append([]string{cluster.Word}, cluster.Attachment(j.Handover)...), Env: slices.Concat(hand.Vars, []string{"HOME=" + user.Home}),
		})
	}
	if err != nil {
		return nil, problem.Newf(problem.Unable, "", "the terminal of job %s cannot be reached: %v", j.ID, err)
	}
	d.note(c, "attach", []string{j.ID}, "", nil)
	return conn, nil
}

// handedOver says how a job would be handed over.
func (s *submission) handedOver(spec *job.Spec) string {
	options, err := slurm.Translate(spec, spec.VRAMMiB, s.cfg.Slurm.Slurm)
	if err != nil {
		return err.Error() // it was accepted a moment ago, under another config
	}
	return "it would be handed over to Slurm: sbatch " + job.QuoteArgv(options)
}

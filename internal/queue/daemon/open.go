package daemon

import (
	"cmp"
	"context"
	"errors"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"time"

	"berth/internal/job"
	"berth/internal/machine/keep"
	"berth/internal/machine/run"
	"berth/internal/machine/site"
	"berth/internal/queue"
	"berth/internal/queue/access"
	"berth/internal/queue/engine"
	"berth/internal/queue/engine/fault"
	"berth/internal/queue/engine/launch"
	"berth/internal/queue/engine/settings"
	"berth/internal/queue/people"
	"berth/internal/queue/store"
	"berth/internal/text/problem"
)

// Living lists the jobs that still run although their daemon is gone.
func Living(places site.Places) (map[string]bool, error) {
	found, err := run.Living(queue.KeepDir(places.StateDir))
	living := make(map[string]bool, len(found))
	for _, f := range found {
		living[f.Job] = true
	}
	return living, err
}

// HasState reports whether a daemon has ever had its store there.
func HasState(places site.Places) bool {
	_, err := os.Lstat(store.Path(queue.StoreDir(places.StateDir)))
	return err == nil
}

// open prepares everything needed to answer requests. The order matters: the
// store's lock makes this the only daemon before anything is written.
func (d *Daemon) open(ctx context.Context) error {
	steps := []func(context.Context) error{
		d.openConfig, d.openDirs, d.openMachine, d.openPeople, d.scan, d.openEngine, d.restore,
	}
	for _, step := range steps {
		if err := step(ctx); err != nil {
			return err
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
	return nil
}

func (d *Daemon) openConfig(context.Context) error {
	cfg, err := d.opt.loadConfig()
	if err != nil {
		return err
	}
	d.svc.cfg.Store(&cfg)
	d.admin.begun = cfg
	return nil
}

// openDirs makes the state directory. In a shared one, users can pass through to
// their own jobs' directories and see nothing else.
func (d *Daemon) openDirs(context.Context) error {
	if d.svc.own != nil {
		return nil // the run has made them
	}
	dir, mode := d.svc.places.StateDir, os.FileMode(0o700)
	if d.svc.places.Shared {
		mode = 0o711
		// Checked before anything is created there: a user who controls the path
		// could lead root anywhere, or replace the socket.
		for flag, place := range map[string]string{"--state-dir": dir, "--socket": filepath.Dir(d.svc.places.Socket)} {
			if err := site.TrustedDir(place); err != nil {
				return problem.Newf(problem.Refused, "choose another place with "+flag+", where root owns the whole path", "%v", err)
			}
		}
	}
	if err := store.MakeDir(dir, mode); err != nil {
		return stateProblem(err)
	}
	if err := site.OwnDir(dir); err != nil {
		return stateProblem(err)
	}
	if onNetwork, err := site.OnNetwork(dir); err == nil && onNetwork {
		return problem.Newf(problem.Refused, "choose a directory on a local disk with --state-dir", "%s is on a network file system, where locks and the store are not safe", dir)
	}
	if err := store.MakeDir(d.people.JobsDir, mode); err != nil {
		return stateProblem(err)
	}
	if !d.svc.places.Shared {
		return nil
	}
	for _, path := range []string{dir, d.people.JobsDir} {
		if err := ownPlace(path); err != nil {
			return err
		}
		if err := os.Chmod(path, mode); err != nil {
			return stateProblem(err)
		}
	}
	return nil
}

// ownPlace refuses a directory that another user could have prepared as a trap
// for root.
func ownPlace(path string) error {
	info, err := os.Lstat(path)
	if err != nil {
		return stateProblem(err)
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok || !info.IsDir() || stat.Uid != 0 || info.Mode().Perm()&0o022 != 0 {
		return problem.Newf(problem.Refused, "choose another with --state-dir, or give it to root with mode 0711", "expected a directory that root owns and only root can write to, found %s", path)
	}
	return nil
}

// openMachine opens what the jobs run on. Its log is a file, besides the service
// manager's journal.
func (d *Daemon) openMachine(ctx context.Context) error {
	dir := d.svc.places.StateDir
	setup := queue.Setup{
		StateDir: dir, Hint: StateDirHint, MPSDir: d.opt.mpsHome(), KeepSamples: d.svc.Config().Samples,
		Log: queue.Log{Path: filepath.Join(dir, "berth.log"), MaxBytes: logBytes, Private: true, Level: d.svc.Config().LogLevel},
		Sim: d.opt.Sim, SimVRAMMiB: d.opt.SimVRAMMiB, Getenv: func(name string) string { return job.Getenv(d.opt.Env, name) },
		Launcher: launch.Launcher{JobsDir: d.people.JobsDir, Dir: "/", Owner: d.people.Owner},
		Known:    d.record.knownCards, Choose: d.record.chooseCards, Cgroups: d.opt.cgroups,
	}
	if d.svc.own != nil {
		d.svc.own.Setup(&setup)
	}
	m, err := queue.Open(ctx, setup)
	if err != nil {
		return d.opt.notOpened(err)
	}
	d.takeIn(m)
	if d.svc.own != nil {
		return nil
	}
	if d.svc.audit, err = access.OpenAudit(filepath.Join(dir, access.AuditName)); err != nil {
		return stateProblem(err)
	}
	return nil
}

func (d *Daemon) openPeople(ctx context.Context) error {
	if d.svc.own == nil || !d.people.Users.KnowSelf() {
		d.people.LookUp(ctx, []int{d.people.UID})
	}
	value, err := d.svc.queue.Store.Meta(tokensKey)
	if err != nil {
		return err
	}
	d.door.tokens, err = access.NewTokens(value, func(value string) error {
		return d.svc.queue.Store.Commit(store.Tx{Meta: map[string]string{tokensKey: value}})
	})
	return err
}

// tokensKey is the store's key for the tokens.
const tokensKey = "tokens"

func (d *Daemon) openEngine(context.Context) error {
	last, err := d.lastNumber()
	if err != nil {
		return err
	}
	d.svc.queue.Start(d.engineConfig(), last)
	d.takeIn(d.svc.queue)
	return nil
}

// engineConfig is what the engine has to know and to call.
func (d *Daemon) engineConfig() engine.Config {
	cfg := d.svc.Config()
	limits := d.svc.limits(cfg)
	c := engine.Config{
		Settings: settings.Settings{
			User:        d.people.Name(d.people.UID),
			Cards:       cfg.GPUs,
			Rest:        true,
			Poll:        cfg.Poll,
			Rules:       cfg.RulesWith(limits),
			Limits:      limits,
			HalfLife:    cfg.HalfLife,
			Tolerance:   cfg.Tolerance,
			Overuse:     cfg.Overuse(d.svc.places.Shared),
			IdleAfter:   cfg.IdleReport,
			IdleCancel:  cfg.IdleCancel,
			MaxGrace:    cfg.Grace,
			KeepAll:     cfg.Preempt == queue.PreemptNever,
			Parking:     cfg.ParkingOn(d.svc.queue),
			LimitedLast: d.opt.LimitedLast,
			Submissions: true,
			TellQueued:  true,
			Wanted:      d.submits.deleted.wanted,
		},
		Order:   d.order,
		LogPath: d.people.LogPath,
		Publish: d.publish,
		Away:    d.wakeCluster,
		Closed:  d.svc.own != nil && d.svc.still == nil,
	}
	if d.metrics != nil {
		c.Watch = d.metrics
	}
	if d.svc.own != nil {
		d.svc.own.Settings(&c)
	}
	return c
}

// lastNumber is the highest job number so far. A restored backup does not know
// of later jobs, but their logs exist, and no other job may take them over.
func (d *Daemon) lastNumber() (int64, error) {
	last, err := d.svc.queue.Store.LastSeq()
	if err != nil {
		return 0, err
	}
	dir, err := os.Open(d.people.JobsDir)
	if err != nil {
		return 0, stateProblem(err)
	}
	defer dir.Close()
	for {
		names, err := dir.Readdirnames(1000)
		for _, name := range names {
			if number, ok := jobNumber(name); ok && number < maxNumber {
				last = max(last, number)
			}
		}
		if errors.Is(err, io.EOF) {
			return last, nil
		}
		if err != nil {
			return 0, stateProblem(err)
		}
	}
}

// scan finds the supervisors of an earlier daemon, and takes care of jobs that the
// store does not know.
func (d *Daemon) scan(ctx context.Context) error {
	found, err := d.svc.queue.Runner.Scan()
	if err != nil {
		return problem.Newf(problem.Unable, "", "find the supervisors of the previous daemon: %v", err)
	}
	if d.svc.own != nil {
		d.found, err = d.svc.own.Began(ctx, d.svc.queue, found)
		return err
	}
	d.found = found
	if err := d.refuseEmpty(found); err != nil {
		return err
	}
	return d.regain(found)
}

// restore takes over the jobs of an earlier daemon.
func (d *Daemon) restore(ctx context.Context) error {
	if err := d.svc.queue.TakeOver(d.found); err != nil {
		return err
	}
	jobs, uids := 0, map[int]bool{}
	d.svc.queue.Engine.Outside(time.Now(), func(t *engine.Turn) {
		t.Jobs().Each(0, func(j *job.Job) bool { jobs, uids[j.UID] = jobs+1, true; return true })
	})
	if d.svc.places.Shared {
		// Users not found in time are looked up again when they are needed.
		bounded, cancel := context.WithTimeout(ctx, people.LookupTime)
		wanted := slices.Collect(maps.Keys(uids))
		d.wait.Go(func() { defer cancel(); d.people.LookUp(bounded, wanted) })
	}
	if d.svc.own != nil {
		var err error
		d.svc.queue.Engine.Outside(time.Now(), func(t *engine.Turn) { err = d.svc.own.Restored(t) })
		if err != nil {
			return err
		}
	}
	fault.Point("restored")
	d.svc.queue.Log.Info("took over from the previous daemon", "jobs", jobs, "supervisors", len(d.found))
	return nil
}

// order is the supervisor's order to start a job.
func (d *Daemon) order(j *job.Job, card launch.CardOf) (o keep.Order, err error) {
	if o, err = d.svc.queue.Launcher.Order(j, card); err == nil {
		cfg := d.svc.Config()
		o.LogMaxBytes, o.LogFreeBytes = cfg.MaxLog, cfg.LogFree
		if most := cfg.MemoryMiB(); most > 0 && j.Spec.Adopt == nil && d.admin.enforced.get(d.svc.queue.Runner.Cgroups.Facts).Mem != "" {
			o.MemMiB = min(cmp.Or(o.MemMiB, most), most)
		}
		if o.Credential == nil && j.Umask >= 0 {
			o.Mask = strconv.FormatInt(int64(j.Umask), 8)
		}
	}
	return o, err
}

func (d *Daemon) close() {
	if d.svc.audit != nil {
		if err := d.svc.audit.Close(); err != nil {
			d.svc.queue.Log.Warn("close", "err", err)
		}
	}
	if d.svc.queue != nil {
		d.svc.queue.Close()
	}
}

// regain brings a restored store up to date with the supervisors.
func (d *Daemon) regain(found []run.Found) error {
	regained, err := engine.Regain(d.svc.queue.Store, found, false)
	for _, j := range regained {
		d.svc.queue.Log.Warn("the store is older than a supervisor: its job is taken over as the supervisor has it", "job", j.ID, "attempt", j.Attempt.Number)
	}
	if err != nil {
		return problem.Newf(problem.Unable, "free some disk space and start again", "save the jobs that the store does not know: %v", err)
	}
	return nil
}

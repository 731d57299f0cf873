package daemon

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	"berth/internal/api"
	"berth/internal/job"
	"berth/internal/machine/keep"
	"berth/internal/machine/run"
	"berth/internal/machine/site"
	"berth/internal/queue"
	"berth/internal/queue/access"
	"berth/internal/queue/config"
	"berth/internal/queue/engine"
	"berth/internal/queue/engine/fault"
	"berth/internal/queue/engine/launch"
	"berth/internal/queue/engine/settings"
	"berth/internal/queue/people"
	"berth/internal/queue/store"
	"berth/internal/text/problem"
)

const (
	maxNumber = 1e15 // the largest job number a user can type
	logBytes  = 16 << 20
	scopeTime = 10 * time.Second
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

func (o *Options) loadConfig() (config.Config, error) {
	if o.Own != nil {
		return o.settled(ownConfig(), nil)
	}
	return o.settled(config.Load(o.Places.Config, o.Places.Shared, o.Explicit))
}

// settled is a config that was read, with what flags override.
func (o *Options) settled(cfg config.Config, err error) (config.Config, error) {
	if err != nil {
		p := problem.Newf(problem.Invalid, "berth help config lists the keys", "%v", err)
		p.Err = err
		return cfg, p
	}
	if o.Override != nil {
		o.Override(&cfg)
	}
	if o.IdleExit > 0 {
		cfg.IdleExit = o.IdleExit
	}
	return cfg, cfg.Check()
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

// StateDirHint is the next step where the state directory cannot be used.
const StateDirHint = "choose another directory with --state-dir"

// ErrInUse is the cause of the problem where another daemon uses the state
// directory.
var ErrInUse = errors.New("another daemon uses the state directory")

func stateProblem(err error) error {
	p := problem.Newf(problem.Refused, StateDirHint, "%v", err)
	p.Err = err
	return p
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

// notOpened is the problem for a store that cannot be opened.
func (o *Options) notOpened(err error) error {
	if problem.KindOf(err) != "" || errors.Is(err, context.Canceled) {
		return err
	}
	if locked, ok := errors.AsType[*store.LockedError](err); ok {
		p := problem.Newf(problem.Refused, "berth list talks to it; for a second queue use another --state-dir and --socket", "another berth daemon is using %s (pid %d)", o.Places.StateDir, locked.PID)
		p.Err = ErrInUse
		return p
	}
	if _, ok := errors.AsType[*store.NewerSchemaError](err); ok {
		return problem.Newf(problem.Refused, "use the newer berth"+map[bool]string{true: ", or another --log-dir"}[o.Own != nil], "%v", err)
	}
	return problem.Newf(problem.Unable, "is the disk full or read-only? berth restore brings back a backup", "%v", err)
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

// cgroups are a systemd scope for jobs, and a group in it for their supervisors.
func (o *Options) cgroups(ctx context.Context, log *slog.Logger) (jobs, keepers string) {
	bounded, cancel := context.WithTimeout(ctx, scopeTime)
	defer cancel()
	self := []string{"/proc/self/exe", site.HoldWord}
	if path, err := os.Executable(); err == nil {
		self[0] = path
	}
	jobs, why, err := site.JobScope(bounded, !o.Places.Shared, self)
	if err != nil {
		log.Warn("no systemd scope for jobs", "err", err)
		return jobs, ""
	}
	if jobs == "" {
		log.Info("no systemd scope for jobs", "why", why)
		return "", ""
	}
	// Not in the service's own cgroup: processes left there would block systemd
	// when the service restarts.
	keepers = filepath.Join(jobs, "keepers")
	if err := os.Mkdir(keepers, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
		log.Warn("supervisors stay in the service's cgroup", "err", err)
		return jobs, ""
	}
	return jobs, keepers
}

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
	c := engine.Config{
		Settings: settings.Settings{
			User:        d.people.Name(d.people.UID),
			Cards:       cfg.GPUs,
			Rest:        true,
			Poll:        cfg.Poll,
			Rules:       cfg.Rules,
			Limits:      d.svc.limits(cfg),
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
	d.submits.heap.lift()
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
	d.submits.heap.queue(jobs)
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
		if most := cfg.MemoryMiB(); most > 0 && j.Spec.Adopt == nil && d.admin.enforced.get(d.svc.queue.Runner.Facts).Mem != "" {
			o.MemMiB = min(cmp.Or(o.MemMiB, most), most)
		}
		if o.Credential == nil && j.Umask >= 0 {
			o.Mask = strconv.FormatInt(int64(j.Umask), 8)
		}
	}
	return o, err
}

// heap limits the garbage kept besides the queue itself, and the jobs files that
// are being compared with it: the daemon shares its machine with the jobs.
type heap struct {
	mu          sync.Mutex
	jobs, lines int
}

// lift lifts the limit until it is known how many jobs there are.
func (m *heap) lift() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.jobs = 0
	debug.SetMemoryLimit(math.MaxInt64)
	debug.SetGCPercent(100)
}

// queue sets how many jobs there are.
func (m *heap) queue(jobs int) {
	const step = 1000
	m.mu.Lock()
	defer m.mu.Unlock()
	if jobs = (jobs/step + 1) * step; jobs != m.jobs {
		m.jobs = jobs
		m.limit()
	}
}

// compare adds or removes the lines of a request.
func (m *heap) compare(lines int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.lines += lines
	m.limit()
}

func (m *heap) limit() {
	const beside, perJob, perLine = 40 << 20, 1000, 7000
	debug.SetMemoryLimit(beside + int64(m.jobs)*perJob + int64(m.lines)*perLine)
	debug.SetGCPercent(300) // below the limit, rare collections are cheaper
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

// Note records who did what in the audit log; a berth run has none.
func (s *service) Note(c api.Caller, action string, jobs []string, detail string, err error) {
	if s.audit == nil || err == nil && len(jobs) == 0 && detail == "" && action != "backup" {
		return
	}
	via := cmp.Or(c.Token, c.Way.Via, "socket")
	result := access.OK
	if err != nil {
		result = fmt.Sprint(err)
	}
	s.audit.Record(access.Entry{
		Time: time.Now(), UID: c.UID, User: c.Name, PID: c.PID, Via: via, From: c.Way.From,
		Action: action, Jobs: jobs, Detail: detail, Result: result,
	})
}

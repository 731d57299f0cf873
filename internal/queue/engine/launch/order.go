package launch

import (
	"cmp"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"berth/internal/job"
	"berth/internal/machine/gpu"
	"berth/internal/machine/keep"
	"berth/internal/machine/run"
)

// DefaultLogFree is what growing logs leave free on their disk unless configured
// otherwise, in bytes.
const DefaultLogFree = 256 << 20

// CardOf is a card as its job sees it. Its index is -1 if the driver's number is
// in doubt.
type CardOf func(uuid string) (gpu.Device, bool)

// Launcher turns a placed job into its supervisor's order.
type Launcher struct {
	JobsDir  string   // <log dir>/jobs
	Dir      string   // for jobs without a directory
	Home     string   // the value of ~
	Env      []string // what jobs inherit
	SelfDir  string   // appended to PATH, so that `berth simjob` works anywhere
	SlurmBin string   // a directory with srun, first in the PATH of jobs with SLURM_ variables
	Host     string   // the name of this machine
	HasSlurm bool     // jobs may reach a real Slurm, which must not know their SLURM_JOB_ID
	SimDir   string   // the simulation directory, if there is one
	LogFree  int64    // bytes that growing logs leave free on their disk; 0: none

	// LeaveRest means that a job ends with its main process, whatever that leaves
	// in the background.
	LeaveRest bool

	// Driver is the program that parks jobs, with its arguments; nil: none can be
	// parked.
	Driver []string

	// Filter means that jobs can be kept from opening other cards.
	Filter bool
	// MPSControl is nvidia-cuda-mps-control, and MPSDir is where jobs' servers
	// have their pipes. If MPSControl is empty, NoMPS says why and MPSHint what
	// to do.
	MPSControl, MPSDir, NoMPS, MPSHint string

	// Given changes the variables that say which cards a job has, where somebody
	// else allocated them. Nil: they are berth's.
	Given func(berths []string) []string

	// Owner says whom a job runs as, on a shared daemon; its error becomes
	// Order's. Nil: all jobs run as berth does, with Env and Home.
	Owner func(j *job.Job) (Owner, error)

	card CardOf // of the current order; nil: only the numbers of cards are known
	gid  int    // of the current order
}

// Owner is the user a job runs as.
type Owner struct {
	Env        []string // what the job inherits
	Home       string
	Credential *keep.Credential // nil: berth's own
}

// LogPath is where this attempt's output goes. Each attempt has its own file, so
// that an old failure is never taken for a new one, unless the job asks for one.
func (l *Launcher) LogPath(j *job.Job) string {
	if j.Spec.Output == "" {
		return filepath.Join(l.JobsDir, j.ID, strconv.Itoa(j.Attempt.Number)+".log")
	}
	path := l.expandOutput(j.Spec.Output, j)
	if j.Attempt.Number > 1 && !hasMark(&j.Spec, "%+") {
		path += "." + strconv.Itoa(j.Attempt.Number)
	}
	path = l.expandHome(path)
	if !filepath.IsAbs(path) {
		path = filepath.Join(l.dir(j), path)
	}
	return path
}

func (l *Launcher) expandOutput(pattern string, j *job.Job) string {
	return strings.NewReplacer("%%", "%", "%+", "", "%N", l.Host, "%j", j.ID, "%c", job.Code(j.ID), "%n", safeName(j.Name()), "%u", safeName(j.User), "%a", arrayIndex(j.ID), "%A", cmp.Or(j.Array(), j.ID)).Replace(pattern)
}

// LogAlone reports whether a job's log is named after the job id alone. An
// existing file of that name belongs to another queue.
func LogAlone(spec *job.Spec) bool { return hasMark(spec, "%c") }

func hasMark(spec *job.Spec, mark string) bool {
	return strings.Contains(strings.ReplaceAll(spec.Output, "%%", ""), mark)
}

// safeName keeps a name from changing the directory.
func safeName(name string) string { return strings.ReplaceAll(name, "/", "_") }

// checkpointDir names the directory in which a job that saves its own work can keep
// what it saved.
const checkpointDir = "BERTH_CHECKPOINT_DIR"

// checkpoints is that directory, which all attempts share. It is the user's, like any
// output, and berth never removes it: the time of submission keeps it apart from that
// of another queue's job of this id.
func (l *Launcher) checkpoints(j *job.Job) string {
	return filepath.Join(l.dir(j), "checkpoints", j.ID+"-"+strconv.FormatInt(j.SubmittedAt.Unix(), 10))
}

// savesTo is the path of what a job saves its work to, as a shell would find it in the
// job's working directory and environment.
func (l *Launcher) savesTo(path string, o *keep.Order) string {
	path = l.expandHome(os.Expand(path, newEnviron(o.Env).get))
	if !filepath.IsAbs(path) {
		path = filepath.Join(o.Dir, path)
	}
	return path
}

func arrayIndex(id string) string {
	_, index, _ := strings.Cut(id, "_")
	return index
}

func (l *Launcher) dir(j *job.Job) string {
	dir := l.expandHome(j.Spec.Dir)
	if dir == "" {
		return l.Dir
	}
	if !filepath.IsAbs(dir) {
		dir = filepath.Join(l.Dir, dir)
	}
	return dir
}

func (l *Launcher) expandHome(path string) string {
	if path == "~" || strings.HasPrefix(path, "~/") {
		return filepath.Join(l.Home, path[1:])
	}
	return path
}

// Order is what the supervisor is to do.
func (l *Launcher) Order(j *job.Job, card CardOf) (keep.Order, error) {
	owner := Owner{Env: l.Env, Home: l.Home}
	if l.Owner != nil {
		var err error
		if owner, err = l.Owner(j); err != nil {
			return keep.Order{}, err
		}
	}
	if why := l.Refuses(&j.Spec); why != "" {
		// The machine has changed since submission. The job does not run with
		// less than it asked for.
		return keep.Order{}, errors.New(why)
	}
	own := *l
	own.Env, own.Home, own.card, own.gid = owner.Env, owner.Home, card, os.Getgid()
	if owner.Credential != nil {
		own.gid = owner.Credential.GID
	}
	o := own.order(j)
	o.Credential = owner.Credential
	return o, nil
}

func (l *Launcher) order(j *job.Job) keep.Order {
	spec := j.Spec.Injected(j.Grant.GPUs)
	spec.Venv = l.expandHome(spec.Venv)
	if spec.Venv != "" && !filepath.IsAbs(spec.Venv) {
		spec.Venv = filepath.Join(l.Dir, spec.Venv)
	}
	for i, word := range spec.Argv {
		if spec.Snapshot.Script != "" && word == spec.Snapshot.Script {
			spec.Argv = slices.Clone(spec.Argv)
			spec.Argv[i] = spec.Snapshot.Inside(word)
			break
		}
	}
	cards := l.cards(j)
	grant := cards.env()
	if l.Given != nil {
		grant = l.Given(grant)
	}
	argv, setup := run.Wrap(spec, grant)
	signal, _ := keep.SignalNumber(spec.WarnSignal)
	o := keep.Order{
		LogFreeBytes: l.LogFree,
		Job:          j.ID, Attempt: j.Attempt.Number, Argv: argv, Env: l.env(j, grant), Dir: spec.Snapshot.Inside(l.dir(j)), Code: spec.Snapshot.Path, Log: j.Log, LogAlone: LogAlone(&spec), LogKept: spec.Output == "", Setup: setup, LeaveRest: l.LeaveRest,
		Pty: spec.Pty, CPUs: spec.CPUs, MemMiB: spec.MemMiB, Devices: cards.devices(), MPS: cards.mps, Note: cards.note,
		Limit: spec.TimeLimit, Grace: spec.Grace, WarnBefore: spec.WarnBefore, WarnSignal: signal,
	}
	if spec.SavesTo != "" {
		o.SavesTo = l.savesTo(spec.SavesTo, &o)
	}
	if len(j.Grant.GPUs) > 0 && cards.mps == nil && spec.Adopt == nil {
		o.Driver = l.Driver
	}
	if o.Driver != nil && spec.OnTimeout == job.TimeoutPark {
		o.Limit = 0 // the engine ends its time slices
	}
	if spec.Pin {
		o.Affinity = cards.cpus()
	}
	if spec.Adopt != nil {
		return l.watch(j, o)
	}
	return o
}

// env is the whole environment: inherited variables, then the job's own, then
// berth's.
func (l *Launcher) env(j *job.Job, grant []string) []string {
	vars := newEnviron(l.Env)
	for _, name := range []string{"BERTH_VRAM_MIB", "BERTH_ARRAY_INDEX", "BERTH_SIM_GPU", "BERTH_CPUS", "BERTH_SNAPSHOT", checkpointDir} {
		vars.unset(name) // a berth inside a berth job must not pass these on
	}
	vars.set("PYTHONUNBUFFERED", "1")
	for _, v := range j.Spec.Env {
		vars.set(v.Key, v.Value)
	}
	if vars.get("PATH") == "" {
		vars.set("PATH", "/usr/local/bin:/usr/bin:/bin")
	}
	if l.SelfDir != "" && !slices.Contains(filepath.SplitList(vars.get("PATH")), l.SelfDir) {
		vars.set("PATH", vars.get("PATH")+string(os.PathListSeparator)+l.SelfDir)
	}
	if l.SimDir != "" {
		vars.set("BERTH_SIM_DIR", l.SimDir)
	}
	softCap(j, vars)
	for _, pair := range grant {
		name, value, _ := strings.Cut(pair, "=")
		vars.set(name, value)
	}
	vars.set("BERTH_JOB_ID", j.ID)
	vars.set("BERTH_JOB_NAME", j.Name())
	vars.set("BERTH_GPU_UUIDS", strings.Join(j.Grant.UUIDs, ","))
	vars.set("BERTH_ATTEMPT", strconv.Itoa(j.Attempt.Number))
	if j.VRAMMiB > 0 {
		vars.set("BERTH_VRAM_MIB", strconv.FormatInt(j.VRAMMiB, 10))
	}
	vars.set("BERTH_SUBMIT_DIR", l.dir(j))
	if j.Saves() && vars.get(checkpointDir) == "" {
		vars.set(checkpointDir, l.checkpoints(j))
	}
	if s := j.Spec.Snapshot; s.Path != "" {
		vars.set("BERTH_SNAPSHOT", s.Path)
		vars.set("PWD", s.Inside(l.dir(j)))
	}
	if index := arrayIndex(j.ID); index != "" {
		vars.set("BERTH_ARRAY_INDEX", index)
	}
	if j.Spec.SlurmEnv {
		l.slurm(j, vars)
	}
	return vars.list()
}

// environ is an ordered environment with unique names.
type environ struct {
	names  []string
	values map[string]string
}

func newEnviron(inherited []string) *environ {
	e := &environ{values: make(map[string]string, len(inherited)+16)}
	for _, pair := range inherited {
		if name, value, ok := strings.Cut(pair, "="); ok && name != "" {
			e.set(name, value)
		}
	}
	return e
}

func (e *environ) get(name string) string { return e.values[name] }

func (e *environ) set(name, value string) {
	if _, ok := e.values[name]; !ok {
		e.names = append(e.names, name)
	}
	e.values[name] = value
}

func (e *environ) unset(name string) {
	delete(e.values, name)
	e.names = slices.DeleteFunc(e.names, func(n string) bool { return n == name })
}

func (e *environ) all() []string { return slices.Clone(e.names) }

func (e *environ) list() []string {
	list := make([]string, 0, len(e.names))
	for _, name := range e.names {
		list = append(list, name+"="+e.values[name])
	}
	return list
}

// watch turns an order into one that only watches: the job's cards and limits
// are not the watcher's.
func (l *Launcher) watch(j *job.Job, o keep.Order) keep.Order {
	self, err := os.Executable()
	if err != nil {
		self = "/proc/self/exe"
	}
	o.Argv = append([]string{self}, run.WatchArgs(*j.Spec.Adopt)...)
	o.Dir, o.Setup, o.Pty, o.CPUs, o.MemMiB, o.Devices, o.MPS, o.Affinity, o.Note = "/", false, false, 0, 0, nil, nil, "", ""
	return o
}

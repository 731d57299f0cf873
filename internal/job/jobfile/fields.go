package jobfile

import (
	"math"
	"strings"
	"time"

	"berth/internal/job"
	"berth/internal/text"
)

// Field is one setting of a job. Everything that knows a key takes it from the
// table below: the grammars, the flags of submit and edit, the rules for edits,
// the output of show, the API's description, and the tables of
// docs/reference/jobspec.md and docs/reference/jobsfile.md. By hand come job.Spec and
// its shelf, api.Spec, python/berth/fields.py, a row of slurm/translate_test.go and a
// format of the store, which tests ask for; and what a supervisor needs to know of it,
// which none does: launch.Order with Careful, keep.Order with the protocol that has
// the field, and the stage that obeys it (keep/launch.go).
type Field struct {
	Key   string // in jobs files, spec files and the API
	Help  string // one line, ending with the default
	Flag  string // of submit and edit, if it is not the key with dashes
	Short string
	Alone string // the value of the key alone; empty: it needs a value
	Word  string // the placeholder for the value in the help
	Many  string // a list means the same as its items with this between them; empty: no lists
	Where Where
	Fixed string // why it cannot be edited; empty: it can, until the job starts
	// Admin: administrators may change it too, because it only says when and on
	// which resources the job runs. What a job does only its owner may change:
	// anyone else who could would act as that user.
	Admin bool
	// Runs: it changes what is executed, so lines that differ in it are different
	// jobs.
	Runs bool

	codec
	// shown says for which jobs `show` lists it with the settings; nil: for
	// those that differ from the default.
	shown func(*job.Spec) bool
}

// Where says which grammars know a field.
type Where uint8

// The grammars that know a field.
const (
	Anywhere   Where = iota
	SubmitOnly       // not a line of a jobs file
	FileOnly         // only a line of a jobs file
)

// What joins the items of a list. A repeated key whose items are lines adds to
// them; any other replaces the value before it.
const (
	comma   = ","
	newline = "\n"
)

// Repeats reports whether a flag of this field may be given several times, one
// line each.
func (f *Field) Repeats() bool { return f.Many == newline }

// elsewhere: `show` has a place of its own for it. always: it is always listed.
func elsewhere(*job.Spec) bool { return false }
func always(*job.Spec) bool    { return true }

// fields is in the order in which users see them.
var fields = []*Field{
	{Key: "name", Short: "n", Word: "text", Admin: true, Help: "name shown in lists and logs (default job<id>)",
		codec: parsed(func(a *Asked) *string { return &a.Spec.Name }, parseName, asIs), shown: elsewhere},
	{Key: "gpus", Short: "g", Word: "n", Admin: true, Help: "number of GPUs; 0 for a CPU job, 0.5 for half a GPU (default 1)",
		codec: codec{readGPUs, writeGPUs, func(a *Asked) { a.Spec.GPUs, a.Spec.Share = unset.Spec.GPUs, 0 }}, shown: elsewhere},
	{Key: "type", Flag: "gpu-type", Word: "text", Admin: true, Help: "only GPUs whose name contains this",
		codec: anyText(func(a *Asked) *string { return &a.Spec.Type })},
	{Key: "vram", Word: "size", Admin: true, Help: "memory on each GPU: 18G, 18432 (MiB), auto or estimate:MODEL; lets the job share a GPU (default: a whole idle GPU)",
		codec: codec{readVRAM, writeVRAM, func(a *Asked) { a.Spec.VRAMMiB, a.Spec.VRAMAuto, a.Spec.VRAMModel = 0, false, "" }}, shown: func(s *job.Spec) bool { return s.VRAMAuto }},
	{Key: "ids", Flag: "gpu-ids", Word: "ids", Many: comma, Admin: true, Help: "exactly these GPUs, in this order: 1,3",
		codec: parsed(func(a *Asked) *[]int { return &a.Spec.IDs }, ParseIDs, formatIDs)},
	{Key: "allow", Word: "ids", Many: comma, Admin: true, Help: "only these GPUs may be used: 0-3,5",
		codec: parsed(func(a *Asked) *[]int { return &a.Spec.Allow }, ParseIDs, formatIDs)},
	{Key: "exclusive", Alone: "true", Admin: true, Help: "do not share GPUs with other berth jobs",
		codec: toggle(func(a *Asked) *bool { return &a.Spec.Exclusive })},
	{Key: "cpus", Short: "c", Word: "n", Admin: true, Help: "number of host CPUs",
		codec: whole(func(a *Asked) *int { return &a.Spec.CPUs }, 0, maxCPUs)},
	{Key: "mem", Word: "size", Admin: true, Help: "host memory: 32G",
		codec: parsed(func(a *Asked) *int64 { return &a.Spec.MemMiB }, text.ParseSize, text.FormatSize)},
	{Key: "pin", Alone: "true", Admin: true, Help: "run only on the CPUs closest to its GPUs",
		codec: toggle(func(a *Asked) *bool { return &a.Spec.Pin })},
	{Key: "inject_gpus", Runs: true, Word: "flag=mode", Help: "append a flag with its GPUs to the command: --cuda=physical (numbers on this machine), --gpus=local (from 0)",
		codec: parsed(func(a *Asked) *string { return &a.Spec.Inject }, parseInject, asIs)},
	{Key: "priority", Short: "p", Word: "n", Admin: true, Help: "jobs with a higher priority start first (default 0)",
		codec: whole(func(a *Asked) *int { return &a.Spec.Priority }, math.MinInt32, math.MaxInt32), shown: elsewhere},
	{Key: "timeout", Flag: "time", Short: "t", Word: "time", Admin: true, Help: "time limit: 90 (seconds), 15m, 2h, 1d, 1:30:00 (default none)",
		codec: timeLimit, shown: elsewhere},
	{Key: "signal", Word: "name@s", Help: "signal to send before the time limit: USR1@60 (60 seconds before)",
		codec: codec{readSignal, writeSignal, func(a *Asked) { a.Spec.WarnSignal, a.Spec.WarnBefore = "", 0 }}},
	{Key: "on_timeout", Word: "action", Admin: true, Help: "at the time limit: kill, requeue, or park to go on later with a fresh limit (default kill)",
		codec: choice(func(a *Asked) *job.OnTimeout { return &a.Spec.OnTimeout }, job.TimeoutKill, job.TimeoutRequeue, job.TimeoutPark), shown: func(s *job.Spec) bool { return s.TimeLimit > 0 }},
	{Key: "max_requeues", Word: "n", Admin: true, Help: "maximum number of requeues (default 10)",
		codec: whole(func(a *Asked) *int { return &a.Spec.MaxRequeues }, 0, maxRetries), shown: func(s *job.Spec) bool { return s.OnTimeout == job.TimeoutRequeue }},
	{Key: "retries", Word: "n", Admin: true, Help: "how many times to retry after a failure (default 0)",
		codec: whole(func(a *Asked) *int { return &a.Spec.Retries }, 0, maxRetries)},
	{Key: "retry_on", Word: "failure", Admin: true, Help: "failures to retry: oom (out of GPU memory), or fail for any failure (default oom)",
		codec: choice(func(a *Asked) *job.RetryOn { return &a.Spec.RetryOn }, job.RetryOOM, job.RetryFail), shown: func(s *job.Spec) bool { return s.Retries > 0 }},
	{Key: "after", Word: "jobs", Many: comma, Help: "start after these jobs: 12,prep:any,@; :ok (the default), :any, :fail or :start",
		codec: codec{read: readAfter, write: writeAfter}, shown: elsewhere,
		Fixed: "dependencies cannot be changed; submit the job again"},
	{Key: "array", Word: "range", Many: comma, Where: SubmitOnly, Help: "run the job once per index: 0-99%4 (at most four at a time)",
		codec: codec{read: readArray}, shown: elsewhere,
		Fixed: "a job cannot become an array"},
	{Key: "max", Word: "n", Where: SubmitOnly, Admin: true, Help: "of an array or a sweep: at most this many tasks at a time",
		codec: whole(func(a *Asked) *int { return &a.Spec.ArrayLimit }, 1, maxIndex), shown: elsewhere},
	{Key: "begin", Word: "when", Where: SubmitOnly, Admin: true, Help: "earliest start: now+2h, 16:00, 2026-03-01T16:00",
		codec: codec{read: readBegin, reset: func(a *Asked) { a.NotBefore = time.Time{} }}, shown: elsewhere},
	{Key: "hold", Alone: "true", Where: SubmitOnly, Help: "do not start until released with berth release",
		codec: toggle(func(a *Asked) *bool { return &a.Hold }), shown: elsewhere,
		Fixed: "use berth hold and berth release"},
	{Key: "dir", Runs: true, Flag: "chdir", Short: "C", Word: "dir", Help: "working directory (default: the current one)",
		codec: directory, shown: elsewhere},
	{Key: envKey, Short: "e", Word: "name=value", Where: SubmitOnly, Help: "set a variable, NAME=VALUE; may be repeated",
		codec: codec{read: readVariable, reset: func(a *Asked) { a.Spec.Env = nil }}, shown: elsewhere},
	{Key: "export", Word: "names", Many: comma, Where: SubmitOnly, Help: "variables to pass on from your environment: all, none or A,B (default all)",
		codec: parsed(func(a *Asked) *string { return &a.Spec.Export }, parseExport, asIs),
		Fixed: "the environment was captured at submission"},
	{Key: "venv", Runs: true, Word: "dir", Help: "Python virtual environment to activate first",
		codec: anyText(func(a *Asked) *string { return &a.Spec.Venv })},
	{Key: "conda", Runs: true, Word: "name", Help: "conda environment to activate first",
		codec: anyText(func(a *Asked) *string { return &a.Spec.Conda })},
	{Key: "setup", Runs: true, Word: "command", Help: "shell command to run first, in the same shell",
		codec: anyText(func(a *Asked) *string { return &a.Spec.Setup })},
	{Key: "output", Short: "o", Word: "pattern", Help: "log file: %j id, %n name, %u user, %a array index, %A array id",
		codec: anyText(func(a *Asked) *string { return &a.Spec.Output })},
	{Key: "pty", Alone: "true", Where: SubmitOnly, Help: "run in a terminal, for colours, progress bars and berth attach",
		codec: toggle(func(a *Asked) *bool { return &a.Spec.Pty })},
	{Key: "dedup", Alone: "true", Where: SubmitOnly, Help: "refuse if the same job is queued, running or has succeeded",
		codec: toggle(func(a *Asked) *bool { return &a.Dedup }), shown: elsewhere,
		Fixed: "it applies only to submission"},
	{Key: "requeue", Alone: "true", Admin: true, Help: "run again from the beginning if the machine goes down",
		codec: toggle(func(a *Asked) *bool { return &a.Spec.Requeue })},
	{Key: "grace", Word: "time", Admin: true, Help: "time between TERM and KILL (default 10s)",
		codec: parsed(func(a *Asked) *time.Duration { return &a.Spec.Grace }, text.ParseDuration, text.FormatDuration), shown: always},
	{Key: "preemptible", Alone: "park", Word: "how", Admin: true, Help: "how another job may preempt it: park, requeue, or park,requeue to try both in turn",
		codec: parsed(func(a *Asked) *job.Preemptible { return &a.Spec.Preemptible }, parsePreemptible, func(p job.Preemptible) string { return string(p) })},
	{Key: "checkpoint", Word: "when", Admin: true, Help: "it saves its own work: at least this often (30m), or when it is told to stop (term); with preemptible=requeue it then takes turns with others",
		codec: parsed(func(a *Asked) *job.Checkpoint { return &a.Spec.Checkpoint }, parseCheckpoint, formatCheckpoint)},
	{Key: "checkpoint_file", Word: "path", Help: "the file or directory to which it saves its own work; only with checkpoint",
		codec: anyText(func(a *Asked) *string { return &a.Spec.SavesTo })},
	{Key: "no_park", Alone: "true", Admin: true, Help: "never park it, by policy or by hand",
		codec: toggle(func(a *Asked) *bool { return &a.Spec.NoPark })},
	{Key: "park_timeout", Word: "time", Admin: true, Help: "how long to wait for its running GPU kernels when it is parked (default 1m)",
		codec: parsed(func(a *Asked) *time.Duration { return &a.Spec.ParkTimeout }, parseParkTimeout, text.FormatDuration)},
	{Key: "slurm_env", Alone: "true", Help: "set the variables that Slurm sets, such as SLURM_JOB_ID and SLURM_ARRAY_TASK_ID; #SBATCH lines do that too",
		codec: toggle(func(a *Asked) *bool { return &a.Spec.SlurmEnv }),
		Fixed: "submit the job again"},
	{Key: "to", Word: "place", Help: "where it runs: local (this machine) or slurm (a Slurm cluster) (default: engine in the config, or local)",
		codec: choice(func(a *Asked) *job.Place { return &a.Spec.To }, job.ToHere, job.ToSlurm)},
	{Key: "slurm", Word: "options", Help: "options for sbatch that berth has no field for: --account=lab --qos=long; only with to=slurm",
		codec: parsed(func(a *Asked) *string { return &a.Spec.Slurm }, parseSlurm, asIs)},
	{Key: "cap", Word: "how", Admin: true, Help: "GPU memory limit: none, soft (requested from frameworks) or mps (enforced)",
		codec: choice(func(a *Asked) *string { return &a.Spec.Cap }, "none", "soft", "mps")},
	{Key: "group", Word: "name", Admin: true, Help: "group whose jobs are limited and paused together (berth group)",
		codec: parsed(func(a *Asked) *string { return &a.Spec.Group }, ParseGroup, asIs)},
	{Key: "notify", Word: "rule", Many: newline, Help: "who is told: end,fail:mailto:ann@example.org, events start, end, fail, oom and idle; none for nobody; may be repeated (default: as set with berth notify)",
		codec: codec{readNotify, writeNotify, func(a *Asked) { a.Spec.Notify = nil }}},
	{Key: "snapshot", Alone: job.SnapshotAuto, Word: "dir", Help: "run the code as it is now: a copy of the git tree with its uncommitted changes, or of this directory; no switches it off",
		codec: codec{read: readSnapshot, write: func(a *Asked) string { return a.Spec.Snapshot.Tree }}, shown: elsewhere,
		Fixed: "the code was copied at submission; submit the job again"},
	{Key: "cancel", Alone: "true", Where: FileOnly, Help: "stop this job, or never start it",
		codec: toggle(func(a *Asked) *bool { return &a.Spec.CancelMarked }), shown: elsewhere},
}

// Fields are all fields of a job, in the order in which users see them.
// Callers must not change the table.
func Fields() []*Field { return fields }

// FlagName is the field's flag without its dashes.
func (f *Field) FlagName() string {
	if f.Flag != "" {
		return f.Flag
	}
	return strings.ReplaceAll(f.Key, "_", "-")
}

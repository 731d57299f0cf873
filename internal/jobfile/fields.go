package jobfile

import (
	"math"
	"strings"
	"time"

	"berth/internal/job"
)

// Field is one thing that can be said about a job. Everything that knows a
// key takes it from the table below: the grammars, the flags of submit and
// edit, what an edit may change, what show prints, the API's description, and
// the tables of docs/jobspec.md and docs/jobsfile.md.
type Field struct {
	Key   string // in jobs files, spec files and the API
	Flag  string // of submit and edit, where it is not the key with dashes
	Short string
	Alone string // what the key without a value says; empty: it needs a value
	Word  string // stands for the value in the help
	Many  bool   // a list says the same as its parts with commas between
	Where Where
	Fixed string // why it cannot be changed later; empty: it can, while the job waits
	// Admin: it says when and on what the job runs, and administrators may
	// change it too. What a job does is its owner's alone: who could change
	// that would be that user.
	Admin bool

	Help   string // of the flag
	Doc    string // in the pages; a formatted text
	Absent string // what holds without it, in the pages

	codec
	// shown says of which jobs `show` lists it with the settings; nil: of
	// those that differ from the defaults in it.
	shown func(*job.Spec) bool
}

// Where is which grammars know a field.
type Where uint8

// The grammars that know a field.
const (
	Anywhere   Where = iota
	SubmitOnly       // not a line of a jobs file
	FileOnly         // only a line of a jobs file
)

// What `show` tells in a place of its own, or always.
func elsewhere(*job.Spec) bool { return false }
func always(*job.Spec) bool    { return true }

// fields is in the order in which people see them.
var fields = []*Field{
	{Key: "name", Short: "n", Word: "text", Admin: true, codec: parsed(func(a *Asked) *string { return &a.Spec.Name }, parseName, asIs), shown: elsewhere,
		Help: "for people and logs (default job<id>)",
		Doc:  "for people and logs; up to 128 bytes", Absent: "`job<id>`"},
	{Key: "gpus", Short: "g", Word: "n", Admin: true, codec: codec{readGPUs, writeGPUs}, shown: elsewhere,
		Help: "how many GPUs; 0: a CPU job; 0.5: half of one (default 1)",
		Doc:  "how many cards: `2`, `0` for none, or a share of one such as `0.5`. `1.5` counts as 2. `num_gpus` means the same", Absent: "`1`"},
	{Key: "type", Flag: "gpu-type", Word: "text", Admin: true, codec: text(func(a *Asked) *string { return &a.Spec.Type }),
		Help: "only cards whose name contains this",
		Doc:  "only cards whose name contains this, in any case: `H100`", Absent: "any card"},
	{Key: "vram", Word: "size", Admin: true, codec: codec{readVRAM, writeVRAM}, shown: func(s *job.Spec) bool { return s.VRAMAuto },
		Help: "memory it needs on each GPU: 18G, 18432 (MiB), auto; it may then share a GPU (default: a whole idle one)",
		Doc: "memory on each card: `18432` (MiB), `18G`, `1.5GiB`, or `auto` for what this command, or one that differs in numbers and paths only, " +
			"used before ([predictions.md](predictions.md))", Absent: "undeclared: an idle card, alone"},
	{Key: "ids", Flag: "gpu-ids", Word: "ids", Many: true, Admin: true, codec: parsed(func(a *Asked) *[]int { return &a.Spec.IDs }, ParseIDs, formatIDs),
		Help: "exactly these cards, in this order: 1,3",
		Doc:  "exactly these cards, in this order: `3,1` makes card 3 the job's first. Sets `gpus` too", Absent: "any"},
	{Key: "allow", Word: "ids", Many: true, Admin: true, codec: parsed(func(a *Asked) *[]int { return &a.Spec.Allow }, ParseIDs, formatIDs),
		Help: "any of these cards: 0-3,5",
		Doc:  "any of these: `0-3,5`", Absent: "all"},
	{Key: "exclusive", Alone: "true", Admin: true, codec: toggle(func(a *Asked) *bool { return &a.Spec.Exclusive }),
		Help: "share its GPUs with no other job of berth",
		Doc:  "shares its cards with no other berth job", Absent: "shares"},
	{Key: "cpus", Short: "c", Word: "n", Admin: true, codec: whole(func(a *Asked) *int { return &a.Spec.CPUs }, 0, maxCPUs),
		Help: "host CPUs",
		Doc:  "processors", Absent: "none set aside; with `gpus` 0, one"},
	{Key: "mem", Word: "size", Admin: true, codec: parsed(func(a *Asked) *int64 { return &a.Spec.MemMiB }, ParseSize, formatSize),
		Help: "host memory: 32G",
		Doc:  "host memory: `64G`", Absent: "none set aside"},
	{Key: "pin", Alone: "true", Admin: true, codec: toggle(func(a *Asked) *bool { return &a.Spec.Pin }),
		Help: "run on the CPUs next to its cards only",
		Doc:  "runs on the processors next to its cards only", Absent: "on any"},
	{Key: "inject_gpus", Word: "flag=what", codec: parsed(func(a *Asked) *string { return &a.Spec.Inject }, parseInject, asIs),
		Help: "tell the command its cards in this flag of it: --cuda=physical (their numbers), --gpus=local (from 0)",
		Doc: "tells the command its cards in a flag of its own ([placement.md](placement.md#telling-the-command)): " +
			"`--cuda=physical` by their numbers, `--gpus=local` from 0; `no`", Absent: "not"},
	{Key: "priority", Short: "p", Word: "n", Admin: true, codec: whole(func(a *Asked) *int { return &a.Spec.Priority }, math.MinInt32, math.MaxInt32), shown: elsewhere,
		Help: "higher starts first (default 0)",
		Doc:  "higher goes first; may be negative", Absent: "`0`"},
	{Key: "timeout", Flag: "time", Short: "t", Word: "time", Admin: true, codec: parsed(func(a *Asked) *time.Duration { return &a.Spec.TimeLimit }, ParseDuration, formatDuration), shown: elsewhere,
		Help: "time limit: 90 (seconds), 15m, 2h, 1d, 1:30:00 (default none)",
		Doc:  "time limit: `90` or `90s`, `15m`, `2h`, `1d`, `1.5h`, `1:30` (m:s), `1:30:00` (h:m:s)", Absent: "none"},
	{Key: "signal", Word: "name@s", codec: codec{readSignal, writeSignal},
		Help: "warn it before its limit: USR1@60",
		Doc: "a warning before the end, at its limit or when it is set aside: `USR1@60` is that signal, 60 seconds earlier " +
			"(which is also meant by `USR1`)", Absent: "none"},
	{Key: "on_timeout", Word: "what", Admin: true, codec: choice(func(a *Asked) *job.OnTimeout { return &a.Spec.OnTimeout }, job.TimeoutKill, job.TimeoutRequeue),
		shown: func(s *job.Spec) bool { return s.TimeLimit > 0 },
		Help:  "kill, or requeue (default kill)",
		Doc:   "at the limit: `kill`, or `requeue` to the end of the queue", Absent: "`kill`"},
	{Key: "max_requeues", Word: "n", Admin: true, codec: whole(func(a *Asked) *int { return &a.Spec.MaxRequeues }, 0, maxRetries),
		shown: func(s *job.Spec) bool { return s.OnTimeout == job.TimeoutRequeue },
		Help:  "at most so often (default 10)",
		Doc:   "how often at most", Absent: "`10`"},
	{Key: "retries", Word: "n", Admin: true, codec: whole(func(a *Asked) *int { return &a.Spec.Retries }, 0, maxRetries),
		Help: "try again after a failure (default 0)",
		Doc:  "how often a failure is tried again, up to 1000", Absent: "`0`"},
	{Key: "retry_on", Word: "what", Admin: true, codec: choice(func(a *Asked) *job.RetryOn { return &a.Spec.RetryOn }, job.RetryOOM, job.RetryFail),
		shown: func(s *job.Spec) bool { return s.Retries > 0 },
		Help:  "what is tried again: oom, or fail (default oom)",
		Doc:   "which failures: `oom` (out of GPU memory) or `fail` (any)", Absent: "`oom`"},
	{Key: "after", Word: "jobs", Many: true, codec: codec{readAfter, writeAfter}, shown: elsewhere,
		Fixed: "what it waits for cannot be changed; submit it anew",
		Help:  "start when these have ended: 12:ok,13:any,@ (ok, any or fail)",
		Doc:   "start when these have ended (below)", Absent: "at once"},
	{Key: "array", Word: "range", Many: true, Where: SubmitOnly, codec: codec{read: readArray}, shown: elsewhere,
		Fixed: "an array cannot be made of a job",
		Help:  "many tasks of one job: 0-99%4 (four at a time)",
		Doc:   "one spec, many tasks (below)", Absent: "a single job"},
	{Key: "begin", Word: "when", Where: SubmitOnly, Admin: true, codec: codec{read: readBegin}, shown: elsewhere,
		Help: "not before: now+2h, 16:00, 2026-03-01T16:00",
		Doc:  "not before this time (below)", Absent: "at once"},
	{Key: "hold", Alone: "true", Where: SubmitOnly, codec: toggle(func(a *Asked) *bool { return &a.Hold }), shown: elsewhere,
		Fixed: "use berth hold and berth release",
		Help:  "not until it is released",
		Doc:   "not until `berth release`", Absent: "–"},
	{Key: "dir", Flag: "chdir", Short: "C", Word: "dir", codec: text(func(a *Asked) *string { return &a.Spec.Dir }), shown: elsewhere,
		Help: "working directory (default this one)",
		Doc:  "working directory", Absent: "the caller's"},
	{Key: envKey, Short: "e", Word: "stringArray", Where: SubmitOnly, codec: codec{read: readVariable}, shown: elsewhere,
		Help: "NAME=VALUE: set a variable; may be repeated",
		Doc:  "variables: `-e NAME=VALUE`, a mapping, or a list of `NAME=VALUE`; NAME keeps its case", Absent: "none"},
	{Key: "export", Word: "what", Many: true, Where: SubmitOnly, codec: parsed(func(a *Asked) *string { return &a.Spec.Export }, parseExport, asIs),
		Fixed: "the environment was captured when it was submitted",
		Help:  "of this environment: all, none, or names A,B (default all)",
		Doc:   "what of the caller's environment: `all`, `none`, or names `HOME,PATH`", Absent: "`all`"},
	{Key: "venv", Word: "dir", codec: text(func(a *Asked) *string { return &a.Spec.Venv }),
		Help: "Python environment to activate first",
		Doc:  "a Python environment to activate first", Absent: "none"},
	{Key: "conda", Word: "name", codec: text(func(a *Asked) *string { return &a.Spec.Conda }),
		Help: "conda environment to activate first",
		Doc:  "a conda environment to activate first", Absent: "none"},
	{Key: "setup", Word: "command", codec: text(func(a *Asked) *string { return &a.Spec.Setup }),
		Help: "shell command to run first, in the same shell",
		Doc:  "a shell command to run first; if it fails, so does the job", Absent: "none"},
	{Key: "output", Short: "o", Word: "pattern", codec: text(func(a *Asked) *string { return &a.Spec.Output }),
		Help: "log file: %j id, %n name, %u user, %a array index",
		Doc: "where output goes: `%j` id, `%c` the id in eight letters and digits as the `mgpu_` programs write it (a log of that name that is there " +
			"already is kept as `NAME.old`, or `NAME.old.2`), `%n` name, `%u` user, `%a` array index, `%%` a percent sign", Absent: "`<state>/jobs/<id>/<attempt>.log`"},
	{Key: "pty", Alone: "true", Where: SubmitOnly, codec: toggle(func(a *Asked) *bool { return &a.Spec.Pty }),
		Help: "give it a terminal: colours, progress bars, berth attach",
		Doc:  "a terminal of its own", Absent: "none"},
	{Key: "dedup", Alone: "true", Where: SubmitOnly, codec: toggle(func(a *Asked) *bool { return &a.Dedup }), shown: elsewhere,
		Fixed: "it was submitted already",
		Help:  "refuse if the same job is queued, running or finished well",
		Doc:   "refuse it if the same job is queued, running or finished well", Absent: "–"},
	{Key: "requeue", Alone: "true", Admin: true, codec: toggle(func(a *Asked) *bool { return &a.Spec.Requeue }),
		Help: "run again if the machine went down under it",
		Doc:  "run it again if the machine went down under it", Absent: "no"},
	{Key: "grace", Word: "time", Admin: true, codec: parsed(func(a *Asked) *time.Duration { return &a.Spec.Grace }, ParseDuration, formatDuration), shown: always,
		Help: "between TERM and KILL (default 10s)",
		Doc:  "time between TERM and KILL when the job is ended", Absent: "`10s`"},
	{Key: "preemptible", Alone: "park", Word: "how", Admin: true, codec: parsed(func(a *Asked) *string { return &a.Spec.Preemptible }, parsePreemptible, asIs),
		Help: "may be set aside for a higher priority: park, or requeue",
		Doc: "may be set aside for a higher priority: `requeue`: it is ended and runs again, from its beginning and in its own place; " +
			"`park` (meant where it stands alone): it is suspended, where the machine can do that. None can yet, and until then such a job stays. [states.md](states.md)", Absent: "no"},
	{Key: "cap", Word: "how", Admin: true, codec: choice(func(a *Asked) *string { return &a.Spec.Cap }, "none", "soft", "mps"),
		Help: "limit on device memory: none, soft (asked of frameworks) or mps (enforced)",
		Doc: "holds it to its memory: `soft` tells frameworks how much they may take, `mps` enforces it, with a size in `vram` or a share; `none` " +
			"([placement.md](placement.md#caps))", Absent: "`none`"},
	{Key: "cancel", Alone: "true", Where: FileOnly, codec: toggle(func(a *Asked) *bool { return &a.Spec.CancelMarked }), shown: elsewhere,
		Doc: "end this job, or never start it", Absent: "–"},
}

// Fields are all fields of a job, in the order in which people see them. The
// table is shared: it is to be read.
func Fields() []*Field { return fields }

// FlagName is the field's flag without its dashes.
func (f *Field) FlagName() string {
	if f.Flag != "" {
		return f.Flag
	}
	return strings.ReplaceAll(f.Key, "_", "-")
}

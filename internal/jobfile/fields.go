package jobfile

import (
	"math"
	"strings"
	"time"

	"berth/internal/job"
	"berth/internal/text"
)

// Field is one thing that can be said about a job. Everything that knows a
// key takes it from the table below: the grammars, the flags of submit and
// edit, what an edit may change, what show prints, the API's description, and
// the tables of docs/reference/jobspec.md and docs/reference/jobsfile.md.
type Field struct {
	Key   string // in jobs files, spec files and the API
	Help  string // one line, with the default at its end
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
	{Key: "name", Short: "n", Word: "text", Admin: true, Help: "for people and logs (default job<id>)",
		codec: parsed(func(a *Asked) *string { return &a.Spec.Name }, parseName, asIs), shown: elsewhere},
	{Key: "gpus", Short: "g", Word: "n", Admin: true, Help: "how many GPUs; 0: a CPU job; 0.5: half of one (default 1)",
		codec: codec{readGPUs, writeGPUs}, shown: elsewhere},
	{Key: "type", Flag: "gpu-type", Word: "text", Admin: true, Help: "only cards whose name contains this",
		codec: anyText(func(a *Asked) *string { return &a.Spec.Type })},
	{Key: "vram", Word: "size", Admin: true, Help: "memory it needs on each GPU: 18G, 18432 (MiB), auto; it may then share a GPU (default: a whole idle one)",
		codec: codec{readVRAM, writeVRAM}, shown: func(s *job.Spec) bool { return s.VRAMAuto }},
	{Key: "ids", Flag: "gpu-ids", Word: "ids", Many: true, Admin: true, Help: "exactly these cards, in this order: 1,3",
		codec: parsed(func(a *Asked) *[]int { return &a.Spec.IDs }, ParseIDs, formatIDs)},
	{Key: "allow", Word: "ids", Many: true, Admin: true, Help: "any of these cards: 0-3,5",
		codec: parsed(func(a *Asked) *[]int { return &a.Spec.Allow }, ParseIDs, formatIDs)},
	{Key: "exclusive", Alone: "true", Admin: true, Help: "share its GPUs with no other job of berth",
		codec: toggle(func(a *Asked) *bool { return &a.Spec.Exclusive })},
	{Key: "cpus", Short: "c", Word: "n", Admin: true, Help: "host CPUs",
		codec: whole(func(a *Asked) *int { return &a.Spec.CPUs }, 0, maxCPUs)},
	{Key: "mem", Word: "size", Admin: true, Help: "host memory: 32G",
		codec: parsed(func(a *Asked) *int64 { return &a.Spec.MemMiB }, text.ParseSize, text.FormatSize)},
	{Key: "pin", Alone: "true", Admin: true, Help: "run on the CPUs next to its cards only",
		codec: toggle(func(a *Asked) *bool { return &a.Spec.Pin })},
	{Key: "inject_gpus", Word: "flag=what", Help: "tell the command its cards in this flag of it: --cuda=physical (their numbers), --gpus=local (from 0)",
		codec: parsed(func(a *Asked) *string { return &a.Spec.Inject }, parseInject, asIs)},
	{Key: "priority", Short: "p", Word: "n", Admin: true, Help: "higher starts first (default 0)",
		codec: whole(func(a *Asked) *int { return &a.Spec.Priority }, math.MinInt32, math.MaxInt32), shown: elsewhere},
	{Key: "timeout", Flag: "time", Short: "t", Word: "time", Admin: true, Help: "time limit: 90 (seconds), 15m, 2h, 1d, 1:30:00 (default none)",
		codec: parsed(func(a *Asked) *time.Duration { return &a.Spec.TimeLimit }, text.ParseDuration, text.FormatDuration), shown: elsewhere},
	{Key: "signal", Word: "name@s", Help: "warn it before its limit: USR1@60",
		codec: codec{readSignal, writeSignal}},
	{Key: "on_timeout", Word: "what", Admin: true, Help: "kill, or requeue (default kill)",
		codec: choice(func(a *Asked) *job.OnTimeout { return &a.Spec.OnTimeout }, job.TimeoutKill, job.TimeoutRequeue), shown: func(s *job.Spec) bool { return s.TimeLimit > 0 }},
	{Key: "max_requeues", Word: "n", Admin: true, Help: "at most so often (default 10)",
		codec: whole(func(a *Asked) *int { return &a.Spec.MaxRequeues }, 0, maxRetries), shown: func(s *job.Spec) bool { return s.OnTimeout == job.TimeoutRequeue }},
	{Key: "retries", Word: "n", Admin: true, Help: "try again after a failure (default 0)",
		codec: whole(func(a *Asked) *int { return &a.Spec.Retries }, 0, maxRetries)},
	{Key: "retry_on", Word: "what", Admin: true, Help: "what is tried again: oom, or fail (default oom)",
		codec: choice(func(a *Asked) *job.RetryOn { return &a.Spec.RetryOn }, job.RetryOOM, job.RetryFail), shown: func(s *job.Spec) bool { return s.Retries > 0 }},
	{Key: "after", Word: "jobs", Many: true, Help: "start when these have ended: 12:ok,13:any,@ (ok, any or fail)",
		codec: codec{readAfter, writeAfter}, shown: elsewhere,
		Fixed: "what it waits for cannot be changed; submit it anew"},
	{Key: "array", Word: "range", Many: true, Where: SubmitOnly, Help: "many tasks of one job: 0-99%4 (four at a time)",
		codec: codec{read: readArray}, shown: elsewhere,
		Fixed: "an array cannot be made of a job"},
	{Key: "begin", Word: "when", Where: SubmitOnly, Admin: true, Help: "not before: now+2h, 16:00, 2026-03-01T16:00",
		codec: codec{read: readBegin}, shown: elsewhere},
	{Key: "hold", Alone: "true", Where: SubmitOnly, Help: "not until it is released",
		codec: toggle(func(a *Asked) *bool { return &a.Hold }), shown: elsewhere,
		Fixed: "use berth hold and berth release"},
	{Key: "dir", Flag: "chdir", Short: "C", Word: "dir", Help: "working directory (default this one)",
		codec: anyText(func(a *Asked) *string { return &a.Spec.Dir }), shown: elsewhere},
	{Key: envKey, Short: "e", Word: "stringArray", Where: SubmitOnly, Help: "NAME=VALUE: set a variable; may be repeated",
		codec: codec{read: readVariable}, shown: elsewhere},
	{Key: "export", Word: "what", Many: true, Where: SubmitOnly, Help: "of this environment: all, none, or names A,B (default all)",
		codec: parsed(func(a *Asked) *string { return &a.Spec.Export }, parseExport, asIs),
		Fixed: "the environment was captured when it was submitted"},
	{Key: "venv", Word: "dir", Help: "Python environment to activate first",
		codec: anyText(func(a *Asked) *string { return &a.Spec.Venv })},
	{Key: "conda", Word: "name", Help: "conda environment to activate first",
		codec: anyText(func(a *Asked) *string { return &a.Spec.Conda })},
	{Key: "setup", Word: "command", Help: "shell command to run first, in the same shell",
		codec: anyText(func(a *Asked) *string { return &a.Spec.Setup })},
	{Key: "output", Short: "o", Word: "pattern", Help: "log file: %j id, %n name, %u user, %a array index",
		codec: anyText(func(a *Asked) *string { return &a.Spec.Output })},
	{Key: "pty", Alone: "true", Where: SubmitOnly, Help: "give it a terminal: colours, progress bars, berth attach",
		codec: toggle(func(a *Asked) *bool { return &a.Spec.Pty })},
	{Key: "dedup", Alone: "true", Where: SubmitOnly, Help: "refuse if the same job is queued, running or finished well",
		codec: toggle(func(a *Asked) *bool { return &a.Dedup }), shown: elsewhere,
		Fixed: "it was submitted already"},
	{Key: "requeue", Alone: "true", Admin: true, Help: "run again if the machine went down under it",
		codec: toggle(func(a *Asked) *bool { return &a.Spec.Requeue })},
	{Key: "grace", Word: "time", Admin: true, Help: "between TERM and KILL (default 10s)",
		codec: parsed(func(a *Asked) *time.Duration { return &a.Spec.Grace }, text.ParseDuration, text.FormatDuration), shown: always},
	{Key: "preemptible", Alone: "park", Word: "how", Admin: true, Help: "may be set aside for a higher priority: park, or requeue",
		codec: parsed(func(a *Asked) *string { return &a.Spec.Preemptible }, parsePreemptible, asIs)},
	{Key: "cap", Word: "how", Admin: true, Help: "limit on device memory: none, soft (asked of frameworks) or mps (enforced)",
		codec: choice(func(a *Asked) *string { return &a.Spec.Cap }, "none", "soft", "mps")},
	{Key: "cancel", Alone: "true", Where: FileOnly, Help: "end this job, or never start it",
		codec: toggle(func(a *Asked) *bool { return &a.Spec.CancelMarked }), shown: elsewhere},
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

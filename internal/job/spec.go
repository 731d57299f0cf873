package job

import (
	"fmt"
	"iter"
	"slices"
	"time"
)

// Spec is a job as its user requested it. It never changes once a job runs; what
// berth adds (a raised declaration, a grant) is in Job.
type Spec struct {
	// Exactly one of Shell and Argv is set: a shell line, or words that are
	// executed directly.
	Shell string   `json:"shell,omitempty"`
	Argv  []string `json:"argv,omitempty"`

	Name string `json:"name,omitempty"`

	// GPUs is a whole count; 0 is a CPU job. Share is a part of one GPU,
	// 0 < Share < 1, and then GPUs is 1.
	GPUs      int     `json:"gpus"`
	Share     float64 `json:"share,omitempty"`
	Type      string  `json:"type,omitempty"`
	VRAMMiB   int64   `json:"vram_mib,omitempty"` // per GPU; 0: undeclared
	VRAMAuto  bool    `json:"vram_auto,omitempty"`
	VRAMModel string  `json:"-"`             // estimate:PATH, until the client has read that model
	IDs       []int   `json:"ids,omitempty"` // exactly these, in this order
	Allow     []int   `json:"allow,omitempty"`
	Exclusive bool    `json:"exclusive,omitempty"`
	CPUs      int     `json:"cpus,omitempty"`
	MemMiB    int64   `json:"mem_mib,omitempty"`
	Pin       bool    `json:"pin,omitempty"` // runs only on the CPUs next to its cards

	// Inject names a flag of the command that gets the job's cards:
	// FLAG=physical for their numbers, FLAG=local to count from 0.
	Inject string `json:"inject,omitempty"`

	// Adopt makes the job represent a process that berth did not start, which is
	// accounted for and left alone.
	Adopt *Process `json:"adopt,omitempty"`

	Priority int `json:"priority,omitempty"`

	// Interactive jobs have a user waiting at them, and may have a time limit of
	// their own.
	Interactive bool `json:"interactive,omitempty"`

	TimeLimit    time.Duration `json:"time_limit,omitempty"` // 0: none
	WarnSignal   string        `json:"warn_signal,omitempty"`
	WarnBefore   time.Duration `json:"warn_before,omitempty"`
	OnTimeout    OnTimeout     `json:"on_timeout,omitempty"`
	MaxRequeues  int           `json:"max_requeues,omitempty"`
	Retries      int           `json:"retries,omitempty"`
	RetryOn      RetryOn       `json:"retry_on,omitempty"`
	After        []Dependency  `json:"after,omitempty"`
	Grace        time.Duration `json:"grace,omitempty"`
	Requeue      bool          `json:"requeue,omitempty"`
	Preemptible  Preemptible   `json:"preemptible,omitempty"`
	Cap          string        `json:"cap,omitempty"` // "", "none", "soft", "mps"
	Dir          string        `json:"dir,omitempty"`
	Env          []EnvVar      `json:"env,omitempty"` // explicit variables, in order
	Venv         string        `json:"venv,omitempty"`
	Conda        string        `json:"conda,omitempty"`
	Setup        string        `json:"setup,omitempty"`
	Output       string        `json:"output,omitempty"`
	Pty          bool          `json:"pty,omitempty"`         // a terminal of its own
	Export       string        `json:"export,omitempty"`      // which of the caller's variables: "" or "all", "none", "A,B"
	ArrayLimit   int           `json:"array_limit,omitempty"` // how many tasks of its array may run at a time; 0: all
	Group        string        `json:"group,omitempty"`       // of its user's groups, which can limit and pause their jobs
	Snapshot     Snapshot      `json:"snapshot,omitzero"`     // of the code it runs
	Notify       []string      `json:"notify,omitempty"`      // who is told about it, as EVENTS:TARGET or none; targets may be secret
	NoPark       bool          `json:"no_park,omitempty"`
	Checkpoint   Checkpoint    `json:"checkpoint,omitempty"`      // whether it saves its own work
	SavesTo      string        `json:"checkpoint_file,omitempty"` // the file or directory that each save makes newer; empty: it does not say
	ParkTimeout  time.Duration `json:"park_timeout,omitempty"`    // how long a running kernel is waited for; 0: as long as the berth says
	SlurmEnv     bool          `json:"slurm_env,omitempty"`       // it gets the variables of a Slurm job
	ArrayShape   ArrayShape    `json:"array_shape,omitzero"`      // only with SlurmEnv, or in Slurm
	To           Place         `json:"to,omitempty"`              // where it runs; empty: here
	Slurm        string        `json:"slurm,omitempty"`           // further options for sbatch; only with ToSlurm
	Batch        string        `json:"batch,omitempty"`           // the jobs file that it is a line of
	Trial        Trial         `json:"trial,omitzero"`            // of a sweep
	CancelMarked bool          `json:"-"`                         // a jobs-file line that carries `cancel`
}

// Texts visits every string of a spec.
func (s *Spec) Texts(visit func(*string)) {
	for _, text := range []*string{
		&s.Shell, &s.Name, &s.Type, &s.VRAMModel, &s.Inject, &s.WarnSignal, (*string)(&s.OnTimeout), (*string)(&s.RetryOn),
		(*string)(&s.Preemptible), &s.Cap, &s.Dir, &s.Venv, &s.Conda, &s.Setup, &s.Output, &s.Export, &s.Group, &s.SavesTo,
		(*string)(&s.To), &s.Slurm, &s.Batch,
		&s.Snapshot.Tree, &s.Snapshot.ID, &s.Snapshot.Path, &s.Snapshot.Commit, &s.Snapshot.Script,
	} {
		visit(text)
	}
	s.Trial.Texts(visit)
	for i := range s.Argv {
		visit(&s.Argv[i])
	}
	for i := range s.Notify {
		visit(&s.Notify[i])
	}
	for i := range s.Env {
		visit(&s.Env[i].Key)
		visit(&s.Env[i].Value)
	}
	for i := range s.After {
		visit(&s.After[i].Job)
		visit(&s.After[i].Name)
		visit((*string)(&s.After[i].On))
	}
}

// TextBytes is the size of all of them.
func (s *Spec) TextBytes() (bytes int) {
	s.Texts(func(text *string) { bytes += len(*text) })
	return bytes
}

// ArrayShape is what each task of an array knows of the whole, as in Slurm.
type ArrayShape struct {
	Tasks int `json:"tasks"`
	Min   int `json:"min"`
	Max   int `json:"max"`
	Step  int `json:"step"`
}

// Process identifies a process by its number and start time, in clock ticks
// since boot: numbers are reused.
type Process struct {
	PID   int    `json:"pid"`
	Start uint64 `json:"start"`
}

// EnvVar is one explicit variable of a job.
type EnvVar struct {
	Key   string `json:"k"`
	Value string `json:"v"`
}

// Defaults are the values of an empty spec.
func Defaults() Spec {
	return Spec{GPUs: 1, OnTimeout: TimeoutKill, MaxRequeues: 10, RetryOn: RetryOOM, Grace: 10 * time.Second}
}

// Place is where a job runs.
type Place string

// The places.
const (
	ToLocal Place = ""
	ToSlurm Place = "slurm"
	// ToHere is how users ask for this machine where the default is another place.
	// A daemon stores it as ToLocal.
	ToHere Place = "local"
)

// Preemptible says how a job may be preempted.
type Preemptible string

// The ways to preempt a job.
const (
	NotPreemptible   Preemptible = ""
	PreemptByPark    Preemptible = "park"
	PreemptByRequeue Preemptible = "requeue"
	PreemptByEither  Preemptible = "park,requeue" // requeued only if it cannot be parked
)

// Parks and Requeues report whether a job may be preempted that way.
func (p Preemptible) Parks() bool    { return p == PreemptByPark || p == PreemptByEither }
func (p Preemptible) Requeues() bool { return p == PreemptByRequeue || p == PreemptByEither }

// Checkpoint is how often a job saves its own work, at least. It can be ended then,
// and goes on from there in its next attempt. 0: it does not.
type Checkpoint time.Duration

// CheckpointTold is that of a job that saves when it is told to stop.
const CheckpointTold Checkpoint = -1

// Every is the time between two saves; 0: it does not save by itself.
func (c Checkpoint) Every() time.Duration { return time.Duration(max(0, c)) }

// OnTimeout says what happens to a job that reaches its time limit.
type OnTimeout string

// What may happen at a time limit.
const (
	TimeoutKill    OnTimeout = "kill"
	TimeoutRequeue OnTimeout = "requeue"
	TimeoutPark    OnTimeout = "park" // and it goes on with a fresh limit
)

// RetryOn says which failures are retried.
type RetryOn string

// The failures that may be retried.
const (
	RetryOOM  RetryOn = "oom"
	RetryFail RetryOn = "fail"
)

// Condition is how another job must end before this one may start.
type Condition string

// The conditions of a dependency.
const (
	AfterOK   Condition = "ok"
	AfterAny  Condition = "any"
	AfterFail Condition = "fail"
	// AfterStart is for jobs that were submitted: it has to start, or to end
	// without that.
	AfterStart Condition = "start"
)

// Words is the condition as a verb: the other job has to "succeed".
func (c Condition) Words() string {
	switch c {
	case AfterAny:
		return "end"
	case AfterFail:
		return "fail"
	case AfterStart:
		return "start"
	}
	return "succeed"
}

// Holds reports whether a job that ended like this meets the condition.
func (c Condition) Holds(o Outcome) bool {
	switch c {
	case AfterAny, AfterStart:
		return true
	case AfterFail:
		return o != OK
	}
	return o == OK
}

// Dependency is one entry of `after`. In a jobs file it names a line; package
// batch replaces the name with the id of that line's job.
type Dependency struct {
	Job  string    `json:"job,omitempty"`
	Name string    `json:"name,omitempty"`
	On   Condition `json:"on"`
	// Alt is which alternative of its job it belongs to. Those of one must all
	// hold, and one alternative is enough. They follow one another.
	Alt    int   `json:"alt,omitempty"`
	DelayS int64 `json:"delay_s,omitempty"` // seconds that have to pass after a start
}

// Words is what the other job has to do: "succeed", or "start, and 5m0s to pass".
func (d Dependency) Words() string {
	if d.DelayS > 0 {
		return fmt.Sprintf("%s, and %s to pass", d.On.Words(), time.Duration(d.DelayS)*time.Second)
	}
	return d.On.Words()
}

// Alternatives are the parts of a list of dependencies of which one has to hold.
func Alternatives(list []Dependency) iter.Seq[[]Dependency] {
	return func(yield func([]Dependency) bool) {
		for len(list) > 0 {
			n := slices.IndexFunc(list, func(d Dependency) bool { return d.Alt != list[0].Alt })
			if n < 0 {
				n = len(list)
			}
			if !yield(list[:n]) {
				return
			}
			list = list[n:]
		}
	}
}

// Command is the job's command as a shell line.
func (s Spec) Command() string {
	if s.Shell != "" || len(s.Argv) == 0 {
		return s.Shell
	}
	return QuoteArgv(s.Argv)
}

// KindBytes is how much of a command tells it from others in estimates.
const KindBytes = 16 << 10

// CommandHead is the beginning of Command, without making all of a long one: a
// word is quoted only if what is left of it needs that.
func (s *Spec) CommandHead(most int) string {
	head := s.Shell
	if head == "" {
		var words []string
		for size := 0; len(words) < len(s.Argv) && size < most; {
			word := s.Argv[len(words)]
			words = append(words, word[:min(len(word), most)])
			size += len(word) + 1
		}
		head = QuoteArgv(words)
	}
	return head[:min(len(head), most)]
}

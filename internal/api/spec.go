package api

import (
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strings"

	"berth/internal/job/jobfile"
)

// Text is a value as a user would type it. In JSON it may also be a number or a
// boolean.
type Text string

// UnmarshalJSON accepts "18G", 18432 and true.
func (t *Text) UnmarshalJSON(data []byte) error {
	if data[0] == '"' { // the decoder passes one whole value
		if plain(data) {
			*t = Text(data[1 : len(data)-1])
			return nil
		}
		return json.Unmarshal(data, (*string)(t))
	}
	wrong := map[byte]string{'n': "null", '{': "object", '[': "array"}
	if kind := wrong[data[0]]; kind != "" {
		return &json.UnmarshalTypeError{Value: kind, Type: reflect.TypeFor[Text]()}
	}
	*t = Text(data)
	return nil
}

// plain reports whether a JSON string has no escapes. Most have none, and need
// no second decoder.
func plain(data []byte) bool {
	for _, b := range data[1 : len(data)-1] {
		if b < ' ' || b == '\\' || b >= 0x80 {
			return false
		}
	}
	return true
}

// Command is what a job runs: one shell line, or separate words that are
// executed directly. In JSON it is a string or an array of strings.
type Command struct {
	Shell string
	Argv  []string
}

func (c Command) MarshalJSON() ([]byte, error) {
	if len(c.Argv) > 0 {
		return json.Marshal(c.Argv)
	}
	return json.Marshal(c.Shell)
}

// UnmarshalJSON reads either form.
func (c *Command) UnmarshalJSON(data []byte) error {
	*c = Command{}
	if len(data) > 0 && data[0] == '[' {
		return json.Unmarshal(data, &c.Argv)
	}
	return json.Unmarshal(data, &c.Shell)
}

// Spec is a job as requested. Its keys are those of spec files and of the flags
// of submit (docs/reference/jobspec.md); the daemon parses all of them with one
// grammar. jobfile.Fields describes each.
type Spec struct {
	Command Command           `json:"command,omitzero" doc:"a shell line, or an array of words that are executed directly"`
	Bytes   []byte            `json:"command_bytes,omitempty" doc:"instead of command: a shell line that is not UTF-8, in base64"`
	Env     map[string]string `json:"env,omitempty" doc:"variables set for this job"`

	Name        Text `json:"name,omitempty"`
	GPUs        Text `json:"gpus,omitempty"`
	Type        Text `json:"type,omitempty"`
	VRAM        Text `json:"vram,omitempty"`
	IDs         Text `json:"ids,omitempty"`
	Allow       Text `json:"allow,omitempty"`
	Exclusive   Text `json:"exclusive,omitempty"`
	CPUs        Text `json:"cpus,omitempty"`
	Mem         Text `json:"mem,omitempty"`
	Pin         Text `json:"pin,omitempty"`
	InjectGPUs  Text `json:"inject_gpus,omitempty"`
	Priority    Text `json:"priority,omitempty"`
	Timeout     Text `json:"timeout,omitempty"`
	Signal      Text `json:"signal,omitempty"`
	OnTimeout   Text `json:"on_timeout,omitempty"`
	MaxRequeues Text `json:"max_requeues,omitempty"`
	Retries     Text `json:"retries,omitempty"`
	RetryOn     Text `json:"retry_on,omitempty"`
	After       Text `json:"after,omitempty"`
	Array       Text `json:"array,omitempty"`
	Max         Text `json:"max,omitempty"`
	Begin       Text `json:"begin,omitempty"`
	Hold        Text `json:"hold,omitempty"`
	Dir         Text `json:"dir,omitempty"`
	Export      Text `json:"export,omitempty"`
	Venv        Text `json:"venv,omitempty"`
	Conda       Text `json:"conda,omitempty"`
	Setup       Text `json:"setup,omitempty"`
	Output      Text `json:"output,omitempty"`
	Pty         Text `json:"pty,omitempty"`
	Dedup       Text `json:"dedup,omitempty"`
	Requeue     Text `json:"requeue,omitempty"`
	Grace       Text `json:"grace,omitempty"`
	Preemptible Text `json:"preemptible,omitempty"`
	Checkpoint  Text `json:"checkpoint,omitempty"`
	SavesTo     Text `json:"checkpoint_file,omitempty"`
	NoPark      Text `json:"no_park,omitempty"`
	ParkTimeout Text `json:"park_timeout,omitempty"`
	SlurmEnv    Text `json:"slurm_env,omitempty"`
	To          Text `json:"to,omitempty"`
	Slurm       Text `json:"slurm,omitempty"`
	Cap         Text `json:"cap,omitempty"`
	Group       Text `json:"group,omitempty"`
	Notify      Text `json:"notify,omitempty"`
	Snapshot    Text `json:"snapshot,omitempty"`

	Sweep *Sweep `json:"sweep,omitempty" doc:"makes the job a sweep: one trial for each combination of the values of its parameters"`
}

// textKeys are the keys of Spec that are Text, in their order.
var textKeys = func() (keys []string) {
	t := reflect.TypeFor[Spec]()
	for i := range t.NumField() {
		if t.Field(i).Type == reflect.TypeFor[Text]() {
			key, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
			keys = append(keys, key)
		}
	}
	return keys
}()

// texts are their values, which a test holds: a large request took long to ask each
// of its jobs for them by reflection.
func (s *Spec) texts() [45]*Text {
	return [...]*Text{
		&s.Name, &s.GPUs, &s.Type, &s.VRAM, &s.IDs, &s.Allow, &s.Exclusive, &s.CPUs, &s.Mem, &s.Pin, &s.InjectGPUs,
		&s.Priority, &s.Timeout, &s.Signal, &s.OnTimeout, &s.MaxRequeues, &s.Retries, &s.RetryOn, &s.After, &s.Array, &s.Max,
		&s.Begin, &s.Hold, &s.Dir, &s.Export, &s.Venv, &s.Conda, &s.Setup, &s.Output, &s.Pty, &s.Dedup, &s.Requeue, &s.Grace,
		&s.Preemptible, &s.Checkpoint, &s.SavesTo, &s.NoPark, &s.ParkTimeout, &s.SlurmEnv, &s.To, &s.Slurm, &s.Cap, &s.Group, &s.Notify,
		&s.Snapshot,
	}
}

// SameTerms reports whether two specs have the same keys and values, apart from their
// names and commands. It says no to variables and sweeps, which it does not compare.
func (s *Spec) SameTerms(o *Spec) bool {
	if len(s.Env)+len(o.Env) > 0 || s.Sweep != nil || o.Sweep != nil {
		return false
	}
	theirs := o.texts()
	for i, text := range s.texts() {
		if *text != *theirs[i] && text != &s.Name {
			return false
		}
	}
	return true
}

// Set sets one key; env.NAME sets a variable. It returns false for an unknown
// key.
func (s *Spec) Set(key, value string) bool {
	if name, isEnv := strings.CutPrefix(key, "env."); isEnv {
		if s.Env == nil {
			s.Env = map[string]string{}
		}
		s.Env[name] = value
		return true
	}
	i := slices.Index(textKeys, key)
	if i < 0 {
		return false
	}
	*s.texts()[i] = Text(value)
	return true
}

// Pairs are the keys that have a value, except the command, and the variables.
func (s *Spec) Pairs() []jobfile.Pair {
	pairs := make([]jobfile.Pair, 0, 8)
	for i, text := range s.texts() {
		if *text != "" {
			pairs = append(pairs, jobfile.Pair{Key: textKeys[i], Value: string(*text)})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(s.Env)) {
		pairs = append(pairs, jobfile.Pair{Key: "env." + name, Value: s.Env[name]})
	}
	return pairs
}

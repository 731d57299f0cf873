package jobfile

import (
	"fmt"
	"math"
	"strings"

	"berth/internal/job"
)

const envPrefix = "env."

// setter gives one key its meaning. All grammars share this one table.
type setter struct {
	key  string
	bare bool // the key alone says something
	set  func(spec *job.Spec, value string) error
}

// setters are in the order in which they are shown to people; env.NAME is
// not among them because its key is open.
var setters = []setter{
	{key: "name", set: setName},
	{key: "gpus", set: setGPUs},
	{key: "type", set: func(s *job.Spec, v string) error { return setWord(&s.Type, v) }},
	{key: "vram", set: setVRAM},
	{key: "ids", set: func(s *job.Spec, v string) error { return setParsed(&s.IDs, v, ParseIDs) }},
	{key: "allow", set: func(s *job.Spec, v string) error { return setParsed(&s.Allow, v, ParseIDs) }},
	{key: "exclusive", bare: true, set: func(s *job.Spec, v string) error { return setSwitch(&s.Exclusive, v) }},
	{key: "cpus", set: func(s *job.Spec, v string) error { return setWhole(&s.CPUs, v, 0, maxCPUs) }},
	{key: "mem", set: func(s *job.Spec, v string) error { return setParsed(&s.MemMiB, v, ParseSize) }},
	{key: "priority", set: func(s *job.Spec, v string) error { return setWhole(&s.Priority, v, math.MinInt32, math.MaxInt32) }},
	{key: "timeout", set: func(s *job.Spec, v string) error { return setParsed(&s.TimeLimit, v, ParseDuration) }},
	{key: "signal", set: setSignal},
	{key: "on_timeout", set: func(s *job.Spec, v string) error {
		return setChoice(&s.OnTimeout, v, job.TimeoutKill, job.TimeoutRequeue)
	}},
	{key: "max_requeues", set: func(s *job.Spec, v string) error { return setWhole(&s.MaxRequeues, v, 0, maxRetries) }},
	{key: "retries", set: func(s *job.Spec, v string) error { return setWhole(&s.Retries, v, 0, maxRetries) }},
	{key: "retry_on", set: func(s *job.Spec, v string) error {
		return setChoice(&s.RetryOn, v, job.RetryOOM, job.RetryFail)
	}},
	{key: "after", set: func(s *job.Spec, v string) error { return setParsed(&s.After, v, ParseAfter) }},
	{key: "dir", set: func(s *job.Spec, v string) error { return setWord(&s.Dir, v) }},
	{key: "venv", set: func(s *job.Spec, v string) error { return setWord(&s.Venv, v) }},
	{key: "conda", set: func(s *job.Spec, v string) error { return setWord(&s.Conda, v) }},
	{key: "setup", set: func(s *job.Spec, v string) error { return setWord(&s.Setup, v) }},
	{key: "output", set: func(s *job.Spec, v string) error { return setWord(&s.Output, v) }},
	{key: "grace", set: func(s *job.Spec, v string) error { return setParsed(&s.Grace, v, ParseDuration) }},
	{key: "requeue", bare: true, set: func(s *job.Spec, v string) error { return setSwitch(&s.Requeue, v) }},
	{key: "preemptible", bare: true, set: setPreemptible},
	{key: "cap", set: func(s *job.Spec, v string) error { return setChoice(&s.Cap, v, "none", "soft") }},
	{key: "cancel", bare: true, set: func(s *job.Spec, v string) error { return setSwitch(&s.CancelMarked, v) }},
}

// aliases are other words for a key.
var aliases = map[string]string{"num_gpus": "gpus", "time": "timeout"}

var setterIndex = func() map[string]*setter {
	index := make(map[string]*setter, len(setters)+len(aliases))
	for i := range setters {
		index[setters[i].key] = &setters[i]
	}
	for alias, key := range aliases {
		index[alias] = index[key]
	}
	return index
}()

// Keys are the known keys as people see them.
func Keys() []string {
	keys := make([]string, 0, len(setters)+1)
	for _, s := range setters {
		keys = append(keys, s.key)
	}
	return append(keys, envPrefix+"NAME")
}

// Apply sets one key of a spec. A key that works bare takes "" for "yes".
// The spec's lists are replaced, never changed in place, so specs made from
// the same defaults do not see one another. Check belongs after the last one.
func Apply(spec *job.Spec, key, value string) error {
	s, err := lookup(key)
	if err != nil {
		return err
	}
	return s.apply(spec, value)
}

func (s setter) apply(spec *job.Spec, value string) error {
	if strings.IndexByte(value, 0) >= 0 {
		return fmt.Errorf("%s: found a NUL byte, allowed text", s.key)
	}
	if err := s.set(spec, value); err != nil {
		return fmt.Errorf("%s: %w", s.key, err)
	}
	return nil
}

// lookup finds the setter of a key in any case, with - for _ as flags have it.
// What follows "env." keeps its case.
func lookup(key string) (setter, error) {
	if len(key) >= len(envPrefix) && strings.EqualFold(key[:len(envPrefix)], envPrefix) {
		name := key[len(envPrefix):]
		if !isVariable(name) {
			return setter{}, fmt.Errorf("found %s, allowed env.NAME with letters, digits and _ in NAME", show(key))
		}
		set := func(spec *job.Spec, value string) error { return setEnv(spec, name, value) }
		return setter{key: envPrefix + name, set: set}, nil
	}
	if s, ok := setterIndex[key]; ok {
		return *s, nil
	}
	if s, ok := setterIndex[strings.ReplaceAll(strings.ToLower(key), "-", "_")]; ok {
		return *s, nil
	}
	return setter{}, unknownKey(key)
}

func unknownKey(key string) error {
	hint := ""
	if near := Nearest(key, Keys()); near != "" {
		hint = fmt.Sprintf(" (did you mean %s?)", near)
	}
	return fmt.Errorf("found unknown key %s%s, known keys: %s", show(key), hint, strings.Join(Keys(), " "))
}

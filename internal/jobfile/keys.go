package jobfile

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"berth/internal/job"
)

const envPrefix = "env."

// setter gives one key its meaning. All grammars share this one table.
type setter struct {
	key   string
	flag  string // of submit, where it is not the key itself
	short byte   // 0: none
	bare  bool   // the key alone says something
	many  bool   // a list says the same as its parts with commas between

	// set is nil for what only a submission can say, ask nil where a
	// submission means what a jobs file does.
	set      func(spec *job.Spec, value string) error
	ask      func(a *asking, value string) error
	fileOnly bool
}

// setters are in the order in which they are shown to people; env.NAME is
// not among them because its key is open.
var setters = []setter{
	{key: "name", short: 'n', set: setName},
	{key: "gpus", short: 'g', set: setGPUs},
	{key: "type", flag: "gpu-type", set: func(s *job.Spec, v string) error { return setWord(&s.Type, v) }},
	{key: "vram", set: setVRAM},
	{key: "ids", flag: "gpu-ids", many: true, set: func(s *job.Spec, v string) error { return setParsed(&s.IDs, v, ParseIDs) }},
	{key: "allow", many: true, set: func(s *job.Spec, v string) error { return setParsed(&s.Allow, v, ParseIDs) }},
	{key: "exclusive", bare: true, set: func(s *job.Spec, v string) error { return setSwitch(&s.Exclusive, v) }},
	{key: "cpus", short: 'c', set: func(s *job.Spec, v string) error { return setWhole(&s.CPUs, v, 0, maxCPUs) }},
	{key: "mem", set: func(s *job.Spec, v string) error { return setParsed(&s.MemMiB, v, ParseSize) }},
	{key: "pin", bare: true, set: func(s *job.Spec, v string) error { return setSwitch(&s.Pin, v) }},
	{key: "inject_gpus", set: setInject},
	{key: "priority", short: 'p', set: func(s *job.Spec, v string) error { return setWhole(&s.Priority, v, math.MinInt32, math.MaxInt32) }},
	{key: "timeout", flag: "time", short: 't', set: func(s *job.Spec, v string) error { return setParsed(&s.TimeLimit, v, ParseDuration) }},
	{key: "signal", set: setSignal},
	{key: "on_timeout", set: func(s *job.Spec, v string) error {
		return setChoice(&s.OnTimeout, v, job.TimeoutKill, job.TimeoutRequeue)
	}},
	{key: "max_requeues", set: func(s *job.Spec, v string) error { return setWhole(&s.MaxRequeues, v, 0, maxRetries) }},
	{key: "retries", set: func(s *job.Spec, v string) error { return setWhole(&s.Retries, v, 0, maxRetries) }},
	{key: "retry_on", set: func(s *job.Spec, v string) error {
		return setChoice(&s.RetryOn, v, job.RetryOOM, job.RetryFail)
	}},
	{key: "after", many: true, set: func(s *job.Spec, v string) error { return setParsed(&s.After, v, ParseAfter) },
		ask: func(a *asking, v string) error { return setParsed(&a.Spec.After, v, ParseAfterJobs) }},
	{key: "array", many: true, ask: (*asking).setArray},
	{key: "begin", ask: (*asking).setBegin},
	{key: "hold", bare: true, ask: func(a *asking, v string) error { return setSwitch(&a.Hold, v) }},
	{key: "dir", flag: "chdir", short: 'C', set: func(s *job.Spec, v string) error { return setWord(&s.Dir, v) }},
	{key: "export", many: true, ask: func(a *asking, v string) error { return setParsed(&a.Spec.Export, v, parseExport) }},
	{key: "venv", set: func(s *job.Spec, v string) error { return setWord(&s.Venv, v) }},
	{key: "conda", set: func(s *job.Spec, v string) error { return setWord(&s.Conda, v) }},
	{key: "setup", set: func(s *job.Spec, v string) error { return setWord(&s.Setup, v) }},
	{key: "output", short: 'o', set: func(s *job.Spec, v string) error { return setWord(&s.Output, v) }},
	{key: "pty", bare: true, ask: func(a *asking, v string) error { return setSwitch(&a.Spec.Pty, v) }},
	{key: "dedup", bare: true, ask: func(a *asking, v string) error { return setSwitch(&a.Dedup, v) }},
	{key: "grace", set: func(s *job.Spec, v string) error { return setParsed(&s.Grace, v, ParseDuration) }},
	{key: "requeue", bare: true, set: func(s *job.Spec, v string) error { return setSwitch(&s.Requeue, v) }},
	{key: "preemptible", bare: true, set: setPreemptible},
	{key: "cap", set: func(s *job.Spec, v string) error { return setChoice(&s.Cap, v, "none", "soft", "mps") }},
	{key: "cancel", bare: true, fileOnly: true, set: func(s *job.Spec, v string) error { return setSwitch(&s.CancelMarked, v) }},
	{key: "env", short: 'e', ask: func(a *asking, v string) error { return setVariable(&a.Spec, v) }},
}

// numGPUs is what specs of tgpu's say for gpus.
const numGPUs = "num_gpus"

// setterIndex finds a key by its own word, its flag's, or another that people
// use for it.
var setterIndex = func() map[string]*setter {
	index := make(map[string]*setter, 2*len(setters))
	for i := range setters {
		index[setters[i].key] = &setters[i]
		if flag := setters[i].flag; flag != "" {
			index[strings.ReplaceAll(flag, "-", "_")] = &setters[i]
		}
	}
	index[numGPUs] = index["gpus"]
	return index
}()

// fileKeys and askKeys are the known keys of either grammar.
var (
	fileKeys = keysWhere(func(s *setter) bool { return s.set != nil })
	askKeys  = keysWhere(func(s *setter) bool { return !s.fileOnly })
)

func keysWhere(known func(*setter) bool) []string {
	var keys []string
	for i := range setters {
		if known(&setters[i]) {
			keys = append(keys, setters[i].key)
		}
	}
	return append(keys, envPrefix+"NAME")
}

// Keys are the known keys of a jobs file as people see them.
func Keys() []string { return slices.Clone(fileKeys) }

func (s setter) apply(spec *job.Spec, value string) error {
	if strings.IndexByte(value, 0) >= 0 {
		return fmt.Errorf("%s: found a NUL byte, allowed text", s.key)
	}
	if err := s.set(spec, value); err != nil {
		return fmt.Errorf("%s: %w", s.key, err)
	}
	return nil
}

// lookup finds the setter of a jobs-file key.
func lookup(key string) (setter, error) {
	s, found, err := find(key)
	if err == nil && (!found || s.set == nil) {
		err = unknownKey(key, fileKeys)
	}
	return s, err
}

// find looks a key up in any case, with - for _ as flags have it. What
// follows "env." keeps its case.
func find(key string) (s setter, found bool, err error) {
	if len(key) >= len(envPrefix) && strings.EqualFold(key[:len(envPrefix)], envPrefix) {
		name := key[len(envPrefix):]
		if !isVariable(name) {
			return setter{}, false, fmt.Errorf("found %s, allowed env.NAME with letters, digits and _ in NAME", show(key))
		}
		set := func(spec *job.Spec, value string) error { return setEnv(spec, name, value) }
		return setter{key: envPrefix + name, set: set}, true, nil
	}
	if s, ok := setterIndex[key]; ok {
		return *s, true, nil
	}
	if s, ok := setterIndex[strings.ReplaceAll(strings.ToLower(key), "-", "_")]; ok {
		return *s, true, nil
	}
	return setter{}, false, nil
}

func unknownKey(key string, known []string) error {
	return fmt.Errorf("found unknown key %s%s, known keys: %s", show(key), meant(key, slices.Concat(known, []string{numGPUs})), strings.Join(known, " "))
}

// meant asks about the known word that is nearest, where one is near.
func meant(word string, known []string) string {
	if near := Nearest(word, known); near != "" {
		return fmt.Sprintf(" (did you mean %s?)", near)
	}
	return ""
}

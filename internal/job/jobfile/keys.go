package jobfile

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	"berth/internal/job"
	"berth/internal/text"
)

// env.NAME is a key of its own for each variable.
const (
	envKey    = "env"
	envPrefix = envKey + "."
)

// numGPUs is tgpu's key for gpus.
const numGPUs = "num_gpus"

// fieldIndex finds a field by its key, its flag or an alias.
var fieldIndex = sync.OnceValue(func() map[string]*Field {
	index := make(map[string]*Field, 2*len(fields))
	for _, f := range fields {
		index[f.Key] = f
		index[strings.ReplaceAll(f.FlagName(), "-", "_")] = f
	}
	index[numGPUs] = index["gpus"]
	return index
})

// fileKeys are the keys of a jobs file, askKeys those of a submission.
var (
	fileKeys = sync.OnceValue(func() []string { return keysBut(SubmitOnly) })
	askKeys  = sync.OnceValue(func() []string { return keysBut(FileOnly) })
)

func keysBut(unknown Where) []string {
	var keys []string
	for _, f := range fields {
		if f.Where != unknown {
			keys = append(keys, f.Key)
		}
	}
	return append(keys, envPrefix+"NAME")
}

// Lookup finds a field of a submission by any of its names: "ids" or
// "gpu-ids", "timeout" or "time".
func Lookup(key string) (*Field, error) { return lookup(key, FileOnly, askKeys) }

// lookupInFile finds a field of a jobs file.
func lookupInFile(key string) (*Field, error) { return lookup(key, SubmitOnly, fileKeys) }

func lookup(key string, not Where, known func() []string) (*Field, error) {
	f, err := find(key)
	if err == nil && (f == nil || f.Where == not) {
		err = unknownKey(key, known())
	}
	return f, err
}

// Plain is a pair of a submission under its field's canonical key: ids for
// gpu-ids, and env.NAME for a variable set by env.
func Plain(pair Pair) (Pair, error) {
	f, err := Lookup(pair.Key)
	if err != nil {
		return pair, err
	}
	name, value, found := strings.Cut(pair.Value, "=")
	switch {
	case f.Key != envKey:
		return Pair{Key: f.Key, Value: pair.Value}, nil
	case !found || name == "":
		return pair, fmt.Errorf("%s: %w", pair.Key, text.Mismatch(pair.Value, "NAME=VALUE"))
	}
	return Pair{Key: envPrefix + name, Value: value}, nil
}

// find looks a key up, ignoring case (except after "env.") and taking - for _.
// It returns nil if there is no such field.
func find(key string) (*Field, error) {
	if len(key) >= len(envPrefix) && strings.EqualFold(key[:len(envPrefix)], envPrefix) {
		return variable(key[len(envPrefix):])
	}
	if f := fieldIndex()[key]; f != nil {
		return f, nil
	}
	return fieldIndex()[strings.ReplaceAll(strings.ToLower(key), "-", "_")], nil
}

// variable is the field of one variable.
func variable(name string) (*Field, error) {
	if !isVariable(name) {
		return nil, fmt.Errorf("expected env.NAME with letters, digits and _ in NAME, found %s", text.Found(envPrefix+name))
	}
	read := func(a *asking, value string) error { return setEnv(&a.Spec, name, value) }
	reset := func(a *Asked) {
		a.Spec.Env = slices.DeleteFunc(slices.Clone(a.Spec.Env), func(v job.EnvVar) bool { return v.Key == name })
	}
	return &Field{Key: envPrefix + name, codec: codec{read: read, reset: reset}}, nil
}

func unknownKey(key string, known []string) error {
	return fmt.Errorf("unknown key %s%s; the keys are %s", text.Found(key), meant(key, slices.Concat(known, []string{numGPUs})), strings.Join(known, " "))
}

// meant suggests the known word that is most similar, if one is.
func meant(word string, known []string) string {
	if near := text.Nearest(word, known); near != "" {
		return fmt.Sprintf(" (did you mean %s?)", near)
	}
	return ""
}

// oneOf lists words for an error: none, soft or mps.
func oneOf(words []string) string {
	last := len(words) - 1
	return strings.Join(words[:last], ", ") + " or " + words[last]
}

// unset is a job with only the defaults.
var unset = Asked{Spec: job.Defaults()}

// unsetValues are its values, by field.
var unsetValues = sync.OnceValue(func() []string {
	values := make([]string, len(fields))
	for i, f := range fields {
		if f.write != nil {
			values[i] = f.write(&unset)
		}
	}
	return values
})

// Pairs are the keys and values of a spec that differ from the defaults,
// without its command. Ask turns them into the same spec again.
func Pairs(spec *job.Spec) []Pair {
	asked := Asked{Spec: *spec}
	var pairs []Pair
	usual := unsetValues()
	for i, f := range fields {
		if f.write == nil {
			continue
		}
		if value := f.write(&asked); value != usual[i] {
			pairs = append(pairs, Pair{Key: f.Key, Value: value})
		}
	}
	for _, v := range spec.Env {
		pairs = append(pairs, Pair{Key: envPrefix + v.Key, Value: v.Value})
	}
	return pairs
}

// Settings are the values of a spec that `berth show` lists as settings:
// without those that it shows in a place of their own.
func Settings(spec *job.Spec) map[string]string {
	asked := Asked{Spec: *spec}
	settings := map[string]string{}
	usual := unsetValues()
	for i, f := range fields {
		if f.write == nil || f.shown != nil && !f.shown(spec) {
			continue
		}
		if value := f.write(&asked); f.shown != nil || value != usual[i] {
			settings[f.Key] = value
		}
	}
	return settings
}

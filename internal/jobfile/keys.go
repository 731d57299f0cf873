package jobfile

import (
	"fmt"
	"slices"
	"strings"

	"berth/internal/job"
	"berth/internal/text"
)

// envKey is open: env.NAME is a key for each variable.
const (
	envKey    = "env"
	envPrefix = envKey + "."
)

// numGPUs is what specs of tgpu's say for gpus.
const numGPUs = "num_gpus"

// fieldIndex finds a field by its key, its flag's word, or another that people
// use for it.
var fieldIndex = func() map[string]*Field {
	index := make(map[string]*Field, 2*len(fields))
	for _, f := range fields {
		index[f.Key] = f
		index[strings.ReplaceAll(f.FlagName(), "-", "_")] = f
	}
	index[numGPUs] = index["gpus"]
	return index
}()

// fileKeys and askKeys are the known keys of either grammar.
var (
	fileKeys = keysBut(SubmitOnly)
	askKeys  = keysBut(FileOnly)
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

// Lookup finds the field of a submission that a key means, under any of its
// names: "ids" for "gpu-ids", "timeout" for "time".
func Lookup(key string) (*Field, error) { return lookup(key, FileOnly, askKeys) }

// lookupInFile finds the field that a key of a jobs file means.
func lookupInFile(key string) (*Field, error) { return lookup(key, SubmitOnly, fileKeys) }

func lookup(key string, not Where, known []string) (*Field, error) {
	f, err := find(key)
	if err == nil && (f == nil || f.Where == not) {
		err = unknownKey(key, known)
	}
	return f, err
}

// Plain is a pair of a submission under the one key by which its field is
// known: ids for gpu-ids, and for a variable that is set by env, env.NAME.
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

// find looks a key up in any case, with - for _ as flags have it; nil: there
// is none. What follows "env." keeps its case.
func find(key string) (*Field, error) {
	if len(key) >= len(envPrefix) && strings.EqualFold(key[:len(envPrefix)], envPrefix) {
		return variable(key[len(envPrefix):])
	}
	if f := fieldIndex[key]; f != nil {
		return f, nil
	}
	return fieldIndex[strings.ReplaceAll(strings.ToLower(key), "-", "_")], nil
}

// variable is the field of one variable.
func variable(name string) (*Field, error) {
	if !isVariable(name) {
		return nil, fmt.Errorf("found %s, allowed env.NAME with letters, digits and _ in NAME", text.Found(envPrefix+name))
	}
	read := func(a *asking, value string) error { return setEnv(&a.Spec, name, value) }
	return &Field{Key: envPrefix + name, codec: codec{read: read}}, nil
}

func unknownKey(key string, known []string) error {
	return fmt.Errorf("found unknown key %s%s, known keys: %s", text.Found(key), meant(key, slices.Concat(known, []string{numGPUs})), strings.Join(known, " "))
}

// meant asks about the known word that is nearest, where one is near.
func meant(word string, known []string) string {
	if near := text.Nearest(word, known); near != "" {
		return fmt.Sprintf(" (did you mean %s?)", near)
	}
	return ""
}

// silent is a job of which nothing was said.
var silent = Asked{Spec: job.Defaults()}

// Pairs say in keys and values what a spec says beyond the defaults, but for
// its command. Ask makes the same spec of them.
func Pairs(spec *job.Spec) []Pair {
	asked := Asked{Spec: *spec}
	var pairs []Pair
	for _, f := range fields {
		if f.write == nil {
			continue
		}
		if value := f.write(&asked); value != f.write(&silent) {
			pairs = append(pairs, Pair{Key: f.Key, Value: value})
		}
	}
	for _, v := range spec.Env {
		pairs = append(pairs, Pair{Key: envPrefix + v.Key, Value: v.Value})
	}
	return pairs
}

// Settings are what else a spec says, for people who look at a job: without
// what a job's view has a place of its own for.
func Settings(spec *job.Spec) map[string]string {
	asked := Asked{Spec: *spec}
	settings := map[string]string{}
	for _, f := range fields {
		if f.write == nil || f.shown != nil && !f.shown(spec) {
			continue
		}
		if value := f.write(&asked); f.shown != nil || value != f.write(&silent) {
			settings[f.Key] = value
		}
	}
	return settings
}

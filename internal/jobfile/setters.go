package jobfile

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"berth/internal/job"
)

// Bounds on counts and words.
const (
	maxRetries   = 1000
	maxCPUs      = 1 << 16
	maxNameBytes = 128
	maxEnv       = 1024 // explicit variables of one job
)

func setName(spec *job.Spec, value string) error {
	if value == "" || len(value) > maxNameBytes || strings.IndexFunc(value, unicode.IsControl) >= 0 || !utf8.ValidString(value) {
		return mismatch(value, fmt.Sprintf("1 to %d bytes of text without control characters", maxNameBytes))
	}
	spec.Name = value
	return nil
}

func setGPUs(spec *job.Spec, value string) error {
	count, share, err := ParseGPUs(value)
	if err != nil {
		return err
	}
	spec.GPUs, spec.Share = count, share
	return nil
}

// setVRAM keeps a declared size and "auto" from standing side by side.
func setVRAM(spec *job.Spec, value string) error {
	if strings.EqualFold(value, "auto") {
		spec.VRAMMiB, spec.VRAMAuto = 0, true
		return nil
	}
	mib, err := ParseSize(value)
	if err != nil {
		return mismatch(value, allowedSize+", or auto")
	}
	spec.VRAMMiB, spec.VRAMAuto = mib, false
	return nil
}

func setSignal(spec *job.Spec, value string) error {
	name, before, err := ParseSignal(value)
	if err != nil {
		return err
	}
	spec.WarnSignal, spec.WarnBefore = name, before
	return nil
}

// setPreemptible takes the way that loses no work where none is named.
func setPreemptible(spec *job.Spec, value string) error {
	switch strings.ToLower(value) {
	case "", "park", "yes", "true", "1":
		spec.Preemptible = "park"
	case "requeue":
		spec.Preemptible = "requeue"
	case "no", "false", "0":
		spec.Preemptible = ""
	default:
		return mismatch(value, "the bare key, or park, requeue or no")
	}
	return nil
}

// setVariable sets a variable written as NAME=VALUE.
func setVariable(spec *job.Spec, text string) error {
	name, value, found := strings.Cut(text, "=")
	if name == "" {
		name = text // where it begins with =, that is what is wrong
	}
	if !found || !isVariable(name) {
		return mismatch(name, "NAME=VALUE with letters, digits and _ in NAME")
	}
	return setEnv(spec, name, value)
}

// parseExport reads what of the caller's environment a job sees.
func parseExport(value string) (string, error) {
	if word := strings.ToLower(value); word == "all" || word == "none" {
		return word, nil
	}
	names := strings.Split(value, ",")
	if len(names) > maxEnv {
		return "", fmt.Errorf("found %d variables, allowed %d", len(names), maxEnv)
	}
	for i, name := range names {
		names[i] = strings.TrimSpace(name)
		if !isVariable(names[i]) {
			return "", mismatch(value, "all, none, or names of variables: HOME,PATH")
		}
	}
	return strings.Join(names, ","), nil
}

// setEnv sets one variable. One that was set before keeps its place and takes
// the new value.
func setEnv(spec *job.Spec, name, value string) error {
	variable := job.EnvVar{Key: name, Value: value}
	at := slices.IndexFunc(spec.Env, func(v job.EnvVar) bool { return v.Key == name })
	if at < 0 && len(spec.Env) == maxEnv {
		return fmt.Errorf("found more than %d variables, allowed %d", maxEnv, maxEnv)
	}
	if at < 0 {
		spec.Env = append(slices.Clone(spec.Env), variable)
		return nil
	}
	spec.Env = slices.Clone(spec.Env)
	spec.Env[at] = variable
	return nil
}

// setWord takes text whose meaning is another room's.
func setWord(to *string, value string) error {
	if value == "" {
		return mismatch(value, "text")
	}
	*to = value
	return nil
}

func setSwitch(to *bool, value string) error {
	switch strings.ToLower(value) {
	case "", "yes", "true", "1":
		*to = true
	case "no", "false", "0":
		*to = false
	default:
		return mismatch(value, "the bare key, or yes or no")
	}
	return nil
}

func setWhole(to *int, value string, low, high int) error {
	n, err := strconv.ParseInt(value, 10, 64)
	if err != nil || n < int64(low) || n > int64(high) {
		return mismatch(value, fmt.Sprintf("a whole number from %d to %d", low, high))
	}
	*to = int(n)
	return nil
}

func setChoice[T ~string](to *T, value string, choices ...T) error {
	words := make([]string, len(choices))
	for i, choice := range choices {
		if strings.EqualFold(value, string(choice)) {
			*to = choice
			return nil
		}
		words[i] = string(choice)
	}
	return mismatch(value, strings.Join(words, " or "))
}

func setParsed[T any](to *T, value string, parse func(string) (T, error)) error {
	parsed, err := parse(value)
	if err != nil {
		return err
	}
	*to = parsed
	return nil
}

// isVariable reports whether a shell would take this as a variable's name.
func isVariable(name string) bool {
	for i := range len(name) {
		c := name[i]
		switch {
		case c == '_', c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z':
		case c >= '0' && c <= '9' && i > 0:
		default:
			return false
		}
	}
	return name != ""
}

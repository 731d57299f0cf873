package cli

import (
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"berth/internal/api"
	"berth/internal/text"
)

// size is a flag for an amount of memory in MiB, which may be 0.
type size int64

var _ pflag.Value = (*size)(nil)

const expectedSizes = "0 or a size such as 512 (MiB), 1G or 1.5T"

// Set takes what a jobs file takes, or 0.
func (s *size) Set(written string) error {
	if trimmed := strings.TrimSpace(written); trimmed != "" && strings.Trim(trimmed, "0") == "" {
		*s = 0
		return nil
	}
	mib, err := text.ParseSize(written)
	if err != nil {
		return errors.New(expectedSizes)
	}
	*s = size(mib)
	return nil
}

func (s *size) String() string { return strconv.FormatInt(int64(*s), 10) }

// Type is the word that the help shows for the value.
func (s *size) Type() string { return "size" }

// expected says what a flag takes, in plain words rather than in those of the
// package that could not parse the value.
func expected(flag *pflag.Flag, cause error) string {
	value := flag.Value
	if n, ok := value.(named); ok {
		value = n.Value
	}
	switch value.Type() {
	case "int", "int64":
		return "a whole number"
	case "float64":
		return "a number such as 0.1"
	case "bool":
		return "true, false, or the flag without a value"
	}
	return cause.Error()
}

// plainNumber writes a number without an exponent, unless it is huge.
func plainNumber(value float64) string {
	if value > -1e15 && value < 1e15 {
		return strconv.FormatFloat(value, 'f', -1, 64)
	}
	return strconv.FormatFloat(value, 'g', -1, 64)
}

// valueWords are what the help calls the values of flags, by flag.
var valueWords = map[string]string{
	"socket": "path", "host": "address", "http": "address", "name": "text", "user": "user", "group": "name", "state": "states", "reason": "text",
	"since": "when", "until": "when", "timeout": "time", "grace": "time", "for": "time", "ttl": "time", "idle-exit": "time",
	"poll": "time", "min-run": "time", "max-bypass": "time", "half-life": "time", "vram": "size", "sim-vram": "size",
	"gpus": "ids", "placement": "how", "preempt": "how", "parking": "which", "policy": "policy", "estimates": "source", "log-level": "level",
	"log-dir": "dir", "state-dir": "dir", "config": "file", "file": "file", "llm-config": "file", "oom-once": "file", "format": "format", "unset": "keys", "sort": "keys", "columns": "names",
}

// named gives a flag's value its word in the help, where pflag would show the
// name of a Go type.
type named struct {
	pflag.Value
	word string
}

// Type is the word that the help shows for the value.
func (n named) Type() string { return n.word }

// nameValues gives every flag of a command and of those below it its word.
func nameValues(cmd *cobra.Command) {
	name := func(f *pflag.Flag) {
		switch f.Value.Type() {
		case "int":
			f.Value = named{f.Value, "n"}
		case "float64":
			f.Value = named{f.Value, "number"}
		case "string", "stringSlice":
			if word := valueWords[f.Name]; word != "" {
				f.Value = named{f.Value, word}
			}
		case "stringArray":
			return // an empty one is not shown
		}
		f.DefValue = strings.Trim(f.DefValue, "[]")
		if f.DefValue == "-1" { // the flag was not given; its description says what happens then
			f.DefValue = ""
		}
	}
	cmd.Flags().VisitAll(name)
	cmd.PersistentFlags().VisitAll(name)
	for _, below := range cmd.Commands() {
		nameValues(below)
	}
}

func isOn(value api.Text) bool {
	switch value {
	case "", "no", "false", "0":
		return false
	}
	return true
}

// absolute makes paths absolute: an edit, unlike a submission, does not tell the
// daemon the current directory.
func absolute(paths ...*api.Text) error {
	for _, path := range paths {
		if *path == "" || filepath.IsAbs(string(*path)) || *path == "~" || strings.HasPrefix(string(*path), "~/") {
			continue
		}
		whole, err := filepath.Abs(string(*path))
		if err != nil {
			return fmt.Errorf("working directory: %w", err)
		}
		*path = api.Text(whole)
	}
	return nil
}

// valuesOf are the settings of a job as a user would write them.
func valuesOf(d *api.Detail) map[string]string {
	values := maps.Clone(d.Settings)
	if values == nil {
		values = map[string]string{}
	}
	set := func(key, value string, given bool) {
		if given && values[key] == "" {
			values[key] = value
		}
	}
	set("name", d.Name, d.Name != "job"+d.ID)
	switch {
	case len(d.AskedIDs) > 0: // they say how many
	case d.Share != nil:
		set("gpus", strconv.FormatFloat(*d.Share, 'f', -1, 64), true)
	default:
		set("gpus", strconv.Itoa(d.GPUs), true)
	}
	if d.VRAMMiB != nil {
		set("vram", text.FormatSize(*d.VRAMMiB), true)
	}
	set("priority", strconv.Itoa(d.Priority), true)
	set("timeout", text.FormatDuration(time.Duration(d.TimeLimitS*float64(time.Second))), d.TimeLimitS > 0)
	if d.NotBefore != nil {
		set("begin", d.NotBefore.Local().Format("2006-01-02T15:04:05"), true)
	}
	set("dir", d.Dir, d.Dir != "")
	if d.Group != nil {
		set("group", *d.Group, true)
	}
	return values
}

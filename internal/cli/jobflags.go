package cli

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"berth/internal/api"
	"berth/internal/job/jobfile"
	"berth/internal/machine/modelfiles"
	"berth/internal/text"
	"berth/internal/text/problem"
)

// jobFlags are the flags of submit, edit and requeue that describe a job.
type jobFlags struct {
	flags *pflag.FlagSet
	path  string // of the command: "berth submit"
	unset []string
}

// registerChanges registers the flags of a verb that changes a job. Those that
// cannot be changed are left out of the help: they are refused with a reason.
func (f *jobFlags) registerChanges(cmd *cobra.Command) {
	f.register(cmd)
	for _, field := range jobfile.Fields() {
		if flag := f.flags.Lookup(field.FlagName()); flag != nil && field.Fixed != "" {
			flag.Hidden = true
		}
	}
	f.flags.StringSliceVar(&f.unset, "unset", nil, "keys that get their default again: vram,timeout,env.NAME")
}

// register registers all flags but those that the command has already.
func (f *jobFlags) register(cmd *cobra.Command) {
	f.flags, f.path = cmd.Flags(), "berth "+cmd.Name()
	f.flags.SortFlags = false
	for _, field := range jobfile.Fields() {
		if field.Where == jobfile.FileOnly || f.flags.Lookup(field.FlagName()) != nil {
			continue
		}
		value := &jobValue{word: cmp.Or(field.Word, "bool"), every: field.Key == "env" || field.Repeats(), join: field.Many}
		help := field.Help
		if field.Alone != "" && field.Word != "" {
			help += fmt.Sprintf("; --%s=VALUE, or alone for %s", field.FlagName(), field.Alone)
		}
		f.flags.VarPF(value, field.FlagName(), field.Short, help).NoOptDefVal = field.Alone
	}
}

// jobValue is a value that the daemon will parse.
type jobValue struct {
	texts []string
	word  string
	every bool   // keep every value, not only the last
	join  string // what joins them, if the daemon takes them as one
}

func (v *jobValue) Set(text string) error {
	if !v.every {
		v.texts = nil
	}
	v.texts = append(v.texts, text)
	return nil
}

func (v *jobValue) String() string { return strings.Join(v.texts, " ") }

// Type is the word that the help shows for the value.
func (v *jobValue) Type() string { return v.word }

// pairs are the given flags, in the order of the help.
func (f *jobFlags) pairs() []jobfile.Pair {
	var pairs []jobfile.Pair
	if f.flags == nil {
		return nil // a verb without them
	}
	f.flags.VisitAll(func(flag *pflag.Flag) {
		if value, ok := flag.Value.(*jobValue); ok {
			texts := value.texts
			if len(texts) > 1 && value.join != "" {
				texts = []string{strings.Join(texts, value.join)}
			}
			for _, text := range texts {
				pairs = append(pairs, jobfile.Pair{Key: flag.Name, Value: text})
			}
		}
	})
	return pairs
}

// apply checks the flags and puts them into a spec.
func (f *jobFlags) apply(spec *api.Spec) error {
	for _, pair := range f.pairs() {
		err := checkPair(pair)
		if err == nil {
			err = setPair(spec, pair)
		}
		if err != nil {
			return &problem.Problem{Kind: problem.Invalid, What: "--" + err.Error(), Hint: "see " + f.path + " --help"}
		}
	}
	return nil
}

// named puts -- before the keys in the daemon's errors that were given as flags.
func (f *jobFlags) named(err error) error {
	p, ok := errors.AsType[*problem.Problem](err)
	if !ok {
		return err
	}
	lines := strings.Split(p.What, "\n")
	for i, line := range lines {
		key, _, _ := strings.Cut(line, ": ")
		if field, err := jobfile.Lookup(key); err == nil && f.flags.Changed(field.FlagName()) {
			lines[i] = "--" + field.FlagName() + strings.TrimPrefix(line, key)
		}
	}
	told := *p
	told.What = strings.Join(lines, "\n")
	return &told
}

// changes puts the flags, and the keys to unset, into an edit.
func (f *jobFlags) changes(r *api.EditRequest) error {
	r.Unset = append(r.Unset, f.unset...)
	return f.apply(&r.Set)
}

// checkPair parses a value as the daemon will, so that a mistake is reported
// before a daemon is started for it. An array is left to the daemon, which
// knows the limit on its size.
func checkPair(pair jobfile.Pair) error {
	if pair.Value == "" {
		return fmt.Errorf("%s: expected a value, found nothing", pair.Key)
	}
	if pair.Key == "array" {
		return nil
	}
	return jobfile.CheckPair(pair, time.Now())
}

// setPair sets one key of a spec, under the name that the daemon uses. A model
// is sized here, with the rights of the user: the daemon never opens it.
func setPair(spec *api.Spec, pair jobfile.Pair) error {
	plain, err := jobfile.Plain(pair)
	if err == nil && plain.Key == "vram" && strings.HasPrefix(plain.Value, jobfile.EstimatePrefix) {
		var mib int64
		if mib, err = modelfiles.Declare(".", plain.Value); err != nil {
			return fmt.Errorf("%s: %w", pair.Key, err)
		}
		plain.Value = text.FormatSize(mib)
	}
	if err == nil && !spec.Set(plain.Key, plain.Value) {
		err = fmt.Errorf("%s: this version of berth cannot send it", pair.Key)
	}
	return err
}

// commandOf reads the words after --: one is a shell line, several are executed
// as they are.
func commandOf(words []string) api.Command {
	if len(words) == 1 {
		return api.Command{Shell: words[0]}
	}
	return api.Command{Argv: words}
}

package cli

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"berth/internal/api"
	"berth/internal/job"
	"berth/internal/jobfile"
	"berth/internal/problem"
)

// jobFlags are the flags of submit and edit that describe a job.
type jobFlags struct {
	flags *pflag.FlagSet
}

func (f *jobFlags) register(cmd *cobra.Command) {
	f.flags = cmd.Flags()
	f.flags.SortFlags = false
	for _, field := range jobfile.Fields() {
		if field.Where == jobfile.FileOnly {
			continue
		}
		value := &jobValue{word: cmp.Or(field.Word, "bool"), every: field.Key == "env"}
		f.flags.VarPF(value, field.FlagName(), field.Short, field.Help).NoOptDefVal = field.Alone
	}
}

// jobValue is text that the daemon will read.
type jobValue struct {
	texts []string
	word  string
	every bool // each one counts, not only the last
}

// Set takes the text as it is.
func (v *jobValue) Set(text string) error {
	if !v.every {
		v.texts = nil
	}
	v.texts = append(v.texts, text)
	return nil
}

func (v *jobValue) String() string { return strings.Join(v.texts, " ") }

// Type is the word for the value in the help.
func (v *jobValue) Type() string { return v.word }

// pairs are the flags that were given, in the order of the help.
func (f *jobFlags) pairs() []jobfile.Pair {
	var pairs []jobfile.Pair
	f.flags.VisitAll(func(flag *pflag.Flag) {
		if value, ok := flag.Value.(*jobValue); ok {
			for _, text := range value.texts {
				pairs = append(pairs, jobfile.Pair{Key: flag.Name, Value: text})
			}
		}
	})
	return pairs
}

// apply puts the flags into a spec, once each was seen to make sense.
func (f *jobFlags) apply(spec *api.Spec) error {
	for _, pair := range f.pairs() {
		if err := checkPair(pair); err != nil {
			return &problem.Problem{Kind: problem.Invalid, What: "--" + err.Error(), Hint: "see berth submit --help"}
		}
		if err := setPair(spec, pair); err != nil {
			return &problem.Problem{Kind: problem.Invalid, What: "--" + err.Error(), Hint: "see berth submit --help"}
		}
	}
	return nil
}

// checkPair reads a value the way the daemon will, so that a slip of the
// fingers is told at once and starts nothing. An array is left to the daemon,
// which knows how large one may be.
func checkPair(pair jobfile.Pair) error {
	if pair.Value == "" {
		return fmt.Errorf("%s: expected a value, found nothing", pair.Key)
	}
	if pair.Key == "array" {
		return nil
	}
	// Alone, a key may contradict a default it was never meant to stand
	// beside; only its own form is looked at here.
	_, err := jobfile.Ask([]jobfile.Pair{pair}, time.Now(), job.Spec{GPUs: 1}, 1)
	if err != nil && !strings.HasPrefix(err.Error(), pair.Key+": ") {
		return nil
	}
	return err
}

// setPair gives a spec one key under the name the daemon knows.
func setPair(spec *api.Spec, pair jobfile.Pair) error {
	plain, err := jobfile.Plain(pair)
	if err == nil && !spec.Set(plain.Key, plain.Value) {
		err = fmt.Errorf("%s: this berth cannot send it", pair.Key)
	}
	return err
}

// commandOf reads what follows --: one word is a shell line, several are
// executed as they are.
func commandOf(words []string) api.Command {
	if len(words) == 1 {
		return api.Command{Shell: words[0]}
	}
	return api.Command{Argv: words}
}

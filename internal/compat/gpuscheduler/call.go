package gpuscheduler

import (
	"errors"
	"fmt"

	"github.com/spf13/pflag"

	"berth/internal/compat/frontend"
	"berth/internal/text"
	"berth/internal/text/problem"
)

// call is one use of it.
type call struct{ *frontend.Call }

// newFlags are the flags that every command has.
func newFlags(stateFile *string) *pflag.FlagSet {
	flags := pflag.NewFlagSet("gpu-scheduler", pflag.ContinueOnError)
	flags.SetOutput(nil)
	flags.Usage = func() {}
	flags.StringVar(stateFile, "state-file", *stateFile, "")
	return flags
}

// parse reads the flags of a command that takes this many arguments.
func parse(flags *pflag.FlagSet, verb string, args []string, words int) error {
	err := flags.Parse(args)
	var bad *pflag.InvalidValueError
	if errors.As(err, &bad) { // pflag's own message shows Go's parse error
		return fmt.Errorf("--%s: %w", bad.GetFlag().Name, text.Mismatch(bad.GetValue(), frontend.TypeInWords(bad.GetFlag())))
	}
	if err != nil {
		return err
	}
	switch n := flags.NArg(); {
	case n > words:
		return fmt.Errorf("%s: unexpected argument %q", verb, flags.Arg(words))
	case n < words:
		return fmt.Errorf("%s: the GPU id is missing", verb)
	}
	if file := flags.Lookup("state-file"); file.Value.String() == "" {
		return errors.New("--state-file needs a path")
	}
	return nil
}

// fail reports an error and returns the exit status.
func (c call) fail(err error) int {
	p, ok := errors.AsType[*problem.Problem](err)
	if !ok {
		p = problem.Wrap(problem.Unable, "", err)
	}
	c.Complain(p.What, p.Hint)
	return p.Kind.ExitStatus()
}

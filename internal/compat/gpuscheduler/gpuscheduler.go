// Package gpuscheduler is gpu-scheduler: a private berth daemon beside a state
// file, and a loop in the same process that is its client. The loop submits new
// lines of the jobs file and synchronises the state file with the daemon. The
// daemon decides what runs when and where.
package gpuscheduler

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/pflag"

	"berth/internal/compat/frontend"
	"berth/internal/text"
	"berth/internal/text/problem"
)

// Program is gpu-scheduler.
var Program = frontend.Program{Name: "gpu-scheduler", Usage: usage, Run: run}

// call is one use of it.
type call struct{ *frontend.Call }

// usualStateFile is the default of --state-file.
const usualStateFile = "gpu_scheduler_state.json"

// run dispatches to the command. --state-file may come before or after it.
func run(plain *frontend.Call) int {
	c := call{plain}
	stateFile, args, err := leading(c.Args)
	if err != nil {
		return c.badUsage(err.Error())
	}
	if len(args) == 0 {
		c.Complain("the command is missing", "the commands are start, add, status, pause, resume and screens; see gpu-scheduler --help")
		return frontend.BadUsage
	}
	verb, args := args[0], args[1:]
	if verb == "add" {
		return runAdd(c, args)
	}
	if wantsHelp(args) {
		fmt.Fprint(c.Out, usage)
		return 0
	}
	switch verb {
	case "start":
		return runStart(c, stateFile, args)
	case "status":
		return runStatus(c, stateFile, args)
	case "pause", "resume":
		return runPause(c, verb == "pause", stateFile, args)
	case "screens":
		return runScreens(c, stateFile, args)
	}
	return c.badUsage(fmt.Sprintf("expected a command, found %q", verb))
}

func (c call) badUsage(what string) int {
	c.Complain(what, "see "+c.Name+" --help")
	return frontend.BadUsage
}

// leading reads --state-file before the command.
func leading(args []string) (stateFile string, rest []string, err error) {
	for stateFile = usualStateFile; len(args) > 0 && strings.HasPrefix(args[0], "-"); {
		value, joined := strings.CutPrefix(args[0], "--state-file=")
		switch {
		case joined:
			args = args[1:]
		case args[0] == "--state-file" && len(args) > 1:
			value, args = args[1], args[2:]
		case args[0] == "--state-file":
			return "", nil, errors.New("--state-file needs a path")
		default:
			return "", nil, fmt.Errorf("unknown flag %s before the command", args[0])
		}
		if stateFile = value; stateFile == "" {
			return "", nil, errors.New("--state-file needs a path")
		}
	}
	return stateFile, args, nil
}

// wantsHelp looks for --help among the flags, which end at --.
func wantsHelp(args []string) bool {
	for _, word := range args {
		switch word {
		case "-h", "--help":
			return true
		case "--":
			return false
		}
	}
	return false
}

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

// Package gpuscheduler is gpu-scheduler: a private daemon of berth's beside a
// state file, and a loop in the same process that is its client. The loop reads
// the jobs file and submits what is new, and carries what people write into the
// state file to the daemon and back. What runs when, and where, is the daemon's.
package gpuscheduler

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/pflag"

	"berth/internal/compat/frontend"
	"berth/internal/problem"
)

// Program is gpu-scheduler.
var Program = frontend.Program{Name: "gpu-scheduler", Usage: usage, Run: run}

// call is one use of it.
type call struct{ *frontend.Call }

// usualStateFile is where the state is unless it was said otherwise.
const usualStateFile = "gpu_scheduler_state.json"

// run finds the command. The state file may be named before it, and
// after it too.
func run(plain *frontend.Call) int {
	c := call{plain}
	stateFile, args, err := leading(c.Args)
	if err != nil {
		return c.badUsage(err.Error())
	}
	if len(args) == 0 {
		c.Complain("no command was given", "gpu-scheduler start, add, status, pause, resume or screens; --help tells of each")
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
	return c.badUsage(fmt.Sprintf("unknown command %q", verb))
}

func (c call) badUsage(what string) int {
	c.Complain(what, c.Name+" --help tells what it takes")
	return frontend.BadUsage
}

// leading takes the state file off the front of the arguments.
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

// wantsHelp looks for a call for help among flags; what stands after -- is
// nobody's flag.
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

// newFlags are flags that every command has.
func newFlags(stateFile *string) *pflag.FlagSet {
	flags := pflag.NewFlagSet("gpu-scheduler", pflag.ContinueOnError)
	flags.SetOutput(nil)
	flags.Usage = func() {}
	flags.StringVar(stateFile, "state-file", *stateFile, "")
	return flags
}

// parse reads the flags of a command that takes so many words.
func parse(flags *pflag.FlagSet, verb string, args []string, words int) error {
	err := flags.Parse(args)
	var bad *pflag.InvalidValueError
	if errors.As(err, &bad) { // what the parser has to say beside is for programmers
		return fmt.Errorf("--%s %q: allowed is %s", bad.GetFlag().Name, bad.GetValue(), frontend.TypeInWords(bad.GetFlag()))
	}
	if err != nil {
		return err
	}
	switch n := flags.NArg(); {
	case n > words:
		return fmt.Errorf("%s: %q is one word too many", verb, flags.Arg(words))
	case n < words:
		return fmt.Errorf("%s: the number of a GPU is missing", verb)
	}
	if file := flags.Lookup("state-file"); file.Value.String() == "" {
		return errors.New("--state-file needs a path")
	}
	return nil
}

// fail says what a daemon or this machine refused.
func (c call) fail(err error) int {
	p, ok := errors.AsType[*problem.Problem](err)
	if !ok {
		p = problem.Wrap(problem.Unable, "", err)
	}
	c.Complain(p.What, p.Hint)
	return p.Kind.ExitStatus()
}

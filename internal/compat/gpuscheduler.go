package compat

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/pflag"

	"berth/internal/api"
)

var gpuScheduler = program{name: "gpu-scheduler", usage: gsUsage, run: runGPUScheduler}

// gsStateFile is where the state is unless it was said otherwise.
const gsStateFile = "gpu_scheduler_state.json"

// runGPUScheduler finds the command. The state file may be named before it, and
// after it too.
func runGPUScheduler(c *Call) int {
	stateFile, args, err := gsLeading(c.Args)
	if err != nil {
		return c.badUsage(err.Error())
	}
	if len(args) == 0 {
		c.complain("no command was given", "gpu-scheduler start, add, status, pause, resume or screens; --help tells of each")
		return exitUsage
	}
	verb, args := args[0], args[1:]
	if verb == "add" {
		return runAdd(c, args)
	}
	if wantsHelp(args) {
		fmt.Fprint(c.Out, gsUsage)
		return 0
	}
	switch verb {
	case "start":
		return gsStart(c, stateFile, args)
	case "status":
		return gsStatus(c, stateFile, args)
	case "pause", "resume":
		return gsPause(c, verb == "pause", stateFile, args)
	case "screens":
		return gsScreens(c, stateFile, args)
	}
	return c.badUsage(fmt.Sprintf("unknown command %q", verb))
}

func (c *Call) badUsage(what string) int {
	c.complain(what, c.Name+" --help tells what it takes")
	return exitUsage
}

// gsLeading takes the state file off the front of the arguments.
func gsLeading(args []string) (stateFile string, rest []string, err error) {
	for stateFile = gsStateFile; len(args) > 0 && strings.HasPrefix(args[0], "-"); {
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

// gsFlags are flags that every command has.
func gsFlags(stateFile *string) *pflag.FlagSet {
	flags := pflag.NewFlagSet("gpu-scheduler", pflag.ContinueOnError)
	flags.SetOutput(nil)
	flags.Usage = func() {}
	flags.StringVar(stateFile, "state-file", *stateFile, "")
	return flags
}

// flagTypes are the types of flags in words.
var flagTypes = map[string]string{"int": "a whole number", "float64": "a number", "bool": "true or false"}

// gsParse reads the flags of a command that takes so many words.
func gsParse(flags *pflag.FlagSet, verb string, args []string, words int) error {
	err := flags.Parse(args)
	var bad *pflag.InvalidValueError
	if errors.As(err, &bad) { // what the parser has to say beside is for programmers
		return fmt.Errorf("--%s %q: allowed is %s", bad.GetFlag().Name, bad.GetValue(), flagTypes[bad.GetFlag().Value.Type()])
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
func (c *Call) fail(err error) int {
	var p *api.Problem
	if errors.As(err, &p) {
		c.complain(p.What, p.Hint)
		if p.Kind == api.Invalid {
			return exitUsage
		}
		return exitFailed
	}
	what, hint, _ := strings.Cut(err.Error(), "\nhint: ")
	c.complain(what, hint)
	return exitFailed
}

func gsScreens(c *Call, stateFile string, args []string) int {
	flags := gsFlags(&stateFile)
	flags.Bool("json", false, "") // runScreens reads it
	if err := gsParse(flags, "screens", args, 0); err != nil {
		return c.badUsage(err.Error())
	}
	return runScreens(c, stateFile)
}

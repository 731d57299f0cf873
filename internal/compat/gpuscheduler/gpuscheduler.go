package gpuscheduler

import (
	"errors"
	"fmt"
	"strings"

	"berth/internal/compat/frontend"
)

// Program is gpu-scheduler.
var Program = frontend.Program{Name: "gpu-scheduler", Usage: usage, Run: run}

// usualStateFile is the default of --state-file.
const usualStateFile = "gpu_scheduler_state.json"

// run dispatches to the command. --state-file may come before or after it.
func run(plain *frontend.Call) int {
	c := call{plain}
	stateFile, args, err := leading(c.Args)
	if err != nil {
		return c.Misuse(err.Error(), frontend.BadUsage)
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
	return c.Misuse(fmt.Sprintf("expected a command, found %q", verb), frontend.BadUsage)
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

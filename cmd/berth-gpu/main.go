//go:build cgo

// Command berth-gpu reads the cards through NVML for berth, in a process of
// its own that may hang or die in the driver without harm. berth starts it and
// talks to it over its standard input and output; docs/studies/gpu-helper.md
// is the contract. It knows no jobs, decides nothing, changes nothing except
// the memory limits it is asked to set, and does not outlive its input.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/debug"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

const usage = `berth-gpu reads NVIDIA GPUs through NVML. berth starts it; run it by hand to see
what NVML reports.

Usage:
  berth-gpu once [-only N]    print one sample as JSON
  berth-gpu cost [-only N] [-n CALLS] [-json]
                              measure the cost of reading the GPUs
  berth-gpu serve [-only N]   answer requests on standard input, one JSON object per line
  berth-gpu park [-check]     make the driver's checkpoint calls for a supervisor
  berth-gpu version

  -only N    read only the GPU with the driver's number N
  -n CALLS   how often to make each call, from 1 to 10000 (default 200)
  -json      print the costs as JSON
  -check     only find out whether the driver has these calls

Example:
  berth-gpu once
  berth-gpu cost -n 1000
  echo '{"id":1,"do":"hello"}' | berth-gpu serve

Exit status: 0 on success, 1 if NVML could not be read (once, cost) or jobs
cannot be parked (park -check), 2 for a bad command line or request, 3 if NVML did
not start (serve).
`

// The exit statuses.
const (
	exitFailed = 1
	exitUsage  = 2
	exitNoNVML = 3
)

// version is set at build time for a release.
var version = "dev"

func main() {
	// One goroutine calls NVML and one waits for events; more threads would
	// only use memory.
	runtime.GOMAXPROCS(2)
	// If the library aborts, its own message is enough.
	debug.SetTraceback("none")
	os.Exit(command(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

func command(args []string, in io.Reader, out, errs io.Writer) int {
	word := ""
	if len(args) > 0 {
		word, args = args[0], args[1:]
	}
	flags := flag.NewFlagSet("berth-gpu", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	only := flags.Int("only", allCards, "")
	costs := costOptions{calls: costCalls}
	if word == "cost" {
		flags.IntVar(&costs.calls, "n", costCalls, "")
		flags.BoolVar(&costs.json, "json", false, "")
	}
	check := false
	if word == "park" {
		flags.BoolVar(&check, "check", false, "")
	}
	err := flags.Parse(args)
	switch {
	case word == "-h" || word == "--help" || word == "help" || errors.Is(err, flag.ErrHelp):
		fmt.Fprint(out, usage)
		return 0
	case err != nil:
		return wrong(errs, err.Error())
	case flags.NArg() > 0:
		return wrong(errs, fmt.Sprintf("unexpected argument %q", flags.Arg(0)))
	case *only < allCards:
		return wrong(errs, fmt.Sprintf("-only: expected a GPU number from 0 on, found %d", *only))
	case costs.calls < 1 || costs.calls > maxCostCalls:
		return wrong(errs, fmt.Sprintf("-n: expected 1 to %d calls, found %d", maxCostCalls, costs.calls))
	}
	switch word {
	case "serve":
		return serve(in, out, *only)
	case "park":
		if check {
			return checkPark(errs)
		}
		return park(in, out)
	case "once":
		return once(nvml.New(), out, errs, *only, oncePatience)
	case "cost":
		costs.only = *only
		return cost(nvml.New(), out, errs, costs, oncePatience)
	case "version":
		fmt.Fprintln(out, "berth-gpu", buildVersion())
		return 0
	case "":
		return wrong(errs, "expected a command")
	}
	return wrong(errs, fmt.Sprintf("unknown command %q", word))
}

func wrong(errs io.Writer, what string) int {
	fmt.Fprintf(errs, "berth-gpu: %s\nhint: berth-gpu -h\n", what)
	return exitUsage
}

func buildVersion() string {
	if info, ok := debug.ReadBuildInfo(); ok && version == "dev" && info.Main.Version != "" {
		return info.Main.Version
	}
	return version
}

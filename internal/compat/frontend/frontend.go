// Package frontend holds what the packages beside it have in common. They let
// users of another scheduler keep typing its commands: gpusched, tgpu, the mgpu_
// programs and gpu-scheduler, under their own names, with their own flags, files
// and words. (kairos, a Python library, is in python/.)
//
// A front end translates commands into berth's specs and calls, and the results
// back. It decides nothing: no order, no placement, no retry of its own. It
// prepares nothing before it is called, because every start of berth pays for
// that and hardly any is one of these programs.
package frontend

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
	"sync"
	"unicode"

	"github.com/spf13/pflag"

	"berth/internal/api"
	"berth/internal/machine/gpu"
	"berth/internal/text"
	"berth/internal/text/problem"
)

// Exit statuses, as berth has them.
const (
	Failed      = 1
	BadUsage    = 2
	Interrupted = 130
)

// Program is one front end.
type Program struct {
	Name  string
	Usage string // the output of --help
	Run   func(*Call) int
	OwnH  bool // -h is an option of the program, and no help
}

// Call is one use of a front end.
type Call struct {
	Name    string   // of the program
	Args    []string // without the name
	In      io.Reader
	Out     io.Writer
	Err     io.Writer
	Version string // berth's

	// Berth runs berth's own command line and returns its exit status.
	Berth func(args []string, out, errOut io.Writer) int

	// Daemon is the socket of the daemon that berth's own commands talk to. With
	// start, it starts a private one if no daemon runs.
	Daemon func(ctx context.Context, start bool) (socket string, err error)
}

// Main runs the program, or prints its usage for --help.
func (p Program) Main(c *Call) int {
	if len(c.Args) > 0 && (c.Args[0] == "--help" || c.Args[0] == "-h" && !p.OwnH) {
		fmt.Fprint(c.Out, p.Usage)
		return 0
	}
	return p.Run(c)
}

// Complain prints a problem and a hint under the program's name.
func (c *Call) Complain(what, hint string) {
	fmt.Fprint(c.Err, text.Complaint(c.Name, what, hint))
}

// Misuse is a use that the help explains, with its exit status.
func (c *Call) Misuse(what string, status int) int {
	c.Complain(what, "see "+c.Name+" --help")
	return status
}

// Explain is an error as a problem and a hint. start says how to start the server that
// does not answer.
func Explain(err error, server, start string) (what, hint string) {
	if refused, ok := errors.AsType[*problem.Problem](err); ok {
		return refused.What, refused.Hint
	}
	if missing, ok := errors.AsType[*api.Unreachable](err); ok {
		return fmt.Sprintf("no %s answers at %s: %v", server, missing.Socket, missing.Err), start
	}
	return err.Error(), ""
}

// Dial connects to the daemon that berth's own commands talk to. With start, it
// starts a private one if no daemon runs.
func (c *Call) Dial(ctx context.Context, start bool) (*api.Client, error) {
	socket := os.Getenv("BERTH_SOCKET")
	if socket == "" {
		var err error
		if socket, err = c.Daemon(ctx, start); err != nil {
			return nil, err
		}
	}
	return api.Dial(socket), nil
}

// Value is what p points to, or the zero value.
func Value[T any](p *T) (value T) {
	if p != nil {
		value = *p
	}
	return value
}

// Parse reads flags. If it is not ok, it has printed the usage or a complaint,
// and status is the exit status. The flag set of a subcommand has the
// subcommand's name, which then begins the complaint.
func (c *Call) Parse(flags *pflag.FlagSet, args []string, usage string) (status int, ok bool) {
	flags.Usage = func() {}
	flags.SetOutput(io.Discard)
	err := flags.Parse(args)
	switch {
	case err == nil:
		return 0, true
	case errors.Is(err, pflag.ErrHelp):
		fmt.Fprint(c.Out, usage)
		return 0, false
	}
	what := err.Error()
	var value *pflag.InvalidValueError
	if errors.As(err, &value) { // pflag's own message shows Go's parse error
		what = fmt.Sprintf("--%s: %v", value.GetFlag().Name, text.Mismatch(value.GetValue(), TypeInWords(value.GetFlag())))
	}
	if flags.Name() != c.Name {
		what = flags.Name() + ": " + what
	}
	return c.Misuse(what, BadUsage), false
}

// TypeInWords is the kind of value a flag takes.
func TypeInWords(flag *pflag.Flag) string {
	switch flag.Value.Type() {
	case "int", "int64":
		return "a whole number"
	case "float64":
		return "a number"
	}
	return "true or false"
}

// SimVRAMMiB is the memory of a simulated GPU.
const SimVRAMMiB = 24576

// MaxSim bounds the simulated GPUs.
const MaxSim = 1024

// Sim is how many simulated GPUs BERTH_SIM asks for; 0: real ones.
func Sim() (int, error) {
	n, _ := gpu.SimFromEnv(os.Getenv)
	if n < 0 {
		return 0, problem.Newf(problem.Invalid, "unset it to use real GPUs", "BERTH_SIM: expected a number of simulated GPUs from 1 to %d, found %q", MaxSim, os.Getenv("BERTH_SIM"))
	}
	return n, nil
}

// OneLine is a text without line breaks and terminal control sequences.
func OneLine(s string) string {
	return text.Line(strings.Map(func(r rune) rune {
		if unicode.IsSpace(r) {
			return ' '
		}
		return r
	}, s))
}

var jobNumber struct { // compiled on first use
	once       sync.Once
	expression *regexp.Regexp
}

// RenameJobs is a sentence of berth's with other names for its jobs, which it
// calls "job ID". A job of another berth has no other name.
func RenameJobs(sentence string, name func(id string) string) string {
	jobNumber.once.Do(func() { jobNumber.expression = regexp.MustCompile(`(another berth's )?\bjob [0-9]+(_[0-9]+)?\b`) })
	return jobNumber.expression.ReplaceAllStringFunc(sentence, func(found string) string {
		id, own := strings.CutPrefix(found, "job ")
		if !own {
			return found
		}
		return "job " + name(id)
	})
}

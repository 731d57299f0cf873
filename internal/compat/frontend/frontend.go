// Package frontend is what the rooms beside it have in common. They let people
// who come from another scheduler type what they always typed: gpusched, tgpu,
// the mgpu_ programs and gpu-scheduler, under their own names, with their own
// flags, files and words. (kairos, which is a Python library, is in python/.)
//
// A front end translates, into berth's own specs and calls, and translates back
// what came of them. It decides nothing: no order, no placement, no retry that
// the engine does not know of. And it prepares nothing before it is called, for
// berth is all of these programs and hardly ever one of them.
package frontend

import (
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
	"sync"
	"unicode"

	"github.com/spf13/pflag"

	"berth/internal/text"
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
	Usage string // what --help prints, whole
	Run   func(*Call) int
}

// Call is one use of a front end.
type Call struct {
	Name    string   // the program's
	Args    []string // after it
	In      io.Reader
	Out     io.Writer
	Err     io.Writer
	Version string // berth's

	// Berth runs berth's own command line and returns its exit status.
	Berth func(args []string, out, errOut io.Writer) int

	// Daemon is the socket of the daemon that berth's own commands would talk
	// to. With start, a private one is started where none is.
	Daemon func(ctx context.Context, start bool) (socket string, err error)
}

// Main runs the program, or prints its usage where that was asked for.
func (p Program) Main(c *Call) int {
	if len(c.Args) > 0 && (c.Args[0] == "--help" || c.Args[0] == "-h") {
		fmt.Fprint(c.Out, p.Usage)
		return 0
	}
	return p.Run(c)
}

// Complain says what is wrong and what to do next, in the program's name.
func (c *Call) Complain(what, hint string) {
	fmt.Fprint(c.Err, text.Complaint(c.Name, what, hint))
}

// Parse reads flags. Where it is not ok, what there was to say is said, and
// status is what to exit with. A set with another name than the program's is
// that of one of its commands, which is named first.
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
	if errors.As(err, &value) { // what the parser has to say beside is for programmers
		what = fmt.Sprintf("--%s: found %q, %s is wanted", value.GetFlag().Name, value.GetValue(), TypeInWords(value.GetFlag()))
	}
	if flags.Name() != c.Name {
		what = flags.Name() + ": " + what
	}
	c.Complain(what, "see "+c.Name+" --help")
	return BadUsage, false
}

// TypeInWords is what a flag takes.
func TypeInWords(flag *pflag.Flag) string {
	switch flag.Value.Type() {
	case "int", "int64":
		return "a whole number"
	case "float64":
		return "a number"
	}
	return "true or false"
}

// OneLine is a text that neither breaks a line nor drives a terminal.
func OneLine(said string) string {
	return text.Line(strings.Map(func(r rune) rune {
		if unicode.IsSpace(r) {
			return ' '
		}
		return r
	}, said))
}

var jobNumber struct { // made when the first is wanted
	once       sync.Once
	expression *regexp.Regexp
}

// RenameJobs is a sentence of berth's with other names for the jobs in it.
func RenameJobs(sentence string, name func(id string) string) string {
	jobNumber.once.Do(func() { jobNumber.expression = regexp.MustCompile(`\bjob [0-9]+(_[0-9]+)?\b`) })
	return jobNumber.expression.ReplaceAllStringFunc(sentence, func(found string) string {
		return "job " + name(strings.TrimPrefix(found, "job "))
	})
}

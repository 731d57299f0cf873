// Package compat lets people who come from one of five other schedulers type
// what they always typed: gpusched, tgpu, the mgpu_ programs and gpu-scheduler
// under their own names, with their own flags, files and words.
//
// A front end translates, into berth's own specs and calls, and translates
// back what came of them. It decides nothing: no order, no placement, no
// retry that the engine does not know of. kairos, which is a Python library,
// is in python/.
package compat

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
)

// Exit statuses, as berth has them.
const (
	exitFailed      = 1
	exitUsage       = 2
	exitInterrupted = 130
)

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

// program is one front end.
type program struct {
	name  string
	usage string // what --help prints, whole
	run   func(*Call) int
}

// programs are all of them, in the order they are listed.
func programs() []program {
	return []program{gpusched, gpuScheduler, tgpu, mgpuServer, mgpuSrun, mgpuQueue, mgpuCancel}
}

// Names are the programs that berth answers to.
func Names() []string {
	var names []string
	for _, p := range programs() {
		names = append(names, p.name)
	}
	return names
}

// Is tells whether a program of that name is to be stood in for.
func Is(name string) bool { return slices.Contains(Names(), name) }

// Main runs the front end that c names.
func Main(c *Call) int {
	for _, p := range programs() {
		if p.name != c.Name {
			continue
		}
		if len(c.Args) > 0 && (c.Args[0] == "--help" || c.Args[0] == "-h") {
			fmt.Fprint(c.Out, p.usage)
			return 0
		}
		return p.run(c)
	}
	c.complain("there is no such program", "berth stands in for "+strings.Join(Names(), ", "))
	return exitUsage
}

// complain says what is wrong and what to do next, in the program's name.
func (c *Call) complain(what, hint string) {
	for _, line := range strings.Split(strings.TrimRight(what, "\n"), "\n") {
		fmt.Fprintf(c.Err, "%s: %s\n", c.Name, line)
	}
	if hint != "" {
		fmt.Fprintf(c.Err, "hint: %s\n", hint)
	}
}

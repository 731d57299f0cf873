// Package compat lets people who come from one of five other schedulers type
// what they always typed: gpusched, tgpu, the mgpu_ programs and gpu-scheduler
// under their own names, with their own flags, files and words.
//
// Each program has a folder. A front end translates, into berth's own specs and
// calls, and translates back what came of them. It decides nothing: no order, no
// placement, no retry that the engine does not know of. kairos, which is a
// Python library, is in python/.
//
// berth is all of these programs and hardly ever one of them, so no front end
// prepares anything before it is called.
package compat

import (
	"slices"
	"strings"

	"berth/internal/compat/frontend"
	"berth/internal/compat/gpusched"
	"berth/internal/compat/gpuscheduler"
	"berth/internal/compat/mgpu"
	"berth/internal/compat/tgpu"
)

// programs are all of them, in the order they are listed.
func programs() []frontend.Program {
	return []frontend.Program{gpusched.Program, gpuscheduler.Program, tgpu.Program, mgpu.Server, mgpu.Srun, mgpu.Queue, mgpu.Cancel}
}

// Names are the programs that berth answers to.
func Names() []string {
	var names []string
	for _, p := range programs() {
		names = append(names, p.Name)
	}
	return names
}

// Is tells whether a program of that name is to be stood in for.
func Is(name string) bool { return slices.Contains(Names(), name) }

// Main runs the front end that c names.
func Main(c *frontend.Call) int {
	for _, p := range programs() {
		if p.Name == c.Name {
			return p.Main(c)
		}
	}
	c.Complain("there is no such program", "berth stands in for "+strings.Join(Names(), ", "))
	return frontend.BadUsage
}

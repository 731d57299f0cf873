package cli

import (
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"berth/internal/cli/session"
	"berth/internal/machine/site"
)

// ProgramNames are the programs that berth answers to.
func ProgramNames() []string { return programNames(standIns()) }

// AutostartWith lets autostart begin another program than this one, and be
// patient only for so long.
func AutostartWith(t *testing.T, program string, patience time.Duration) {
	t.Helper()
	usual, usualPatience := session.SelfProgram, session.StartPatience
	session.SelfProgram, session.StartPatience = func() (string, error) { return program, nil }, patience
	t.Cleanup(func() { session.SelfProgram, session.StartPatience = usual, usualPatience })
}

// MachineAt gives the machine a daemon of its own somewhere else, and a
// system service or none.
func MachineAt(t *testing.T, socket string, installed bool) {
	t.Helper()
	session.SharedPlaces = func() site.Places { return site.Places{Socket: socket, StateDir: "/nonexistent", Shared: true} }
	session.SystemService = func() bool { return installed }
	t.Cleanup(func() { session.SharedPlaces, session.SystemService = site.SharedPlaces, site.SystemService })
}

// Commands are the verbs and their own verbs, each with the names of its
// flags.
func Commands() map[string][]string {
	all := map[string][]string{}
	var walk func(path string, cmds []*cobra.Command)
	walk = func(path string, cmds []*cobra.Command) {
		for _, cmd := range cmds {
			name := strings.TrimSpace(path + " " + cmd.Name())
			all[name] = []string{}
			cmd.LocalFlags().VisitAll(func(f *pflag.Flag) { all[name] = append(all[name], f.Name) })
			walk(name, cmd.Commands())
		}
	}
	walk("", newRoot().Commands())
	return all
}

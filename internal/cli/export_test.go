package cli

import (
	"os"
	"testing"
	"time"

	"berth/internal/site"
)

// AutostartWith lets autostart begin another program than this one, and be
// patient only for so long.
func AutostartWith(t *testing.T, program string, patience time.Duration) {
	t.Helper()
	selfProgram = func() (string, error) { return program, nil }
	startPatience = patience
	t.Cleanup(func() { selfProgram, startPatience = os.Executable, defaultStartPatience })
}

// MachineAt gives the machine a daemon of its own somewhere else, and a
// system service or none.
func MachineAt(t *testing.T, socket string, installed bool) {
	t.Helper()
	sharedPlaces = func() site.Places { return site.Places{Socket: socket, StateDir: "/nonexistent", Shared: true} }
	systemService = func() bool { return installed }
	t.Cleanup(func() { sharedPlaces, systemService = site.SharedPlaces, site.SystemService })
}

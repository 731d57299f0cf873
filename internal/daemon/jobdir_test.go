package daemon

import (
	"os"
	"path/filepath"
	"testing"

	"berth/internal/site"
	"berth/internal/testkit"
)

// TestAnotherAttemptFindsTheLogsOfTheFirst: a directory that is the job's own
// is left as it is, and one that another user had is nobody's any more.
func TestAnotherAttemptFindsTheLogsOfTheFirst(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("giving directories to users needs root")
	}
	d := &Daemon{opt: Options{Places: site.Places{StateDir: t.TempDir(), Shared: true}}}
	old := filepath.Join(d.jobsDir(), "7", "1.log")
	testkit.Must(t, os.Mkdir(d.jobsDir(), 0o711))
	testkit.Must(t, d.makeJobDir("7", 12345, 12345), os.WriteFile(old, []byte("first"), 0o600))
	testkit.Must(t, d.makeJobDir("7", 12345, 12345))
	if _, err := os.Stat(old); err != nil {
		t.Errorf("the first attempt's log is gone: %v", err)
	}
	testkit.Must(t, d.makeJobDir("7", 54321, 54321))
	if _, err := os.Stat(old); err == nil {
		t.Error("another user's job was given the first one's log")
	}
	if !ownedBy(filepath.Dir(old), 54321) {
		t.Error("the directory is not its user's")
	}
}

package daemon

import (
	"os"
	"path/filepath"
	"testing"

	"berth/internal/site"
)

// TestAnotherAttemptFindsTheLogsOfTheFirst: a directory that is the job's own
// is left as it is, and one that another user had is nobody's any more.
func TestAnotherAttemptFindsTheLogsOfTheFirst(t *testing.T) {
	for _, shared := range []bool{false, true} {
		if shared && os.Getuid() != 0 {
			t.Skip("giving directories to users needs root")
		}
		state := t.TempDir()
		d := &Daemon{uid: os.Getuid(), opt: Options{Places: site.Places{StateDir: state, Shared: shared}}}
		uid := d.uid
		if shared {
			uid = 12345
		}
		old := filepath.Join(d.jobsDir(), "7", "1.log")
		must(t, os.Mkdir(d.jobsDir(), 0o711))
		must(t, d.makeJobDir("7", uid, uid), os.WriteFile(old, []byte("first"), 0o600))
		must(t, d.makeJobDir("7", uid, uid))
		if _, err := os.Stat(old); err != nil {
			t.Errorf("shared %v: the first attempt's log is gone: %v", shared, err)
		}
		if !shared {
			continue
		}
		must(t, d.makeJobDir("7", 54321, 54321))
		if _, err := os.Stat(old); err == nil {
			t.Error("another user's job was given the first one's log")
		}
		if !ownedBy(filepath.Dir(old), 54321) {
			t.Error("the directory is not its user's")
		}
	}
}

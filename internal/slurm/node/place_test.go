package node

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"berth/internal/queue/store"
	"berth/internal/tests/testkit"
)

// TestWhatKilledWrappersLeft: an old directory that nobody uses goes.
func TestWhatKilledWrappersLeft(t *testing.T) {
	parent, old := t.TempDir(), time.Now().Add(-2*leftAfter)
	for _, name := range []string{"old", "used", "young", "foreign"} {
		dir := filepath.Join(parent, placePrefix+name)
		testkit.Must(t, os.Mkdir(dir, 0o700))
		if name == "foreign" {
			continue
		}
		s, err := store.Open(filepath.Join(dir, "store"))
		testkit.Must(t, err)
		if name == "used" {
			defer s.Close()
		} else {
			testkit.Must(t, s.Close())
		}
		if name != "young" {
			testkit.Must(t, os.Chtimes(dir, old, old))
		}
	}
	removeLeft(parent, time.Now())
	for name, stays := range map[string]bool{"old": false, "used": true, "young": true, "foreign": true} {
		if _, err := os.Stat(filepath.Join(parent, placePrefix+name)); (err == nil) != stays {
			t.Errorf("%s: %v", name, err)
		}
	}
}

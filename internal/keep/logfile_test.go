package keep

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// TestAnOldLogIsSetAsideAndKept: each in a name of its own, whatever is there.
func TestAnOldLogIsSetAsideAndKept(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	if err := os.Mkdir(path+".old.2", 0o755); err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"first", "second", "third"} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		setAside(path)
		if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("with the %s there: %v", text, err)
		}
	}
	for name, want := range map[string]string{"log.old": "first", "log.old.3": "second", "log.old.4": "third"} {
		if got, err := os.ReadFile(filepath.Join(filepath.Dir(path), name)); string(got) != want {
			t.Errorf("%s: %q, %v; want %q", name, got, err, want)
		}
	}
	setAside(path) // nothing there
	if err := os.Symlink("log.old", path); err != nil {
		t.Fatal(err)
	}
	setAside(path)
	if _, err := os.Readlink(path); err != nil {
		t.Errorf("a link is moved: %v", err)
	}
}

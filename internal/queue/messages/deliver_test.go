package messages

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"berth/internal/tests/testkit"
)

func TestAPasswordIsReadOnlyFromAFileOfItsOwn(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := func(name, text string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		testkit.Must(t, os.WriteFile(path, []byte(text), mode))
		testkit.Must(t, os.Chmod(path, mode))
		return path
	}
	good := file("good", "pass word\n", 0o600)
	if got, err := readSecret(good, os.Getuid()); got != "pass word" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	testkit.Must(t, os.Symlink(good, filepath.Join(dir, "link")))
	bad := map[string]string{
		file("group", "x", 0o640): "chmod 600", file("others", "x", 0o604): "chmod 600", file("empty", "\n", 0o600): "one line",
		file("lines", "a\nb\n", 0o600): "one line", file("long", strings.Repeat("x", maxSecret+1), 0o600): "one line",
		filepath.Join(dir, "link"): "symbolic", dir: "regular file", filepath.Join(dir, "missing"): "no such file",
	}
	if os.Getuid() == 0 {
		path := file("another's", "x", 0o600)
		testkit.Must(t, os.Chown(path, 12345, 12345))
		bad[path] = "uid 12345"
	}
	for path, words := range bad {
		if got, err := readSecret(path, os.Getuid()); err == nil || !strings.Contains(err.Error(), words) || got != "" {
			t.Errorf("%s: %q, %v; expected %q", filepath.Base(path), got, err, words)
		}
	}
}

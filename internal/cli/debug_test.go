package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestAFileIsReplacedAsAWholeOrNotAtAll(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "now.json")
	for _, text := range []string{"first", "second"} {
		if err := replaceFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(path)
		if got, _ := os.ReadFile(path); err != nil || string(got) != text || info.Mode().Perm() != 0o600 {
			t.Errorf("%q, %v, %v", got, info.Mode(), err)
		}
	}
	// A link is followed, not replaced.
	link := filepath.Join(dir, "link")
	if err := os.Symlink(path, link); err != nil {
		t.Fatal(err)
	}
	if err := replaceFile(link, []byte("third"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, _ := os.ReadFile(path); string(got) != "third" {
		t.Errorf("through a link: %q", got)
	}
	err := replaceFile(filepath.Join(dir, "none", "now.json"), nil, 0o600)
	if err == nil || strings.Contains(err.Error(), dir) || !strings.Contains(err.Error(), "no such file") {
		t.Errorf("%v", err)
	}
	if left, _ := os.ReadDir(dir); len(left) != 2 {
		t.Errorf("%v is left", left)
	}
}

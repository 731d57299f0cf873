package berth_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// retired are words of the past that have a better one in CONTRIBUTING.md: external
// process, victim, allocated, takes out of service, a plain refusal.
var retired = regexp.MustCompile(`\b([Ss]trangers?|kin|kinship|footing|yielder|given out|in pieces|condemns?|(is|are) none|is no [a-km-z][a-z]|what is no)\b`)

// TestPlainWords keeps words with a second meaning from coming back to messages,
// help, comments, pages and stories.
func TestPlainWords(t *testing.T) {
	passedOver := []string{".git", "bin", "dist", "berth_logs", "web/node_modules", "internal/api/web/dist"}
	read := []string{".go", ".md", ".txtar", ".py", ".sh", ".toml", ".yml", ".service", ".socket", ".txt", ""}
	err := filepath.WalkDir(".", func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case slices.Contains(passedOver, path) && entry.IsDir():
			return fs.SkipDir
		case !entry.Type().IsRegular() || strings.HasSuffix(path, "_test.go") || !slices.Contains(read, filepath.Ext(path)):
			return nil
		}
		text, err := os.ReadFile(path)
		for _, at := range retired.FindAllIndex(text, -1) {
			if before := text[max(0, at[0]-6):at[0]]; !strings.EqualFold(string(before), "there ") {
				t.Errorf("%s:%d: %q", path, 1+strings.Count(string(text[:at[0]]), "\n"), text[at[0]:at[1]])
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

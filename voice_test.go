package berth_test

import (
	"bufio"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// foreign are phrases that read as if translated, each with what to write
// instead. They are looked for in everything a person reads: messages, help,
// comments, pages and stories.
var foreign = []struct{ phrase, instead string }{
	{`\b(is|are) none\b`, "say what was expected and what was found"},
	{`\bis no [a-km-z][a-z]`, "expected …, found …; or \"is not a …\""}, // "there is no" passes
	{`\bwhat is no\b`, "expected …, found …"},
	{`\bas a rule\b`, "usually"},
	{`\bso long\b`, "as long as; for this time"},
	{`\bof use\b`, "useful; used"},
	{`\balso not\b`, "not even; neither"},
	{`\bat the latest\b`, "by; at most"},
	{`\ba while\b`, "the time itself"},
	{`\bstands\b`, "is; is written"},
	{`\bgiven out\b`, "allocated"},
	{`\bin pieces\b`, "fragmented"},
	{`\bwho had\b`, "the user with"},
	{`\bthat who\b`, "name the person"},
	{`\b[Ss]trangers?\b`, "external process"},
	{`\bnothing is known\b`, "has no estimate"},
	{`\btold of\b`, "lists; says"},
	{`\bcondemns?\b`, "takes out of service"},
	{`\b(kin|kinship|footing|yielder)\b`, "a word of the glossary"},
	{`\b(kernel|system)'s word\b`, "vouches for"},
	{`\bnot yet over\b`, "not finished"},
}

// TestPlainWords keeps phrases that had to be read twice from coming back.
// VOICE=internal/cli looks at one place, its tests included.
func TestPlainWords(t *testing.T) {
	phrases := make([]*regexp.Regexp, len(foreign))
	for i, f := range foreign {
		phrases[i] = regexp.MustCompile(f.phrase)
	}
	only := os.Getenv("VOICE")
	err := filepath.WalkDir(".", func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && path != "." && !spoken(path, only):
			return fs.SkipDir
		case entry.IsDir() || !spoken(path, only) || !slices.Contains([]string{".go", ".md", ".txtar", ".py", ".sh", ".toml", ".yml", ".service", ".socket", ".txt", ""}, filepath.Ext(path)):
			return nil
		}
		file, err := os.Open(path)
		if err != nil {
			return err
		}
		defer file.Close()
		lines := bufio.NewScanner(file)
		lines.Buffer(nil, 1<<20)
		for n := 1; lines.Scan(); n++ {
			for i, re := range phrases {
				for _, at := range re.FindAllStringIndex(lines.Text(), -1) {
					if !strings.HasSuffix(strings.ToLower(lines.Text()[:at[0]]), "there ") {
						t.Errorf("%s:%d: %q: %s", path, n, lines.Text()[at[0]:at[1]], foreign[i].instead)
					}
				}
			}
		}
		return lines.Err()
	})
	if err != nil {
		t.Fatal(err)
	}
}

// spoken tells whether a path is looked at. The list of phrases itself is not.
func spoken(path, only string) bool {
	if path == "voice_test.go" || strings.HasPrefix(path, ".git") || slices.Contains([]string{"bin", "dist", "berth_logs", "web/node_modules", "internal/api/web/dist"}, path) || strings.HasSuffix(path, "_test.go") && only == "" {
		return false
	}
	if only != "" {
		return strings.HasPrefix(path, only) || strings.HasPrefix(only, path+"/")
	}
	return true
}

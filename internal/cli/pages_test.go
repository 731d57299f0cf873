package cli

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"berth/internal/cli/manual"
	"berth/internal/text"
)

// TestEveryPageFitsATerminal: prose and tables fit into 80 columns; a line of
// code is left as it is.
func TestEveryPageFitsATerminal(t *testing.T) {
	for _, page := range pages() {
		if width := text.Width(page.Title); width > 60 {
			t.Errorf("%s: a title of %d columns is cut in berth help", page.Topic, width)
		}
		for line := range strings.Lines(page.Text(manual.Style{Columns: helpColumns})) {
			line = strings.TrimRight(line, "\n")
			if text.Width(line) > helpColumns && !strings.HasPrefix(line, "  ") && strings.Contains(line[:helpColumns], " ") {
				t.Errorf("%s: %s", page.Topic, line)
			}
		}
	}
}

// TestHintsNamePagesThatExist: whatever berth says, berth help X shows something.
func TestHintsNamePagesThatExist(t *testing.T) {
	root := newRoot()
	words := append(helpWords(root), "help", "TOPIC", "VERB", "jobspecs")
	for _, p := range pages() {
		words = append(words, p.Kind+"/"+p.Topic)
	}
	mention := regexp.MustCompile(`berth help ([A-Za-z][A-Za-z/-]*)`)
	found := 0
	for _, top := range []string{"internal", "cmd", "docs", "testdata", "python", "packaging", "README.md"} {
		err := filepath.WalkDir(filepath.Join("../..", top), func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() || strings.HasSuffix(path, "_test.go") {
				return err
			}
			content, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			for _, hit := range mention.FindAllSubmatch(content, -1) {
				found++
				if word := string(hit[1]); !slices.Contains(words, word) {
					t.Errorf("%s: berth help %s shows nothing", path, word)
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if found == 0 {
		t.Error("no hint found")
	}
}

func TestHelpOnTopics(t *testing.T) {
	help := func(words ...string) (string, error) {
		var out bytes.Buffer
		root := newRoot()
		root.SetOut(&out)
		root.SetArgs(append([]string{"help"}, words...))
		err := root.Execute()
		return out.String(), err
	}
	for _, row := range []struct{ words, first string }{
		{"jobspec", "A job"},
		{"reference/jobspec", "A job"},
		{"config http", "[http]\n"},
		{"cancel", "Cancel jobs"},
		{"gpu pause", "Start no more jobs"},
		{"help", "Show the help of a verb"},
	} {
		if out, err := help(strings.Fields(row.words)...); err != nil || !strings.HasPrefix(out, row.first) {
			t.Errorf("berth help %s: %v\n%s", row.words, err, out)
		}
	}
	if out, _ := help("doctor"); !strings.HasSuffix(out, "berth help reference/doctor\n") {
		t.Errorf("the verb does not name its page:\n%s", out)
	}
	index, _ := help()
	for _, p := range pages() {
		if !strings.Contains(index, "\n  "+p.Topic+" ") {
			t.Errorf("berth help does not list %s", p.Topic)
		}
	}
	for line := range strings.Lines(index) {
		if text.Width(strings.TrimRight(line, "\n")) > helpColumns {
			t.Errorf("too wide: %s", line)
		}
	}
}

package berth_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	link    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	fenced  = regexp.MustCompile("(?s)\n```.*?\n```")
	heading = regexp.MustCompile(`(?m)^#+ (.+)$`)
)

// TestLinksLeadSomewhere follows every link between pages, down to the heading.
func TestLinksLeadSomewhere(t *testing.T) {
	for file, text := range markdown(t) {
		for _, found := range link.FindAllStringSubmatch(text, -1) {
			target, anchor, _ := strings.Cut(found[1], "#")
			if strings.Contains(target, "://") || strings.HasPrefix(target, "mailto:") {
				continue
			}
			path := file
			if target != "" {
				path = filepath.Join(filepath.Dir(file), target)
			}
			page, err := os.ReadFile(path)
			if err != nil && !isDir(path) {
				t.Errorf("%s links to %s, which does not exist", file, found[1])
			} else if anchor != "" && !slices.Contains(anchors(string(page)), anchor) {
				t.Errorf("%s links to %s, which has no such heading", file, found[1])
			}
		}
	}
}

// TestTheIndexNamesEveryPage: a page that the index leaves out is not found.
func TestTheIndexNamesEveryPage(t *testing.T) {
	pages := markdown(t)
	for file := range pages {
		name, below := strings.CutPrefix(file, "docs/")
		index := "docs/README.md"
		if study, is := strings.CutPrefix(name, "studies/"); is && study != "README.md" {
			index, name = "docs/studies/README.md", study
		}
		if below && name != "README.md" && !strings.Contains(pages[index], "]("+name+")") {
			t.Errorf("%s does not link to %s", index, name)
		}
	}
}

// markdown is every page, without its blocks of code.
func markdown(t *testing.T) map[string]string {
	t.Helper()
	var files []string
	for _, pattern := range []string{"*.md", "docs/*.md", "docs/*/*.md", "python/*.md", "examples/*.md"} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, found...)
	}
	pages := map[string]string{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		pages[file] = fenced.ReplaceAllString(string(text), "")
	}
	return pages
}

// anchors are the names by which the headings of a page can be linked to.
func anchors(page string) (names []string) {
	for _, found := range heading.FindAllStringSubmatch(fenced.ReplaceAllString(page, ""), -1) {
		name := strings.Map(func(r rune) rune {
			switch {
			case r == ' ':
				return '-'
			case r == '-' || r == '_' || r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r > 127:
				return r
			}
			return -1
		}, strings.ToLower(found[1]))
		names = append(names, name)
	}
	return names
}

func isDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

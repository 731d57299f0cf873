package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// The page that the tests below are held against. The word is put together so
// that this file's own text is not a tag.
const (
	page = `# Rows
## kairos
| row | what it promises | note |
| --- | --- | --- |
| K1 | cards 0 to n-1 | |
| K2 | a \| in a cell | said otherwise |
`
	word = "seeds" + ":"
)

// repository writes files and returns their directory.
func repository(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, text := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func TestARowNeedsATestAndATestARow(t *testing.T) {
	goTest := "package x\n\nfunc TestA(t *testing.T) {\n\t// " + word + " K1 K2\n}\n"
	for name, c := range map[string]struct {
		files map[string]string
		want  int
		says  string
	}{
		"all rows have one":        {map[string]string{"a_test.go": goTest}, 0, ""},
		"a row without":            {map[string]string{"testdata/script/a.txtar": "# " + word + " K1\n"}, 1, "K2 has no test: a | in a cell"},
		"a tag without a row":      {map[string]string{"a_test.go": goTest, "testdata/script/b.txtar": "# " + word + " K3\n"}, 1, `testdata/script/b.txtar:1: "K3" is not a row`},
		"a range is not a row":     {map[string]string{"a_test.go": goTest, "testdata/script/b.txtar": "# " + word + " K1–K2\n"}, 1, `"K1–K2" is not a row`},
		"a tag outside of a test":  {map[string]string{"a_test.go": goTest, "b_test.go": "package x\n\n// " + word + " K1\n\nvar a = 1\n"}, 1, "b_test.go:3: this comment is not in a test"},
		"a tag that names nothing": {map[string]string{"a_test.go": goTest, "testdata/script/b.txtar": "# " + word + "\n"}, 1, "testdata/script/b.txtar:1: this comment names no row"},
	} {
		t.Run(name, func(t *testing.T) {
			c.files["docs/reference/compatibility.md"] = page
			var out, errOut strings.Builder
			if got := run(repository(t, c.files), &out, &errOut); got != c.want {
				t.Errorf("exit status %d, want %d\n%s%s", got, c.want, out.String(), errOut.String())
			}
			if !strings.Contains(errOut.String(), c.says) {
				t.Errorf("says %q, want %q", errOut.String(), c.says)
			}
		})
	}
}

func TestTheReportIsAlignedAndCounts(t *testing.T) {
	root := repository(t, map[string]string{
		"docs/reference/compatibility.md": page,
		"testdata/script/a.txtar":         "# " + word + " K1\nexec true\n-- f --\n",
		"x/b_test.go":                     "package x\n\n// TestB is one.\n// " + word + " K1\nfunc TestB(t *testing.T) {}\n",
	})
	var out, errOut strings.Builder
	run(root, &out, &errOut)
	want := "kairos\n  K1  testdata/script/a.txtar\n      x/b_test.go: TestB\n  K2  (no test)\n1 of 2 rows have a test\n"
	if out.String() != want {
		t.Errorf("printed\n%swant\n%s", out.String(), want)
	}
}

func TestRowsAreNumberedWithoutAGap(t *testing.T) {
	_, problems := readRows("| K1 | a | |\n| K3 | b | |\n| K4 | c |\n| K5 | | |\n")
	if want := 3; len(problems) != want {
		t.Errorf("%d problems, want %d: %q", len(problems), want, problems)
	}
}

func TestPythonTagsBelongToTheTestMethod(t *testing.T) {
	text := `import unittest
# ` + word + ` K1
class A(unittest.TestCase):
    # ` + word + ` K2
    @decorated
    def test_above(self):
        pass

    def helper(self):
        # ` + word + ` K3
        pass

    def test_inside(self):
        with open("x"):
            # ` + word + ` K4 K5
            pass
`
	tags, problems := pythonTags("test_a.py", text)
	if len(problems) != 2 || !strings.Contains(problems[0], "test_a.py:2:") || !strings.Contains(problems[1], "test_a.py:10:") {
		t.Errorf("problems are %q", problems)
	}
	if len(tags) != 2 || tags[0].Name != "A.test_above" || tags[1].Name != "A.test_inside" || !slices.Equal(tags[1].ids, []string{"K4", "K5"}) {
		t.Errorf("tags are %+v", tags)
	}
}

func TestAFileInAStoryIsNoComment(t *testing.T) {
	tags, problems := storyTags("testdata/script/a.txtar", "exec true\n-- jobs.txt --\n# "+word+" K1\n")
	if len(tags) != 0 || len(problems) != 1 {
		t.Errorf("tags %+v, problems %q", tags, problems)
	}
}

// TestThePageHasEveryRow: how many promises each program makes is fixed; a row
// that goes missing from the page would ask for no test any more.
func TestThePageHasEveryRow(t *testing.T) {
	text, err := os.ReadFile("../../docs/reference/compatibility.md")
	if err != nil {
		t.Fatal(err)
	}
	rows, problems := readRows(string(text))
	if len(problems) > 0 {
		t.Errorf("the page: %q", problems)
	}
	got := map[string]int{}
	for _, r := range rows {
		got[r.ID[:1]]++
	}
	for letter, want := range map[string]int{"K": 28, "S": 45, "G": 60, "M": 30, "T": 21, "R": 29} {
		if got[letter] != want {
			t.Errorf("the page has %d rows %s, want %d", got[letter], letter, want)
		}
	}
}

func TestATestThatNeverRunsProvesNothing(t *testing.T) {
	tagged := "\t// " + word + " K1\n}\n"
	story := "# " + word + " K1\n"
	for name, text := range map[string]string{
		"skipped_test.go":             "package x\n\nfunc TestA(t *testing.T) {\n\tt.Skip()\n" + tagged,
		"ignored_test.go":             "//go:build ignore\n\npackage x\n\nfunc TestA(t *testing.T) {\n" + tagged,
		"helper_test.go":              "package x\n\nfunc TestA(t *testing.T, name string) {\n" + tagged,
		"lower_test.go":               "package x\n\nfunc Testing(t *testing.T) {\n" + tagged,
		"string_test.go":              "package x\n\nfunc TestA(t *testing.T) {\n\t_ = `\n// " + word + " K1\n`\n}\n",
		"a.go":                        "package x\n\nfunc TestA(t *testing.T) {\n" + tagged,
		"testdata/script/skip.txtar":  story + "skip 'later'\n",
		"testdata/script/other.txtar": "exec true\n-- file --\n" + story,
		"elsewhere/a.txtar":           story,
		"test_a.py":                   "class A:\n    @unittest.skip(\"later\")\n    def test_a(self):\n        # " + word + " K1\n        pass\n",
		"helpers.py":                  "class A:\n    def test_a(self):\n        # " + word + " K1\n        pass\n",
	} {
		tags, problems := readerOf(name)(name, text)
		if name == "test_a.py" {
			tags = nil // the line that skips it is reported instead
		}
		if len(tags) != 0 || (len(problems) != 1) != (name == "string_test.go") {
			t.Errorf("%s: tags %+v, problems %q", name, tags, problems)
		}
	}
	runs := "package x\n\nfunc TestA(t *testing.T) {\n\tif runtime.GOOS == `plan9` {\n\t\tt.Skip()\n\t}\n" + tagged
	if tags, problems := goTags("a_test.go", runs); len(tags) != 1 || len(problems) != 0 {
		t.Errorf("a test that is skipped on some machines: tags %+v, problems %q", tags, problems)
	}
}

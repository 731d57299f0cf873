package jobfile

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestThePagesListTheFields: the tables of both pages are the table of fields.
func TestThePagesListTheFields(t *testing.T) {
	for page, want := range map[string]string{"jobspec.md": specTable(), "jobsfile.md": fileTable()} {
		path := filepath.Join("..", "..", "..", "docs", "reference", page)
		content, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		head, rest, found := strings.Cut(string(content), fieldsBegin)
		_, tail, closed := strings.Cut(rest, fieldsEnd)
		if !found || !closed {
			t.Fatalf("%s has no place for the fields", page)
		}
		whole := head + fieldsBegin + want + fieldsEnd + tail
		if *update {
			if err := os.WriteFile(path, []byte(whole), 0o644); err != nil {
				t.Fatal(err)
			}
		} else if diff := cmp.Diff(string(content), whole); diff != "" {
			t.Errorf("%s differs from the table; run the tests of this package with -update\n%s", page, diff)
		}
	}
}

// The place of the fields in a page.
const (
	fieldsBegin = "<!-- the fields, from internal/job/jobfile/fields.go -->\n"
	fieldsEnd   = "<!-- end of the fields -->\n"
)

func specTable() string {
	var b strings.Builder
	b.WriteString("| key | flag | meaning | default |\n| --- | --- | --- | --- |\n")
	b.WriteString("| `command`* | after `--` | text is a shell command; a list is a program and its arguments, run without a shell | |\n")
	for _, f := range fields {
		if f.Where == FileOnly {
			continue
		}
		key, flag := "`"+f.Key+"`", "--"+f.FlagName()
		if f.Where == SubmitOnly {
			key += "*"
		}
		if f.Key == envKey {
			key += ", `" + envPrefix + "NAME`"
		}
		if f.Short != "" {
			flag = "-" + f.Short + " " + flag
		}
		fmt.Fprintf(&b, "| %s | `%s` | %s |\n", key, flag, cells(f.Help))
	}
	fmt.Fprintf(&b, "\n%s need no value; `yes`, `no`, `true` and `false` are also accepted. In a spec file, %s may be lists.\n",
		keysFor(func(f *Field) bool { return f.Alone != "" && f.Where != FileOnly }), keysFor(func(f *Field) bool { return f.Many != "" }))
	return b.String()
}

func fileTable() string {
	otherwise := map[string]string{ // what a line says differently
		"after": "start after these lines have ended: prep,eval:any; :ok (the default), :any or :fail",
		envKey:  "set a variable: env.OMP_NUM_THREADS=4",
	}
	var b strings.Builder
	b.WriteString("| key | meaning | default |\n| --- | --- | --- |\n")
	for _, f := range fields {
		key, help := f.Key, otherwise[f.Key]
		switch {
		case key == envKey:
			key = envPrefix + "NAME"
		case f.Where == SubmitOnly:
			continue
		case help == "":
			help = f.Help
		}
		fmt.Fprintf(&b, "| `%s` | %s |\n", key, cells(help))
	}
	fmt.Fprintf(&b, "\n%s need no value; `=no` switches one off.\n", keysFor(func(f *Field) bool { return f.Alone != "" && f.Where != SubmitOnly }))
	return b.String()
}

var defaultForm = regexp.MustCompile(`^(.*) \(default:? (.*)\)$`)

// cells are what a field says, and its default, as two cells of a table.
func cells(help string) string {
	help = strings.NewReplacer("<", "&lt;", "|", "\\|").Replace(help)
	if parts := defaultForm.FindStringSubmatch(help); parts != nil {
		return parts[1] + " | " + parts[2]
	}
	return help + " |"
}

// keysFor lists some keys in a sentence.
func keysFor(wanted func(*Field) bool) string {
	var keys []string
	for _, f := range fields {
		if wanted(f) {
			keys = append(keys, "`"+f.Key+"`")
		}
	}
	last := len(keys) - 1
	return strings.Join(keys[:last], ", ") + " and " + keys[last]
}

func TestEverySlurmOptionIsDocumented(t *testing.T) {
	page, err := os.ReadFile("../../../docs/reference/jobspec.md")
	if err != nil {
		t.Fatal(err)
	}
	for name := range slurmOptions() {
		if !strings.Contains(string(page), "`--"+name) {
			t.Errorf("Slurm's --%s is not in the page", name)
		}
	}
}

// TestTheExamplesAreRead: what the page shows is what the grammars take.
func TestTheExamplesAreRead(t *testing.T) {
	page, err := os.ReadFile("../../../docs/reference/jobspec.md")
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]int{}
	for block := range strings.SplitSeq(string(page), "\n```") {
		language, text, _ := strings.Cut(block, "\n")
		switch language {
		case "yaml":
			items, err := ParseSpecs("page", []byte(text))
			if err != nil || len(items) != 2 {
				t.Errorf("%s\n%v", text, err)
			}
		case "sh":
			if script, err := ParseScript("page", []byte(text)); err != nil || said(script.Pairs) != "gpus=2 | vram=18G | name=train | timeout=6h | setup=source env.sh" {
				t.Errorf("%s\n%v %v", text, script, err)
			}
		}
		found[language]++
	}
	if found["yaml"] != 2 || found["sh"] != 1 {
		t.Errorf("examples found: %v", found)
	}
}

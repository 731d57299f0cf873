package jobfile

import (
	"os"
	"strings"
	"testing"
)

// TestEveryKeyAndFlagIsDocumented: the page lists what the table knows, each
// key beside its flag.
func TestEveryKeyAndFlagIsDocumented(t *testing.T) {
	page, err := os.ReadFile("../../docs/jobspec.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := map[string]string{}
	for line := range strings.Lines(string(page)) {
		if cells := strings.Split(line, "|"); len(cells) > 4 {
			rows[strings.Trim(strings.Split(cells[1], ",")[0], " `*")] = cells[1] + cells[2]
		}
	}
	for _, s := range setters {
		if s.fileOnly {
			continue
		}
		row, found := rows[s.key]
		flag := "--" + s.flagName() + "`"
		if s.short != 0 {
			flag = "`-" + string(rune(s.short)) + " " + flag
		}
		if !found || !strings.Contains(row, flag) {
			t.Errorf("%s with %s is not in the page: %q", s.key, flag, row)
		}
		if onlySubmit := s.set == nil; onlySubmit != strings.Contains(row, "`"+s.key+"`*") {
			t.Errorf("%s: the page is wrong about jobs files: %q", s.key, row)
		}
	}
	for name := range slurmOptions {
		if !strings.Contains(string(page), "`--"+name) {
			t.Errorf("Slurm's --%s is not in the page", name)
		}
	}
}

// TestTheExamplesAreRead: what the page shows is what the grammars take.
func TestTheExamplesAreRead(t *testing.T) {
	page, err := os.ReadFile("../../docs/jobspec.md")
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

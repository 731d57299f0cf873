package cli_test

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"berth/internal/cli"
)

// TestThePageHasEveryVerbAndFlag: a verb or a flag that is not documented does
// not exist for those who read.
func TestThePageHasEveryVerbAndFlag(t *testing.T) {
	page, err := os.ReadFile("../../docs/reference/commands.md")
	if err != nil {
		t.Fatal(err)
	}
	spec, err := os.ReadFile("../../docs/reference/jobspec.md")
	if err != nil {
		t.Fatal(err)
	}
	shared, _, _ := strings.Cut(string(page), "\n## submit")
	for name, flags := range cli.Commands() {
		if !strings.Contains(string(page), "$ berth "+name) && name != "token" {
			t.Errorf("there is no example of berth %s", name)
		}
		verb, _, _ := strings.Cut(name, " ")
		section := sectionOf(string(page), verb)
		if section == "" {
			t.Errorf("berth %s has no section", verb)
		}
		for _, flag := range flags {
			documented := shared + section
			if verb == "submit" || verb == "edit" {
				documented += string(spec)
			}
			if !regexp.MustCompile(`--` + flag + `\b`).MatchString(documented) {
				t.Errorf("--%s of berth %s is not documented", flag, name)
			}
		}
	}
}

// sectionOf is the part of the page that is about a verb.
func sectionOf(page, verb string) string {
	for part := range strings.SplitSeq(page, "\n## ") {
		title, text, _ := strings.Cut(part, "\n")
		for word := range strings.SplitSeq(title, ", ") {
			if word == verb {
				return text
			}
		}
	}
	return ""
}

package cli_test

import (
	"os"
	"slices"
	"strings"
	"testing"

	"berth/internal/cli"
)

// TestThePageHasEveryVerb: every verb has a section and an example. The flags
// are on a page of their own, which is generated.
func TestThePageHasEveryVerb(t *testing.T) {
	page, err := os.ReadFile("../../docs/reference/commands.md")
	if err != nil {
		t.Fatal(err)
	}
	for name := range cli.Commands() {
		if slices.Contains([]string{"simjob", "restore", "completion"}, name) {
			continue // they are on pages of their own
		}
		if !strings.Contains(string(page), "$ berth "+name) && name != "token" {
			t.Errorf("there is no example of berth %s", name)
		}
		verb, _, _ := strings.Cut(name, " ")
		if sectionOf(string(page), verb) == "" {
			t.Errorf("berth %s has no section", verb)
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

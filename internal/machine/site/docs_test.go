package site

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestThePageListsTheChecks: docs/reference/doctor.md has the checks
// and no others. The daemon is asked elsewhere.
func TestThePageListsTheChecks(t *testing.T) {
	page, err := os.ReadFile("../../../docs/reference/doctor.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(page), "\n## The checks\n")
	table, _, _ = strings.Cut(table, "\n## ") // those of a cluster are not this machine's
	var listed []string
	for line := range strings.Lines(table) {
		first, _, _ := strings.Cut(strings.TrimPrefix(line, "|"), "|")
		for _, name := range regexp.MustCompile("`([a-z ]+)`").FindAllStringSubmatch(first, -1) {
			if strings.HasPrefix(line, "|") {
				listed = append(listed, name[1])
			}
		}
	}
	want := []string{"program", "daemon", "store", "strays"} // what the verb and the daemon say
	for _, c := range (exam{}).checks() {
		want = append(want, c.name)
	}
	slices.Sort(listed)
	slices.Sort(want)
	if !slices.Equal(listed, want) {
		t.Errorf("the page lists\n%q, the code\n%q", listed, want)
	}
}

package soak

import (
	"path/filepath"
	"regexp"
	"testing"

	"berth/internal/tests/testkit"
)

// TestEveryFaultIsOnThePage holds docs/studies/reliability.md and the tests of
// this package together.
func TestEveryFaultIsOnThePage(t *testing.T) {
	page := map[string]bool{}
	for _, match := range regexp.MustCompile("`(Test\\w+)`").FindAllStringSubmatch(testkit.Read(t, "../../../docs/studies/reliability.md"), -1) {
		page[match[1]] = true
	}
	files, err := filepath.Glob("*_test.go")
	testkit.Must(t, err)
	for _, file := range files {
		for _, match := range regexp.MustCompile(`(?m)^func (Test\w+)\(t `).FindAllStringSubmatch(testkit.Read(t, file), -1) {
			if match[1] != t.Name() && !page[match[1]] {
				t.Errorf("docs/studies/reliability.md does not name %s", match[1])
			}
			delete(page, match[1])
		}
	}
	for name := range page {
		t.Errorf("docs/studies/reliability.md names %s, which does not exist", name)
	}
}

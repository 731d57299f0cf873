package cli

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// TestEveryVerbAndTopicHasAManPage writes them, and lets mandoc judge them
// where it is installed.
func TestEveryVerbAndTopicHasAManPage(t *testing.T) {
	dir := t.TempDir()
	root := newRoot()
	root.SetArgs([]string{"help", "--man", dir})
	if err := root.Execute(); err != nil {
		t.Fatal(err)
	}
	var want []string
	var walk func(cmd *cobra.Command)
	walk = func(cmd *cobra.Command) {
		want = append(want, "man1/"+strings.ReplaceAll(cmd.CommandPath(), " ", "-")+".1")
		for _, sub := range cmd.Commands() {
			if sub.IsAvailableCommand() {
				walk(sub)
			}
		}
	}
	walk(root)
	for _, p := range pages() {
		want = append(want, p.ManName())
	}
	var files []string
	for _, name := range want {
		path := filepath.Join(dir, name)
		if info, err := os.Stat(path); err != nil || info.Size() == 0 {
			t.Errorf("%s: %v", name, err)
		}
		files = append(files, path)
	}
	mandoc, err := exec.LookPath("mandoc")
	if err != nil {
		return
	}
	said, _ := exec.Command(mandoc, append([]string{"-Tlint", "-Wwarning"}, files...)...).CombinedOutput()
	for line := range strings.Lines(string(said)) {
		if !strings.Contains(line, "missing date") { // pages are the same whenever they are built
			t.Error(line)
		}
	}
}

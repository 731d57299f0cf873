package cli

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"

	"berth/internal/tests/testkit"
)

// TestTheReferenceIsGenerated: the flags and exit statuses on the pages are
// those of the commands. -update writes them.
func TestTheReferenceIsGenerated(t *testing.T) {
	var flags, statuses strings.Builder
	statuses.WriteString("| verb | exit status |\n| --- | --- |\n")
	eachVerb(newRoot(), func(cmd *cobra.Command) {
		name := strings.TrimPrefix(cmd.CommandPath(), "berth ")
		_, status, found := strings.Cut(cmd.Example, "Exit status: ")
		if !found && cmd.HasParent() && !cmd.HasSubCommands() {
			t.Errorf("berth %s does not state its exit status", name)
		}
		if found {
			fmt.Fprintf(&statuses, "| `%s` | %s |\n", name, cell(status))
		}
		var rows strings.Builder
		for _, f := range manFlags(cmd) {
			if !strings.HasPrefix(f.Forms, "-h, --help") && !strings.HasPrefix(f.Forms, "--host") && !strings.HasPrefix(f.Forms, "--socket") || !cmd.HasParent() {
				fmt.Fprintf(&rows, "| `%s` | %s |\n", f.Forms, cell(f.Help))
			}
		}
		if rows.Len() > 0 {
			fmt.Fprintf(&flags, "\n## %s\n\n%s.\n\n| flag | meaning |\n| --- | --- |\n%s", name, cmd.Short, rows.String())
		}
	})
	generated(t, "../../docs/reference/flags.md", "flags", flags.String()+"\n")
	generated(t, "../../docs/reference/exit-status.md", "exit statuses", statuses.String())
}

// eachVerb visits the commands that a user sees, parents first.
func eachVerb(cmd *cobra.Command, visit func(*cobra.Command)) {
	visit(cmd)
	for _, sub := range cmd.Commands() {
		if sub.IsAvailableCommand() || sub.Name() == "help" {
			eachVerb(sub, visit)
		}
	}
}

// cell is a text that may stand in a table.
func cell(s string) string {
	return strings.NewReplacer("\n", " ", "|", `\|`, "<", "&lt;").Replace(strings.TrimSpace(s))
}

// generated compares the marked part of a page, or writes it with -update.
func generated(t *testing.T, path, what, want string) {
	t.Helper()
	begin, end := "<!-- the "+what+", from internal/cli -->\n", "<!-- end of the "+what+" -->\n"
	page := testkit.Read(t, path)
	head, rest, found := strings.Cut(page, begin)
	_, tail, closed := strings.Cut(rest, end)
	if !found || !closed {
		t.Fatalf("%s has no place for the %s", path, what)
	}
	whole := head + begin + want + end + tail
	if *testkit.Update {
		testkit.Must(t, os.WriteFile(path, []byte(whole), 0o644))
	} else if diff := cmp.Diff(whole, page); diff != "" {
		t.Errorf("%s differs from the commands (-update writes it):\n%s", path, diff)
	}
}

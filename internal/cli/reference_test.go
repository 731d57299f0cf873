package cli

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"

	"berth/internal/cli/manual"
	"berth/internal/tests/testkit"
)

// TestTheReferenceIsGenerated: the flags and exit statuses on the pages are
// those of the commands. -update writes them.
func TestTheReferenceIsGenerated(t *testing.T) {
	var flags, statuses strings.Builder
	var order []string
	of, about, also := map[string][]string{}, map[string]string{}, map[string][]string{}
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
		var rows []string
		for _, f := range manFlags(cmd) {
			if !everywhere(f) || !cmd.HasParent() {
				rows = append(rows, fmt.Sprintf("| `%s` | %s |\n", f.Forms, cell(f.Help)))
			}
		}
		if len(rows) > 0 {
			of[name], order = rows, append(order, name)
			about[name] = cmd.Short
		}
	})
	for _, group := range []struct{ title, about, first, second, third string }{
		{"a job", "What a job needs, and how it is run", "submit", "edit", "requeue"},
		{"a selection", "Which jobs are meant", "cancel", "hold", "release"},
	} {
		var shared []string
		for _, row := range of[group.first] {
			if slices.Contains(of[group.second], row) && slices.Contains(of[group.third], row) {
				shared = append(shared, row)
			}
		}
		section(&flags, group.title, group.about, "", shared)
		for name, rows := range of {
			own := slices.DeleteFunc(slices.Clone(rows), func(row string) bool { return slices.Contains(shared, row) })
			if len(own)+len(shared) == len(rows) {
				of[name] = own
				also[name] = append(also[name], "[the flags of "+group.title+"](#"+strings.ReplaceAll(group.title, " ", "-")+")")
			}
		}
	}
	for _, name := range order {
		section(&flags, name, about[name], strings.Join(also[name], " and "), of[name])
	}
	generated(t, "../../docs/reference/flags.md", "flags", flags.String()+"\n")
	generated(t, "../../docs/reference/exit-status.md", "exit statuses", statuses.String())
}

// everywhere tells of a flag that the head of the page explains once.
func everywhere(f manual.Flag) bool {
	for _, flag := range []string{"-h, --help", "--host", "--socket", "--no-color"} {
		if strings.HasPrefix(f.Forms, flag) {
			return true
		}
	}
	return f.Help == "ask the berth run with this log directory; - for the daemon"
}

// section writes the flags of one verb, or those that several share.
func section(page *strings.Builder, title, about, also string, rows []string) {
	fmt.Fprintf(page, "\n## %s\n\n%s.", title, about)
	if also != "" {
		fmt.Fprintf(page, " It also takes %s.", also)
	}
	if page.WriteString("\n"); len(rows) > 0 {
		page.WriteString("\n| flag | meaning |\n| --- | --- |\n" + strings.Join(rows, ""))
	}
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

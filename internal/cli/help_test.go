package cli

import (
	"bytes"
	"regexp"
	"testing"
	"unicode/utf8"

	"github.com/spf13/cobra"
)

// goType is what pflag shows of a flag that was given no word, and a default
// that means "not set".
var goType = regexp.MustCompile(`--[a-z-]+ (string|strings|stringArray|int|float|duration) |\(default -1\)`)

func TestEveryHelpFitsATerminalAndHasAnExample(t *testing.T) {
	commands := 0
	var look func(cmd *cobra.Command)
	look = func(cmd *cobra.Command) {
		for _, sub := range cmd.Commands() {
			if sub.IsAvailableCommand() {
				look(sub)
			}
		}
		commands++
		if cmd.Example == "" {
			t.Errorf("%s --help has no example", cmd.CommandPath())
		}
		if root := cmd.Root(); cmd.Parent() == root && cmd.GroupID == "" {
			t.Errorf("%s has no section in berth --help", cmd.CommandPath())
		}
		var out bytes.Buffer
		cmd.SetOut(&out)
		if err := cmd.Help(); err != nil {
			t.Fatal(err)
		}
		for line := range bytes.Lines(out.Bytes()) {
			if wide := utf8.RuneCount(bytes.TrimRight(line, "\n")); wide > helpColumns {
				t.Errorf("%s --help: a line of %d columns: %s", cmd.CommandPath(), wide, line)
			}
			if typed := goType.Find(line); typed != nil {
				t.Errorf("%s --help names a Go type or a placeholder: %s", cmd.CommandPath(), line)
			}
			if bytes.HasSuffix(line, []byte(" \n")) {
				t.Errorf("%s --help: white space ends %q", cmd.CommandPath(), line)
			}
		}
	}
	look(newRoot())
	if commands < 25 {
		t.Errorf("looked at %d commands only", commands)
	}
}

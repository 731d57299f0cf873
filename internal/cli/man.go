package cli

import (
	"cmp"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"berth/internal/cli/manual"
	"berth/internal/cli/session"
	"berth/internal/text/problem"
)

// writeMan writes the man pages of all verbs and topics below a directory.
func writeMan(root *cobra.Command, dir string) error {
	files := map[string]string{}
	addVerbs(files, root)
	known := map[string]bool{}
	for _, p := range pages() {
		known[p.Topic] = true
	}
	for _, p := range pages() {
		files[p.ManName()] = p.Man(session.Version, func(topic string) bool { return known[topic] })
	}
	for name, content := range files {
		path := filepath.Join(dir, name)
		err := os.MkdirAll(filepath.Dir(path), 0o755)
		if err == nil {
			err = os.WriteFile(path, []byte(content), 0o644)
		}
		if err != nil {
			return problem.Newf(problem.Unable, "berth help --man DIR needs a directory it can write to", "write the man pages: %w", err)
		}
	}
	return nil
}

func addVerbs(files map[string]string, cmd *cobra.Command) {
	v := manual.Verb{Path: cmd.CommandPath(), Synopsis: cmd.UseLine(), Short: cmd.Short, Long: cmd.Long, Example: cmd.Example, Flags: manFlags(cmd)}
	v.Long = cmp.Or(v.Long, v.Short+".")
	if cmd.HasParent() {
		v.SeeAlso = append(v.SeeAlso, cmd.Parent().CommandPath())
	}
	for _, sub := range cmd.Commands() {
		if sub.IsAvailableCommand() || sub.Name() == "help" {
			v.SeeAlso = append(v.SeeAlso, sub.CommandPath())
			addVerbs(files, sub)
		}
	}
	files[v.ManName()] = v.Man(session.Version)
}

// manFlags are the flags of a verb, those it shares with others last.
func manFlags(cmd *cobra.Command) (list []manual.Flag) {
	add := func(f *pflag.Flag) {
		if f.Hidden {
			return
		}
		value, help := pflag.UnquoteUsage(f)
		forms := "--" + f.Name
		if f.Shorthand != "" {
			forms = "-" + f.Shorthand + ", " + forms
		}
		if f.NoOptDefVal == "" && value != "" {
			forms += " " + value
		}
		list = append(list, manual.Flag{Forms: forms, Help: strings.TrimSpace(help)})
	}
	cmd.LocalFlags().VisitAll(add)
	cmd.InheritedFlags().VisitAll(add)
	return list
}

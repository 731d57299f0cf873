package cli

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"unicode"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"berth/internal/batch"
	"berth/internal/jobfile"
)

// Version is set when a release is built.
var Version = "0.1.0"

// Exit statuses that mean the same for every verb.
const (
	exitFailed = 1
	exitUsage  = 2
)

// status carries an exit status through cobra without a message.
type status int

func (s status) Error() string { return fmt.Sprintf("exit status %d", int(s)) }

// Main runs the command line and returns the exit status.
func Main(args []string, out, errOut io.Writer) int {
	root := newRoot()
	root.SetArgs(args)
	root.SetOut(out)
	root.SetErr(errOut)
	err := root.Execute()
	if err == nil {
		return 0
	}
	var code status
	if errors.As(err, &code) {
		return int(code)
	}
	var problem *batch.Problem
	if errors.As(err, &problem) {
		complain(errOut, problem.What, problem.Hint)
		return problem.Code
	}
	complain(errOut, err.Error(), hintFor(err))
	return exitUsage
}

// complain says what is wrong and what to do next.
func complain(w io.Writer, what, hint string) {
	for _, line := range strings.Split(what, "\n") {
		fmt.Fprintf(w, "berth: %s\n", printable(line))
	}
	if hint != "" {
		fmt.Fprintf(w, "hint: %s\n", printable(hint))
	}
}

// printable keeps the name of a file or a flag from driving the terminal.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return unicode.ReplacementChar
	}, text)
}

// usageError is bad usage, with the way to better.
type usageError struct {
	what, hint string
}

func (u *usageError) Error() string { return u.what }

func hintFor(err error) string {
	var usage *usageError
	if errors.As(err, &usage) {
		return usage.hint
	}
	return "see berth --help"
}

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:   "berth",
		Short: "A GPU job scheduler for the machine you have",
		Long: `berth queues commands, places each on GPUs with room for it, keeps it running
through disconnects, measures what it really used, and explains every wait.`,
		Example: `  berth run jobs.txt              run a file of commands on this machine's GPUs
  berth run jobs.txt --sim 2      the same on two simulated GPUs`,
		Version:       Version,
		SilenceUsage:  true,
		SilenceErrors: true,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return nil
			}
			return unknownCommand(cmd, args[0])
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetVersionTemplate("berth {{.Version}}\n")
	root.SetFlagErrorFunc(flagError)
	root.CompletionOptions.HiddenDefaultCmd = true
	root.AddCommand(newRun(), newSimjob())
	return root
}

func unknownCommand(cmd *cobra.Command, word string) error {
	var known []string
	for _, c := range cmd.Commands() {
		if c.IsAvailableCommand() {
			known = append(known, c.Name())
		}
	}
	hint := "commands: " + strings.Join(known, ", ")
	if near := jobfile.Nearest(word, known); near != "" {
		hint = fmt.Sprintf("did you mean %q?", near)
	}
	return &usageError{what: fmt.Sprintf("unknown command %q", word), hint: hint}
}

// flagError suggests the nearest flag for one that does not exist.
func flagError(cmd *cobra.Command, err error) error {
	usage := &usageError{what: err.Error(), hint: fmt.Sprintf("see %s --help", cmd.CommandPath())}
	var value *pflag.InvalidValueError
	if errors.As(err, &value) {
		usage.what = badValue(value)
		return usage
	}
	word, found := strings.CutPrefix(err.Error(), "unknown flag: --")
	if !found {
		return usage
	}
	var known []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) { known = append(known, f.Name) })
	if near := jobfile.Nearest(word, known); near != "" {
		usage.hint = fmt.Sprintf("did you mean --%s? all flags: %s --help", near, cmd.CommandPath())
	}
	return usage
}

// stdoutIsTerminal is true where a live view can be drawn.
func stdoutIsTerminal(out io.Writer) bool {
	file, ok := out.(*os.File)
	return ok && isTerminal(file) && os.Getenv("TERM") != "dumb" && os.Getenv("TERM") != ""
}

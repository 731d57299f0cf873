package cli

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"berth/internal/cli/session"
	"berth/internal/job/jobfile"
	"berth/internal/text"
	"berth/internal/text/problem"
)

// helpWidth is where flag descriptions wrap. pflag lets a word run up to five
// columns over, so 75 keeps every line within 80.
const helpWidth = 75

// Main runs the command line and returns the exit status.
func Main(args []string, out, errOut io.Writer) int {
	if slices.Equal(args, []string{"--version"}) { // no command is made for it
		fmt.Fprintf(out, "berth %s\n", session.Version)
		return 0
	}
	root := newRoot(args...)
	root.SetArgs(args)
	root.SetOut(out)
	root.SetErr(errOut)
	cmd, err := root.ExecuteC()
	if err == nil {
		return 0
	}
	if code, ok := errors.AsType[session.ExitStatus](err); ok {
		return int(code)
	}
	p, ok := errors.AsType[*problem.Problem](err)
	if !ok {
		p = problem.Wrap(problem.Invalid, "see "+cmd.CommandPath()+" --help", err)
	}
	fmt.Fprint(errOut, text.Complaint("berth", p.What, p.Hint))
	return p.Kind.ExitStatus()
}

// newRoot makes the command that these words name, or all of them if the first
// names none: they have hundreds of flags, which a short command would wait for.
func newRoot(words ...string) *cobra.Command {
	root := &cobra.Command{
		Use:   "berth",
		Short: "A GPU job scheduler for the machine you have",
		Long: `berth queues commands and runs each on GPUs with room for it. Jobs survive
disconnects, their GPU use is measured, and every wait has a reason.

Most commands take --host ADDRESS, for a daemon on another machine.`,
		Example: `  berth run jobs.txt              run a file of commands on this machine's GPUs
  berth run jobs.txt --sim 2      the same on two simulated GPUs
  berth submit -- python train.py queue a command
  berth list                      show the queue, and why each job waits
  berth logs -f @                 follow the output of your last job
  berth --host gpu1:7878 list     show the queue of another machine`,
		Version:       session.Version,
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
	root.SetUsageTemplate(strings.ReplaceAll(root.UsageTemplate(), ".FlagUsages", fmt.Sprintf(".FlagUsagesWrapped %d", helpWidth)))
	root.SetFlagErrorFunc(flagError)
	session.HostFlag(root)
	root.CompletionOptions.DisableDefaultCmd = true
	named := func(v verb) bool { return len(words) > 0 && v.name == words[0] }
	all := !slices.ContainsFunc(verbs(), named)
	for _, v := range verbs() {
		if all || named(v) {
			root.AddCommand(v.make())
		}
	}
	if all {
		root.SetHelpCommand(newHelp())
		group(root)
		root.SetHelpCommandGroupID("see")
	}
	nameValues(root)
	if all {
		completeFlags(root)
	}
	return root
}

// verb is a command that is made when it is needed.
type verb struct {
	name string
	make func() *cobra.Command
}

func verbs() []verb {
	return []verb{
		{"run", newRun}, {"submit", newSubmit}, {"sweep", newSweep},
		{"list", newList}, {"top", newTop}, {"web", newWeb}, {"show", newShow}, {"why", newWhy}, {"logs", newLogs}, {"attach", newAttach},
		{"wait", newWait}, {"history", newHistory}, {"stats", newStats}, {"simulate", newSimulate}, {"estimate", newEstimate},
		{"cancel", newCancel}, {"hold", newHold}, {"release", newRelease}, {"park", newPark}, {"unpark", newUnpark}, {"saved", newSaved}, {"requeue", newRequeue},
		{"edit", newEdit}, {"group", newGroup}, {"notify", newNotify}, {"adopt", newAdopt},
		{"start", newStart}, {"stop", newStop}, {"restart", newRestart}, {"status", newStatus}, {"serve", newServe}, {"config", newConfig},
		{"gpus", newGPUs}, {"gpu", newGPU}, {"doctor", newDoctor}, {"backup", newBackup}, {"restore", newRestore}, {"token", newToken},
		{"debug", newDebug}, {"mcp", newMCP}, {"simjob", newSimjob}, {"compat", newCompat}, {"completion", newCompletion}, {"version", newVersion},
	}
}

// group assigns each verb to a section of the help.
func group(root *cobra.Command) {
	groups := []struct{ id, title, verbs string }{
		{"run", "Run jobs:", "run submit sweep"},
		{"see", "See what is going on:", "list top web show why logs attach wait history stats simulate estimate"},
		{"act", "Change jobs:", "cancel hold release park unpark saved requeue edit group notify adopt"},
		{"machine", "The machine and its daemon:", "start stop restart status serve config gpus gpu doctor backup restore token debug mcp simjob compat completion version"},
	}
	for _, g := range groups {
		root.AddGroup(&cobra.Group{ID: g.id, Title: g.title})
		for _, cmd := range root.Commands() {
			if slices.Contains(strings.Fields(g.verbs), cmd.Name()) {
				cmd.GroupID = g.id
			}
		}
	}
}

// flagError suggests the nearest flag for one that does not exist.
func flagError(cmd *cobra.Command, err error) error {
	usage := problem.Wrap(problem.Invalid, fmt.Sprintf("see %s --help", cmd.CommandPath()), err)
	var value *pflag.InvalidValueError
	if errors.As(err, &value) {
		usage.What = fmt.Sprintf("--%s: expected %s, found %q", value.GetFlag().Name, expected(value.GetFlag(), value.Unwrap()), value.GetValue())
		return usage
	}
	word, found := strings.CutPrefix(err.Error(), "unknown flag: --")
	if !found {
		return usage
	}
	var known []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) { known = append(known, f.Name) })
	near := text.Nearest(word, known)
	if field, err := jobfile.Lookup(word); err == nil && cmd.Flags().Lookup(field.FlagName()) != nil {
		near = field.FlagName() // they wrote its key
	}
	if near != "" {
		usage.Hint = fmt.Sprintf("did you mean --%s? all flags: %s --help", near, cmd.CommandPath())
	}
	return usage
}

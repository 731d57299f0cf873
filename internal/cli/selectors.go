package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"berth/internal/api"
	"berth/internal/cli/session"
	"berth/internal/job/jobfile"
	"berth/internal/text"
	"berth/internal/text/problem"
)

// selectors choose the jobs of a verb: ids, and flags that narrow them down.
type selectors struct {
	name, user string
	group      string
	batch      string
	states     []string
	allUsers   bool
}

func (f *selectors) register(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.name, "name", "", "only jobs with this name or pattern, as in 'sweep-*'")
	flags.StringVarP(&f.user, "user", "u", "", "only jobs of this user")
	flags.StringVar(&f.batch, "batch", "", "only the lines of this jobs `file`")
	flags.StringSliceVar(&f.states, "state", nil, "only jobs in these states: queued, held, running, parked, finished, failed, cancelled")
}

// registerGroup adds --group, which means something else where it changes jobs.
func (f *selectors) registerGroup(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.group, "group", "", "only jobs of this group")
}

// registerOwn is register for verbs that change jobs: they include jobs of other
// users only on request.
func (f *selectors) registerOwn(cmd *cobra.Command) {
	f.register(cmd)
	cmd.Flags().BoolVar(&f.allUsers, "all-users", false, "jobs of all users, not only your own (administrators)")
}

func (f *selectors) empty(words []string) bool {
	return len(words) == 0 && f.name == "" && f.user == "" && f.group == "" && f.batch == "" && len(f.states) == 0
}

var stateWords = []string{"queued", "held", "running", "parked", "finished", "failed", "cancelled"}

// sel is the selection to send to the daemon.
func (f *selectors) sel(words []string) (api.Select, error) {
	parsed, err := jobfile.ParseSelection(words)
	if err != nil {
		return api.Select{}, problem.Wrap(problem.Invalid, "berth list shows ids and names", err)
	}
	for i, state := range f.states {
		f.states[i] = strings.ToLower(state)
		if !slices.Contains(stateWords, f.states[i]) {
			return api.Select{}, problem.Newf(problem.Invalid, text.DidYouMean(state, stateWords), "--state: expected %s, found %q", text.Or(stateWords), state)
		}
	}
	s := api.Select{All: parsed.All, Name: f.name, User: f.user, Group: f.group, Batch: session.FileName(f.batch), States: f.states}
	if !parsed.All {
		s.Words = words
	}
	return s, nil
}

// own is sel for verbs that change jobs: without ids it selects the caller's own
// jobs, unless another user or all users are named.
func (f *selectors) own(words []string) (api.Select, error) {
	sel, err := f.sel(words)
	sel.All = sel.All || len(words) == 0
	if f.allUsers && sel.User == "" {
		sel.User = everyone
	}
	return sel, err
}

// everyone is the user name that means all users.
const everyone = "*"

// needJobs is the complaint about a verb without jobs.
func needJobs(verb string) error {
	return problem.Newf(problem.Invalid, fmt.Sprintf("berth %s 17, berth %[1]s 1-3,7, berth %[1]s @ (your last), berth %[1]s train (by name), or berth %[1]s all", verb), "%s: expected at least one job, found none", verb)
}

// exactlyOne expects one job.
func exactlyOne(cmd *cobra.Command, args []string) error {
	if len(args) == 1 {
		return nil
	}
	return problem.Newf(problem.Invalid, fmt.Sprintf("%s 17, %[1]s train (by name), or %[1]s @ for your last job", cmd.CommandPath()), "expected one job, found %d", len(args))
}

// noWords expects flags only.
func noWords(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	return problem.Newf(problem.Invalid, "see "+cmd.CommandPath()+" --help", "expected only flags after %s, found %q", cmd.CommandPath(), args[0])
}

// noJobs is noWords for a verb about the daemon, which other tools have for
// jobs; verb is the one that does that to a job.
func noJobs(verb string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return nil
		}
		return problem.Newf(problem.Invalid, fmt.Sprintf("for a job: berth %s %s", verb, strings.Join(args, " ")), "%s is about the daemon: expected only flags, found %q", cmd.CommandPath(), args[0])
	}
}

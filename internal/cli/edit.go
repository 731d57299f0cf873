package cli

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"berth/internal/api"
	"berth/internal/cli/render"
	"berth/internal/cli/session"
	"berth/internal/job"
	"berth/internal/job/jobfile"
	"berth/internal/text"
	"berth/internal/text/problem"
)

// editOptions are the flags of `berth edit`.
type editOptions struct {
	jobFlags
	json bool
}

func newEdit() *cobra.Command {
	o := &editOptions{}
	cmd := &cobra.Command{
		Use:   "edit JOB [KEY=VALUE...] [flags] [-- COMMAND...]",
		Short: "Change a job that has not started",
		Long: `Change a job that has not started, or all tasks of an array or a sweep that have
not (--max: how many of them may run at a time); if one of these cannot be
changed, none is. Keys are those of a spec file (gpus, vram, timeout, priority,
env.NAME, command and so on), flags those of submit. KEY= without a value, or
--unset, gives a key its default again. Everything else stays as it is. berth
requeue changes a job that has ended and runs it again.

On a terminal, a job without changes is opened in an editor (VISUAL, EDITOR or
vi) as a spec file; what you save is applied.`,
		Example: `  berth edit 17                  in an editor
  berth edit 17 --priority 5 --time 2h
  berth edit 17 vram=24G gpus=2
  berth edit 17 --max 2            an array: how many tasks run at a time
  berth edit 17 --unset vram,timeout
  berth edit @ -- python train.py --epochs 3

Exit status: 0 changed; 1 refused (the job has started or is not yours), or no
daemon; 2 bad usage; 130 interrupted.`,
		ValidArgsFunction: completeJobs,
	}
	cmd.RunE = session.Verb(func(ctx context.Context, s *session.Session, args []string) error {
		return o.run(ctx, s, args, cmd.ArgsLenAtDash())
	})
	session.ActFlags(cmd)
	cmd.Annotations[session.ActsKey] = session.ActsOnFirst
	o.registerChanges(cmd)
	cmd.Flags().BoolVar(&o.json, "json", false, "print the changed job as a JSON object")
	return cmd
}

func (o *editOptions) run(ctx context.Context, s *session.Session, args []string, dash int) error {
	if len(args) == 1 && dash < 0 && len(o.pairs()) == 0 && len(o.unset) == 0 && render.IsTerminal(os.Stdin) && render.StdoutIsTerminal(s.Out) {
		return o.inEditor(ctx, s, args[0])
	}
	change, word, err := o.parse(args, dash)
	if err != nil {
		return err
	}
	if err := absolute(&change.Set.Dir, &change.Set.Venv); err != nil {
		return err
	}
	return o.send(ctx, s, word, change)
}

// send applies a change, and says what changed.
func (o *editOptions) send(ctx context.Context, s *session.Session, word string, change api.EditRequest) error {
	change.ID = word
	detail, err := api.Call(ctx, s.Client, api.EditJob, change)
	if err != nil {
		return o.named(err)
	}
	if o.json {
		return printJSON(s.Out, detail)
	}
	sayNotes(s, []api.Submitted{{ID: detail.ID, Notes: detail.Notes}})
	said := fmt.Sprintf("job %s: changed %s", detail.ID, strings.Join(changed(&change), ", "))
	if detail.Tasks != nil {
		left := maps.Clone(detail.Tasks.Counts)
		said = fmt.Sprintf("array %s: %s: changed %s", detail.ID, text.CountGrouped(detail.Changed, "task"), strings.Join(changed(&change), ", "))
		if delete(left, string(job.Queued)); len(left) > 0 {
			said += leftAlone(left)
		}
	}
	_, err = fmt.Fprintln(s.Out, text.Line(said))
	return err
}

// parse reads the job and its changes. The words after -- are the new command.
func (o *editOptions) parse(args []string, dash int) (change api.EditRequest, id string, err error) {
	words := args
	if dash >= 0 {
		words = args[:dash]
		change.Set.Command = commandOf(args[dash:])
	}
	if len(words) == 0 {
		return change, "", problem.Newf(problem.Invalid, "berth edit 17 --priority 5, or berth edit @ vram=24G", "expected a job, found nothing")
	}
	if err := o.changes(&change); err != nil {
		return change, "", err
	}
	for _, word := range words[1:] {
		key, value, found := strings.Cut(word, "=")
		switch {
		case !found:
			return change, "", problem.Newf(problem.Invalid, "berth edit 17 vram=24G priority=5", "expected KEY=VALUE, found %q", word)
		case key == "command" && value != "":
			change.Set.Command = api.Command{Shell: value}
		case value == "":
			change.Unset = append(change.Unset, key)
		default:
			if err := setPair(&change.Set, jobfile.Pair{Key: key, Value: value}); err != nil {
				return change, "", problem.Wrap(problem.Invalid, "see berth edit --help", err)
			}
		}
	}
	if change.None() {
		return change, "", problem.Newf(problem.Invalid, "berth edit 17 --priority 5, or berth edit @ vram=24G", "expected a change, found none")
	}
	return change, words[0], nil
}

// changed lists the keys that an edit sets or unsets.
func changed(r *api.EditRequest) []string {
	keys := slices.Clone(r.Unset)
	if r.Set.Command.Shell != "" || len(r.Set.Command.Argv) > 0 {
		keys = append(keys, "command")
	}
	for _, pair := range r.Set.Pairs() {
		if !slices.Contains(keys, pair.Key) {
			keys = append(keys, pair.Key)
		}
	}
	return keys
}

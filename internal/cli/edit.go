package cli

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"berth/internal/api"
	"berth/internal/jobfile"
	"berth/internal/problem"
	"berth/internal/text"
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
		Long: `Change a job that has not started. Keys are those of a spec file (gpus, vram,
timeout, priority, env.NAME, command and so on), flags are those of submit.
Everything else stays as it is.`,
		Example: `  berth edit 17 --priority 5 --time 2h
  berth edit 17 vram=24G gpus=2
  berth edit @ -- python train.py --epochs 3

Exit status: 0 changed; 1 refused (the job has started or is not yours), or no
daemon; 2 bad usage; 130 interrupted.`,
		ValidArgsFunction: completeJobs,
	}
	cmd.RunE = verb(func(ctx context.Context, s *session, args []string) error {
		return o.run(ctx, s, args, cmd.ArgsLenAtDash())
	})
	daemonFlags(cmd)
	o.register(cmd)
	cmd.Flags().BoolVar(&o.json, "json", false, "print the changed job as a JSON object")
	return cmd
}

func (o *editOptions) run(ctx context.Context, s *session, args []string, dash int) error {
	set, word, err := o.parse(args, dash)
	if err != nil {
		return err
	}
	if err := absolute(&set.Dir, &set.Venv); err != nil {
		return err
	}
	detail, err := s.client.Edit(ctx, word, api.EditRequest{Set: set})
	if err != nil {
		return err
	}
	if o.json {
		return printJSON(s.out, detail)
	}
	_, err = fmt.Fprintln(s.out, text.Line(fmt.Sprintf("job %s: changed %s", detail.ID, strings.Join(changes(set), ", "))))
	return err
}

// absolute makes paths absolute: an edit, unlike a submission, does not tell the
// daemon the current directory.
func absolute(paths ...*api.Text) error {
	for _, path := range paths {
		if *path == "" || filepath.IsAbs(string(*path)) || *path == "~" || strings.HasPrefix(string(*path), "~/") {
			continue
		}
		whole, err := filepath.Abs(string(*path))
		if err != nil {
			return fmt.Errorf("working directory: %w", err)
		}
		*path = api.Text(whole)
	}
	return nil
}

// parse reads the job and its changes. The words after -- are the new command.
func (o *editOptions) parse(args []string, dash int) (set api.Spec, id string, err error) {
	words := args
	if dash >= 0 {
		words = args[:dash]
		set.Command = commandOf(args[dash:])
	}
	if len(words) == 0 {
		return set, "", problem.Newf(problem.Invalid, "berth edit 17 --priority 5, or berth edit @ vram=24G", "expected a job, found nothing")
	}
	if err := o.apply(&set); err != nil {
		return set, "", err
	}
	for _, word := range words[1:] {
		key, value, found := strings.Cut(word, "=")
		switch {
		case !found || value == "":
			return set, "", problem.Newf(problem.Invalid, "berth edit 17 vram=24G priority=5", "expected KEY=VALUE, found %q", word)
		case key == "command":
			set.Command = api.Command{Shell: value}
		default:
			if err := setPair(&set, jobfile.Pair{Key: key, Value: value}); err != nil {
				return set, "", problem.Wrap(problem.Invalid, "see berth edit --help", err)
			}
		}
	}
	if len(changes(set)) == 0 {
		return set, "", problem.Newf(problem.Invalid, "berth edit 17 --priority 5, or berth edit @ vram=24G", "expected a change, found none")
	}
	return set, words[0], nil
}

// changes lists the keys that an edit sets.
func changes(set api.Spec) []string {
	var keys []string
	if set.Command.Shell != "" || len(set.Command.Argv) > 0 {
		keys = append(keys, "command")
	}
	for _, pair := range set.Pairs() {
		keys = append(keys, pair.Key)
	}
	return keys
}

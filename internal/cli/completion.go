package cli

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"berth/internal/api"
	"berth/internal/cli/render"
	"berth/internal/cli/session"
	"berth/internal/text"
	"berth/internal/text/problem"
)

// shells are those that completion exists for.
var shells = map[string]func(*cobra.Command, io.Writer) error{
	"bash": bashCompletion,
	"zsh":  (*cobra.Command).GenZshCompletion,
	"fish": func(root *cobra.Command, w io.Writer) error { return root.GenFishCompletion(w, true) },
}

// bashCompletion is cobra's script without what it needs of the package
// bash-completion, which is not installed everywhere.
func bashCompletion(root *cobra.Command, w io.Writer) error {
	var script bytes.Buffer
	if err := root.GenBashCompletionV2(&script, true); err != nil {
		return err
	}
	_, err := strings.NewReplacer(`    _get_comp_words_by_ref "$@" cur prev words cword
`, `    if declare -F _get_comp_words_by_ref >/dev/null; then
        _get_comp_words_by_ref "$@" cur prev words cword
        return
    fi
    words=("${COMP_WORDS[@]}")
    cword=$COMP_CWORD
    cur=${words[cword]}
    prev=${words[cword-1]}
`, `            _filedir -d
        fi
`, `            compopt -o filenames
            mapfile -t COMPREPLY < <(compgen -d -- "$cur")
        fi
`).WriteString(w, script.String())
	return err
}

var shellWords = []string{"bash", "fish", "zsh"}

func newCompletion() *cobra.Command {
	return &cobra.Command{
		Use:   "completion SHELL",
		Short: "Print a script that completes commands with Tab",
		Long: `Print a script for bash, zsh or fish. With it, the Tab key completes verbs,
flags, the values of flags, and jobs: their ids, with name and state, and their
names. Verbs that read, such as logs, also offer jobs that have ended.`,
		Example: `  source <(berth completion bash)                   in this shell only
  berth completion bash > ~/.local/share/bash-completion/completions/berth
  berth completion zsh > ~/.zfunc/_berth            a directory in fpath
  berth completion fish > ~/.config/fish/completions/berth.fish

Exit status: 0 printed; 2 bad usage.`,
		ValidArgs: shellWords,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 1 && shells[args[0]] != nil {
				return nil
			}
			return problem.Newf(problem.Invalid, "source <(berth completion bash)", "expected one of %s, found %q", text.Or(shellWords), strings.Join(args, " "))
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			return shells[args[0]](cmd.Root(), cmd.OutOrStdout())
		},
	}
}

// flagChoices are the words that a flag takes, for flags that take only a few.
var flagChoices = map[string][]string{
	"cap":         {"none", "soft", "mps"},
	"estimates":   {"history", "perfect", "limits", "none"},
	"export":      {"all", "none"},
	"format":      {"lines", "csv"},
	"log-level":   {"debug", "info", "warn", "error"},
	"on-timeout":  {"kill", "requeue", "park"},
	"placement":   {"pack", "spread"},
	"policy":      {"backfill", "fifo", "conservative", "shortest", "las", "fair"},
	"preempt":     {"requeue", "never", "park"},
	"preemptible": {"park", "requeue", "park,requeue"},
	"checkpoint":  {"30m", "term"},
	"parking":     {"preemptible", "all", "off"},
	"retry-on":    {"oom", "fail"},
	"to":          {"local", "slurm"},
	"state":       stateWords,
	"train":       {"full", "lora"},
	"vram":        {"auto", "estimate:"},
}

// completeFlags has every flag of a command and of those below it completed with
// its values; files and directories only where one is expected.
func completeFlags(cmd *cobra.Command) {
	complete := func(f *pflag.Flag) {
		words, directive := flagChoices[f.Name], cobra.ShellCompDirectiveNoFileComp
		switch f.Value.Type() {
		case "jobs":
			_ = cmd.RegisterFlagCompletionFunc(f.Name, completeEndedToo)
			return
		}
		if f.Name == "group" {
			_ = cmd.RegisterFlagCompletionFunc(f.Name, completeGroups)
			return
		}
		switch f.Value.Type() {
		case "file", "path", "pattern", "DIR":
			directive = cobra.ShellCompDirectiveDefault
		case "dir":
			directive = cobra.ShellCompDirectiveFilterDirs
		}
		// A flag that several commands share is registered once.
		_ = cmd.RegisterFlagCompletionFunc(f.Name, cobra.FixedCompletions(words, directive))
	}
	cmd.Flags().VisitAll(complete)
	cmd.PersistentFlags().VisitAll(complete)
	for _, below := range cmd.Commands() {
		completeFlags(below)
	}
}

// completeList completes the last word of a list of words with commas.
func completeList(cmd *cobra.Command, flag string, words []string) {
	_ = cmd.RegisterFlagCompletionFunc(flag, func(_ *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
		before := typed[:strings.LastIndex(typed, ",")+1]
		offered := make([]string, len(words))
		for i, word := range words {
			offered[i] = before + word
		}
		return offered, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveKeepOrder
	})
}

// completionPatience is how long completion in a shell may take.
const completionPatience = time.Second

// completeJobs completes unfinished jobs in a shell.
func completeJobs(cmd *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
	return jobsToComplete(cmd, typed, api.Query{})
}

// completeEndedToo also completes jobs that have ended.
func completeEndedToo(cmd *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
	return jobsToComplete(cmd, typed, api.Query{Over: true})
}

func jobsToComplete(cmd *cobra.Command, typed string, q api.Query) ([]string, cobra.ShellCompDirective) {
	const directive = cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveKeepOrder
	s, err := session.OpenSession(cmd, false)
	if err != nil {
		return nil, directive
	}
	ctx, cancel := context.WithTimeout(context.Background(), completionPatience)
	defer cancel()
	// An array is one word, until its tasks are asked for.
	q.Limit, q.Queue, q.Arrays = 100, true, !strings.Contains(typed, "_")
	page, err := api.Call(ctx, s.Client, api.ListJobs, q)
	if err != nil {
		return nil, directive
	}
	return completions(render.Fold(page.Jobs, page), typed), directive
}

// completeGroups completes the user's groups.
func completeGroups(cmd *cobra.Command, _ []string, typed string) (words []string, _ cobra.ShellCompDirective) {
	s, err := session.OpenSession(cmd, false)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	ctx, cancel := context.WithTimeout(context.Background(), completionPatience)
	defer cancel()
	groups, _ := api.Call(ctx, s.Client, api.ListGroups, api.GroupQuery{}) // without an answer there is nothing to offer
	for _, g := range groups {
		if strings.HasPrefix(g.Name, typed) {
			words = append(words, g.Name+"\t"+render.GroupText(g))
		}
	}
	return words, cobra.ShellCompDirectiveNoFileComp
}

// completions are ids with name and state; once a letter was typed, names.
func completions(rows []render.Row, typed string) (words []string) {
	byName := strings.Trim(typed, "0123456789_-@~") != ""
	for _, r := range rows {
		kind, state := "job", string(r.State)
		if r.Tasks != nil {
			kind, state = "array", r.Tasks.String()
		}
		word, about := r.ID, fmt.Sprintf("%s, %s", text.Line(r.Name), state)
		if byName {
			word, about = text.Line(r.Name), fmt.Sprintf("%s %s, %s", kind, r.ID, state)
		}
		if strings.HasPrefix(word, typed) && !slices.ContainsFunc(words, func(other string) bool { return strings.HasPrefix(other, word+"\t") }) {
			words = append(words, word+"\t"+about)
		}
	}
	return words
}

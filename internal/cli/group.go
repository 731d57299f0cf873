package cli

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"berth/internal/api"
	"berth/internal/cli/render"
	"berth/internal/cli/session"
	"berth/internal/job/jobfile"
	"berth/internal/text"
	"berth/internal/text/problem"
)

const groupStatuses = `

Exit status: 0 done; 1 refused, or no daemon; 2 bad usage; 130 interrupted.`

func newGroup() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "group",
		Short: "Limit and pause groups of your jobs",
		Long: `A group is a name that jobs share (--group io). You can limit how many of its
jobs run at a time, and pause it. Each user has groups of their own.`,
		Example: `  berth submit --group io -- python convert.py
  berth group set io --limit 2
  berth group list
  berth group pause io
  berth group resume io
  berth group remove io` + groupStatuses,
	}
	withVerbs(cmd, newGroupSet(), newGroupList(), newGroupPause(true), newGroupPause(false), newGroupRemove())
	return cmd
}

// groupFlags are what the verbs that change groups have in common.
type groupFlags struct {
	user string
	json bool
}

func (f *groupFlags) register(cmd *cobra.Command) {
	cmd.Flags().StringVarP(&f.user, "user", "u", "", "the group of this user (administrators)")
}

func newGroupSet() *cobra.Command {
	f, limit := &groupFlags{}, ""
	cmd := &cobra.Command{
		Use:   "set NAME... --limit N",
		Short: "Set how many jobs of a group may run at a time",
		Long: `Set how many jobs of a group may run at a time; none lifts the limit. A group
needs no creation. Jobs above a lowered limit keep running.`,
		Example: `  berth group set io --limit 2
  berth group set io --limit none` + groupStatuses,
		Args:              someGroups,
		ValidArgsFunction: completeGroups,
		RunE: session.Verb(func(ctx context.Context, s *session.Session, names []string) error {
			if limit == "" {
				return problem.Newf(problem.Invalid, fmt.Sprintf("berth group set %s --limit 2", names[0]), "expected --limit N or --limit none, found neither")
			}
			return f.change(ctx, s, names, api.GroupRequest{User: f.user, Limit: api.Text(limit)})
		}),
	}
	f.register(cmd)
	cmd.Flags().StringVar(&limit, "limit", "", "how many of its jobs may run at a time: a `number`, or none")
	cmd.Flags().BoolVar(&f.json, "json", false, "print the groups as a JSON array")
	return cmd
}

func newGroupPause(pause bool) *cobra.Command {
	f := &groupFlags{}
	cmd := &cobra.Command{
		Use:   "resume NAME...",
		Short: "Let jobs of a paused group start again",
		Long: `Let jobs of a paused group start again. The time it was paused does not count as
waiting.`,
		Example: `  berth group resume io` + groupStatuses,
	}
	if pause {
		cmd.Use, cmd.Short = "pause NAME...", "Start no more jobs of a group"
		cmd.Long = "Start no more jobs of a group until it is resumed. Its running jobs go on."
		cmd.Example = `  berth group pause io
  berth group pause io convert` + groupStatuses
	}
	cmd.Args, cmd.ValidArgsFunction = someGroups, completeGroups
	cmd.RunE = session.Verb(func(ctx context.Context, s *session.Session, names []string) error {
		return f.change(ctx, s, names, api.GroupRequest{User: f.user, Paused: &pause})
	})
	f.register(cmd)
	cmd.Flags().BoolVar(&f.json, "json", false, "print the groups as a JSON array")
	return cmd
}

func newGroupRemove() *cobra.Command {
	f := &groupFlags{}
	cmd := &cobra.Command{
		Use:   "remove NAME...",
		Short: "Lift the limit and the pause of a group",
		Long: `Lift the limit and the pause of a group. Its jobs keep the name; to end them,
use berth cancel --group NAME.`,
		Example:           `  berth group remove io` + groupStatuses,
		Args:              someGroups,
		ValidArgsFunction: completeGroups,
		RunE: session.Verb(func(ctx context.Context, s *session.Session, names []string) error {
			for _, name := range names {
				if err := api.Do(ctx, s.Client, api.RemoveGroup, api.GroupRemoval{GroupName: api.GroupName{Name: name}, User: f.user}); err != nil {
					return err
				}
				fmt.Fprintf(s.Out, "group %s: removed\n", text.Line(name))
			}
			return nil
		}),
	}
	f.register(cmd)
	return cmd
}

func newGroupList() *cobra.Command {
	f, all := &groupFlags{}, false
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List groups with their limits and jobs",
		Long:  "List the groups that are limited or paused, or have unfinished jobs.",
		Example: `  berth group list
  berth group list --all-users --json` + groupStatuses,
		Args: noWords,
		RunE: session.Verb(func(ctx context.Context, s *session.Session, _ []string) error {
			q := api.GroupQuery{User: f.user}
			if all {
				q.User = everyone
			}
			groups, err := api.Call(ctx, s.Client, api.ListGroups, q)
			switch {
			case err != nil && !s.NoJobsYet(err):
				return err
			case f.json:
				return printJSON(s.Out, notNull(groups))
			case len(groups) == 0:
				_, err := fmt.Fprintln(s.Out, "no groups")
				return err
			}
			return s.Screen.Draw(groupTable(groups, all))
		}),
	}
	cmd.Flags().StringVarP(&f.user, "user", "u", "", "the groups of this user")
	cmd.Flags().BoolVar(&all, "all-users", false, "the groups of all users")
	cmd.Flags().BoolVar(&f.json, "json", false, "print a JSON array of groups")
	return cmd
}

func someGroups(_ *cobra.Command, args []string) error {
	if len(args) > 0 {
		return nil
	}
	return problem.Newf(problem.Invalid, "berth group list shows them", "expected the name of a group, found none")
}

func (f *groupFlags) change(ctx context.Context, s *session.Session, names []string, r api.GroupRequest) error {
	changed := []api.Group{}
	for _, name := range names {
		r.Name = name
		g, err := api.Call(ctx, s.Client, api.SetGroup, r)
		if err != nil {
			return err
		}
		changed = append(changed, g)
		if r.Paused != nil && g.Running+g.Queued == 0 {
			s.Say("note: no unfinished job is in group %s%s", g.Name, f.meant(ctx, s, g.Name))
		}
		if !f.json {
			fmt.Fprintf(s.Out, "group %s: %s\n", text.Line(g.Name), text.Line(render.GroupText(g)))
		}
	}
	if f.json {
		return printJSON(s.Out, changed)
	}
	return nil
}

// meant suggests a group with jobs for one that has none.
func (f *groupFlags) meant(ctx context.Context, s *session.Session, name string) string {
	groups, err := api.Call(ctx, s.Client, api.ListGroups, api.GroupQuery{User: f.user})
	if err != nil {
		return ""
	}
	var names []string
	for _, g := range groups {
		if g.Running+g.Queued > 0 {
			names = append(names, g.Name)
		}
	}
	if near := text.Nearest(name, names); near != "" {
		return fmt.Sprintf("; did you mean %s?", near)
	}
	return ""
}

// groupLimits reads NAME=N for each group.
func groupLimits(words []string) (map[string]int, error) {
	limits := map[string]int{}
	for _, word := range words {
		name, number, _ := strings.Cut(word, "=")
		limit, err := strconv.Atoi(number)
		if err != nil || limit < 1 || limit > 1_000_000 {
			return nil, text.Mismatch(word, "the name of a group and a number from 1, as in io=2")
		}
		if _, err := jobfile.ParseGroup(name); err != nil {
			return nil, err
		}
		limits[name] = limit
	}
	return limits, nil
}

func groupTable(groups []api.Group, users bool) *text.Table {
	t := &text.Table{Columns: []text.Column{{Title: "GROUP"}, {Title: "LIMIT", Right: true}, {Title: "RUNNING", Right: true}, {Title: "QUEUED", Right: true}, {Title: "PAUSED"}}}
	if users {
		t.Columns = append([]text.Column{{Title: "USER"}}, t.Columns...)
	}
	for _, g := range groups {
		limit, paused := "none", "no"
		if g.Limit != nil {
			limit = strconv.Itoa(*g.Limit)
		}
		if g.Paused {
			paused = "by " + g.PausedBy
		}
		cells := []text.Cell{{Text: g.Name}, {Text: limit}, {Text: strconv.Itoa(g.Running)}, {Text: strconv.Itoa(g.Queued)}, {Text: paused}}
		if users {
			cells = append([]text.Cell{{Text: g.User}}, cells...)
		}
		t.Add(cells...)
	}
	return t
}

package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"berth/internal/api"
	"berth/internal/cli/render"
	"berth/internal/cli/session"
	"berth/internal/queue/notify"
	"berth/internal/text"
	"berth/internal/text/problem"
)

const notifyStatuses = `

Exit status: 0 done; 1 refused, not delivered, or no daemon; 2 bad usage;
130 interrupted.`

func newNotify() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "notify",
		Short: "Set who is told about your jobs, and see what was not delivered",
		Long: `Set who is told about those of your jobs that say nothing themselves
(berth submit --notify). A rule is EVENTS:TARGET. The events are start, end,
fail, oom and idle; a target alone is told about the end. The targets are
mailto:ADDRESS, webhook:URL, slack:URL, ntfy:TOPIC and exec:COMMAND.`,
		Example: `  berth notify set end,fail:mailto:ann@example.org
  berth notify test
  berth notify list
  berth notify remove` + notifyStatuses,
	}
	withVerbs(cmd, newNotifySet(), newNotifyList(), newNotifyTest(), newNotifyRemove(), newNotifyKey())
	return cmd
}

func newNotifySet() *cobra.Command {
	return &cobra.Command{
		Use:   "set RULE...",
		Short: "Set who is told about your jobs",
		Long: `Replace your rules. They count for all your jobs without rules of their own,
also for running ones.`,
		Example: `  berth notify set end,fail:mailto:ann@example.org
  berth notify set fail,oom:ntfy:my-jobs end:slack:https://hooks.slack.com/...` + notifyStatuses,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return nil
			}
			return problem.Newf(problem.Invalid, "berth notify set end:mailto:ann@example.org", "expected a rule, found nothing")
		},
		RunE: session.Verb(func(ctx context.Context, s *session.Session, args []string) error {
			rules, err := notify.ParseRules(args)
			if err != nil {
				return problem.Newf(problem.Invalid, "berth help get-told lists the targets", "%v", err)
			}
			for _, r := range rules {
				if risk := r.Target.Clear(); risk != "" {
					s.Say("%s: %s", r.Shown(), risk)
				}
			}
			return sendRules(ctx, s, args)
		}),
	}
}

func sendRules(ctx context.Context, s *session.Session, rules []string) error {
	now, err := api.Call(ctx, s.Client, api.SetNotify, api.NotifyRequest{Rules: &rules})
	if err != nil {
		return err
	}
	for _, rule := range now.Rules {
		fmt.Fprintln(s.Out, text.Line(rule))
	}
	if len(now.Rules) == 0 {
		fmt.Fprintln(s.Out, "no rules")
	}
	return nil
}

func newNotifyRemove() *cobra.Command {
	return &cobra.Command{
		Use:   "remove [TARGET...]",
		Short: "Remove rules: all, or those of these targets",
		Example: `  berth notify remove
  berth notify remove mailto:ann@example.org` + notifyStatuses,
		RunE: session.Verb(func(ctx context.Context, s *session.Session, args []string) error {
			if len(args) == 0 {
				return sendRules(ctx, s, []string{})
			}
			now, err := api.Call(ctx, s.Client, api.GetNotify, api.NotifyQuery{Secrets: true})
			if err != nil {
				return err
			}
			rules, err := notify.ParseRules(now.Rules)
			if err != nil {
				return err
			}
			for _, word := range args {
				before := len(rules)
				rules = slices.DeleteFunc(rules, func(r notify.Rule) bool { return isTarget(r, word) })
				if len(rules) == before {
					return problem.Newf(problem.NotFound, "berth notify list shows your rules", "no rule has this target")
				}
			}
			kept := []string{}
			for _, r := range rules {
				kept = append(kept, r.String())
			}
			return sendRules(ctx, s, kept)
		}),
	}
}

// isTarget reports whether a word names a rule or its target, in full or as the
// list shows it.
func isTarget(r notify.Rule, word string) bool {
	if t, err := notify.ParseTarget(word); err == nil && t == r.Target {
		return true
	}
	return word == r.String() || word == r.Shown() || word == r.Target.Shown()
}

func newNotifyList() *cobra.Command {
	secrets, asJSON := false, false
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List your rules, and messages that were not delivered",
		Long: `List your rules, and the messages that gather, wait for another try, or were
given up within the last week. The secret parts of targets are hidden.`,
		Example: `  berth notify list
  berth notify list --secrets` + notifyStatuses,
		Args: noWords,
		RunE: session.Verb(func(ctx context.Context, s *session.Session, _ []string) error {
			n, err := api.Call(ctx, s.Client, api.GetNotify, api.NotifyQuery{Secrets: secrets})
			if err != nil && !s.NoJobsYet(err) {
				return err
			}
			if asJSON {
				n.Rules, n.Messages = notNull(n.Rules), notNull(n.Messages)
				return printJSON(s.Out, n)
			}
			if len(n.Rules) == 0 {
				fmt.Fprintln(s.Out, "no rules")
			}
			for _, rule := range n.Rules {
				fmt.Fprintln(s.Out, text.Line(rule))
			}
			if n.Key != "" {
				fmt.Fprintln(s.Out, text.Line("key "+n.Key))
			}
			if len(n.Messages) == 0 {
				return nil
			}
			fmt.Fprintln(s.Out)
			return s.Screen.Draw(messageTable(n.Messages, time.Now()))
		}),
	}
	cmd.Flags().BoolVar(&secrets, "secrets", false, "show whole targets, and the key of your webhooks")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print a JSON object with rules and messages")
	return cmd
}

func messageTable(messages []api.NotifyMessage, now time.Time) *text.Table {
	t := &text.Table{
		Columns:     []text.Column{{Title: "MESSAGE"}, {Title: "TO"}, {Title: "STATE"}, {Title: "SINCE"}, {Title: "ERROR"}},
		Concessions: []text.Concession{{Title: "ERROR", To: 20}, {Title: "MESSAGE", To: 20}, {Title: "TO", To: 20}},
	}
	for _, m := range messages {
		state := strings.ReplaceAll(m.Stage, "_", " ")
		if m.Tries > 0 && m.Stage != "given_up" {
			state += ", next try " + render.Moment(m.Next, now)
		}
		t.Add(text.Cell{Text: m.Title}, text.Cell{Text: m.Target}, text.Cell{Text: state}, text.Cell{Text: render.Moment(m.Since, now)}, text.Cell{Text: m.Error})
	}
	return t
}

func newNotifyTest() *cobra.Command {
	return &cobra.Command{
		Use:   "test [TARGET]",
		Short: "Send a test message now, and say what came of it",
		Long: `Send a test message to a target, or to those of your rules, and wait for the
answer. It is sent once, as berth sends other messages.`,
		Example: `  berth notify test
  berth notify test ntfy:my-jobs` + notifyStatuses,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) < 2 {
				return nil
			}
			return problem.Newf(problem.Invalid, "berth notify test ntfy:my-jobs", "expected one target, found %d", len(args))
		},
		RunE: session.Verb(func(ctx context.Context, s *session.Session, args []string) error {
			results, err := api.Call(ctx, s.Client, api.SendNotify, api.NotifyTest{Target: strings.Join(args, "")})
			if err != nil {
				return err
			}
			failed := 0
			for _, r := range results {
				if r.Error == "" {
					fmt.Fprintln(s.Out, text.Line(r.Target+": delivered"))
					continue
				}
				failed++
				fmt.Fprintln(s.Out, text.Line(r.Target+": "+r.Error))
			}
			if failed > 0 {
				return problem.Newf(problem.Unable, "", "%s not delivered", text.Count(failed, "message"))
			}
			return nil
		}),
	}
}

func newNotifyKey() *cobra.Command {
	fresh := false
	cmd := &cobra.Command{
		Use:   "key",
		Short: "Show the key that your webhooks are signed with",
		Long: `Show the key that your webhooks are signed with, and make one if you have none.
A receiver checks the signature with any library for Standard Webhooks.`,
		Example: `  berth notify key
  berth notify key --new` + notifyStatuses,
		Args: noWords,
		RunE: session.Verb(func(ctx context.Context, s *session.Session, _ []string) error {
			n, err := api.Call(ctx, s.Client, api.GetNotify, api.NotifyQuery{Secrets: true})
			if err == nil && (fresh || n.Key == "") {
				n, err = api.Call(ctx, s.Client, api.SetNotify, api.NotifyRequest{NewKey: true})
			}
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(s.Out, text.Line(n.Key))
			return err
		}),
	}
	cmd.Flags().BoolVar(&fresh, "new", false, "make a new key; the old one is forgotten")
	return cmd
}

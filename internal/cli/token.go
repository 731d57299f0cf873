package cli

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"berth/internal/api"
	"berth/internal/cli/render"
	"berth/internal/cli/session"
	"berth/internal/text"
	"berth/internal/text/problem"
)

const tokenStatuses = `

Exit status: 0 done; 1 refused, or no daemon; 2 bad usage; 130 interrupted.`

func newToken() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "token",
		Short: "Create, list and revoke tokens for remote access",
		Long: `A token lets a program on another machine, or a browser, use the daemon with
your permissions. On this machine you need no token.

On the other machine, berth --host ADDRESS takes it from BERTH_HOST_TOKEN or
from ~/.config/berth/hosts.toml, which must be readable only by you:

  [gpu1]
  address = "https://gpu1.example.org:7878"
  token = "berth_..."
  ca = "/home/ann/gpu1.crt"      # only for a self-signed certificate`,
		Example: `  berth token create --name laptop
  berth --host gpu1 list          on the laptop
  berth token list
  berth token revoke po4bozuz` + tokenStatuses,
	}
	withVerbs(cmd, newTokenCreate(), newTokenList(), newTokenRevoke())
	return cmd
}

func newTokenCreate() *cobra.Command {
	var name, ttl string
	asJSON := false
	cmd := &cobra.Command{
		Use:     "create",
		Aliases: []string{"new"},
		Short:   "Create a token; its secret is shown once",
		Example: `  berth token create --name laptop
  berth token create --name ci --ttl 7d --json` + tokenStatuses,
		Args: noWords,
		RunE: session.Verb(func(ctx context.Context, s *session.Session, _ []string) error {
			r := api.TokenRequest{Name: name}
			if ttl != "" {
				good, err := text.ParseDuration(ttl)
				if err != nil {
					return problem.Newf(problem.Invalid, "see berth token create --help", "--ttl: %v", err)
				}
				r.TTLS = max(1, int64(good/time.Second))
			}
			token, err := api.Call(ctx, s.Client, api.NewToken, r)
			if err != nil {
				return err
			}
			if asJSON {
				return printJSON(s.Out, token)
			}
			s.Say("token %s, valid until %s; it is not shown again", token.ID, token.Expires.Local().Format("2006-01-02 15:04"))
			_, err = fmt.Fprintln(s.Out, text.Line(token.Secret))
			return err
		}),
	}
	flags := cmd.Flags()
	flags.StringVar(&name, "name", "", "what the token is for")
	flags.StringVar(&ttl, "ttl", "", "how long it is valid: 12h, 7d (default 30d)")
	flags.BoolVar(&asJSON, "json", false, "print a JSON object with id and secret")
	return cmd
}

func newTokenList() *cobra.Command {
	asJSON := false
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List tokens and sessions of browsers, with their last use",
		Long: `List your tokens and the sessions of your browsers, without secrets; for an
administrator, every user's. USED and FROM tell of the last request since the
daemon started, and of the address that it came from.`,
		Example: `  berth token list` + tokenStatuses,
		Args:    noWords,
		RunE: session.Verb(func(ctx context.Context, s *session.Session, _ []string) error {
			tokens, err := api.Call(ctx, s.Client, api.ListTokens, api.None{})
			switch {
			case err != nil && !s.NoJobsYet(err):
				return err
			case asJSON:
				return printJSON(s.Out, notNull(tokens))
			case len(tokens) == 0:
				_, err := fmt.Fprintln(s.Out, "no tokens")
				return err
			}
			return s.Screen.Draw(tokenTable(tokens, time.Now()))
		}),
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print a JSON array of tokens")
	return cmd
}

func tokenTable(tokens []api.Token, now time.Time) *text.Table {
	t := &text.Table{Columns: []text.Column{{Title: "ID"}, {Title: "NAME"}, {Title: "USER"}, {Title: "EXPIRES"}, {Title: "USED"}, {Title: "FROM"}}, Concessions: []text.Concession{{Title: "NAME", To: 8}}}
	for _, token := range tokens {
		expires := render.Moment(token.Expires, now)
		if token.Expires.Before(now) {
			expires = "expired"
		}
		used := "-"
		if token.Used != nil {
			used = render.Moment(*token.Used, now)
		}
		t.Add(text.Cell{Text: token.ID}, text.Cell{Text: token.Name}, text.Cell{Text: token.User}, text.Cell{Text: expires},
			text.Cell{Text: used}, text.Cell{Text: cmp.Or(token.UsedFrom, "-")})
	}
	return t
}

func newTokenRevoke() *cobra.Command {
	all, user := false, ""
	cmd := &cobra.Command{
		Use:   "revoke ID... | --all",
		Short: "Revoke tokens, and log browsers out",
		Long: `Revoke tokens, or end sessions of browsers, by id. With --all it revokes all
that you have, the one that you use now included; with --user another user's, as
an administrator.`,
		Example: `  berth token revoke po4bozuz
  berth token revoke --all
  berth token revoke --all --user bob` + tokenStatuses,
		Args: func(_ *cobra.Command, args []string) error {
			switch {
			case all && len(args) > 0:
				return problem.Newf(problem.Invalid, "leave out the ids, or --all", "expected ids or --all, found both")
			case user != "" && !all:
				return problem.Newf(problem.Invalid, "berth token revoke --all --user "+user, "--user: expected --all beside it")
			case all || len(args) > 0:
				return nil
			}
			return problem.Newf(problem.Invalid, "berth token list shows the ids; then berth token revoke po4bozuz", "expected the id of a token, found nothing")
		},
		RunE: session.Verb(func(ctx context.Context, s *session.Session, args []string) error {
			if all {
				return revokeAll(ctx, s, user)
			}
			for _, id := range args {
				if err := api.Do(ctx, s.Client, api.RevokeToken, api.TokenID{ID: id}); err != nil {
					return err
				}
				fmt.Fprintln(s.Out, text.Line("revoked token "+id))
			}
			return nil
		}),
	}
	cmd.Flags().BoolVar(&all, "all", false, "revoke all tokens, and end all sessions")
	cmd.Flags().StringVarP(&user, "user", "u", "", "with --all: those of this user (administrators)")
	return cmd
}

func revokeAll(ctx context.Context, s *session.Session, user string) error {
	revoked, err := api.Call(ctx, s.Client, api.RevokeTokens, api.RevokeQuery{User: user})
	if err != nil {
		return err
	}
	if len(revoked.IDs) == 0 {
		_, err := fmt.Fprintln(s.Out, "no tokens")
		return err
	}
	for _, id := range revoked.IDs {
		fmt.Fprintln(s.Out, text.Line("revoked token "+id))
	}
	return nil
}

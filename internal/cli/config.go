package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"berth/internal/api"
	"berth/internal/cli/session"
	"berth/internal/job/jobfile"
	"berth/internal/machine/site"
	"berth/internal/queue/config"
	"berth/internal/text"
	"berth/internal/text/problem"
)

func newConfig() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Check the daemon's config file, or have it read again",
		Example: `  berth config check
  berth config reload

Exit status: 0 done; 1 refused, or no daemon; 2 bad usage, or the config has
mistakes; 130 interrupted.`,
	}
	withVerbs(cmd, newConfigCheck(), newConfigReload())
	return cmd
}

// configCheckOptions are the flags of `berth config check`.
type configCheckOptions struct {
	private, json bool
}

func newConfigCheck() *cobra.Command {
	o := &configCheckOptions{}
	cmd := &cobra.Command{
		Use:   "check [FILE]",
		Short: "Check a config file, without changing anything",
		Long: `Check a config file as the daemon would read it: keys, values, and for a
shared daemon who can write to the file. All mistakes are listed with their
lines.

Without FILE, it is /etc/berth/config.toml for root, and otherwise
~/.config/berth/config.toml. If a daemon runs, an administrator also learns
which keys would change, which of those need a restart, and which GPUs do not
exist.`,
		Example: `  berth config check
  sudo berth config check new.toml && sudo cp new.toml /etc/berth/config.toml
  berth config check --private ~/.config/berth/config.toml

Exit status: 0 the file is valid or missing; 1 it cannot be read; 2 bad usage,
or the file has mistakes; 130 interrupted.`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) <= 1 {
				return nil
			}
			return problem.Newf(problem.Invalid, "berth config check /etc/berth/config.toml", "expected one file, found %d", len(args))
		},
		RunE: session.Look(func(ctx context.Context, s *session.Session, args []string) error {
			file := ""
			if len(args) > 0 {
				file = args[0]
			}
			return o.run(ctx, s, file)
		}),
	}
	cmd.Flags().BoolVar(&o.private, "private", false, "check it as a private daemon's, even as root")
	cmd.Flags().BoolVar(&o.json, "json", false, "print a JSON object")
	return cmd
}

// configChecked is the JSON of `berth config check`.
type configChecked struct {
	File     string          `json:"file"`
	Shared   bool            `json:"shared"`  // checked as a shared daemon's
	Missing  bool            `json:"missing"` // no such file: the defaults apply
	Valid    bool            `json:"valid"`
	Mistakes []configMistake `json:"mistakes"`
	Warnings []string        `json:"warnings"` // settings that are valid and unsafe, or have no effect
	// Compared with a running daemon; null: none was asked.
	Daemon *api.Reloaded `json:"daemon"`
}

type configMistake struct {
	Line int    `json:"line"` // 0: of the whole file
	Text string `json:"text"`
}

func (o *configCheckOptions) run(ctx context.Context, s *session.Session, file string) error {
	places := site.SharedPlaces()
	if os.Geteuid() != 0 || o.private {
		own, err := site.PrivatePlaces(os.Getenv)
		if err != nil && file == "" {
			return problem.Newf(problem.Refused, "name the file", "%v", err)
		}
		places = own
	}
	path := places.Config
	if file != "" {
		var err error
		if path, err = filepath.Abs(file); err != nil {
			return err
		}
	}
	shared := !o.private && (os.Geteuid() == 0 || path == site.SharedPlaces().Config)
	found := configChecked{File: path, Shared: shared, Mistakes: []configMistake{}, Warnings: []string{}}
	cfg, err := config.Load(path, shared, true)
	if errors.Is(err, fs.ErrNotExist) && file == "" {
		found.Missing, err = true, nil
	}
	var mistakes *jobfile.Errors
	switch {
	case errors.As(err, &mistakes):
		for _, m := range mistakes.Problems {
			found.Mistakes = append(found.Mistakes, configMistake{m.Line, m.Text})
		}
		if mistakes.More > 0 {
			found.Mistakes = append(found.Mistakes, configMistake{0, fmt.Sprintf("and %d more", mistakes.More)})
		}
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, fs.ErrPermission):
		return problem.Newf(problem.Refused, "name a file that you can read", "%v", err)
	case err != nil:
		found.Mistakes = append(found.Mistakes, configMistake{0, err.Error()})
	default:
		found.Valid, found.Warnings = true, notNull(cfg.Warnings(shared))
		if found.Daemon = asksDaemon(ctx, s, path, &found); found.Daemon == nil { // otherwise it says so
			found.Warnings = append(found.Warnings, cfg.UnknownUsers(ctx, site.NewUsers(time.Minute))...)
		}
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if o.json {
		if err := printJSON(s.Out, found); err != nil {
			return err
		}
		if !found.Valid {
			return session.ExitUsage
		}
		return nil
	}
	if err != nil {
		shown := strings.TrimPrefix(err.Error(), "read config: ")
		if file != "" {
			shown = strings.ReplaceAll(shown, path, file) // as it was typed
		}
		return problem.Newf(problem.Invalid, "berth help config lists the keys", "%s", shown)
	}
	return found.draw(s)
}

// asksDaemon compares a valid file with a running daemon's config. Nil: there is
// no such daemon, or it does not tell this caller.
func asksDaemon(ctx context.Context, s *session.Session, path string, found *configChecked) *api.Reloaded {
	data, err := os.ReadFile(path)
	if err != nil && !found.Missing {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, daemonPatience)
	defer cancel()
	if running, err := api.Call(ctx, s.Client, api.GetStatus, api.None{}); err != nil || running.Shared != found.Shared {
		return nil
	}
	written := string(data)
	reply, err := api.Call(ctx, s.Client, api.Reload, api.ReloadRequest{DryRun: true, Text: &written})
	if err != nil {
		return nil
	}
	return &reply
}

func (c *configChecked) draw(s *session.Session) error {
	kind := "private"
	if c.Shared {
		kind = "shared"
	}
	what := fmt.Sprintf("%s is valid for a %s daemon", text.Line(c.File), kind)
	if c.Missing {
		what = fmt.Sprintf("there is no %s; the defaults of a %s daemon apply", text.Line(c.File), kind)
	}
	if _, err := fmt.Fprintln(s.Out, what); err != nil {
		return err
	}
	if c.Daemon == nil {
		return drawWarnings(s, c.Warnings)
	}
	return drawReloaded(s, c.Daemon, "a reload changes", "a reload changes nothing")
}

// drawReloaded says what changes, and what has no effect.
func drawReloaded(s *session.Session, r *api.Reloaded, changed, nothing string) error {
	lines := []string{nothing}
	if len(r.Changed) > 0 {
		lines[0] = changed + " " + strings.Join(r.Changed, ", ")
	}
	if len(r.Restart) > 0 {
		lines = append(lines, "needs a restart: "+strings.Join(r.Restart, ", "))
	}
	for _, line := range lines {
		if _, err := fmt.Fprintln(s.Out, text.Line(line)); err != nil {
			return err
		}
	}
	return drawWarnings(s, r.Warnings)
}

func drawWarnings(s *session.Session, warnings []string) error {
	for _, warning := range warnings {
		if _, err := fmt.Fprintln(s.Out, text.Line("warning: "+warning)); err != nil {
			return err
		}
	}
	return nil
}

func newConfigReload() *cobra.Command {
	asJSON := false
	cmd := &cobra.Command{
		Use:   "reload",
		Short: "Have the daemon read its config file again",
		Long: `Have the daemon read its config file again, and wait until the new config is in
force. Running jobs are not touched. A file with mistakes changes nothing: they
are listed, and the old config stays in force. For administrators. systemctl
reload berth does the same.`,
		Example: `  berth config reload
  berth config reload --json

Exit status: 0 the config is in force; 1 refused, or no daemon; 2 bad usage, or
the config has mistakes; 130 interrupted.`,
		Args: noWords,
		RunE: session.Verb(func(ctx context.Context, s *session.Session, _ []string) error {
			reply, err := api.Call(ctx, s.Client, api.Reload, api.ReloadRequest{})
			if err != nil {
				return err
			}
			if asJSON {
				return printJSON(s.Out, reply)
			}
			return drawReloaded(s, &reply, "read "+reply.Config+"; changed:", "read "+reply.Config+"; nothing changed")
		}),
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print a JSON object")
	return cmd
}

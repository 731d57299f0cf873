package cli

import (
	"context"
	"errors"
	"fmt"
	"html"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/spf13/cobra"

	"berth/internal/api"
	"berth/internal/cli/session"
	"berth/internal/text"
	"berth/internal/text/problem"
)

func newWeb() *cobra.Command {
	var noOpen, plainHTTP bool
	cmd := &cobra.Command{
		Use:   "web",
		Short: "Open the page: GPUs, queue, jobs and their logs in a browser",
		Long: `Open berth's page in a browser: GPUs, the queue with its reasons and expected
starts, and each job's story, memory and log, with buttons to act on them.

The address that is printed logs you in once, within 5 minutes. The browser then
stays logged in for a week, or until the daemon gives up its port; berth token
list shows it as "browser", and berth token revoke logs it out. Without a
desktop, and over ssh, the address is only printed, with the command that
forwards the port.

Root, and administrators of a shared daemon, log in only where the page has TLS:
any user could take a plain port while no daemon has it. Root of a private
daemon can accept that with --plain-http, as in a container without other users.

A shared daemon has the page where http.listen in its config says so. On another
machine's daemon (--host), open its address and log in with your token.`,
		Example: `  berth web
  berth web --no-open            only print the address
  berth web --log-dir berth_logs the queue of a berth run
  berth web --plain-http         as root in a container

Exit status: 0 printed or opened; 1 refused, or no daemon; 2 bad usage;
130 interrupted.`,
		Args:              noWords,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: session.Verb(func(ctx context.Context, s *session.Session, _ []string) error {
			s.StartsAnew = true
			return runWeb(ctx, s, !noOpen, plainHTTP, os.Getenv)
		}),
	}
	session.QueueFlags(cmd)
	cmd.Flags().BoolVar(&noOpen, "no-open", false, "only print the address")
	cmd.Flags().BoolVar(&plainHTTP, "plain-http", false, "as root: accept a page without TLS, from a private daemon")
	return cmd
}

func runWeb(ctx context.Context, s *session.Session, open, plainHTTP bool, getenv func(string) string) error {
	if s.Target.Host != nil {
		return problem.Newf(problem.Refused, "open the daemon's address in a browser, and log in with your token", "berth web works on the daemon's own machine")
	}
	login, err := api.Call(ctx, s.Client, api.NewLogin, api.LoginRequest{PlainHTTP: plainHTTP})
	if err != nil {
		return err
	}
	page := login.Address + "/#login=" + login.Secret
	if _, err := fmt.Fprintln(s.Out, text.Line(page)); err != nil {
		return err
	}
	s.Say("this address logs you in once, until %s", login.Expires.Local().Format("15:04"))
	if opener := browserOf(getenv); open && opener != "" {
		file, err := redirection(page, getenv)
		if err == nil {
			err = exec.CommandContext(ctx, opener, file).Run()
		}
		if err == nil {
			s.Advise("if the browser cannot read %s, open the address itself", file)
			return nil
		}
	}
	if forward := forwarding(login, getenv); forward != "" {
		s.Advise("%s", forward)
	}
	return nil
}

// redirection is a file that leads a browser to the page. Every user of the machine
// sees the arguments of a browser, and the first to use a login has it.
func redirection(page string, getenv func(string) string) (string, error) {
	dir := getenv("XDG_RUNTIME_DIR")
	if dir == "" {
		cache, err := os.UserCacheDir()
		if err != nil {
			return "", err
		}
		dir = filepath.Join(cache, "berth")
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return "", err
		}
	}
	file, err := os.CreateTemp(dir, "berth-page-*.html") // for its owner alone
	if err != nil {
		return "", err
	}
	_, err = fmt.Fprintf(file, "<!doctype html><meta http-equiv=\"refresh\" content=\"0; url=%s\">\n", html.EscapeString(page))
	name := filepath.Join(dir, "berth-page.html")
	return name, errors.Join(err, file.Close(), os.Rename(file.Name(), name))
}

// browserOf is the program that opens an address in the user's browser; empty
// where there is no desktop, or it is not the one the user sits at.
func browserOf(getenv func(string) string) string {
	if getenv("SSH_CONNECTION") != "" || getenv("DISPLAY") == "" && getenv("WAYLAND_DISPLAY") == "" {
		return ""
	}
	found, err := exec.LookPath("xdg-open")
	if err != nil {
		return ""
	}
	return found
}

// forwarding is what to type on the user's own machine to reach a loopback
// address of this one.
func forwarding(login api.Login, getenv func(string) string) string {
	at, err := url.Parse(login.Address)
	if err != nil || getenv("SSH_CONNECTION") == "" {
		return ""
	}
	if ip := net.ParseIP(at.Hostname()); ip == nil || !ip.IsLoopback() {
		return ""
	}
	host, err := os.Hostname()
	if err != nil {
		host = "HOST"
	}
	return fmt.Sprintf("on your own machine, type ssh -N -L %s:%s %s, then open the address there", at.Port(), at.Host, host)
}

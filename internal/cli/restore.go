package cli

import (
	"bufio"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"berth/internal/cli/render"
	"berth/internal/machine/site"
	"berth/internal/queue/daemon"
	"berth/internal/text"
	"berth/internal/text/problem"
)

func newRestore() *cobra.Command {
	f := &serveFlags{}
	yes := false
	cmd := &cobra.Command{
		Use:   "restore BACKUP",
		Short: "Restore the daemon's state from a backup",
		Long: `Replace the daemon's state with a backup that berth backup made. Stop the daemon
first. The state that was there is kept under another name. Jobs that were
running when the backup was made, and no longer are, end as lost.

If the backup does not know jobs that exist now, or would run jobs again that
have ended since, berth lists them and asks first. It also asks if root restores
a file that another user could have changed.

As root this restores the shared daemon, or your private one if there is no
shared one.`,
		Example: `  berth restore berth-2026-03-01.backup
  berth restore --yes berth-2026-03-01.backup

Exit status: 0 restored; 1 refused or failed; 2 bad usage.`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 {
				return problem.Newf(problem.Invalid, "berth restore berth-2026-03-01.backup", "expected one backup file, found %d", len(args))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			places, err := f.restorePlaces()
			if err != nil {
				return err
			}
			kept, err := daemon.Restore(places.StateDir, args[0], func(p daemon.RestorePlan) error { return agree(cmd, p, yes) })
			if err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "restored %s into %s at %s\n", args[0], places.StateDir, time.Now().Format(time.DateTime))
			if kept != "" {
				fmt.Fprintf(cmd.OutOrStdout(), "the previous state is kept as %s\n", kept)
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&f.stateDir, "state-dir", "", "the daemon's state directory (default /var/lib/berth for root, else ~/.local/state/berth)")
	cmd.Flags().BoolVar(&f.private, "private", false, "restore your private daemon, even as root")
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	return cmd
}

// agree says what a restore would do to jobs, and asks whether it should.
func agree(cmd *cobra.Command, p daemon.RestorePlan, yes bool) error {
	if p.Harmless() {
		return nil
	}
	out := cmd.ErrOrStderr()
	for _, line := range p.Words() {
		fmt.Fprintln(out, text.Line("berth: "+line))
	}
	if yes {
		return nil
	}
	if render.IsTerminal(os.Stdin) {
		fmt.Fprint(out, "restore? [y/N] ")
		answer, _ := bufio.NewReader(os.Stdin).ReadString('\n') // no answer is no
		if word := strings.ToLower(strings.TrimSpace(answer)); word == "y" || word == "yes" {
			return nil
		}
	}
	why := "the backup does not match the jobs that exist now"
	if p.Doubt != "" {
		why = "another user could have changed the backup"
	}
	return problem.Newf(problem.Refused, "nothing was changed; berth restore --yes restores it all the same", "%s", why)
}

// restorePlaces are the paths of the daemon to restore: the named one, else
// the one that has state.
func (f *serveFlags) restorePlaces() (site.Places, error) {
	places, err := f.places()
	if err != nil || f.stateDir != "" || daemon.HasState(places) {
		return places, err
	}
	if places.Shared {
		if own, err := site.PrivatePlaces(os.Getenv); err == nil && daemon.HasState(own) {
			return own, nil
		}
	}
	return places, problem.Newf(problem.Refused, "give the daemon's state directory with --state-dir", "no daemon has its state in %s", places.StateDir)
}

package cli

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"berth/internal/api"
	"berth/internal/cli/session"
	"berth/internal/compat/frontend"
	"berth/internal/compat/gpusched"
	"berth/internal/compat/gpuscheduler"
	"berth/internal/compat/mgpu"
	"berth/internal/compat/slurm"
	"berth/internal/compat/tgpu"
	"berth/internal/text/problem"
)

// programs are the programs that berth can replace.
func programs() []frontend.Program {
	return []frontend.Program{gpusched.Program, gpuscheduler.Program, tgpu.Program, mgpu.Server, mgpu.Srun, mgpu.Queue, mgpu.Cancel}
}

// standIns are these and Slurm's. Jobs find some of those without a link.
func standIns() []frontend.Program { return append(programs(), slurm.Programs()...) }

func programNames(programs []frontend.Program) (names []string) {
	for _, p := range programs {
		names = append(names, p.Name)
	}
	return names
}

// MainAs runs the program that berth was called as through a link, or berth
// itself.
func MainAs(name string, args []string, out, errOut io.Writer) int {
	if name = filepath.Base(name); slices.ContainsFunc(standIns(), func(p frontend.Program) bool { return p.Name == name }) {
		return standIn(name, args, out, errOut)
	}
	return Main(args, out, errOut)
}

func standIn(name string, args []string, out, errOut io.Writer) int {
	call := &frontend.Call{
		Name: name, Args: args, In: os.Stdin, Out: out, Err: errOut, Version: session.Version, Berth: Main,
		Daemon: func(ctx context.Context, start bool) (string, error) {
			return ownDaemon(ctx, start, frontend.InItsName(errOut, name))
		},
	}
	for _, p := range standIns() {
		if p.Name == name {
			return p.Main(call)
		}
	}
	call.Complain("unknown program", "berth compat knows "+strings.Join(programNames(standIns()), ", "))
	return frontend.BadUsage
}

// ownDaemon is the daemon that berth's verbs would talk to. It is started if
// there is state to read; with start, in any case.
func ownDaemon(ctx context.Context, start bool, errOut io.Writer) (socket string, err error) {
	at, err := session.FindDaemon("", os.Getenv, session.SharedPlaces(), session.SystemService)
	if err != nil || !at.Private {
		return at.Socket, err
	}
	s := &session.Session{ErrOut: errOut, Target: at, Client: api.Dial(at.Socket), StartsAnew: start}
	defer s.Client.Close()
	if session.Answers(ctx, s.Client) {
		return at.Socket, nil
	}
	err = s.Missing(ctx, &api.Unreachable{Socket: at.Socket})
	if _, lost := errors.AsType[*api.Unreachable](err); lost {
		return at.Socket, nil // the caller reports that it does not answer
	}
	return at.Socket, err
}

func newCompat() *cobra.Command {
	return &cobra.Command{
		Use:   "compat PROGRAM [ARG...]",
		Short: "Behave like another scheduler, with its commands and files",
		Long: `Behave like another scheduler, under its name. The names are:
` + "\n  " + strings.Join(programNames(programs()), "\n  ") + "\n  " + strings.Join(programNames(slurm.Programs()), " ") + `

A link to berth with such a name does the same: make install-links makes them,
and make install-slurm-links those of Slurm, where there is no Slurm.
berth compat PROGRAM --help is that program's usage. berth help from-gpusched,
from-gpu-scheduler, from-tgpu and from-mgpu list berth's own commands for each.`,
		Example: `  berth compat gpusched jobs.txt --sim 2
  berth compat mgpu_srun --gpu-ids 0,1 --interactive -- python train.py
  ln -s $(command -v berth) ~/bin/tgpu && tgpu list

Exit status: that of the program.`,
		DisableFlagParsing: true, // the rest belongs to the program
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 || args[0] == "-h" || args[0] == "--help" {
				return cmd.Help()
			}
			if strings.HasPrefix(args[0], "-") {
				return &problem.Problem{Kind: problem.Invalid, What: "unknown flag: " + args[0], Hint: "see berth compat --help"}
			}
			if code := standIn(args[0], args[1:], cmd.OutOrStdout(), cmd.ErrOrStderr()); code != 0 {
				return session.ExitStatus(code)
			}
			return nil
		},
	}
}

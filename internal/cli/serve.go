package cli

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"berth/internal/cli/session"
	"berth/internal/machine/site"
	"berth/internal/queue/config"
	"berth/internal/queue/daemon"
	"berth/internal/text"
	"berth/internal/text/problem"
)

// serveFlags are the flags of `berth serve` as they were typed.
type serveFlags struct {
	ruleFlags
	socket, stateDir, config string
	private                  bool
	idleExit                 string
	logLevel                 string
	listen                   string
	acceptEmpty              bool
}

func newServe() *cobra.Command {
	f := &serveFlags{}
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run the daemon, which keeps the queue",
		Long: `Run the daemon in the foreground.

Started by a user, it is private: its socket and state are in the user's state
directory, and jobs run as that user. Started by root, it is shared: every
local user may submit, and each job runs as the user who submitted it.

If the daemon stops or crashes, running jobs keep running, and the next daemon
takes them over. SIGHUP reloads the config, as berth config reload does. SIGTERM
and Ctrl-C stop the daemon.`,
		Example: `  berth serve                    in the foreground
  berth serve --sim 2            with two simulated GPUs
  berth serve --policy fair --max-bypass 12h
  sudo systemctl enable --now berth   as a service (berth help share-a-server)

Exit status: 0 stopped on request; 1 could not start, or failed; 2 bad usage or
config.`,
		Args: noWords,
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd) },
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringVar(&f.socket, "socket", "", "socket to listen on (default BERTH_SOCKET, or the standard path)")
	flags.StringVar(&f.stateDir, "state-dir", "", "directory for jobs, logs and state (default /var/lib/berth for root, else ~/.local/state/berth)")
	flags.StringVar(&f.config, "config", "", "config file (default /etc/berth/config.toml for root, else ~/.config/berth/config.toml)")
	flags.BoolVar(&f.private, "private", false, "serve only yourself, even as root")
	flags.StringVar(&f.idleExit, "idle-exit", "", "exit after this long without jobs or clients (default: never)")
	flags.StringVar(&f.listen, "http", "", "also listen for HTTP on this address, e.g. 127.0.0.1:7878; clients need a token (default off)")
	flags.BoolVar(&f.acceptEmpty, "accept-empty-store", false, "start with an empty store although an earlier daemon had jobs there")
	flags.StringVar(&f.logLevel, "log-level", "", "log level: debug, info, warn or error")
	f.ruleFlags.register(cmd, " (default all)", "")
	return cmd
}

func (f *serveFlags) run(cmd *cobra.Command) error {
	if err := f.check(cmd); err != nil {
		return err
	}
	if err := f.checkListen(cmd); err != nil {
		return err
	}
	places, err := f.places()
	if err != nil {
		return err
	}
	if _, err := os.Stat(places.Config); f.config != "" && errors.Is(err, fs.ErrNotExist) {
		return problem.Newf(problem.Invalid, "leave --config out to start with the defaults", "--config: there is no file %s", places.Config)
	}
	opt := daemon.Options{
		Places: places, Version: session.Version, Explicit: f.config != "", Override: f.override(cmd),
		TypedGPUs: cmd.Flags().Changed("gpus"), AcceptEmptyStore: f.acceptEmpty,
		Sim: f.sim, SimVRAMMiB: f.simVRAMMiB, Env: os.Environ(), Out: cmd.OutOrStdout(),
	}
	if f.idleExit != "" {
		if opt.IdleExit, err = text.ParseDuration(f.idleExit); err != nil {
			return badFlag(cmd, "idle-exit", err)
		}
	}
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	// Caught and dropped, not ignored: child processes would inherit an
	// ignored signal.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	opt.Signals = signals
	return daemon.Serve(context.Background(), opt)
}

// checkListen checks the form of --http. Whether the address needs TLS depends
// on the config, which the daemon reads.
func (f *serveFlags) checkListen(cmd *cobra.Command) error {
	form := config.Config{Listen: f.listen, TLSCert: "any", TLSKey: "any"}
	if strings.HasPrefix(f.listen, "unix:") {
		form = config.Config{Listen: f.listen, Hosts: []string{"any"}}
	}
	if err := form.Check(); err != nil {
		return badFlag(cmd, "http", errors.Unwrap(err))
	}
	return nil
}

// places are the standard paths, or those that flags name.
func (f *serveFlags) places() (site.Places, error) {
	places := site.SharedPlaces()
	if os.Geteuid() != 0 || f.private {
		var err error
		if places, err = site.PrivatePlaces(os.Getenv); err != nil {
			return places, problem.Newf(problem.Refused, "set HOME, or give --state-dir and --socket", "%v", err)
		}
	}
	if f.stateDir != "" {
		dir, err := filepath.Abs(f.stateDir)
		if err != nil {
			return places, err
		}
		if !places.Shared {
			places.Socket = filepath.Join(dir, filepath.Base(places.Socket))
		}
		places.StateDir = dir
	}
	for _, socket := range []string{os.Getenv("BERTH_SOCKET"), f.socket} {
		if socket == "" {
			continue
		}
		path, err := filepath.Abs(socket)
		if err != nil {
			return places, err
		}
		places.Socket = path
	}
	if f.config != "" {
		path, err := filepath.Abs(f.config)
		if err != nil {
			return places, err
		}
		places.Config = path
	}
	return places, nil
}

// override lets flags win over the config.
func (f *serveFlags) override(cmd *cobra.Command) func(*config.Config) {
	return func(c *config.Config) {
		typed := func(flag string, set func()) {
			if cmd.Flags().Changed(flag) {
				set()
			}
		}
		typed("gpus", func() { c.GPUs = f.cards })
		typed("poll", func() { c.Poll = f.interval })
		typed("margin", func() { c.Rules.MarginMiB = f.rules.MarginMiB })
		typed("idle-threshold", func() { c.Rules.IdleThresholdMiB = f.rules.IdleThresholdMiB })
		typed("spike-buffer", func() { c.Rules.SpikeBuffer = f.rules.SpikeBuffer })
		typed("tolerance", func() { c.Tolerance = f.tolerance })
		typed("exclusive", func() { c.Rules.Exclusive = f.rules.Exclusive })
		typed("jobs-per-gpu", func() { c.Rules.JobsPerGPU = f.rules.JobsPerGPU })
		typed("mem-threshold", func() { c.Rules.MemThreshold = f.rules.MemThreshold })
		typed("load-threshold", func() { c.Rules.LoadThreshold = f.rules.LoadThreshold })
		typed("placement", func() { c.Rules.Placement = f.rules.Placement })
		typed("policy", func() { c.Rules.Policy, c.Rules.Fair = f.rules.Policy, c.Rules.Fair || f.rules.Fair })
		typed("max-bypass", func() { c.Rules.MaxBypass = f.rules.MaxBypass })
		typed("preempt", func() { c.Preempt = f.preempt })
		typed("parking", func() { c.Parking = f.parks })
		typed("min-run", func() { c.Rules.MinRun = f.rules.MinRun })
		typed("log-free", func() { c.LogFree = f.logFreeMiB << 20 })
		typed("log-level", func() { c.LogLevel = f.logLevel })
		typed("http", func() { c.Listen = f.listen })
	}
}

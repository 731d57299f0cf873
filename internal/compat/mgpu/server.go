package mgpu

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/spf13/pflag"

	"berth/internal/compat/frontend"
	"berth/internal/machine/site"
	"berth/internal/queue/config"
	"berth/internal/queue/daemon"
	"berth/internal/text/problem"
)

// Server is the daemon that the clients talk to.
var Server = frontend.Program{Name: "mgpu_scheduler_server", Usage: serverUsage, Run: runServer}

const serverUsage = `usage: mgpu_scheduler_server [--max-job-time SEC]

Run the scheduler in the foreground. As root it serves every user of the
machine, and each job runs as the user who submitted it; otherwise it serves
only you. Ctrl-C and SIGTERM stop it. Jobs keep running, even after kill -9,
and the next server finds them again.

      --max-job-time SEC  time limit of every job; at the limit a job is stopped
                          and moved to the end of the queue, at most ten times
                          (default: no limit)
      --state-dir DIR     jobs and state (default /var/lib/mgpu_scheduler, or
                          ~/.local/state/mgpu_scheduler); DIR/config.toml may
                          hold berth's settings (berth help config)
      --socket PATH       where to listen (default BERTH_SOCKET, else
                          /tmp/mgpu_scheduler.sock)
      --sim N             use N simulated GPUs (also BERTH_SIM=N)
  -h, --help              print this

Among jobs of equal priority users take turns, then the order of submission
decides. A job without --mem has its GPUs to itself.

Exit status: 0 stopped; 1 could not start or continue; 2 bad usage.

Example:
  sudo mgpu_scheduler_server --max-job-time 3600
`

// oldClient is the reply to the clients of the original server, which print msg.
const oldClient = `{"status": "fail", "msg": "this server is berth's and needs berth's own mgpu_srun, mgpu_queue and mgpu_cancel: install them with make install-links", "job_id": ""}`

// serverFlags are the flags as typed.
type serverFlags struct {
	maxJobTime int64 // seconds; 0: no limit
	stateDir   string
	socket     string
	sim        int
}

func runServer(plain *frontend.Call) int {
	c := call{plain}
	f := &serverFlags{}
	flags := pflag.NewFlagSet(c.Name, pflag.ContinueOnError)
	flags.Int64Var(&f.maxJobTime, "max-job-time", 0, "")
	flags.StringVar(&f.stateDir, "state-dir", "", "")
	flags.StringVar(&f.socket, "socket", os.Getenv("BERTH_SOCKET"), "")
	flags.IntVar(&f.sim, "sim", 0, "")
	if status, ok := c.Parse(flags, c.Args, serverUsage); !ok {
		return status
	}
	if err := f.check(flags); err != nil {
		c.Complain(problemOf(err))
		return frontend.BadUsage
	}
	places, err := f.places()
	if err == nil {
		err = placeIsFree(places.Socket)
	}
	if err != nil {
		c.Complain(problemOf(err))
		return frontend.Failed
	}
	if !places.Shared {
		fmt.Fprintf(c.Err, "%s: not started as root, so it serves only you\n", c.Name)
	}
	return c.serve(f.options(c, places))
}

func (c call) serve(opt daemon.Options) int {
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer signal.Stop(signals)
	// Caught and dropped, not ignored: child processes would inherit an ignored
	// signal.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	opt.Signals = signals
	if err := daemon.Serve(context.Background(), opt); err != nil {
		c.Complain(problemOf(err))
		return problem.KindOf(err).ExitStatus()
	}
	fmt.Fprintln(c.Out, "stopped; running jobs keep running")
	return 0
}

func (f *serverFlags) check(flags *pflag.FlagSet) error {
	if n := flags.NArg(); n > 0 {
		return problem.Newf(problem.Invalid, "see mgpu_scheduler_server --help", "expected no arguments, found %q", flags.Arg(0))
	}
	if f.maxJobTime < 0 || f.maxJobTime > int64(math.MaxInt64/time.Second) {
		return problem.Newf(problem.Invalid, "see mgpu_scheduler_server --help", "--max-job-time: expected a number of seconds from 1, or 0 for no limit, found %d", f.maxJobTime)
	}
	if flags.Changed("sim") && (f.sim < 1 || f.sim > frontend.MaxSim) {
		return problem.Newf(problem.Invalid, "omit it to use real GPUs", "--sim: expected a number of simulated GPUs from 1 to %d, found %d", frontend.MaxSim, f.sim)
	} else if flags.Changed("sim") {
		return nil
	}
	var err error
	f.sim, err = frontend.Sim()
	return err
}

// places are separate from those of a berth serve on the same machine.
func (f *serverFlags) places() (site.Places, error) {
	places := site.Places{StateDir: "/var/lib/mgpu_scheduler", Socket: usualSocket, Shared: os.Geteuid() == 0}
	if !places.Shared {
		own, err := site.PrivatePlaces(os.Getenv)
		if err != nil {
			return places, err
		}
		places.StateDir = filepath.Join(filepath.Dir(own.StateDir), "mgpu_scheduler")
	}
	for _, p := range []struct {
		typed string
		place *string
	}{{f.stateDir, &places.StateDir}, {f.socket, &places.Socket}} {
		if p.typed == "" {
			continue
		}
		path, err := filepath.Abs(p.typed)
		if err != nil {
			return places, err
		}
		*p.place = path
	}
	places.Config = filepath.Join(places.StateDir, "config.toml")
	return places, nil
}

// placeIsFree refuses a path that belongs to another user: in /tmp that user may
// be listening for others' jobs. A socket that a dead server of our own left is
// replaced later.
func placeIsFree(socket string) error {
	info, err := os.Lstat(socket)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if stat, ok := info.Sys().(*syscall.Stat_t); !ok || int(stat.Uid) != os.Geteuid() {
		owner := "another user"
		if ok {
			owner = "user " + strconv.Itoa(int(stat.Uid))
		}
		return problem.Newf(problem.Refused, "check who uses it (ls -l "+socket+"), remove it, and start again", "%s already exists and belongs to %s", socket, owner)
	}
	return nil
}

func (f *serverFlags) options(c call, places site.Places) daemon.Options {
	return daemon.Options{
		LimitedLast: true, NotHTTP: oldClient,
		Places: places, Version: c.Version, Sim: f.sim, SimVRAMMiB: frontend.SimVRAMMiB, NeedsGPUs: true, Env: os.Environ(), Out: c.Out,
		Override: func(cfg *config.Config) {
			cfg.Rules.Fair = true
			if f.maxJobTime > 0 {
				cfg.JobTime = time.Duration(f.maxJobTime) * time.Second
			}
			// Unless configured otherwise, --mem is compared with the free memory
			// without a margin, and there are no limits on priorities, users and jobs.
			usual := config.Default(places.Shared)
			if cfg.Rules.MarginMiB == usual.Rules.MarginMiB {
				cfg.Rules.MarginMiB = 0
			}
			free := config.Default(false)
			if cfg.MaxPriority == usual.MaxPriority {
				cfg.MaxPriority = free.MaxPriority
			}
			if cfg.Limits.Default == usual.Limits.Default {
				cfg.Limits.Default = free.Limits.Default
			}
			if cfg.Memory == usual.Memory {
				cfg.Memory = free.Memory
			}
		},
	}
}

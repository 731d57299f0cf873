package session

import (
	"context"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"berth/internal/api"
	"berth/internal/machine/site"
	"berth/internal/queue/batch"
	"berth/internal/queue/daemon"
	"berth/internal/slurm/allocation"
	"berth/internal/text/problem"
)

// ActsKey marks a verb that changes jobs: all that its words name, or the one that
// the first word names.
const (
	ActsKey     = "acts"
	actsOnAll   = "all"
	ActsOnFirst = "first"
)

// QueueFlags are the flags of a verb that also knows the jobs of a berth run.
func QueueFlags(cmd *cobra.Command) {
	DaemonFlags(cmd)
	cmd.Flags().String("log-dir", "", "ask the berth run with this log directory; - for the daemon")
}

// ActFlags are QueueFlags for a verb that changes jobs.
func ActFlags(cmd *cobra.Command) {
	QueueFlags(cmd)
	cmd.Annotations = map[string]string{ActsKey: actsOnAll}
}

// RunTarget is a berth run that a verb talks to.
type RunTarget struct {
	batch.Place
	Live bool // its process answers
}

// namedRun is the berth run of --log-dir; nil: none was named.
func namedRun(ctx context.Context, cmd *cobra.Command) (*RunTarget, error) {
	flag := cmd.Flag("log-dir")
	if flag == nil || !flag.Changed || flag.Value.String() == daemonInstead {
		return nil, nil
	}
	dir := flag.Value.String()
	for _, other := range []string{"socket", "host"} {
		if f := cmd.Flag(other); f != nil && f.Changed {
			return nil, problem.Newf(problem.Invalid, "leave one of them out", "expected --log-dir or --%s, found both", other)
		}
	}
	if dir == "" { // --log-dir "$UNSET" must not cancel jobs of the daemon
		return nil, problem.Newf(problem.Invalid, "--log-dir "+batch.DefaultLogDir, "expected a directory after --log-dir, found nothing")
	}
	place, err := batch.Find(dir)
	if err != nil && allocation.Present(dir) {
		return nil, problem.Newf(problem.Unable, filepath.Join(dir, "status.txt")+" lists each job and its log",
			"the jobs of %s run in allocations of Slurm; each allocation has a log directory of its own in %s", dir, filepath.Join(dir, "alloc"))
	}
	if err != nil {
		return nil, problem.Newf(problem.Unable, "give the log directory of a berth run, usually --log-dir "+batch.DefaultLogDir, "%w", err)
	}
	return openRunTarget(ctx, place), nil
}

// daemonInstead is the log directory that means the daemon.
const daemonInstead = "-"

// used reports whether there is a daemon here, or was one that may be started.
func (t Target) used() bool {
	return !t.Private || Exists(t.Socket) || t.hasState() && !autostartOff()
}

func openRunTarget(ctx context.Context, p batch.Place) *RunTarget {
	return &RunTarget{Place: p, Live: api.Listening(ctx, daemon.RunSocket(p.StateDir))}
}

// Dial makes a client for the run: its process, or its store once it has ended.
func (r *RunTarget) Dial() *api.Client {
	return api.DialQueue(daemon.RunSocket(r.StateDir), func() (*api.Server, func(), error) {
		return daemon.Read(daemon.Options{
			Places: site.Places{StateDir: r.StateDir, Socket: daemon.RunSocket(r.StateDir)}, RunDir: Resolved(r.LogDir), JobsDir: r.JobsDir, Version: Version, Env: os.Environ(),
		}, relative(r.LogDir))
	})
}

// Resolved is a directory without links.
func Resolved(dir string) string {
	if real, err := filepath.EvalSymlinks(dir); err == nil {
		return real
	}
	return dir
}

// relative is a path as seen from here, if it is below.
func relative(path string) string {
	dir, err := os.Getwd()
	if err != nil {
		return path
	}
	if rel, err := filepath.Rel(dir, path); err == nil && filepath.IsLocal(rel) {
		return rel
	}
	return path
}

// Ended reports whether the verb reads a berth run that has ended.
func (s *Session) Ended() bool { return s.Target.Run != nil && !s.Target.Run.Live }

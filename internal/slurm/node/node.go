package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"berth/internal/job"
	"berth/internal/machine/gpu"
	"berth/internal/machine/keep"
	"berth/internal/queue"
	"berth/internal/queue/engine"
	"berth/internal/queue/engine/launch"
	"berth/internal/queue/engine/settings"
	"berth/internal/sched"
	"berth/internal/slurm/handover"
	"berth/internal/text/problem"
)

const (
	// poll is how often the cards are read, as on any machine.
	poll = time.Second
	// startsWithin bounds how long a job that has begun may wait for a process.
	startsWithin = 2 * time.Minute
	// writtenWithin bounds how long the end of a job waits for a full disk of the
	// node: only the record outlives this process.
	writtenWithin = 5 * time.Second
)

// node is the wrapper of one job.
type node struct {
	dir   string // of the batch
	index int
	order handover.Order
	errs  io.Writer

	environ []string
	state   string // its own directory on the node
	cards   []gpu.Device
	source  *allotted
	queue   *queue.Queue

	began  time.Time // when the start marker was made
	kills  int       // at the limit of host memory until then
	stop   stopping
	token  string    // of the supervisor, once the job was placed
	ended  *job.Job  // nil: not yet
	overAt time.Time // when the engine had nothing left to do
	gaveUp error     // why it was left although the job has not ended
}

// load reads the order.
func load(dir string, index int, environ []string, errs io.Writer) (*node, error) {
	order, err := handover.ReadOrder(dir, index)
	if err != nil {
		return nil, err
	}
	return &node{dir: dir, index: index, order: order, errs: errs, environ: environ}, nil
}

// lookup is a variable as Slurm set it.
func (n *node) lookup(name string) (string, bool) { return job.LookupEnv(n.environ, name) }

func (n *node) getenv(name string) string { return job.Getenv(n.environ, name) }

// open opens everything that the job needs in n.state.
func (n *node) open(ctx context.Context) error {
	setup := queue.Setup{
		StateDir: n.state, MPSDir: n.state, Hint: "set TMPDIR to a local directory of the node with room",
		Log:    queue.Log{Path: n.state + "/berth.log", MaxBytes: 1 << 20, Private: true, Level: "warn"},
		Getenv: n.getenv, CPUOnly: n.order.Job.Spec.GPUs == 0, Ledger: n.state + "/ledger",
		Launcher: launch.Launcher{
			Dir: n.origin(), Home: n.home(), Env: inherited(&n.order, n.environ, n.workDir()), LogFree: launch.DefaultLogFree, Given: n.cardsAsGiven,
		},
		Choose: n.choose,
		// Slurm has put the job into a cgroup, and limits it there.
		Cgroups: func(context.Context, *slog.Logger) (string, string) { return "none", "" },
	}
	if err := n.simulate(&setup); err != nil {
		return err
	}
	m, err := queue.Open(ctx, setup)
	if err != nil {
		return fmt.Errorf("open what the job needs in %s: %w", n.state, err)
	}
	m.Launcher.Filter, m.Launcher.Driver = false, nil
	n.queue = m
	return nil
}

// origin is the directory of a job that names none: the one it was submitted from.
func (n *node) origin() string {
	if dir := job.Getenv(n.order.Environ, "PWD"); filepath.IsAbs(dir) {
		return dir
	}
	return n.home()
}

// workDir is the directory of the job.
func (n *node) workDir() string {
	dir := n.order.Job.Spec.Dir
	if rest, found := strings.CutPrefix(dir, "~/"); found {
		return filepath.Join(n.home(), rest)
	}
	if !filepath.IsAbs(dir) {
		return n.origin()
	}
	return dir
}

// home is the user's on the node; a cluster may leave the variable out.
func (n *node) home() string {
	return cmp.Or(n.getenv("HOME"), job.Getenv(n.order.Environ, "HOME"), "/")
}

// simulate uses the simulated cards of a test.
func (n *node) simulate(setup *queue.Setup) error {
	dir := n.getenv("BERTH_SIM_DIR")
	if dir == "" || setup.CPUOnly {
		return nil
	}
	var err error
	setup.Sim, setup.SimVRAMMiB, err = gpu.SimSize(dir)
	return err
}

// choose finds the cards that Slurm gave among those that the driver shows. If none
// is, the job runs without being measured.
func (n *node) choose(m *queue.Queue, first gpu.Sample, unread error) ([]gpu.Device, error) {
	if unread != nil {
		return nil, problem.Newf(problem.Unable, "", "the GPUs of this node cannot be read: %w", unread)
	}
	if n.cards = queue.Given(n.lookup, first.Devices); len(n.cards) == 0 {
		m.Source, m.NoGPUs = gpu.None(), true
		return nil, nil
	}
	n.source = newAllotted(m.Source, n.cards)
	m.Source = n.source
	return n.cards, nil
}

// newEngine makes the engine; last is the highest number of a job in the store.
func (n *node) newEngine(last int64) {
	rules := sched.DefaultRules()
	rules.MarginMiB, rules.SpikeBuffer, rules.MaxBypass, rules.Slice = 0, 0, 0, false
	n.queue.Start(engine.Config{
		Settings: settings.Settings{
			Rules:   rules,
			Poll:    poll,
			User:    n.order.Job.User,
			KeepAll: true,
		},
		Order:   n.launch,
		LogPath: func(*job.Job) string { return n.order.Log },
		Publish: n.follow,
	}, last)
}

// launch is the supervisor's order.
func (n *node) launch(j *job.Job, card launch.CardOf) (keep.Order, error) {
	o, err := n.queue.Launcher.Order(j, card)
	if err == nil && j.Umask >= 0 {
		o.Mask = strconv.FormatInt(int64(j.Umask), 8)
	}
	return o, err
}

// begun is the start marker.
func (n *node) begun() handover.Begun {
	b := handover.Begun{Slurm: n.slurmID(), Node: n.getenv("SLURMD_NODENAME"), At: n.began, Dir: n.state, Step: n.getenv("SLURM_JOB_ID")}
	b.Program, _ = os.Executable() // only attaching needs it
	if b.Node == "" {
		b.Node, _ = os.Hostname() // without a name it is only less useful
	}
	for _, d := range n.cards {
		b.GPUs = append(b.GPUs, handover.GPU{Index: d.Index, UUID: d.UUID, Name: d.Name, TotalMiB: d.TotalMiB})
	}
	for _, index := range n.unseen() {
		b.GPUs = append(b.GPUs, handover.GPU{Index: index})
	}
	return b
}

// unseen is the numbers of the cards that Slurm gave, if the driver shows none of
// them: nothing is measured, but the job has them.
func (n *node) unseen() (list []int) {
	if len(n.cards) > 0 || n.order.Job.Spec.GPUs == 0 {
		return nil
	}
	if list = queue.GivenNumbers(n.lookup); len(list) > 0 {
		return list
	}
	for i := range n.order.Job.Spec.GPUs {
		list = append(list, i)
	}
	return list
}

// slurmID is Slurm's id of this run, as squeue shows it.
func (n *node) slurmID() string {
	if array, task := n.getenv("SLURM_ARRAY_JOB_ID"), n.getenv("SLURM_ARRAY_TASK_ID"); array != "" && task != "" {
		return array + "_" + task
	}
	return n.getenv("SLURM_JOB_ID")
}

// warm starts the job's supervisor before the job begins: a node that cannot start
// one must not take the job.
func (n *node) warm() error {
	token, err := n.queue.Runner.Lease()
	if err != nil {
		return problem.Newf(problem.Unable, "", "no supervisor can be started here: %w", err)
	}
	n.queue.Runner.Release(token)
	return nil
}

// close ends the supervisors and removes the wrapper's directory.
func (n *node) close() {
	if n.queue != nil {
		n.queue.Close()
	}
	if err := os.RemoveAll(n.state); err != nil {
		n.say(err)
	}
}

// say reports a problem to Slurm's output file, the only place there is.
func (n *node) say(err error) {
	fmt.Fprintf(n.errs, "berth: job %s: %v\n", n.order.Job.ID, err)
	if p, ok := errors.AsType[*problem.Problem](err); ok && p.Hint != "" {
		fmt.Fprintln(n.errs, "hint:", p.Hint)
	}
}

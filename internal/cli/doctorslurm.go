package cli

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"berth/internal/api"
	"berth/internal/cli/render"
	"berth/internal/cli/session"
	"berth/internal/machine/site"
	"berth/internal/queue/config"
	"berth/internal/slurm"
	"berth/internal/text"
	"berth/internal/text/problem"
)

// slurmPatience is how long one of Slurm's programs may take.
const slurmPatience = 20 * time.Second

// slurmReport is the JSON of `berth doctor --slurm`.
type slurmReport struct {
	Findings []site.Finding `json:"findings"`
	Nodes    []slurm.Node   `json:"nodes"`
	Config   []string       `json:"config"` // lines for [slurm], with ? where a size has to be filled in
}

// doctorSlurm checks the cluster instead of this machine.
func doctorSlurm(ctx context.Context, s *session.Session, asJSON bool) error {
	e := clusterExam{config: examinedConfig(ctx, s)}
	report := e.all(ctx)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if asJSON {
		if err := printJSON(s.Out, report); err != nil {
			return err
		}
		return verdictOf(report.Findings)
	}
	verdict := drawFindings(s.Screen, report.Findings)
	if len(report.Nodes) > 0 {
		fmt.Fprintln(s.Out)
	}
	_ = drawNodes(s.Screen, report.Nodes) // what follows fails in the same way
	if len(report.Config) > 0 {
		fmt.Fprintf(s.Out, "\nFor the config file (berth help config), with each ? replaced by a size:\n\n[slurm]\n")
		for _, line := range report.Config {
			fmt.Fprintln(s.Out, text.Line(line))
		}
	}
	return verdict
}

// examinedConfig is the configuration of the daemon that answers, or would be
// started. A file that cannot be read is berth config check's to complain about.
func examinedConfig(ctx context.Context, s *session.Session) config.Config {
	asking, cancel := context.WithTimeout(ctx, daemonPatience)
	defer cancel()
	places := session.SharedPlaces()
	if running, err := api.Call(asking, s.Client, api.GetStatus, api.None{}); err == nil {
		places = site.Places{Config: running.Config, Shared: running.Shared}
	} else if own, err := site.PrivatePlaces(os.Getenv); err == nil && (s.Target.Private || s.Target.Explicit) {
		places = own
	}
	cfg, err := config.Load(places.Config, places.Shared, false)
	if err != nil {
		return config.Default(places.Shared)
	}
	return cfg
}

// clusterExam is one examination of a cluster.
type clusterExam struct {
	config   config.Config
	findings []site.Finding
}

func (e *clusterExam) found(name, status, fix, format string, args ...any) {
	if status == site.OK {
		fix = ""
	}
	e.findings = append(e.findings, site.Finding{Name: name, Status: status, What: fmt.Sprintf(format, args...), Fix: fix})
}

// all asks Slurm, until it does not answer.
func (e *clusterExam) all(ctx context.Context) slurmReport {
	report := slurmReport{Nodes: []slurm.Node{}, Config: []string{}}
	if e.version(ctx) && e.controller(ctx) {
		e.queue(ctx)
		report.Nodes = notNull(e.nodes(ctx))
		report.Config = append(report.Config, e.gpus(report.Nodes)...)
	}
	e.directory()
	report.Findings = e.findings
	return report
}

// version checks that Slurm's programs are here.
func (e *clusterExam) version(ctx context.Context) bool {
	out, err := slurmSays(ctx, "sbatch", "--version")
	switch {
	case errors.Is(err, exec.ErrNotFound):
		e.found("slurm", site.Fail, "install Slurm's programs, or run berth on a login node; they have to be in PATH", "there is no sbatch in PATH")
		return false
	case err != nil:
		e.found("slurm", site.Fail, "set SLURM_CONF to the cluster's slurm.conf, if it is not in Slurm's usual place", "%v", err)
		return false
	}
	e.found("slurm", site.OK, "", "%s", strings.TrimSpace(out))
	return true
}

// controller checks that slurmctld answers, and how it is set up.
func (e *clusterExam) controller(ctx context.Context) bool {
	out, err := slurmSays(ctx, "scontrol", slurm.SettingsCommand()...)
	settings := slurm.Settings(out)
	if err != nil {
		e.found("slurmctld", site.Fail, "check the network and munge (`scontrol ping`), and SLURM_CONF", "%v", err)
		return false
	}
	e.found("slurmctld", site.OK, "", "answers for cluster %s, Slurm %s", orUnknown(settings["clustername"]), orUnknown(settings["slurm_version"]))
	switch storage := settings["accountingstoragetype"]; {
	case !strings.HasSuffix(storage, "/slurmdbd"):
		e.found("slurmdbd", site.Warn, "set up slurmdbd, if the cluster's administrators agree",
			"the cluster keeps no accounts: if a node dies, berth learns why a job ended only while slurmctld remembers it (MinJobAge, %s)", orUnknown(settings["minjobage"]))
	case !strings.Contains(settings["accountingstoreflags"], "job_comment"):
		e.found("slurmdbd", site.OK, "", "keeps accounts of ended jobs, without their comments")
	default:
		e.found("slurmdbd", site.OK, "", "keeps accounts of ended jobs")
	}
	if _, err := exec.LookPath("slurmrestd"); err == nil {
		e.found("slurmrestd", site.OK, "", "installed; berth does not need it")
	} else {
		e.found("slurmrestd", site.OK, "", "not installed; berth does not need it")
	}
	return true
}

func orUnknown(s string) string {
	return cmp.Or(s, "unknown")
}

// queue checks that squeue answers in the form that berth reads.
func (e *clusterExam) queue(ctx context.Context) {
	me, err := user.Current()
	var out string
	var entries []slurm.Entry
	if err == nil {
		out, err = slurmSays(ctx, "squeue", slurm.QueueCommand(me.Username)...)
	}
	if err == nil {
		entries, err = slurm.Queue(out)
	}
	if err != nil {
		e.found("squeue", site.Fail, "run squeue by hand, and ask the cluster's administrators", "%v", err)
		return
	}
	e.found("squeue", site.OK, "", "lists %s of yours", text.Count(len(entries), "job"))
}

// nodes checks the nodes.
func (e *clusterExam) nodes(ctx context.Context) []slurm.Node {
	nodes, err := askNodes(ctx)
	if err != nil {
		e.found("nodes", site.Fail, "run sinfo by hand, and ask the cluster's administrators", "%v", err)
		return nil
	}
	var states, away []string
	counts := map[string]int{}
	for _, n := range nodes {
		if counts[n.State]++; counts[n.State] == 1 {
			states = append(states, n.State)
		}
		if strings.Contains(n.State, "down") || strings.Contains(n.State, "drain") || strings.Contains(n.State, "fail") {
			away = append(away, n.Name)
		}
	}
	for i, state := range states {
		states[i] = fmt.Sprintf("%d %s", counts[state], state)
	}
	status := site.OK
	if len(away) > 0 || len(nodes) == 0 {
		status = site.Warn
	}
	e.found("nodes", status, "the table below has Slurm's reason for each; ask the cluster's administrators", "%s: %s", text.Count(len(nodes), "node"), orUnknown(strings.Join(states, ", ")))
	return nodes
}

// gpus checks the GPUs and how the config lists them. It returns the lines of the
// config that would list all of them.
func (e *clusterExam) gpus(nodes []slurm.Node) (lines []string) {
	found := slurm.GPUs(nodes)
	var words, settings, missing, choices []string
	for _, f := range found {
		words = append(words, fmt.Sprintf("%d %s", f.Count, kindWords(f)))
		setting := f.Setting()
		if setting == "" {
			continue
		}
		settings = append(settings, fmt.Sprintf("%q", setting))
		if !e.listed(f) {
			missing = append(missing, kindWords(f))
		}
		if len(f.GiB) > 1 {
			choices = append(choices, fmt.Sprintf("# %s has %s", kindWords(f), sizesOf(f.GiB)))
		}
	}
	if len(found) == 0 {
		e.found("gpus", site.Warn, "ask for the partition that has GPUs; jobs without one need --gpus 0", "the nodes have no GPUs (gres)")
		return nil
	}
	e.found("gpus", site.OK, "", "%s", strings.Join(words, ", "))
	shards := slurm.ShardsPerGPU(nodes)
	switch configured := e.config.Slurm.Slurm.Shards; {
	case configured == shards && shards == 0:
		e.found("shards", site.OK, "", "none: a job gets whole GPUs")
	case configured == shards:
		e.found("shards", site.OK, "", "%d on each GPU", shards)
	default:
		e.found("shards", site.Warn, fmt.Sprintf("set shards = %d in [slurm]", shards), "%d on each GPU; slurm.shards is %d", shards, configured)
		lines = append(lines, fmt.Sprintf("shards = %d", shards))
	}
	switch {
	case len(settings) == 0:
		e.found("slurm.gpus", site.Warn, "ask the administrators for gres types or node features", "the GPUs have neither types nor features that name them: a job with --vram gets any of them")
	case len(missing) > 0:
		e.found("slurm.gpus", site.Warn, "put the line below into the config: then --vram chooses a GPU that is large enough", "does not list %s", strings.Join(missing, ", "))
		lines = append(append(lines, choices...), "gpus = ["+strings.Join(settings, ", ")+"]")
	default:
		e.found("slurm.gpus", site.OK, "", "lists every type")
	}
	return lines
}

// listed reports whether the config knows a model.
func (e *clusterExam) listed(f slurm.Found) bool {
	return slices.ContainsFunc(e.config.Slurm.Slurm.Kinds, func(k slurm.Kind) bool {
		return f.Type != "" && k.Type == f.Type || f.Type == "" && k.Type == "" && k.Feature == f.Feature
	})
}

func kindWords(f slurm.Found) string {
	switch {
	case f.Type != "":
		return f.Type
	case f.Feature != "":
		return f.Feature
	}
	return "GPUs without a type"
}

func sizesOf(gib []int) string {
	words := make([]string, len(gib))
	for i, n := range gib {
		words[i] = fmt.Sprintf("%dG", n)
	}
	return text.Or(words)
}

// directory checks, as far as can be told here, that nodes see the directory.
func (e *clusterExam) directory() {
	dir := e.config.Slurm.Directory
	if below, found := strings.CutPrefix(dir, "~"); found {
		dir = filepath.Join(os.Getenv("HOME"), below)
	}
	there := dir
	for {
		if _, err := os.Stat(there); err == nil || there == filepath.Dir(there) {
			break
		}
		there = filepath.Dir(there)
	}
	remote, err := site.OnNetwork(there)
	switch {
	case err != nil:
		e.found("directory", site.Fail, "check that its file system responds", "%s: %v", dir, err)
	case !remote:
		e.found("directory", site.Warn, "set slurm.directory to a directory that all nodes share, unless the nodes mount this one", "%s is on a local disk of this machine", dir)
	default:
		e.found("directory", site.OK, "", "%s is on a network file system", dir)
	}
}

// slurmSays runs one of Slurm's programs.
func slurmSays(ctx context.Context, name string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, slurmPatience)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	var out, complaint bytes.Buffer
	cmd.Env, cmd.Stdout, cmd.Stderr, cmd.WaitDelay = slurm.Environ(os.Environ()), &out, &complaint, time.Second
	err := cmd.Run()
	switch {
	case ctx.Err() != nil:
		return "", fmt.Errorf("%s: no answer within %s", name, slurmPatience)
	case err != nil && strings.TrimSpace(complaint.String()) != "":
		lines := strings.Split(strings.TrimSpace(complaint.String()), "\n")
		return "", errors.New(lines[len(lines)-1]) // the last says what came of the others
	case err != nil:
		return "", fmt.Errorf("%s: %w", name, err)
	}
	return out.String(), nil
}

// drawNodes prints a table of the nodes.
func drawNodes(s render.Screen, nodes []slurm.Node) error {
	if len(nodes) == 0 {
		return nil
	}
	const most = 40
	table := text.Titled("NODE", "STATE", "GPUS", "FREE CPUS", "MEMORY", "FEATURES", "REASON")
	for _, n := range nodes[:min(len(nodes), most)] {
		var gpus []string
		for _, g := range n.GPUs {
			gpus = append(gpus, strings.TrimSpace(fmt.Sprintf("%d of %d free %s", g.Count-g.Used, g.Count, g.Type)))
		}
		table.Row(text.Line(n.Name), text.Line(n.State), text.Line(strings.Join(gpus, ", ")), fmt.Sprintf("%d of %d", n.FreeCPUs, n.CPUs), text.GiB(n.MemMiB)+"G",
			text.Line(strings.Join(n.Features, ",")), text.Line(n.Reason))
	}
	if err := s.Draw(table); err != nil || len(nodes) <= most {
		return err
	}
	_, err := fmt.Fprintf(s.Out, "and %d more; --json lists all\n", len(nodes)-most)
	return err
}

// slurmNodes lists the nodes of the cluster.
func slurmNodes(ctx context.Context) ([]slurm.Node, error) {
	nodes, err := askNodes(ctx)
	if err != nil {
		return nil, problem.Newf(problem.Unable, "berth doctor --slurm says what is wrong", "Slurm's nodes cannot be listed: %v", err)
	}
	return nodes, nil
}

func askNodes(ctx context.Context) ([]slurm.Node, error) {
	out, err := slurmSays(ctx, "sinfo", slurm.NodesCommand()...)
	if err != nil {
		return nil, err
	}
	return slurm.Nodes(out)
}

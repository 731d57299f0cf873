package slurm

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"os/user"
	"strings"

	"berth/internal/api"
	"berth/internal/compat/frontend"
	"berth/internal/job"
	"berth/internal/job/jobfile"
	"berth/internal/text"
)

// scontrol tells a script where it runs, and acts on its job.
var scontrol = frontend.Program{Name: "scontrol", Usage: scontrolUsage, Run: runScontrol}

const scontrolUsage = `usage: scontrol show hostnames [LIST]
       scontrol [-o] show job [ID]
       scontrol [-o] show node|partition
       scontrol show config
       scontrol ping
       scontrol requeue|hold|release ID...
       scontrol update JobId=ID NAME=VALUE...

What people and scripts ask scontrol for, answered by berth. show hostnames prints
the machines of LIST, one a line, or the job's own. requeue, hold and release are
berth requeue, berth hold and berth release, and update is berth edit for
Priority, TimeLimit and JobName.

  -o, --oneliner           a line for each job, node or partition
  -a, -d, -Q, -v, --local  accepted, and ignored
  -h, --help               print this

Exit status: 0 done; 1 failed, or not among these.

Example:
  MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
`

func runScontrol(c *frontend.Call) int {
	c = byNumber(c)
	oneLine := false
	known := options{"oneliner": on('o', &oneLine)}.ignore(bare, "all:a details:d quiet:Q verbose:v local:l")
	words, err := known.parse(c.Args, true)
	if err != nil {
		return c.Misuse(err.Error(), frontend.Failed)
	}
	if len(words) > 1 && words[0] == "show" {
		name, id, given := strings.Cut(strings.ToLower(words[1]), "=") // show jobid=17
		words = append([]string{"show " + name}, words[2:]...)
		if given {
			words = append(words, id)
		}
	}
	show := func(what func(*asker) error) int {
		shown := *c
		if oneLine {
			shown.Out = &joiner{out: c.Out}
		}
		return ask(&shown, what)
	}
	switch {
	case len(words) == 0:
	case len(words) <= 2 && strings.HasPrefix(words[0], "show hostname"):
		list := os.Getenv("SLURM_JOB_NODELIST")
		if len(words) == 2 {
			list = words[1]
		}
		for name := range strings.SplitSeq(list, ",") {
			fmt.Fprintln(c.Out, name)
		}
		return 0
	case len(words) <= 2 && (words[0] == "show job" || words[0] == "show jobs" || words[0] == "show jobid"):
		id := os.Getenv("BERTH_JOB_ID")
		if len(words) == 2 {
			id = words[1]
		}
		return show(func(a *asker) error { return a.showJob(id) })
	case words[0] == "show node" || words[0] == "show nodes" || words[0] == "show nodename":
		return show((*asker).showNode)
	case words[0] == "show partition" || words[0] == "show partitions" || words[0] == "show partitionname":
		if len(words) > 1 && words[1] != partition {
			c.Complain("Partition "+words[1]+" not found", "")
			return frontend.Failed
		}
		return show((*asker).showPartition)
	case len(words) == 1 && words[0] == "show config":
		return ask(c, (*asker).showConfig)
	case len(words) == 1 && words[0] == "ping":
		return ask(c, func(a *asker) error {
			_, err := api.Call(a.ctx, a.client, api.GetStatus, api.None{})
			if err == nil {
				fmt.Fprintf(a.Out, "Slurmctld(primary) at %s is UP\n", a.host)
			}
			return err
		})
	case len(words) > 2 && words[0] == "update":
		return updateJob(c, words[1:])
	case len(words) >= 2 && (words[0] == "requeue" || words[0] == "hold" || words[0] == "release"):
		return c.Verb(io.Discard, words)
	}
	return c.Misuse("no equivalent in berth: "+text.Found(strings.Join(words, " ")), frontend.Failed)
}

// showJob prints a job as scontrol does, in the order of its fields. Fields that
// mean nothing on one machine are left out.
func (a *asker) showJob(id string) error {
	if id == "" { // all of them
		_, err := a.client.JobsAll(a.ctx, api.Query{}, func(v job.View) error { return a.showJob(v.ID) })
		return err
	}
	d, err := api.Call(a.ctx, a.client, api.GetJob, api.JobID{ID: id})
	if err != nil {
		return err
	}
	e := entry{View: d.View}
	a.details[d.ID] = &d
	long, _ := state(&d.View)
	restarts := max(0, d.Attempt-1)
	fmt.Fprintf(a.Out, "JobId=%s JobName=%s\n", d.ID, frontend.OneLine(d.Name))
	if array, index, isTask := strings.Cut(d.ID, "_"); isTask {
		fmt.Fprintf(a.Out, "   ArrayJobId=%s ArrayTaskId=%s\n", array, index)
	}
	fmt.Fprintf(a.Out, "   UserId=%s\n", userID(d.User))
	fmt.Fprintf(a.Out, "   Priority=%d\n", d.Priority)
	fmt.Fprintf(a.Out, "   JobState=%s Reason=%s Dependency=%s\n", long, e.reason(), a.dependency(&d))
	fmt.Fprintf(a.Out, "   Requeue=%s Restarts=%d BatchFlag=1 ExitCode=%s\n", map[bool]string{true: "1", false: "0"}[d.Settings["requeue"] != ""], restarts, exitCode(&d.View))
	fmt.Fprintf(a.Out, "   RunTime=%s TimeLimit=%s\n", longClock(a.elapsed(&d.View)), longLimit(d.TimeLimitS))
	fmt.Fprintf(a.Out, "   SubmitTime=%s\n", known(d.SubmittedAt))
	fmt.Fprintf(a.Out, "   StartTime=%s EndTime=%s\n", known(d.StartedAt), known(e.ends(d.TimeLimitS)))
	fmt.Fprintf(a.Out, "   Partition=%s\n", partition)
	fmt.Fprintf(a.Out, "   NodeList=%s\n", a.node(&e))
	fmt.Fprintf(a.Out, "   NumNodes=1 NumCPUs=%s NumTasks=1\n", cmp.Or(d.Settings["cpus"], "1"))
	fmt.Fprintf(a.Out, "   MinMemoryNode=%s\n", cmp.Or(d.Settings["mem"], "0"))
	fmt.Fprintf(a.Out, "   Command=%s\n", frontend.OneLine(cmp.Or(frontend.Value(d.Command), "(null)")))
	fmt.Fprintf(a.Out, "   WorkDir=%s\n", d.Dir)
	output := cmp.Or(frontend.Value(d.Log), d.Settings["output"])
	fmt.Fprintf(a.Out, "   StdErr=%s\n", cmp.Or(jobfile.ErrorFile(d.Settings["setup"], &d.View, a.host), output))
	fmt.Fprintf(a.Out, "   StdOut=%s\n", output)
	if d.GPUs > 0 {
		fmt.Fprintf(a.Out, "   TresPerNode=gres:gpu:%d\n", d.GPUs)
	}
	fmt.Fprintln(a.Out)
	return nil
}

// userID is root(0).
func userID(name string) string {
	u, err := user.Lookup(name)
	if err != nil {
		return name
	}
	return name + "(" + u.Uid + ")"
}

func (a *asker) showNode() error {
	m, err := a.machine()
	if err != nil {
		return err
	}
	long, _ := m.state()
	fmt.Fprintf(a.Out, "NodeName=%s\n   CPUTot=%d\n   Gres=%s\n   GresUsed=%s\n   NodeHostName=%s\n   RealMemory=%d\n   State=%s\n   Partitions=%s\n\n",
		m.host, m.cpus, m.gres(), m.gresUsed(), m.host, m.memMiB, strings.ToUpper(long), partition)
	return nil
}

// showPartition prints the one that this machine is.
func (a *asker) showPartition() error {
	m, err := a.machine()
	if err != nil {
		return err
	}
	fmt.Fprintf(a.Out, "PartitionName=%s\n   AllowGroups=ALL AllowAccounts=ALL AllowQos=ALL\n   Default=YES\n   MaxNodes=1 MaxTime=UNLIMITED MinNodes=0\n   Nodes=%s\n   State=UP TotalCPUs=%d TotalNodes=1\n   DefMemPerNode=UNLIMITED MaxMemPerNode=UNLIMITED\n   TRES=cpu=%d,mem=%dM,node=1,gres/gpu=%d\n\n",
		partition, m.host, m.cpus, m.cpus, m.memMiB, len(m.gpus))
	return nil
}

// showConfig prints the settings that clients read, and that berth has.
func (a *asker) showConfig() error {
	if _, err := api.Call(a.ctx, a.client, api.GetStatus, api.None{}); err != nil {
		return err
	}
	fmt.Fprintf(a.Out, "Configuration data as of %s\n", stamp(&a.now))
	for _, row := range [][2]string{
		{"AccountingStorageType", "accounting_storage/slurmdbd"}, {"ClusterName", partition}, {"MinJobAge", fmt.Sprintf("%d sec", int(remembered.Seconds()))},
		{"SlurmctldHost[0]", a.host}, {"SLURM_VERSION", release},
	} {
		fmt.Fprintf(a.Out, "%-23s = %s\n", row[0], row[1])
	}
	return nil
}

// joiner writes the lines of each block, which an empty one ends, as one.
type joiner struct {
	out     io.Writer
	started bool
}

func (j *joiner) Write(p []byte) (int, error) {
	var b strings.Builder
	for line := range strings.Lines(string(p)) {
		switch word := strings.TrimSpace(line); {
		case word == "":
			b.WriteByte('\n')
			j.started = false
			continue
		case j.started:
			b.WriteString(" " + word)
		default:
			b.WriteString(word)
		}
		j.started = true
	}
	_, err := io.WriteString(j.out, b.String())
	return len(p), err
}

// updateJob is berth edit, for the names that both have.
func updateJob(c *frontend.Call, words []string) int {
	id, flags := "", []string{}
	for _, word := range words {
		name, value, given := strings.Cut(word, "=")
		switch lower := strings.ToLower(name); {
		case !given:
			return c.Misuse("expected NAME=VALUE, found "+text.Found(word), frontend.Failed)
		case lower == "jobid" || lower == "job":
			id = value
		case lower == "priority" || lower == "jobname" || lower == "name":
			flags = append(flags, "--"+strings.TrimPrefix(lower, "job")+"="+value)
		case lower == "timelimit":
			pairs, _, err := jobfile.TranslateSlurm([]jobfile.SlurmOption{{Name: "time", Value: value}})
			if err != nil || len(pairs) != 1 {
				c.Complain("TimeLimit: expected a time limit of Slurm, found "+text.Found(value), "")
				return frontend.Failed
			}
			flags = append(flags, "--time="+pairs[0].Value)
		default:
			c.Complain("berth cannot change "+text.Found(name), "berth edit --help lists what it can")
			return frontend.Failed
		}
	}
	if id == "" {
		return c.Misuse("expected JobId=ID, found none", frontend.Failed)
	}
	return c.Verb(io.Discard, append([]string{"edit", id}, flags...))
}

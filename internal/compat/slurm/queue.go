package slurm

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"berth/internal/api"
	"berth/internal/compat/frontend"
	"berth/internal/job"
	"berth/internal/text"
)

// partition is the one that a machine is.
const partition = "berth"

// release is the one whose options and formats berth has. Clients read it from
// --version.
const release = "22.05.8"

// asker is a program's connection to the daemon.
type asker struct {
	*frontend.Call
	ctx     context.Context
	client  *api.Client
	host    string
	now     time.Time
	details map[string]*api.Detail
}

// ask runs a program that reads from the daemon. Slurm's status for any failure
// is 1.
func ask(c *frontend.Call, do func(*asker) error) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	client, err := c.Dial(ctx, false)
	if err != nil {
		return fail(c, err)
	}
	defer client.Close()
	host, _ := os.Hostname()
	a := &asker{Call: c, ctx: ctx, client: client, host: host, now: time.Now(), details: map[string]*api.Detail{}}
	if err := do(a); err != nil {
		return fail(c, err)
	}
	return 0
}

func fail(c *frontend.Call, err error) int {
	what, hint := frontend.Explain(err, "daemon", "berth start starts one")
	c.Complain(frontend.OneLine(what), hint)
	return frontend.Failed
}

// entry is a job as Slurm shows it, or the waiting tasks of an array.
type entry struct {
	job.View
	tasks  string // of an array: those that wait, 0-3,7
	behind bool   // another job waits for GPUs before it
}

// detail is asked for only where a column needs it.
func (a *asker) detail(id string) *api.Detail {
	if d := a.details[id]; d != nil {
		return d
	}
	d, err := api.Call(a.ctx, a.client, api.GetJob, api.JobID{ID: id})
	if err != nil {
		d = api.Detail{} // it is gone
	}
	a.details[id] = &d
	return &d
}

func (e *entry) array() string {
	array, _, _ := strings.Cut(e.ID, "_")
	return array
}

// id is 17, 17_3, or 17_[0-9%2].
func (e *entry) id() string {
	_, index, isTask := strings.Cut(e.ID, "_")
	switch {
	case !isTask:
		return e.ID
	case e.tasks != "":
		return e.array() + "_[" + e.tasks + "]"
	}
	return e.array() + "_" + index
}

// state is Slurm's word for a job's, and its two letters.
func state(v *job.View) (long, short string) {
	switch v.State {
	case job.Queued:
		return "PENDING", "PD"
	case job.Running:
		return "RUNNING", "R"
	case job.Parked:
		return "SUSPENDED", "S"
	case job.Finished:
		return "COMPLETED", "CD"
	case job.Cancelled:
		return "CANCELLED", "CA"
	default: // failed, in one of many ways
	}
	switch outcome := frontend.Value(v.Outcome); outcome {
	case job.Timeout:
		return "TIMEOUT", "TO"
	case job.OOM:
		return "OUT_OF_MEMORY", "OOM"
	case job.Lost:
		return "NODE_FAIL", "NF"
	}
	return "FAILED", "F"
}

// reason is Slurm's word for why a job waits, or failed.
func (e *entry) reason() string {
	said := frontend.Value(e.Reason)
	switch outcome := frontend.Value(e.Outcome); {
	case e.State == job.Failed && outcome == job.Timeout:
		return "TimeLimit"
	case e.State == job.Failed && outcome == job.OOM:
		return "OutOfMemory"
	case e.State == job.Failed && outcome == job.Lost:
		return "NodeDown"
	case e.State == job.Failed && (outcome == job.Launch || e.Signal != nil): // as in Slurm, whose word for a signal it is
		return "JobLaunchFailure"
	case e.State == job.Failed:
		return "NonZeroExitCode"
	case outcome == job.Depends:
		return "DependencyNeverSatisfied"
	case e.State != job.Queued:
		return "None"
	case e.Held:
		return "JobHeldUser"
	case strings.HasPrefix(said, "waits for job"):
		return "Dependency"
	case strings.HasPrefix(said, "not before "):
		return "BeginTime"
	case strings.HasPrefix(said, "array "):
		return "JobArrayTaskLimit"
	case strings.HasPrefix(said, "group "): // it is paused
		return "JobHeldUser"
	case strings.Contains(said, " of group "):
		return "AssocGrpJobsLimit"
	case strings.HasPrefix(said, "waits behind"), strings.HasPrefix(said, "fits;"):
		return "Priority"
	case strings.Contains(said, "limit"):
		return "QOSMaxGRESPerUser"
	}
	if e.behind {
		return "Priority"
	}
	return "Resources"
}

// clock is a duration as Slurm writes it: [days-]h:mm:ss, or m:ss.
func clock(d time.Duration) string {
	s := int64(max(0, d) / time.Second)
	days, h, m := s/86400, s/3600%24, s/60%60
	switch {
	case days > 0:
		return fmt.Sprintf("%d-%02d:%02d:%02d", days, h, m, s%60)
	case h > 0:
		return fmt.Sprintf("%d:%02d:%02d", h, m, s%60)
	}
	return fmt.Sprintf("%d:%02d", m, s%60)
}

func stamp(t *time.Time) string {
	if t == nil || t.IsZero() {
		return "N/A"
	}
	return t.Local().Format("2006-01-02T15:04:05")
}

// elapsed is how long a job has run.
func (a *asker) elapsed(v *job.View) time.Duration {
	if v.StartedAt == nil || v.State == job.Queued {
		return 0
	}
	to := a.now
	if v.EndedAt != nil {
		to = *v.EndedAt
	}
	return to.Sub(*v.StartedAt) - time.Duration(v.ParkedS*float64(time.Second))
}

// line marks which jobs wait behind another. Slurm tells the two apart.
func line(entries []entry) []entry {
	first := true
	for i := range entries {
		if entries[i].reason() == "Resources" {
			entries[i].behind, first = !first, false
		}
	}
	return entries
}

// fold makes one entry of the waiting tasks of each array, in the place of the
// first.
func fold(list []job.View) (entries []entry) {
	first := map[string]int{}
	indices := map[string][]int{}
	for _, v := range list {
		array, index, isTask := strings.Cut(v.ID, "_")
		if n, ok := text.Digits(index, 10); isTask && ok && v.State == job.Queued {
			indices[array] = append(indices[array], n)
			if _, seen := first[array]; seen {
				continue
			}
			first[array] = len(entries)
		}
		entries = append(entries, entry{View: v})
	}
	for array, i := range first {
		entries[i].tasks = spans(indices[array])
	}
	return entries
}

// spans writes numbers as 0-3,7.
func spans(numbers []int) string {
	slices.Sort(numbers)
	var parts []string
	for i := 0; i < len(numbers); {
		j := i
		for j+1 < len(numbers) && numbers[j+1] == numbers[j]+1 {
			j++
		}
		part := strconv.Itoa(numbers[i])
		if j > i {
			part += "-" + strconv.Itoa(numbers[j])
		}
		parts, i = append(parts, part), j+1
	}
	return strings.Join(parts, ",")
}

// field is a column of squeue: its letter after %, its name after --Format, its
// title, and its value.
type field struct {
	letter byte
	names  string // several, separated by spaces
	title  string
	value  func(*asker, *entry) string
}

func jobFields() []field {
	constant := func(word string) func(*asker, *entry) string {
		return func(*asker, *entry) string { return word }
	}
	return []field{
		{'i', "jobarrayid", "JOBID", func(_ *asker, e *entry) string { return e.id() }},
		{'A', "jobid", "JOBID", func(_ *asker, e *entry) string {
			if e.tasks != "" {
				return e.array()
			}
			return e.ID
		}},
		{'F', "arrayjobid", "ARRAY_JOB_ID", func(_ *asker, e *entry) string { return e.array() }},
		{'K', "arraytaskid", "ARRAY_TASK_ID", func(_ *asker, e *entry) string {
			_, index, isTask := strings.Cut(e.ID, "_")
			if !isTask {
				return "N/A"
			}
			return cmp.Or(e.tasks, index)
		}},
		{'P', "partition", "PARTITION", constant(partition)},
		{'j', "name", "NAME", func(_ *asker, e *entry) string { return e.Name }},
		{'u', "username", "USER", func(_ *asker, e *entry) string { return e.User }},
		{'t', "statecompact", "ST", func(_ *asker, e *entry) string { _, short := state(&e.View); return short }},
		{'T', "state", "STATE", func(_ *asker, e *entry) string { long, _ := state(&e.View); return long }},
		{'M', "timeused", "TIME", func(a *asker, e *entry) string { return clock(a.elapsed(&e.View)) }},
		{'l', "timelimit", "TIME_LIMIT", func(a *asker, e *entry) string { return limit(a.detail(e.ID).TimeLimitS) }},
		{'L', "timeleft", "TIME_LEFT", func(a *asker, e *entry) string {
			most := a.detail(e.ID).TimeLimitS
			if most == 0 {
				return limit(most)
			}
			return clock(time.Duration(most*float64(time.Second)) - a.elapsed(&e.View))
		}},
		{'D', "numnodes", "NODES", constant("1")},
		{'N', "nodelist", "NODELIST", func(a *asker, e *entry) string { return a.node(e) }},
		{'B', "batchhost", "EXEC_HOST", func(a *asker, e *entry) string { return cmp.Or(a.node(e), "n/a") }},
		{'r', "reason", "REASON", func(_ *asker, e *entry) string { return e.reason() }},
		{'R', "reasonlist", "NODELIST(REASON)", func(a *asker, e *entry) string {
			if e.State == job.Queued || e.State == job.Failed {
				return "(" + e.reason() + ")"
			}
			return a.node(e)
		}},
		{'C', "numcpus", "CPUS", func(a *asker, e *entry) string { return cmp.Or(a.detail(e.ID).Settings["cpus"], "1") }},
		{'m', "minmemory", "MIN_MEMORY", func(a *asker, e *entry) string { return cmp.Or(a.detail(e.ID).Settings["mem"], "0") }},
		{'b', "tres-per-node gres", "TRES_PER_NODE", func(_ *asker, e *entry) string {
			if e.GPUs == 0 {
				return "N/A"
			}
			return "gres:gpu:" + strconv.Itoa(e.GPUs)
		}},
		{'S', "starttime", "START_TIME", func(a *asker, e *entry) string { return a.start(e) }},
		{'e', "endtime", "END_TIME", func(a *asker, e *entry) string {
			return stamp(e.ends(a.detail(e.ID).TimeLimitS))
		}},
		{'V', "submittime", "SUBMIT_TIME", func(_ *asker, e *entry) string { return stamp(e.SubmittedAt) }},
		{'Q', "prioritylong priority", "PRIORITY", func(_ *asker, e *entry) string { return strconv.Itoa(e.Priority) }},
		{'p', "", "PRIORITY", func(_ *asker, e *entry) string { return strconv.Itoa(e.Priority) }},
		{'Z', "workdir", "WORK_DIR", func(a *asker, e *entry) string { return a.detail(e.ID).Dir }},
		{'o', "command", "COMMAND", func(_ *asker, e *entry) string { return cmp.Or(frontend.Value(e.Command), "(null)") }},
		{'a', "account", "ACCOUNT", constant("(null)")},
		{'q', "qos", "QOS", constant("normal")},
		{'E', "dependency", "DEPENDENCY", func(a *asker, e *entry) string { return a.dependency(a.detail(e.ID)) }},
		{'Y', "schednodes", "SCHEDNODES", constant("(null)")},
		{'f', "feature", "FEATURES", constant("(null)")},
		{'k', "comment", "COMMENT", constant("(null)")},
	}
}

func (a *asker) node(e *entry) string {
	if e.State == job.Queued || e.StartedAt == nil {
		return ""
	}
	return a.host
}

// ends is when a job ended, or reaches its time limit.
func (e *entry) ends(limitSeconds float64) *time.Time {
	if e.EndedAt != nil || limitSeconds == 0 || e.StartedAt == nil || e.State == job.Queued {
		return e.EndedAt
	}
	at := e.StartedAt.Add(time.Duration(limitSeconds * float64(time.Second)))
	return &at
}

// start is when a job started, or is expected to.
func (a *asker) start(e *entry) string {
	if e.State != job.Queued {
		return stamp(e.StartedAt)
	}
	why, err := api.Call(a.ctx, a.client, api.GetWhy, api.JobID{ID: e.ID})
	if err != nil || why.Expected == nil || why.Expected.Mid.IsZero() {
		return "N/A"
	}
	return stamp(&why.Expected.Mid)
}

func limit(seconds float64) string {
	if seconds == 0 {
		return "UNLIMITED"
	}
	return clock(time.Duration(seconds * float64(time.Second)))
}

package tgpu

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/pflag"

	"berth/internal/compat/frontend"
	"berth/internal/job"
	"berth/internal/text"
)

// recent is how many ended jobs the list shows.
const recent = 20

func runList(c *frontend.Call, args []string) int {
	flags := pflag.NewFlagSet("list", pflag.ContinueOnError)
	all := flags.BoolP("all", "a", false, "")
	asJSON := flags.Bool("json", false, "")
	if status, ok := c.Parse(flags, args, usage); !ok {
		return status
	}
	ids := flags.Args()
	if !areIDs(c, ids) {
		return frontend.BadUsage
	}
	jobs, more, code := jobsToShow(c, ids, *all)
	switch {
	case code != 0:
		return code
	case *asJSON:
		if err := json.NewEncoder(c.Out).Encode(jobs); err != nil {
			c.Complain(err.Error(), "")
			return frontend.Failed
		}
		return 0
	}
	if err := writeTable(c.Out, jobs, time.Now()); err != nil {
		c.Complain(err.Error(), "")
		return frontend.Failed
	}
	if more {
		fmt.Fprintln(c.Out, "… older jobs: tgpu list --all")
	}
	return 0
}

// jobsToShow are the running and queued jobs, then the ended ones, newest first.
// more reports whether older ones were left out.
func jobsToShow(c *frontend.Call, ids []string, all bool) (jobs []job.View, more bool, code int) {
	if len(ids) > 0 {
		jobs, code = askJobs(c, append([]string{"list", "--all", "--json"}, ids...)...)
		return jobs, false, code
	}
	if jobs, code = askJobs(c, "list", "--json"); code != 0 {
		return nil, false, code
	}
	slices.SortStableFunc(jobs, before)
	limit := 0
	if !all {
		limit = recent + 1 // one more than is shown, to know whether there are more
	}
	ended, code := askJobs(c, "history", "--json", "--limit", strconv.Itoa(limit))
	if code != 0 {
		return nil, false, code
	}
	if more = !all && len(ended) > recent; more {
		ended = ended[:recent]
	}
	// A job may have ended between the two requests.
	jobs = slices.DeleteFunc(jobs, func(j job.View) bool {
		return slices.ContainsFunc(ended, func(o job.View) bool { return o.ID == j.ID })
	})
	return append(jobs, ended...), more, 0
}

// before sorts running jobs first, then queued ones by priority.
func before(a, b job.View) int {
	switch aRuns, bRuns := a.State == job.Running, b.State == job.Running; {
	case aRuns && bRuns:
		return 0
	case aRuns:
		return -1
	case bRuns:
		return 1
	}
	return cmp.Compare(b.Priority, a.Priority)
}

// askJobs runs a command of berth's that prints jobs as JSON.
func askJobs(c *frontend.Call, words ...string) ([]job.View, int) {
	var out bytes.Buffer
	if code := reach(c, &out, words...); code != 0 {
		return nil, code
	}
	jobs := []job.View{}
	if err := json.Unmarshal(out.Bytes(), &jobs); err != nil {
		c.Complain("read jobs: "+err.Error(), "")
		return nil, frontend.Failed
	}
	return jobs, 0
}

func writeTable(out io.Writer, jobs []job.View, now time.Time) error {
	if len(jobs) == 0 {
		_, err := fmt.Fprintln(out, "no jobs")
		return err
	}
	table := text.Titled("ID", "STATE", "GPUS", "PRIORITY", "WAIT", "EXIT", "COMMAND")
	for _, j := range jobs {
		table.Row(j.ID, stateOf(j), gpusOf(j), strconv.Itoa(j.Priority), waitOf(j, now), exitOf(j), commandOf(j))
	}
	_, err := fmt.Fprint(out, table)
	return err
}

// stateOf is one of tgpu's five states. A parked job counts as queued.
func stateOf(j job.View) string {
	if j.State == job.Parked {
		return string(job.Queued)
	}
	return string(j.State)
}

func gpusOf(j job.View) string {
	if j.GPUs == 0 {
		return "-"
	}
	if len(j.GPUIDs) == 0 || j.State == job.Queued {
		return "x" + strconv.Itoa(j.GPUs)
	}
	return text.Numbers(j.GPUIDs)
}

// waitOf is the time from submission to the start. If there was no start, it
// counts to the end, or to now.
func waitOf(j job.View, now time.Time) string {
	until := now
	switch {
	case j.SubmittedAt == nil:
		return "-"
	case j.StartedAt != nil:
		until = *j.StartedAt
	case j.EndedAt != nil:
		until = *j.EndedAt
	}
	return max(until.Sub(*j.SubmittedAt), 0).Round(time.Second).String()
}

// exitOf is a job's exit status, or else its signal or outcome.
func exitOf(j job.View) string {
	switch {
	case j.ExitCode != nil:
		return strconv.Itoa(*j.ExitCode)
	case j.Signal != nil:
		return *j.Signal
	case j.Outcome != nil && *j.Outcome != job.Outcome(j.State):
		return string(*j.Outcome)
	}
	return "-"
}

// commandOf is the command on one line, safe for a terminal.
func commandOf(j job.View) string {
	if j.Command == nil {
		return "-" // another user's
	}
	return frontend.OneLine(*j.Command)
}

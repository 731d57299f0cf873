package compat

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"text/tabwriter"
	"time"

	"berth/internal/job"
)

// tgpuRecent is how many jobs that are over the list shows.
const tgpuRecent = 20

func tgpuList(c *Call, args []string) int {
	flags := tgpuFlags("list")
	all := flags.BoolP("all", "a", false, "")
	asJSON := flags.Bool("json", false, "")
	if code, done := tgpuParse(c, flags, args); done {
		return code
	}
	ids := flags.Args()
	if !tgpuIDs(c, ids) {
		return exitUsage
	}
	jobs, more, code := tgpuJobs(c, ids, *all)
	switch {
	case code != 0:
		return code
	case *asJSON:
		if err := json.NewEncoder(c.Out).Encode(jobs); err != nil {
			c.complain(err.Error(), "")
			return exitFailed
		}
		return 0
	}
	if err := tgpuTable(c.Out, jobs, time.Now()); err != nil {
		c.complain(err.Error(), "")
		return exitFailed
	}
	if more {
		fmt.Fprintln(c.Out, "… more are over: tgpu list --all")
	}
	return 0
}

// tgpuJobs are the jobs to show: those that are not over, then those that
// are, the newest first. more tells of older ones that are left out.
func tgpuJobs(c *Call, ids []string, all bool) (jobs []job.View, more bool, code int) {
	if len(ids) > 0 {
		jobs, code = tgpuAsk(c, append([]string{"list", "--all", "--json"}, ids...)...)
		return jobs, false, code
	}
	if jobs, code = tgpuAsk(c, "list", "--json"); code != 0 {
		return nil, false, code
	}
	slices.SortStableFunc(jobs, tgpuBefore)
	limit := 0
	if !all {
		limit = tgpuRecent + 1 // one more than is shown tells that there are more
	}
	over, code := tgpuAsk(c, "history", "--json", "--limit", strconv.Itoa(limit))
	if code != 0 {
		return nil, false, code
	}
	if more = !all && len(over) > tgpuRecent; more {
		over = over[:tgpuRecent]
	}
	// A job may have ended between the two questions.
	jobs = slices.DeleteFunc(jobs, func(j job.View) bool {
		return slices.ContainsFunc(over, func(o job.View) bool { return o.ID == j.ID })
	})
	return append(jobs, over...), more, 0
}

// tgpuBefore puts what runs first, then what waits by its priority; among
// equals the order they came in stays.
func tgpuBefore(a, b job.View) int {
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

// tgpuAsk reads jobs from one of berth's commands.
func tgpuAsk(c *Call, words ...string) ([]job.View, int) {
	var out bytes.Buffer
	if code := tgpuReach(c, &out, words...); code != 0 {
		return nil, code
	}
	jobs := []job.View{}
	if err := json.Unmarshal(out.Bytes(), &jobs); err != nil {
		c.complain("read jobs: "+err.Error(), "")
		return nil, exitFailed
	}
	return jobs, 0
}

func tgpuTable(out io.Writer, jobs []job.View, now time.Time) error {
	if len(jobs) == 0 {
		_, err := fmt.Fprintln(out, "no jobs")
		return err
	}
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "ID\tSTATE\tGPUS\tPRIORITY\tWAIT\tEXIT\tCOMMAND")
	for _, j := range jobs {
		fmt.Fprintf(table, "%s\t%s\t%s\t%d\t%s\t%s\t%s\n",
			j.ID, tgpuState(j), tgpuCards(j), j.Priority, tgpuWait(j, now), tgpuExit(j), tgpuLine(j))
	}
	return table.Flush()
}

// tgpuState is one of the five states tgpu has. A job that was set aside for
// another waits for its turn as a queued one does.
func tgpuState(j job.View) string {
	if j.State == job.Parked {
		return string(job.Queued)
	}
	return string(j.State)
}

func tgpuCards(j job.View) string {
	if j.GPUs == 0 {
		return "-"
	}
	if len(j.GPUIDs) == 0 || j.State == job.Queued {
		return "x" + strconv.Itoa(j.GPUs)
	}
	return joinInts(j.GPUIDs)
}

// tgpuWait is the time from submission to the start, or to now or the end of
// a job that has not started.
func tgpuWait(j job.View, now time.Time) string {
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

// tgpuExit is how a job ended: its exit status, or what kept it from one.
func tgpuExit(j job.View) string {
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

// tgpuLine is the command on one line, unable to drive a terminal.
func tgpuLine(j job.View) string {
	if j.Command == nil {
		return "-" // another user's
	}
	return oneLine(*j.Command)
}

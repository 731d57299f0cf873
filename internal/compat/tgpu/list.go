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

// recent is how many jobs that are over the list shows.
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
		fmt.Fprintln(c.Out, "… more are over: tgpu list --all")
	}
	return 0
}

// jobsToShow are the jobs to show: those that are not over, then those that
// are, the newest first. more tells of older ones that are left out.
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
		limit = recent + 1 // one more than is shown tells that there are more
	}
	over, code := askJobs(c, "history", "--json", "--limit", strconv.Itoa(limit))
	if code != 0 {
		return nil, false, code
	}
	if more = !all && len(over) > recent; more {
		over = over[:recent]
	}
	// A job may have ended between the two questions.
	jobs = slices.DeleteFunc(jobs, func(j job.View) bool {
		return slices.ContainsFunc(over, func(o job.View) bool { return o.ID == j.ID })
	})
	return append(jobs, over...), more, 0
}

// before puts what runs first, then what waits by its priority; among
// equals the order they came in stays.
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

// askJobs reads jobs from one of berth's commands.
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
		table.Row(j.ID, stateOf(j), cardsOf(j), strconv.Itoa(j.Priority), waitOf(j, now), exitOf(j), commandOf(j))
	}
	_, err := fmt.Fprint(out, table)
	return err
}

// stateOf is one of the five states tgpu has. A job that was set aside for
// another waits for its turn as a queued one does.
func stateOf(j job.View) string {
	if j.State == job.Parked {
		return string(job.Queued)
	}
	return string(j.State)
}

func cardsOf(j job.View) string {
	if j.GPUs == 0 {
		return "-"
	}
	if len(j.GPUIDs) == 0 || j.State == job.Queued {
		return "x" + strconv.Itoa(j.GPUs)
	}
	return text.Numbers(j.GPUIDs)
}

// waitOf is the time from submission to the start, or to now or the end of
// a job that has not started.
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

// exitOf is how a job ended: its exit status, or what kept it from one.
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

// commandOf is the command on one line, unable to drive a terminal.
func commandOf(j job.View) string {
	if j.Command == nil {
		return "-" // another user's
	}
	return frontend.OneLine(*j.Command)
}

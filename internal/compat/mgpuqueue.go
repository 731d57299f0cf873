package compat

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"berth/internal/api"
	"berth/internal/job"
)

var mgpuQueue = program{name: "mgpu_queue", usage: mgpuQueueUsage, run: runMgpuQueue}

const mgpuQueueUsage = `usage: mgpu_queue [--json]

List the jobs that run and those that wait, one to a line:

  ID: .. | User: .. | GPUs: .. | Mem: .. | CMD: .. | Status: ..

Mem is in MB, on each GPU. What waits says for what, and is listed as it comes
up: by priority, then by turns between users, then by submission. Commands of
other users are shown only where the server is set up so.

      --json  an array of jobs (docs/json.md), with the id as shown here and
              berth's own as number
  -h, --help  this text

Exit status: 0 listed; 1 no server answers; 2 bad usage.

Example:
  mgpu_queue
`

func runMgpuQueue(c *Call) int {
	asJSON := false
	flags := pflag.NewFlagSet(c.Name, pflag.ContinueOnError)
	flags.BoolVar(&asJSON, "json", false, "")
	if status, ok := c.mgpuParse(flags, c.Args, mgpuQueueUsage); !ok {
		return status
	}
	if flags.NArg() > 0 {
		c.complain(fmt.Sprintf("%q is not a flag", flags.Arg(0)), "see mgpu_queue --help")
		return exitUsage
	}
	ctx, stop := mgpuContext()
	defer stop()
	client, err := c.mgpuClient(ctx, false)
	if err != nil {
		return c.mgpuFailed(err)
	}
	defer client.Close()
	var jobs []job.View
	last, err := client.JobsAll(ctx, api.Query{Reasons: true, Order: true}, func(v job.View) error {
		jobs = append(jobs, v)
		return nil
	})
	if err != nil {
		return c.mgpuFailed(err)
	}
	inTurn(jobs, last.Order)
	if asJSON {
		err = c.mgpuJSON(jobs)
	} else {
		err = c.mgpuTable(jobs)
	}
	if err != nil {
		return c.mgpuFailed(err)
	}
	return 0
}

// inTurn puts queued jobs in the order in which they come up, behind those that
// run. What the order does not name waits for something else than its turn, and
// comes last.
func inTurn(jobs []job.View, order []string) {
	place := make(map[string]int, len(order))
	for i, id := range order {
		place[id] = i
	}
	of := func(v job.View) int {
		if v.State != job.Queued {
			return -1
		}
		if at, named := place[v.ID]; named {
			return at
		}
		return len(order)
	}
	slices.SortStableFunc(jobs, func(a, b job.View) int {
		return cmp.Or(cmp.Compare(of(a), of(b)), cmp.Compare(b.Priority, a.Priority))
	})
}

// mgpuJSON writes the jobs with both of their ids.
func (c *Call) mgpuJSON(jobs []job.View) error {
	type named struct {
		job.View
		ID     string `json:"id"`
		Number string `json:"number"`
	}
	all := make([]named, len(jobs))
	for i, v := range jobs {
		all[i] = named{View: v, ID: job.Code(v.ID), Number: v.ID}
	}
	return json.NewEncoder(c.Out).Encode(all)
}

func (c *Call) mgpuTable(jobs []job.View) error {
	out := bufio.NewWriter(c.Out)
	running, queued := []job.View{}, []job.View{}
	for _, v := range jobs {
		if v.State == job.Queued {
			queued = append(queued, v)
		} else {
			running = append(running, v)
		}
	}
	fmt.Fprintln(out, "--- Running Jobs ---")
	for _, v := range running {
		fmt.Fprintln(out, mgpuLine(v))
	}
	fmt.Fprintln(out, "--- Queue ---")
	for _, v := range queued {
		fmt.Fprintln(out, mgpuLine(v))
	}
	return out.Flush()
}

func mgpuLine(v job.View) string {
	ids := v.GPUIDs
	if v.State == job.Queued || len(ids) == 0 {
		ids = v.AskedIDs
	}
	cards := make([]string, len(ids))
	for i, id := range ids {
		cards[i] = strconv.Itoa(id)
	}
	gpus := strings.Join(cards, ",")
	if gpus == "" { // submitted with berth's own words: any so many
		gpus = fmt.Sprintf("any %d", v.GPUs)
	}
	mem, command, status := "none", "(not shown)", string(v.State)
	if v.VRAMMiB != nil {
		mem = strconv.FormatInt(*v.VRAMMiB, 10)
	}
	if v.Command != nil {
		command = oneLine(*v.Command)
	}
	if v.State == job.Queued && v.Reason != nil && *v.Reason != "" {
		status += " (" + mgpuWords(*v.Reason) + ")"
	}
	return fmt.Sprintf("ID: %s | User: %s | GPUs: %s | Mem: %s | CMD: %s | Status: %s", job.Code(v.ID), oneLine(v.User), gpus, mem, command, status)
}

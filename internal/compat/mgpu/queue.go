package mgpu

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"

	"github.com/spf13/pflag"

	"berth/internal/api"
	"berth/internal/compat/frontend"
	"berth/internal/job"
)

// Queue lists jobs.
var Queue = frontend.Program{Name: "mgpu_queue", Usage: queueUsage, Run: runQueue}

const queueUsage = `usage: mgpu_queue [--json]

List running and queued jobs, one per line:

  ID: .. | User: .. | GPUs: .. | Mem: .. | CMD: .. | Status: ..

GPUs is a count, and Mem is in MB per GPU. Queued jobs are listed in the order
they will start, with the reason they wait: by priority, then users take turns,
then by submission.
Other users' commands are shown only if the server's configuration allows it.

      --json  print a JSON array (berth help json); id is the one shown here,
              number is berth's own
  -h, --help  print this

Exit status: 0 listed; 1 no server answers; 2 bad usage.

Example:
  mgpu_queue
`

func runQueue(plain *frontend.Call) int {
	c := call{plain}
	asJSON := false
	flags := pflag.NewFlagSet(c.Name, pflag.ContinueOnError)
	flags.BoolVar(&asJSON, "json", false, "")
	if status, ok := c.Parse(flags, c.Args, queueUsage); !ok {
		return status
	}
	if flags.NArg() > 0 {
		return c.Misuse(fmt.Sprintf("expected no arguments, found %q", flags.Arg(0)), frontend.BadUsage)
	}
	ctx, stop := untilInterrupted()
	defer stop()
	client, err := c.dial(ctx, false)
	if err != nil {
		return c.failed(err)
	}
	defer client.Close()
	var jobs []job.View
	last, err := client.JobsAll(ctx, api.Query{Reasons: true, Order: true}, func(v job.View) error {
		jobs = append(jobs, v)
		return nil
	})
	if err != nil {
		return c.failed(err)
	}
	inTurn(jobs, last.Order)
	if asJSON {
		err = c.writeJSON(jobs)
	} else {
		err = c.writeTable(jobs)
	}
	if err != nil {
		return c.failed(err)
	}
	return 0
}

// inTurn sorts running jobs first, then queued jobs in the order they will
// start. A job outside that order, such as a held one, comes last.
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

// writeJSON writes the jobs with both of their ids.
func (c call) writeJSON(jobs []job.View) error {
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

func (c call) writeTable(jobs []job.View) error {
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
		fmt.Fprintln(out, lineOf(v))
	}
	fmt.Fprintln(out, "--- Queue ---")
	for _, v := range queued {
		fmt.Fprintln(out, lineOf(v))
	}
	return out.Flush()
}

func lineOf(v job.View) string {
	mem, command, status := "none", "(not shown)", string(v.State)
	if v.VRAMMiB != nil {
		mem = strconv.FormatInt(*v.VRAMMiB, 10)
	}
	if v.Command != nil {
		command = frontend.OneLine(*v.Command)
	}
	if v.State == job.Queued && v.Reason != nil && *v.Reason != "" {
		status += " (" + withCodes(*v.Reason) + ")"
	}
	return fmt.Sprintf("ID: %s | User: %s | GPUs: %d | Mem: %s | CMD: %s | Status: %s", job.Code(v.ID), frontend.OneLine(v.User), v.GPUs, mem, command, status)
}

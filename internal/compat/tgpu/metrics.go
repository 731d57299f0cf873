package tgpu

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/spf13/pflag"

	"berth/internal/api"
	"berth/internal/compat/frontend"
	"berth/internal/job"
	"berth/internal/text"
)

// runMetrics summarises the queue and berth's records of ended jobs.
func runMetrics(c *frontend.Call, args []string) int {
	flags := pflag.NewFlagSet("metrics", pflag.ContinueOnError)
	since := flags.String("since", "7d", "")
	asJSON := flags.Bool("json", false, "")
	if status, ok := c.Parse(flags, args, usage); !ok {
		return status
	}
	if flags.NArg() > 0 {
		c.Complain(fmt.Sprintf("metrics: expected no arguments, found %q", flags.Arg(0)), "tgpu metrics --since 30d")
		return frontend.BadUsage
	}
	words := []string{"stats", "--json", "--since", *since}
	if *asJSON {
		return reach(c, c.Out, words...)
	}
	var out bytes.Buffer
	if code := reach(c, &out, words...); code != 0 {
		return code
	}
	var stats api.Stats
	if err := json.Unmarshal(out.Bytes(), &stats); err != nil {
		c.Complain("read statistics: "+err.Error(), "")
		return frontend.Failed
	}
	live, code := askJobs(c, "list", "--json")
	if code != 0 {
		return code
	}
	if err := writeSums(c.Out, stats, live); err != nil {
		c.Complain(err.Error(), "")
		return frontend.Failed
	}
	return 0
}

func writeSums(out io.Writer, stats api.Stats, live []job.View) error {
	running := 0
	for _, j := range live {
		if j.State == job.Running {
			running++
		}
	}
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(table, "now\t%d running, %d queued, %s\n", running, len(live)-running, text.Count(stats.GPUs, "GPU"))
	fmt.Fprintf(table, "ended since %s\t%d finished, %d failed, %d cancelled\n",
		stats.Since.Local().Format("2006-01-02 15:04"), stats.All.Finished, stats.All.Failed, stats.All.Cancelled)
	if w := stats.All; w.WaitMeanS != nil && w.WaitP50S != nil && w.WaitP95S != nil && w.WaitMaxS != nil {
		fmt.Fprintf(table, "wait time\tmean %s, p50 %s, p95 %s, longest %s\n",
			span(*w.WaitMeanS), span(*w.WaitP50S), span(*w.WaitP95S), span(*w.WaitMaxS))
	} else {
		fmt.Fprintf(table, "wait time\t- (no started job has ended)\n")
	}
	fmt.Fprintf(table, "utilisation\tGPUs allocated %s of the time, busy %s while allocated\n",
		percent(stats.Util, 100), percent(stats.AvgUtil, 1))
	return table.Flush()
}

// span formats seconds; short waits have a fraction.
func span(seconds float64) string {
	d := time.Duration(seconds * float64(time.Second))
	if d < 10*time.Second {
		return d.Round(10 * time.Millisecond).String()
	}
	return d.Round(time.Second).String()
}

func percent(value *float64, scale float64) string {
	if value == nil {
		return "-"
	}
	return fmt.Sprintf("%.0f %%", *value*scale)
}

// Package gpusched is gpusched in front of `berth run`: its flags, defaults and
// log directory. It starts nothing itself: berth run speaks its words, too.
package gpusched

import (
	"fmt"
	"strings"

	"github.com/spf13/pflag"

	"berth/internal/compat/frontend"
)

// Program is gpusched.
var Program = frontend.Program{Name: "gpusched", Usage: usage, Run: run}

// version is the gpusched whose manual this follows.
const version = "0.4.0"

const usage = `usage: gpusched JOBS_FILE [flag ...]

Run a file of shell commands, one per line, each on GPUs with room for it, and
compare declared with actual memory. A leading block says what a line needs:
[vram=18G] may share a GPU, [vram=30G gpus=2] takes two, [retries=2] retries
after CUDA out of memory, [timeout=2h] limits its time, and [cancel] cancels it.
A line without vram gets an idle GPU to itself.

The file is re-read every poll: appended lines run, deleted ones are dequeued,
and the order of the file is the order of the queue. Running the same command
again skips finished jobs.

  --gpus 0,1,3           use only these GPUs (default: all visible)
  --idle-threshold 200   MiB in use below which a GPU counts as idle
  --margin 512           MiB to leave free beside every declaration
  --tolerance 0.10       how far usage may be off a declaration without a remark
  --spike-buffer 0.10    headroom above the peak usage of each process
  --poll 5               seconds between checks of the GPUs and the file
  --exclusive            one job per GPU, even if declarations would fit
  --watch                keep running after the queue drains; wait for new lines
  --oom-retries 0        retries after CUDA out of memory (retries= overrides)
  --fresh                start over: run everything again
  --retry-failed         run jobs again that failed in an earlier run
  --log-dir DIR          logs, journal, status board (default: gpusched_logs)
  -v, --verbose          also show memory usage as it grows
  --sim N                use N simulated GPUs of 24 GiB instead of real ones
  --version              print the version
  -h, --help             print this

This is berth in place of gpusched. It treats the jobs file, log directory and
journal as gpusched does, except that:
  - if it is killed, its jobs keep running and the next start finds them;
  - SIGTERM stops the jobs, as Ctrl-C does;
  - failures of an earlier run are listed and count in the exit status;
  - other jobs may overtake a job for at most 48 hours;
  - processes that a job leaves in the background go on, as under gpusched; with
    berth run they are ended after ten seconds;
  - --fresh moves old logs and journals aside and deletes nothing.

Exit status: 0 every job succeeded or is marked cancel; otherwise the largest
exit code of a failed job (at least 1); 2 bad usage or an unreadable jobs file;
130 interrupted.

Example:
  echo '[vram=8G] berth simjob --vram 8000 --ramp 2 --hold 5' > jobs.txt
  gpusched jobs.txt --sim 2 --poll 0.5 -v
`

// values are the flags that take a value, with their defaults; an empty one is
// not passed on. They are spelt out because berth's own defaults may change.
func values() [][2]string {
	return [][2]string{
		{"gpus", ""},
		{"idle-threshold", "200"},
		{"margin", "512"},
		{"tolerance", "0.10"},
		{"spike-buffer", "0.10"},
		{"poll", "5"},
		{"oom-retries", "0"},
		{"log-dir", "gpusched_logs"},
		{"sim", ""},
	}
}

func switches() []string {
	return []string{"exclusive", "watch", "fresh", "retry-failed", "verbose"}
}

// run is `berth run` with gpusched's defaults, in gpusched's name.
func run(c *frontend.Call) int {
	flags := newFlags()
	if status, ok := c.Parse(flags, c.Args, usage); !ok {
		return status
	}
	if asked, _ := flags.GetBool("version"); asked {
		fmt.Fprintf(c.Out, "gpusched %s (berth %s)\n", version, c.Version)
		return 0
	}
	if flags.NArg() != 1 {
		c.Complain(fmt.Sprintf("expected one jobs file, found %d", flags.NArg()), "gpusched jobs.txt; see gpusched --help")
		return frontend.BadUsage
	}
	return c.Verb(c.Out, berthRun(flags), "berth run", c.Name)
}

// newFlags also accepts any unambiguous prefix of a flag, as gpusched does.
func newFlags() *pflag.FlagSet {
	flags := pflag.NewFlagSet("gpusched", pflag.ContinueOnError)
	for _, f := range values() {
		flags.String(f[0], f[1], "")
	}
	for _, name := range switches() {
		short := ""
		if name == "verbose" {
			short = "v"
		}
		flags.BoolP(name, short, false, "")
	}
	flags.Bool("version", false, "")
	flags.SetNormalizeFunc(completeFlag)
	return flags
}

// completeFlag is the only flag with this prefix, or else the word itself.
func completeFlag(flags *pflag.FlagSet, word string) pflag.NormalizedName {
	var found []string
	exact := false
	flags.VisitAll(func(f *pflag.Flag) {
		exact = exact || f.Name == word
		if strings.HasPrefix(f.Name, word) {
			found = append(found, f.Name)
		}
	})
	if !exact && len(found) == 1 {
		return pflag.NormalizedName(found[0])
	}
	return pflag.NormalizedName(word)
}

// berthRun is the equivalent command line of berth. The file has shell lines,
// whatever its name.
func berthRun(flags *pflag.FlagSet) []string {
	args := []string{"run", "--format=lines", "--as-gpusched"}
	for _, f := range values() {
		value, _ := flags.GetString(f[0])
		if value != "" || flags.Changed(f[0]) {
			args = append(args, "--"+f[0]+"="+value)
		}
	}
	for _, name := range switches() {
		if on, _ := flags.GetBool(name); on {
			args = append(args, "--"+name)
		}
	}
	return append(args, "--", flags.Arg(0))
}

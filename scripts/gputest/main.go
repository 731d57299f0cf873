package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"syscall"
	"time"
)

// wholeLimit bounds all checks together: a host lent for ten minutes needs
// some time to copy the results.
const wholeLimit = 9 * time.Minute

// options are the command line.
type options struct {
	only    *regexp.Regexp
	verbose bool
	keep    bool
	sim     bool
	users   bool
	list    bool
	json    string
	day     bool
	dayTo   string
	bin     string
	card    int
}

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

func run(args []string, out, errs io.Writer) int {
	o, err := parse(args, errs)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		fmt.Fprintf(errs, "gpu-test: %v\n", err)
		return 2
	}
	if o.list {
		for _, c := range checks {
			fmt.Fprintf(out, "%-18s %s\n", c.name, c.about)
		}
		return 0
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	limit := wholeLimit
	if o.day {
		limit = dayLimit
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	h, err := openHost(ctx, o, errs)
	if err != nil {
		fmt.Fprintf(errs, "gpu-test: %v\n", err)
		return 1
	}
	defer h.close()
	if o.day {
		if err := untilNeed(func() { liveDay(ctx, h, o.dayTo, out) }); err != nil {
			fmt.Fprintf(errs, "gpu-test: %v\n", err)
			return 1
		}
		return 0
	}
	return report(ctx, h, o, out, errs)
}

func parse(args []string, errs io.Writer) (options, error) {
	var o options
	flags := flag.NewFlagSet("gpu-test", flag.ContinueOnError)
	flags.SetOutput(errs)
	only := flags.String("run", "", "run only the checks whose name matches this expression")
	flags.BoolVar(&o.verbose, "v", false, "print each step, and the daemon's log of every check")
	flags.StringVar(&o.json, "json", "", "also write the results to this file")
	flags.BoolVar(&o.keep, "keep", false, "keep the working directory")
	flags.BoolVar(&o.sim, "sim", false, "use simulated GPUs, and only the checks that work there")
	flags.BoolVar(&o.users, "users", false, "as root: run the jobs as an ordinary user, created with useradd if there is none")
	flags.BoolVar(&o.list, "list", false, "list the checks")
	flags.BoolVar(&o.day, "day", false, "instead of the checks, run a day of jobs, scaled down to four minutes, without parking and with it, beside what berth simulate predicts (9 minutes)")
	flags.StringVar(&o.dayTo, "day-out", "", "with -day, also write the figures to this name with .json, and a picture with .svg")
	flags.StringVar(&o.bin, "bin", "", "where berth, berth-keep and berth-gpu are (default: beside this program)")
	flags.IntVar(&o.card, "gpu", -1, "use this GPU (default: the one with the most free memory)")
	flags.Usage = func() {
		fmt.Fprintln(errs, "gpu-test runs berth on a real GPU and prints a table of results.\n\nFlags:")
		flags.PrintDefaults()
		fmt.Fprintln(errs, "\nExample: ./gpu-test -run 'discovery|attribution' -json seen.json\n\nExit status: 0 nothing failed; 1 a check failed; 2 bad usage; 130 interrupted.")
	}
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if flags.NArg() > 0 {
		return o, fmt.Errorf("unexpected argument %q; see gpu-test -h", flags.Arg(0))
	}
	var err error
	if o.only, err = regexp.Compile(*only); err != nil {
		return o, fmt.Errorf("-run: %w", err)
	}
	if o.bin == "" {
		self, err := os.Executable()
		if err != nil {
			return o, fmt.Errorf("find this program: %w", err)
		}
		o.bin = filepath.Dir(self)
	}
	return o, nil
}

// report runs the checks and prints each row as soon as it is known.
func report(ctx context.Context, h *host, o options, out, errs io.Writer) int {
	fmt.Fprintln(out, h.describe())
	fmt.Fprintf(out, "%-18s %-6s %6s  %s\n", "CHECK", "RESULT", "TIME", "SEEN")
	var results []result
	for _, c := range checks {
		if !o.only.MatchString(c.name) {
			continue
		}
		r := h.try(ctx, c)
		results = append(results, r)
		fmt.Fprint(out, r.row())
		if r.Log != "" && (r.Result == failed || o.verbose) {
			fmt.Fprintf(errs, "--- %s: berth's log\n%s---\n", c.name, r.Log)
		}
		if ctx.Err() != nil {
			break
		}
	}
	left := len(h.endMarked())
	sum := count(results)
	fmt.Fprintln(out, sum.line(left))
	if o.json != "" {
		if err := writeJSON(o.json, h, results); err != nil {
			fmt.Fprintf(errs, "gpu-test: %v\n", err)
			return 1
		}
	}
	switch {
	case errors.Is(ctx.Err(), context.Canceled):
		fmt.Fprintln(errs, "gpu-test: interrupted")
		return 130
	case len(results) == 0:
		fmt.Fprintln(errs, "gpu-test: no check matches; see gpu-test -list")
		return 2
	case sum.failed > 0 || ctx.Err() != nil || left > 0:
		return 1
	}
	return 0
}

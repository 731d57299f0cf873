package compat

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"regexp"
	"strings"
	"syscall"
	"unicode"

	"github.com/spf13/pflag"

	"berth/internal/api"
	"berth/internal/job"
)

// mgpuSocket is where the four programs meet.
var mgpuSocket = "/tmp/mgpu_scheduler.sock"

// mgpuClient finds the server: BERTH_SOCKET, else the one in /tmp, else the
// daemon that berth's own commands talk to. Only the first of them is taken on
// its user's word; in /tmp anybody may have put a socket, and the others lie
// where only root or the user can.
func (c *Call) mgpuClient(ctx context.Context, start bool) (*api.Client, error) {
	if socket := os.Getenv("BERTH_SOCKET"); socket != "" {
		return api.Dial(socket), nil
	}
	if _, err := os.Lstat(mgpuSocket); err == nil {
		return api.DialOwn(mgpuSocket), nil
	}
	socket, err := c.Daemon(ctx, start)
	if err != nil {
		return nil, err
	}
	return api.Dial(socket), nil
}

// mgpuContext ends with Ctrl-C. A second one ends what does not heed the first.
func mgpuContext() (context.Context, context.CancelFunc) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	return ctx, stop
}

// mgpuProblem is an error as a problem and a way on.
func mgpuProblem(err error) (what, hint string) {
	var problem *api.Problem
	var missing *api.Unreachable
	switch {
	case errors.As(err, &problem):
		return mgpuWords(problem.What), mgpuHints.Replace(oneLine(problem.Hint))
	case errors.As(err, &missing):
		return fmt.Sprintf("no server answers at %s: %v", missing.Socket, missing.Err), "start one: sudo mgpu_scheduler_server"
	}
	return err.Error(), ""
}

// mgpuHints turns ways on that are of berth's own commands into those of these
// programs.
var mgpuHints = strings.NewReplacer(
	"berth list --all shows what there is", "mgpu_queue lists the jobs that are not over",
	"berth submit -- python train.py", "mgpu_srun --gpu-ids 0 -- python train.py",
	"docs/jobspec.md lists the keys", "see mgpu_srun --help",
)

// mgpuFailed tells of an error and gives the exit status that goes with it.
func (c *Call) mgpuFailed(err error) int {
	if errors.Is(err, context.Canceled) {
		return exitInterrupted
	}
	c.complain(mgpuProblem(err))
	return exitFailed
}

// mgpuParse reads flags. Where it is not ok, what there was to say is said,
// and status is what to exit with.
func (c *Call) mgpuParse(flags *pflag.FlagSet, args []string, usage string) (status int, ok bool) {
	flags.Usage = func() {}
	flags.SetOutput(c.Err)
	err := flags.Parse(args)
	var value *pflag.InvalidValueError
	switch {
	case errors.Is(err, pflag.ErrHelp):
		fmt.Fprint(c.Out, usage)
		return 0, false
	case errors.As(err, &value):
		c.complain(fmt.Sprintf("--%s: found %q, a whole number is wanted", value.GetFlag().Name, value.GetValue()), "see "+c.Name+" --help")
		return exitUsage, false
	case err != nil:
		c.complain(err.Error(), "see "+c.Name+" --help")
		return exitUsage, false
	}
	return 0, true
}

// synopsis is the first paragraph of a usage.
func synopsis(usage string) string {
	first, _, _ := strings.Cut(usage, "\n\n")
	return first + "\n"
}

// oneLine is text that neither breaks a line nor drives a terminal.
func oneLine(text string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case unicode.IsPrint(r):
			return r
		case unicode.IsSpace(r):
			return ' '
		}
		return unicode.ReplacementChar
	}, text)
}

var jobNumber = regexp.MustCompile(`\bjob [0-9]+(_[0-9]+)?\b`)

// mgpuWords is a sentence of the server's with jobs as these programs name them.
func mgpuWords(text string) string {
	return jobNumber.ReplaceAllStringFunc(oneLine(text), func(found string) string {
		return "job " + job.Code(strings.TrimPrefix(found, "job "))
	})
}

var jobID = regexp.MustCompile(`^[0-9]{1,18}(_[0-9]{1,18})?$`)

// mgpuID is the id that berth knows a job by: people type the code they were
// given, in any case, or berth's own number. Nothing else that berth would take
// for jobs passes: here a word stands for one.
func mgpuID(word string) (string, error) {
	if id, ok := job.FromCode(word); ok {
		return id, nil
	}
	if !jobID.MatchString(word) {
		return "", api.Problemf(api.Invalid, "an id has eight letters and digits; mgpu_queue lists them", "%q is no id of a job", word)
	}
	return word, nil
}

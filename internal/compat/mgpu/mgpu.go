// Package mgpu is the four mgpu_ programs: three clients of a daemon of berth's,
// and that daemon. Eight-character ids are berth's own numbers written
// differently, so nothing is kept about them.
package mgpu

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"regexp"
	"strings"
	"syscall"

	"berth/internal/api"
	"berth/internal/compat/frontend"
	"berth/internal/job"
	"berth/internal/problem"
)

// call is one use of one of the four.
type call struct{ *frontend.Call }

// usualSocket is where the four programs meet.
var usualSocket = "/tmp/mgpu_scheduler.sock"

// dial finds the server: BERTH_SOCKET, else the one in /tmp, else the
// daemon that berth's own commands talk to. Only the first of them is taken on
// its user's word; in /tmp anybody may have put a socket, and the others lie
// where only root or the user can.
func (c call) dial(ctx context.Context, start bool) (*api.Client, error) {
	if socket := os.Getenv("BERTH_SOCKET"); socket != "" {
		return api.Dial(socket), nil
	}
	if _, err := os.Lstat(usualSocket); err == nil {
		return api.DialOwn(usualSocket), nil
	}
	socket, err := c.Daemon(ctx, start)
	if err != nil {
		return nil, err
	}
	return api.Dial(socket), nil
}

// untilInterrupted ends with Ctrl-C. A second one ends what does not heed the first.
func untilInterrupted() (context.Context, context.CancelFunc) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	return ctx, stop
}

// problemOf is an error as a problem and a way on.
func problemOf(err error) (what, hint string) {
	var refused *problem.Problem
	var missing *api.Unreachable
	switch {
	case errors.As(err, &refused):
		return withCodes(refused.What), hintOf(refused.Hint)
	case errors.As(err, &missing):
		return fmt.Sprintf("no server answers at %s: %v", missing.Socket, missing.Err), "start one: sudo mgpu_scheduler_server"
	}
	return err.Error(), ""
}

// hintOf turns a way on that is of berth's own commands into one of these
// programs.
func hintOf(text string) string {
	return strings.NewReplacer(
		"berth list --all shows what there is", "mgpu_queue lists the jobs that are not over",
		"berth submit -- python train.py", "mgpu_srun --gpu-ids 0 -- python train.py",
		"docs/reference/jobspec.md lists the keys", "see mgpu_srun --help",
	).Replace(frontend.OneLine(text))
}

// failed tells of an error and gives the exit status that goes with it.
func (c call) failed(err error) int {
	if errors.Is(err, context.Canceled) {
		return frontend.Interrupted
	}
	c.Complain(problemOf(err))
	return frontend.Failed
}

// synopsis is the first paragraph of a usage.
func synopsis(usage string) string {
	first, _, _ := strings.Cut(usage, "\n\n")
	return first + "\n"
}

// withCodes is a sentence of the server's with jobs as these programs name them.
func withCodes(text string) string {
	return frontend.RenameJobs(frontend.OneLine(text), job.Code)
}

// idOf is the id that berth knows a job by: people type the code they were
// given, in any case, or berth's own number. Nothing else that berth would take
// for jobs passes: here a word stands for one.
func idOf(word string) (string, error) {
	if id, ok := job.FromCode(word); ok {
		return id, nil
	}
	if number := regexp.MustCompile(`^[0-9]{1,18}(_[0-9]{1,18})?$`); !number.MatchString(word) {
		return "", problem.Newf(problem.Invalid, "an id has eight letters and digits; mgpu_queue lists them", "%q is no id of a job", word)
	}
	return word, nil
}

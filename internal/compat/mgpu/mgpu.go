package mgpu

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"regexp"
	"strings"
	"syscall"

	"berth/internal/api"
	"berth/internal/compat/frontend"
	"berth/internal/job"
	"berth/internal/text/problem"
)

// call is one use of one of the four.
type call struct{ *frontend.Call }

// usualSocket is where the server listens by default.
var usualSocket = "/tmp/mgpu_scheduler.sock"

// dial finds the server: BERTH_SOCKET, else the one in /tmp, else the daemon that
// berth's own commands talk to. Any user can put a socket in /tmp, so there the
// server must be root's or the caller's own.
func (c call) dial(ctx context.Context, start bool) (*api.Client, error) {
	if _, err := os.Lstat(usualSocket); err == nil && os.Getenv("BERTH_SOCKET") == "" {
		return api.DialOwn(usualSocket), nil
	}
	return c.Dial(ctx, start)
}

// untilInterrupted ends with Ctrl-C. A second Ctrl-C kills the program.
func untilInterrupted() (context.Context, context.CancelFunc) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	return ctx, stop
}

// problemOf is an error as a problem and a hint.
func problemOf(err error) (what, hint string) {
	what, hint = frontend.Explain(err, "server", "start one: sudo mgpu_scheduler_server")
	return withCodes(what), hintOf(hint)
}

// hintOf is a hint with these programs' commands in place of berth's.
func hintOf(text string) string {
	return strings.NewReplacer(
		"berth list --all", "mgpu_queue", "berth list", "mgpu_queue", "berth submit --", "mgpu_srun --gpu-ids 0 --", "berth help jobspec", "mgpu_srun --help",
	).Replace(frontend.OneLine(text))
}

// failed reports an error and returns the exit status.
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

// withCodes is a sentence of the server's with this program's job ids.
func withCodes(text string) string {
	return frontend.RenameJobs(frontend.OneLine(text), job.Code)
}

// idOf is berth's id of a job. Users type the code they were given, in any case,
// or berth's own number. Ranges and names are refused: a word names one job.
func idOf(word string) (string, error) {
	if id, ok := job.FromCode(word); ok {
		return id, nil
	}
	if number := regexp.MustCompile(`^[0-9]{1,18}(_[0-9]{1,18})?$`); !number.MatchString(word) {
		return "", problem.Newf(problem.Invalid, "mgpu_queue lists them", "expected a job id of eight letters and digits, found %q", word)
	}
	return word, nil
}

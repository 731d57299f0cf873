package cli

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"berth/internal/api"
	"berth/internal/cli/render"
	"berth/internal/cli/session"
	"berth/internal/job"
	"berth/internal/machine/keep"
	"berth/internal/text/problem"
)

// errDetached means that the user detached.
var errDetached = errors.New("detached")

func newAttach() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "attach JOB",
		Short: "Attach to the terminal of a job",
		Long: `Attach to the terminal of a job that was submitted with --pty, to see its output
and type into it. Ctrl-\ detaches and leaves the job running; so does closing
the window. If the job has not started or is parked, or the daemon restarts,
attach waits.`,
		Example: `  berth submit --pty -- python -i
  berth attach @

Exit status: 0 detached, or the job ended; 1 it has no terminal, or no daemon
answers; 2 bad usage; 130 interrupted.`,
		Args:              exactlyOne,
		ValidArgsFunction: completeJobs,
		RunE: session.Verb(func(ctx context.Context, s *session.Session, args []string) error {
			detail, err := api.Call(ctx, s.Client, api.GetJob, api.JobID{ID: args[0]})
			if err == nil {
				err = detail.One()
			}
			if err != nil {
				return err
			}
			id := detail.ID
			if !interactive(s) {
				return problem.Newf(problem.Invalid, "berth logs -f "+id+" follows the output without a terminal", "attach needs a terminal")
			}
			if detail.Settings != nil && !isOn(api.Text(detail.Settings["pty"])) {
				return problem.Newf(problem.Unable, "berth logs -f "+id+" follows its output; berth submit --pty gives a job a terminal", "job %s has no terminal", id)
			}
			s.Say("job %s: Ctrl-\\ detaches and leaves it running", id)
			err = attachTo(ctx, s, id)
			if errors.Is(err, errDetached) {
				s.Say("detached; job %s keeps running", id)
				s.Advise("come back with berth attach %s, or end it with berth cancel %[1]s", id)
				return nil
			}
			if err != nil {
				return err
			}
			return sayState(ctx, s, id)
		}),
	}
	session.QueueFlags(cmd)
	return cmd
}

// interactive reports whether input and output are terminals.
func interactive(s *session.Session) bool { return s.Terminal && render.IsTerminal(os.Stdin) }

// sayState reports the state of a job whose terminal is gone. How it ended may be
// known a little later.
func sayState(ctx context.Context, s *session.Session, id string) error {
	for tries := 0; ; tries++ {
		detail, err := api.Call(ctx, s.Client, api.GetJob, api.JobID{ID: id})
		if err != nil {
			return err
		}
		if detail.State != job.Running || tries == endedTries {
			s.Say("%s", render.EndText(detail.View))
			return nil
		}
		if err := api.Pause(ctx, startedPoll); err != nil {
			return err
		}
	}
}

// attachTo returns nil when the job's attempt ends, and errDetached when the user
// detaches.
func attachTo(ctx context.Context, s *session.Session, id string) error {
	if err := awaitStart(ctx, s, id); err != nil {
		return err
	}
	ctx, leave := context.WithCancelCause(ctx)
	defer leave(nil)
	t, err := takeTerminal(os.Stdin, s.Out)
	if err != nil {
		return problem.Newf(problem.Unable, "", "set up the terminal: %w", err)
	}
	defer t.giveBack()
	t.listen(leave)
	// In raw mode a line needs a carriage return too.
	raw := *s
	raw.ErrOut = returning{s.ErrOut}
	defer sayParked(ctx, &raw, id)()
	err = (&attachment{s: &raw, id: id, terminal: t}).run(ctx)
	if cause := context.Cause(ctx); cause != nil && err != nil {
		err = cause
	}
	return err
}

// awaitStart waits until a job starts, and reports why it waits.
func awaitStart(ctx context.Context, s *session.Session, id string) error {
	patience := session.NewPatience(s)
	said := ""
	for {
		detail, err := api.Call(ctx, s.Client, api.GetJob, api.JobID{ID: id})
		if err != nil {
			if err := patience.Bear(ctx, err); err != nil {
				return err
			}
			continue
		}
		patience.Answered()
		if detail.State != job.Queued {
			return nil
		}
		if why := render.Because(detail.View); why != said || said == "" {
			said = why
			s.Say("job %s has not started%s; waiting", id, why)
			said = cmp.Or(said, " ")
		}
		if err := api.Pause(ctx, startedPoll); err != nil {
			return err
		}
	}
}

// attachment connects the user's terminal to a job's, across restarts of the
// daemon.
type attachment struct {
	s        *session.Session
	id       string
	terminal *heldTerminal
}

// wiped clears the screen: the supervisor repeats the last output.
const wiped = "\x1b[H\x1b[2J"

func (a *attachment) run(ctx context.Context) error {
	patience := session.NewPatience(a.s)
	for first := true; ; first = false {
		stream, err := a.s.Client.Attach(ctx, a.id)
		if err == nil {
			if !first {
				_, _ = io.WriteString(a.terminal.out, wiped) // a closed terminal is noticed at the next read
			}
			patience.Answered()
			err = a.converse(ctx, stream)
		} else if !first && a.over(ctx, err) {
			return nil
		}
		if err == nil || ctx.Err() != nil {
			return err
		}
		if err := patience.Bear(ctx, err); err != nil {
			return a.explain(err)
		}
	}
}

// over reports whether the job ended while the daemon was down.
func (a *attachment) over(ctx context.Context, err error) bool {
	if session.Passing(err) {
		return false
	}
	detail, err := api.Call(ctx, a.s.Client, api.GetJob, api.JobID{ID: a.id})
	return err == nil && detail.State != job.Running && detail.State != job.Parked
}

// explain adds a hint to a refusal that has none.
func (a *attachment) explain(err error) error {
	if p, ok := errors.AsType[*problem.Problem](err); ok && p.Hint == "" {
		return &problem.Problem{Kind: p.Kind, What: p.What, Hint: "berth logs -f " + a.id + " follows its output", Err: err}
	}
	return err
}

// received is a frame from the job, or the end of the connection.
type received struct {
	frame keep.Frame
	err   error
}

// converse exchanges frames until the job's attempt ends (nil), the connection
// breaks, or ctx ends.
func (a *attachment) converse(ctx context.Context, stream io.ReadWriteCloser) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer stream.Close()
	fromJob := make(chan received)
	toJob := make(chan keep.Frame, unsentFrames)
	go a.receive(ctx, stream, fromJob)
	go a.send(ctx, stream, toJob)
	toJob <- keep.AttachFrame(a.terminal.size())
	for {
		var outgoing keep.Frame
		select {
		case <-ctx.Done():
			return ctx.Err()
		case r := <-fromJob:
			if over, err := a.show(r); over || err != nil {
				return err
			}
			continue
		case typed := <-a.terminal.typed:
			outgoing = keep.InputFrame(typed)
		case <-a.terminal.resized:
			outgoing = keep.ResizeFrame(a.terminal.size())
		}
		// A stuck daemon must not keep the user from detaching.
		select {
		case toJob <- outgoing:
		default:
		}
	}
}

// unsentFrames is how many frames of input may be pending.
const unsentFrames = 256

func (a *attachment) receive(ctx context.Context, stream io.Reader, to chan<- received) {
	defer a.terminal.giveBackIfPanicking()
	reader := bufio.NewReader(stream)
	for {
		frame, err := keep.ReadFrame(reader)
		select {
		case to <- received{frame, err}:
		case <-ctx.Done():
			return
		}
		if err != nil {
			return
		}
	}
}

func (a *attachment) send(ctx context.Context, stream io.Writer, from <-chan keep.Frame) {
	defer a.terminal.giveBackIfPanicking()
	for {
		select {
		case <-ctx.Done():
			return
		case frame := <-from:
			encoded, err := frame.Encode()
			if err == nil {
				_, err = stream.Write(encoded)
			}
			if err != nil {
				return // the reader gets the error too
			}
		}
	}
}

// show handles a frame from the job.
func (a *attachment) show(r received) (over bool, err error) {
	switch {
	case r.err != nil:
		return false, fmt.Errorf("attached to job %s: %w", a.id, r.err)
	case r.frame.Kind == keep.FrameOutput:
		_, err := io.WriteString(a.terminal.out, r.frame.Get("data"))
		return false, err
	case r.frame.Kind == keep.FrameEnded && r.frame.Get("why") != "":
		return true, problem.Newf(problem.Refused, "", "job %s: %s", a.id, r.frame.Get("why"))
	case r.frame.Kind == keep.FrameEnded:
		return true, nil
	}
	return false, nil
}

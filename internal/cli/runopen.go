package cli

import (
	"context"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"berth/internal/api"
	"berth/internal/cli/session"
	"berth/internal/job/jobfile"
	"berth/internal/machine/site"
	"berth/internal/queue/batch"
	"berth/internal/queue/daemon"
	"berth/internal/text/problem"
)

// forBoth are the flags of `berth run` that do not ask for an own queue.
var forBoth = []string{"dry-run", "watch", "fresh", "retry", "retry-failed", "format", "llm-config", "oom-retries", "snapshot", "to", "slurm",
	"poll", "tolerance", "json", "verbose", "quiet", "no-color", "help"}

// chooseQueue decides whether the jobs go to the daemon or to a queue of the run's
// own, and says what asked for one.
func (f *runFlags) chooseQueue(cmd *cobra.Command) error {
	f.own = true
	f.why = ""
	cmd.Flags().Visit(func(flag *pflag.Flag) {
		if f.why == "" && !slices.Contains(forBoth, flag.Name) && !flag.Hidden {
			f.why = " (--" + flag.Name + ")"
		}
	})
	switch {
	case f.why != "" || f.opt.AsGpusched || f.alloc.inner != "" || os.Getenv("SLURM_JOB_ID") != "":
		return nil
	case f.opt.Sim > 0:
		f.why = " (BERTH_SIM)"
		return nil
	case os.Getenv("BERTH_TOKEN") != "": // the daemon's GPUs that it may use are its job's
		return nil
	}
	if _, err := batch.Find(f.opt.LogDir); err == nil {
		f.why = " (" + f.opt.LogDir + " has its earlier jobs)"
		return nil
	}
	target, err := session.FindDaemon("", os.Getenv, session.SharedPlaces(), session.SystemService)
	if err != nil {
		return err
	}
	f.own, f.target = !api.Listening(context.Background(), target.Socket), target
	return nil
}

// open connects to the queue.
func (f *runFlags) open(ctx context.Context, o *batch.Options, say func(string)) (*batch.Link, error) {
	if !f.own {
		s := &session.Session{ErrOut: os.Stderr, Target: f.target, Client: api.Dial(f.target.Socket)}
		return &batch.Link{Client: s.Client, Since: -1, Name: f.target.Title(), Send: f.sender(s, o, false)}, nil
	}
	o.LogDir = f.opt.LogDir
	for deadline := time.Now().Add(handoverTime); ; {
		if place, err := batch.Find(o.LogDir); err == nil && api.Listening(ctx, daemon.RunSocket(place.StateDir)) {
			link := f.join(o, place)
			status, err := api.Call(ctx, link.Client, api.GetStatus, api.None{})
			if answers := err == nil || problem.KindOf(err) != ""; answers && o.Fresh {
				return nil, problem.Newf(problem.Refused, "stop it first, or use another --log-dir", "the queue in %s is running; --fresh cannot start it over", o.LogDir)
			} else if answers {
				link.Own.SimDir = status.SimDir
				return link, nil
			}
			if err := api.Pause(ctx, session.StartPoll); err != nil { // it is ending, or was killed
				return nil, err
			}
			continue
		}
		if f.dryRun {
			return f.rehearse(ctx, o)
		}
		link, inUse, err := f.startHost(ctx, o, say)
		if !inUse || time.Now().After(deadline) {
			return link, err
		}
		if err := api.Pause(ctx, session.StartPoll); err != nil {
			return nil, err
		}
	}
}

// rehearse is a link to a queue that exists only in this process.
func (f *runFlags) rehearse(ctx context.Context, o *batch.Options) (*batch.Link, error) {
	temporary, err := os.MkdirTemp("", "berth-dry-run-")
	if err != nil {
		return nil, problem.Wrap(problem.Unable, "", err)
	}
	earlier := ""
	if place, err := batch.Find(o.LogDir); err == nil && !o.Fresh {
		earlier = place.StateDir
	}
	own := &batch.OwnQueue{}
	h := batch.RehearsalHost(o.HostOptions, o.Env, o.Dir, temporary, func(w batch.Word) { own.NoGPU = w.NoGPU })
	logDir, err := filepath.Abs(o.LogDir)
	if err != nil {
		return nil, problem.Wrap(problem.Unable, "", err)
	}
	server, done, err := daemon.Rehearse(ctx, daemon.Options{
		Own: h, RunDir: session.Resolved(logDir), Version: session.Version, Env: o.Env, Override: hostConfig(&hostOrder{o.HostOptions, o.Slurm}),
	}, earlier)
	if err != nil {
		os.RemoveAll(temporary)
		return nil, err
	}
	client := api.DialQueue(filepath.Join(temporary, "none"), func() (*api.Server, func(), error) {
		return server, func() { done(); os.RemoveAll(temporary) }, nil
	})
	s := &session.Session{ErrOut: os.Stderr, Client: client}
	return &batch.Link{Client: client, Own: own, Send: f.sender(s, o, false)}, nil
}

// handoverTime is how long a run waits for the process of an own queue that is about
// to end.
const handoverTime = 30 * time.Second

// join connects to an own queue that is running.
func (f *runFlags) join(o *batch.Options, place batch.Place) *batch.Link {
	client := api.DialOwn(daemon.RunSocket(place.StateDir))
	ended := make(chan struct{})
	s := &session.Session{ErrOut: os.Stderr, Target: session.Target{Run: &session.RunTarget{Place: place, Live: true}, Socket: daemon.RunSocket(place.StateDir)}, Client: client}
	own := &batch.OwnQueue{Place: place, Joined: true, Read: s.Target.Run.Dial, Ended: ended, Leave: func() { close(ended) }, Stop: func() {
		if pid := client.Peer(); pid > 0 {
			_ = syscall.Kill(pid, syscall.SIGTERM) // it may have ended
		}
	}}
	return &batch.Link{Client: client, Since: -1, Why: f.why, Own: own, Send: f.sender(s, o, true)}
}

// startHost starts the process of an own queue. inUse means that another has the
// queue, and is starting or ending.
func (f *runFlags) startHost(ctx context.Context, o *batch.Options, say func(string)) (link *batch.Link, inUse bool, err error) {
	self, err := session.SelfProgram()
	if err != nil {
		return nil, false, problem.Newf(problem.Unable, "", "find this program: %w", err)
	}
	words, tells, err := os.Pipe()
	if err != nil {
		return nil, false, err
	}
	cmd := exec.Command(self, HostWord)
	cmd.Dir, cmd.ExtraFiles = o.Dir, []*os.File{tells}
	orders, err := cmd.StdinPipe()
	if err == nil {
		_, err = batch.StartApart(cmd)
	}
	tells.Close()
	if err != nil {
		words.Close()
		return nil, false, problem.Newf(problem.Unable, "", "start the queue: %w", err)
	}
	slurm := o.Slurm
	slurm.Unread = nil
	if err := json.NewEncoder(orders).Encode(hostOrder{o.HostOptions, slurm}); err != nil {
		return nil, false, problem.Newf(problem.Unable, "", "start the queue: %w", err)
	}
	h := &startingHost{words: json.NewDecoder(words), ended: make(chan struct{}), ready: make(chan batch.Word, 1), say: say}
	go h.hear(words)
	select {
	case <-ctx.Done():
		orders.Close()
		_ = cmd.Process.Signal(syscall.SIGTERM)
		return nil, false, context.Cause(ctx)
	case w := <-h.ready:
		if w.Ready == nil {
			orders.Close()
			return nil, w.InUse, w.Problem
		}
		return f.hosted(o, cmd.Process, orders, h, w.Ready), false, nil
	}
}

// hosted is the link to a queue whose process has just been started.
func (f *runFlags) hosted(o *batch.Options, p *os.Process, orders io.Closer, h *startingHost, r *batch.Ready) *batch.Link {
	socket := daemon.RunSocket(r.StateDir)
	client := api.DialOwn(socket)
	s := &session.Session{ErrOut: os.Stderr, Target: session.Target{Run: &session.RunTarget{Place: r.Place, Live: true}, Socket: socket}, Client: client}
	own := &batch.OwnQueue{
		Place: r.Place, Empty: r.Empty, NoGPU: h.noGPU, SimDir: r.SimDir, Ended: h.ended, Failed: func() *problem.Problem { return h.failed },
		Read: s.Target.Run.Dial, Leave: func() { orders.Close() },
		Stop: func() { _ = p.Signal(syscall.SIGTERM) }, // it may have ended
	}
	return &batch.Link{Client: client, Since: r.Since, Why: f.why, Own: own, Send: f.sender(s, o, false)}
}

// startingHost listens to the process of an own queue.
type startingHost struct {
	words  *json.Decoder
	say    func(string)
	ready  chan batch.Word
	ended  chan struct{}
	noGPU  string           // why it has no GPU
	failed *problem.Problem // why it ended; read after ended is closed
}

func (h *startingHost) hear(words io.Closer) {
	defer words.Close()
	defer close(h.ended)
	answered := false
	for {
		var w batch.Word
		if err := h.words.Decode(&w); err != nil {
			if !answered {
				h.ready <- batch.Word{Problem: problem.Newf(problem.Unable, "berth.log in the log directory says more", "the process of the queue has ended")}
			}
			return
		}
		switch {
		case w.Say != "":
			h.say(w.Say)
		case w.NoGPU != "":
			h.noGPU = w.NoGPU
		case !answered:
			answered = true
			h.ready <- w
		case w.Problem != nil:
			h.failed = w.Problem
		}
	}
}

// sender sends the lines of the jobs file to a queue, with the caller's directory,
// environment and code.
func (f *runFlags) sender(s *session.Session, o *batch.Options, joined bool) func(context.Context, []*jobfile.Line, bool, bool) (api.SubmitReply, error) {
	file := o.Batch(f.own)
	return func(ctx context.Context, lines []*jobfile.Line, first, dryRun bool) (api.SubmitReply, error) {
		specs, numbers, err := specsOf(jobfile.File{Lines: lines}, api.Spec{})
		if err != nil {
			return api.SubmitReply{}, err
		}
		umask := site.Umask()
		r := api.SubmitRequest{
			Jobs: specs, Dir: o.Dir, Environ: environFor(specs, o.Env), Umask: &umask, Term: os.Getenv("TERM"), DryRun: dryRun,
			Batch: &api.Batch{File: file, Lines: numbers, Lenient: true, AnyFile: o.AsGpusched},
		}
		if first {
			r.Batch.First, r.Batch.Retry = !joined, o.Retry
			if !f.own && o.Fresh {
				r.Batch.Retry = api.RetryAll
			}
		}
		code := &codeSnapshots{s: s, request: &r}
		reply, err := code.submit(ctx, false)
		if err == nil {
			code.removeOld(ctx)
		} else if !f.own {
			s.CompareVersions(err)
		}
		return reply, err
	}
}

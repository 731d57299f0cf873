package batch

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	"berth/internal/api"
	"berth/internal/job"
	"berth/internal/job/jobfile"
	"berth/internal/text"
	"berth/internal/text/problem"
)

// unwindTime is how long an interrupted opening may take to clean up.
const unwindTime = 500 * time.Millisecond

// endingPoll is how often a run looks whether a queue that is ending has ended.
const endingPoll = 20 * time.Millisecond

// maxNamed bounds the jobs of an earlier run that are listed; the rest are counted.
const maxNamed = 20

// begin reads the file, opens the queue and makes it match, while it listens for
// signals: a pipe that never ends or a driver that does not answer must not block
// Ctrl-C. If something hangs and cannot be cancelled, it is abandoned.
func (f *follower) begin(ctx context.Context) error {
	opening, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	opened := make(chan error, 1)
	var link *Link // read only once it was opened: the opening may hang, and be abandoned
	in := func(open func(context.Context) (*Link, error)) {
		var err error
		link, err = open(opening)
		opened <- err
	}
	go in(f.open)
	for {
		select {
		case err := <-opened:
			if f.link = link; err != nil {
				return err
			}
			if back, err := f.follow(ctx); !back {
				return err
			}
			go in(f.again)
		case sig := <-f.opt.Signals:
			if sig == syscall.SIGHUP {
				f.stop.hangUp = true
				continue
			}
			cancel(errInterrupted)
			select {
			case <-opened:
			case <-time.After(unwindTime):
			}
			return problem.Wrap(problem.Interrupted, "", errInterrupted)
		}
	}
}

// follow listens to the queue, and makes it match the file. back means that a queue
// which ran before this berth ended just then, and has to be opened again.
func (f *follower) follow(ctx context.Context) (back bool, err error) {
	var listening context.Context
	listening, f.hush = context.WithCancel(ctx)
	go f.listen(listening, f.link, f.events, f.streamed)
	err = f.enter(ctx)
	own := f.link.Own
	if err == nil || own == nil || ctx.Err() != nil || problem.KindOf(err) != "" && !api.Stopping(err) {
		return false, err
	}
	f.hush()
	if !own.Joined {
		return false, f.ended()
	}
	f.jobs, f.events, f.streamed = newJobList(), make(chan api.Event, cap(f.events)), make(chan error, 1)
	return true, nil
}

// again opens the queue after it has ended.
func (f *follower) again(ctx context.Context) (*Link, error) {
	if err := api.Pause(ctx, endingPoll); err != nil {
		return nil, err
	}
	return f.connect(ctx)
}

// open reads the file and opens the queue. It finds all mistakes in the user's input
// before anything is written or started.
func (f *follower) open(ctx context.Context) (*Link, error) {
	if err := f.source.Open(ctx); err != nil {
		return nil, err
	}
	f.opt.Away, f.opt.NeedsGPU = allAway(f.source.file.Lines), needsGPU(f.source.file.Lines)
	if err := f.opt.besideTheirs(f.source.file.Lines); err != nil {
		return nil, theirProblem(err)
	}
	if f.opt.Fresh {
		if err := f.source.CheckPlaces(f.source.file.Lines, nil); err != nil {
			return nil, err
		}
	}
	return f.connect(ctx)
}

// connect opens the queue.
func (f *follower) connect(ctx context.Context) (*Link, error) {
	link, err := f.opt.Open(ctx, &f.opt, f.voice.say)
	switch {
	case err != nil && ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case err != nil:
		return nil, err
	}
	f.batch = f.opt.Batch(link.Own != nil)
	return link, nil
}

// besideTheirs tells the host of an own queue which lines there are, if gpusched left
// a journal.
func (o *Options) besideTheirs(lines []*jobfile.Line) error {
	l := layout{logDir: o.LogDir}
	kept, _ := l.theirs() // the host says what is wrong with the directory
	if theirs, _ := holdsTheirs(l.journal()); !theirs && len(kept) == 0 {
		return nil
	}
	o.Keys = make(map[string]int64, len(lines))
	for _, line := range lines {
		o.Keys[line.Key] = line.Spec.VRAMMiB
	}
	if !o.Fresh {
		return nil
	}
	return l.refuseTwice(o.Keys)
}

// allAway reports whether every job of a file runs on Slurm, so that this machine
// needs no GPU.
func allAway(lines []*jobfile.Line) bool {
	for _, line := range lines {
		if line.Spec.To != job.ToSlurm {
			return false
		}
	}
	return len(lines) > 0
}

// needsGPU says which lines need a GPU of this machine; empty: none.
func needsGPU(lines []*jobfile.Line) string {
	var numbers []int
	for _, l := range lines {
		if again := len(numbers) > 0 && numbers[len(numbers)-1] == l.Number; again {
			continue // another trial of a sweep
		}
		if !l.Spec.CancelMarked && l.Spec.To != job.ToSlurm && (l.Spec.GPUs > 0 || l.Spec.Share > 0) {
			numbers = append(numbers, l.Number)
		}
	}
	switch len(numbers) {
	case 0:
		return ""
	case 1:
		return fmt.Sprintf("the job in line %s needs", someLines(numbers))
	}
	return fmt.Sprintf("the jobs in lines %s need", someLines(numbers))
}

// maxLinesNamed bounds how many lines a message names.
const maxLinesNamed = 10

func someLines(lines []int) string {
	if more := len(lines) - maxLinesNamed; more > 0 {
		return fmt.Sprintf("%s and %d more", text.Numbers(lines[:maxLinesNamed]), more)
	}
	return text.Numbers(lines)
}

// enter makes the queue match the file for the first time.
func (f *follower) enter(ctx context.Context) error {
	gpus, err := api.Call(ctx, f.link.Client, api.ListGPUs, api.None{})
	if err != nil {
		return err
	}
	f.cards = len(gpus)
	f.account = newAccount(time.Now(), f.cards)
	if f.opt.AsGpusched {
		f.voice.narrator.theirs = newTheirWords(f.opt.Tolerance, f.opt.Verbose, f.cards)
		f.specs = map[string]*job.Spec{}
	}
	if bad := f.source.CheckPlaces(f.source.file.Lines, nil); bad != nil {
		reply, err := f.link.Send(ctx, f.source.file.Lines, true, true)
		if err != nil || f.source.CheckPlaces(f.source.file.Lines, begun(reply.Jobs)) != nil {
			return bad
		}
	}
	f.missed.maybe.Store(false) // what has happened so far is read now
	earlier, err := f.earlier(ctx)
	if err != nil {
		return err
	}
	if len(f.source.file.Lines) > 0 {
		if err := f.send(ctx, f.source.file, true); err != nil {
			if p, ok := errors.AsType[*problem.Problem](err); ok && p.Kind == problem.Refused {
				return problem.Wrap(problem.Invalid, p.Hint, err)
			}
			return err
		}
	}
	f.tellEarlier(earlier)
	f.greet(ctx, gpus)
	f.source.file.Lines = nil // free it
	if f.stop.hangUp {
		f.stop.leave(f, 0)
	}
	return nil
}

// earlier reads the jobs of the file that the queue had before.
func (f *follower) earlier(ctx context.Context) (had []*job.Job, err error) {
	if own := f.link.Own; own != nil && own.Empty {
		return nil, nil
	}
	err = f.theJobs(ctx, func(v *job.View) {
		j := jobOf(v, nil)
		f.jobs.remember(j)
		had = append(had, j)
	})
	return had, err
}

// theJobs asks the queue for the jobs of this run.
func (f *follower) theJobs(ctx context.Context, take func(*job.View)) error {
	which := api.Select{} // jobs of older berths name no file
	if f.link.Own == nil {
		which.Batch = f.batch
	}
	_, err := f.link.Client.JobsAll(ctx, api.Query{Select: which, Over: true}, func(v job.View) error {
		if f.mine(&v) {
			take(&v)
		}
		return nil
	})
	return err
}

// tellEarlier says what became of the jobs of earlier runs.
func (f *follower) tellEarlier(had []*job.Job) {
	var done, cancelled, failed []*job.Job
	again := 0
	for _, j := range had {
		e := f.jobs.byID[j.ID]
		switch {
		case e == nil || !f.jobs.inFile(e):
		case !j.State.Terminal():
			if f.view.add(j); j.State == job.Running && f.link.Since < 0 {
				f.account.follow(job.Event{Kind: job.EventAdopted, Job: j, At: f.account.began}, f.opt.Tolerance)
				f.voice.say(fmt.Sprintf("%s runs on %s since %s — %s", label(j), where(j), j.StartedAt.Local().Format("15:04:05"), j.Spec.Command()))
			}
		case !e.earlier:
			again++
		case j.Outcome == job.OK:
			done = append(done, j)
		case j.Outcome == job.WasCancelled:
			cancelled = append(cancelled, j)
		default:
			failed = append(failed, j)
		}
	}
	if f.voice.narrator.theirs != nil {
		f.voice.sayEach(done, func(j *job.Job) string {
			return fmt.Sprintf("job %s already completed ok — skipping (journal): %s", j.ID, j.Spec.Command())
		})
	} else {
		f.voice.saySkipped(done, "that finished")
	}
	f.voice.saySkipped(cancelled, "cancelled")
	switch {
	case again > 0 && f.opt.Retry == api.RetryAll:
		f.voice.say(fmt.Sprintf("running %s of an earlier run again", text.Count(again, "job")))
	case again > 0:
		f.voice.say(fmt.Sprintf("retrying %s that failed in an earlier run", text.Count(again, "job")))
	}
	f.voice.sayEach(failed, func(j *job.Job) string {
		return fmt.Sprintf("%s failed in an earlier run [%s] — %s", label(j), j.Outcome, j.Spec.Command())
	})
	if len(failed) > 0 {
		f.voice.say("the exit status includes " + text.Count(len(failed), "old failure") + "; retry with --retry-failed")
	}
}

// greet says what is about to run, and in which queue.
func (f *follower) greet(ctx context.Context, gpus []api.GPU) {
	own, count := f.link.Own, text.Count(f.jobs.total, "job")
	if own == nil {
		f.voice.say(fmt.Sprintf("%s in %s, into the %s%s", count, f.opt.File, f.link.Name, f.before(ctx)))
		f.invite()
		return
	}
	kind := text.Count(f.cards, "GPU")
	switch {
	case f.opt.Away:
		kind = "all for Slurm"
	case own.NoGPU != "" || f.cards == 0:
		kind = "no GPU"
	case f.opt.Sim > 0 && len(gpus) > 0:
		kind = fmt.Sprintf("%s of %d MiB", text.Count(f.cards, "simulated GPU"), gpus[0].TotalMiB)
	}
	f.voice.say(fmt.Sprintf("%s in %s, %s, in a queue of its own%s, logs in %s", count, f.opt.File, kind, f.link.Why, f.opt.LogDir))
	if f.source.sizes != "" {
		f.voice.say("model sizes from " + f.source.sizes)
	}
	if own.SimDir != "" {
		f.voice.say("simulation directory: BERTH_SIM_DIR=" + own.SimDir)
	}
	f.sayBound()
	f.invite()
	if besideAllocation(f.opt.Env) {
		id := job.Getenv(f.opt.Env, "SLURM_JOB_ID")
		f.voice.warn(fmt.Sprintf("this machine is not a node of Slurm's job %s; srun berth run %s runs the jobs there", id, f.opt.File))
	}
	if own.StateDir != own.LogDir {
		f.voice.say(fmt.Sprintf("%s is on a network file system; the queue is in %s", f.opt.LogDir, own.StateDir))
	}
}

// before says how many jobs of others wait in the queue.
func (f *follower) before(ctx context.Context) string {
	page, err := api.Call(ctx, f.link.Client, api.ListJobs, api.Query{Limit: 1})
	others := 0
	if err == nil {
		others = page.Counts[string(job.Queued)] - f.jobs.counts.queued
	}
	if others <= 0 {
		return ""
	}
	return fmt.Sprintf(": %s %s before them", text.Count(others, "job"), text.Verb(others, "wait"))
}

// invite says how to leave.
func (f *follower) invite() {
	if f.opt.Keyboard != nil {
		f.voice.say("press d to detach: the jobs then go on without this terminal")
	}
}

// sayBound says what bounds the jobs at a time if -j does not.
func (f *follower) sayBound() {
	cpuJobs := 0
	for _, line := range f.source.file.Lines {
		if line.Spec.GPUs == 0 && line.Spec.To != job.ToSlurm && !line.Spec.CancelMarked {
			cpuJobs++
		}
	}
	if cpus := hostCPUs(f.opt.Env); f.opt.Jobs > 0 && min(f.opt.Jobs, cpuJobs) > cpus {
		f.voice.say(fmt.Sprintf("at most %s without a GPU run at a time here, not %d: each takes a CPU, or as many as its cpus= says", text.Count(cpus, "job"), f.opt.Jobs))
	}
}

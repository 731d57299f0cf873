package batch

import (
	"context"
	"fmt"
	"runtime/debug"
	"strings"
	"time"

	"berth/internal/engine"
	"berth/internal/engine/waiting"
	"berth/internal/job"
	"berth/internal/jobfile"
	"berth/internal/machine"
	"berth/internal/problem"
	"berth/internal/run"
	"berth/internal/store"
	"berth/internal/text"
)

// freshGrace is the grace period for jobs of an earlier run before a fresh
// start.
const freshGrace = 10 * time.Second

// maxNamed bounds the jobs of an earlier run that are listed; the rest are counted.
const maxNamed = 20

// resume takes over what an earlier run left, then makes the queue match the
// file.
func (s *session) resume(ctx context.Context) error {
	found, err := s.machine.Runner.Scan()
	if err != nil {
		return problem.Newf(problem.Unable, "", "look for supervisors of an earlier run: %w", err)
	}
	if s.opt.Fresh {
		if err := s.refuseTwice(); err != nil {
			return theirProblem(err)
		}
		if err := s.checkPlaces(); err != nil {
			return err
		}
		if err := s.startOver(ctx, found); err != nil {
			return problem.Wrap(problem.Unable, "", err)
		}
		found = nil
	}
	if err := s.regain(found); err != nil {
		return err
	}
	if err := s.inherit(time.Now()); err != nil {
		return theirProblem(err)
	}
	s.newEngine()
	s.engine.Outside(time.Now(), s.takeHealth)
	if err := s.journal.catchUp(s.store); err != nil {
		s.log.Error("journal", "err", err)
	}
	live, again, err := s.earlier()
	if err == nil {
		err = s.takeNumbers()
	}
	if err != nil {
		return problem.Wrap(problem.Unable, "", err)
	}
	if err := s.checkPlaces(); err != nil {
		return err
	}
	if err := s.takeCode(ctx, &s.file); err != nil {
		return err
	}
	boundMemory(len(s.file.Lines))
	s.engine.Outside(time.Now(), func(t *engine.Turn) {
		t.Recovery().Recall(s.store.Past)
		err = s.limitGroups(t)
		t.Recovery().Restore(live, found)
		t.Queue().Again(again)
		s.queue.apply(s.file, requestsOf(t))
		s.keepNumbers()
		s.tendOrphans(t)
	})
	s.file.Lines = nil // free it: the queue has a copy
	return err
}

// numberKey begins the store's keys for the numbers of deleted lines.
const numberKey = "number "

// takeNumbers reads the numbers of lines that were deleted in an earlier run,
// unless this one starts over.
func (s *session) takeNumbers() error {
	kept, err := s.store.Metas(numberKey)
	for key, id := range kept {
		key = strings.TrimPrefix(key, numberKey)
		switch {
		case id == "" || s.queue.byID[id] != nil:
		case s.opt.Fresh:
			s.queue.unsaved[key] = ""
		default:
			s.queue.numbers[key] = id
		}
	}
	return err
}

// keepNumbers saves them for the next run.
func (s *session) keepNumbers() {
	meta := make(map[string]string, len(s.queue.unsaved))
	for key, id := range s.queue.unsaved {
		meta[numberKey+key] = id
	}
	clear(s.queue.unsaved)
	if len(meta) == 0 {
		return
	}
	if err := s.store.Commit(store.Tx{Meta: meta}); err != nil {
		s.log.Warn("save the numbers of deleted lines", "err", err)
	}
}

// limitGroups sets the limits of this run. Those of an earlier run do not count.
func (s *session) limitGroups(t *engine.Turn) error {
	for group, limit := range s.opt.GroupLimits {
		if err := t.Groups().Limit(s.user(), group, limit); err != nil {
			return problem.Newf(problem.Invalid, "", "--group-limit: expected at most %d groups, found %d", waiting.MaxGroups, len(s.opt.GroupLimits))
		}
	}
	return nil
}

// checkPlaces refuses the file if directories, virtual environments or outputs of
// lines that are still to run cannot work.
func (s *session) checkPlaces() error {
	if s.opt.AsGpusched {
		return nil
	}
	from := machine.Origin{Dir: s.opt.Dir, Home: s.getenv("HOME"), Env: s.opt.Env}
	var bad jobfile.Errors
	for _, line := range s.file.Lines {
		if known := s.queue.byKey[line.Key]; line.Spec.CancelMarked || known != nil && known.state != job.Queued {
			continue
		}
		for _, err := range machine.Unusable(&line.Spec, from) {
			bad.Add(s.opt.File, line.Number, err.Error())
		}
	}
	if len(bad.Problems) == 0 {
		return nil
	}
	return problem.Wrap(problem.Invalid, "no job was started; correct them, or make what is missing", &bad)
}

// takeHealth takes over the health of the cards from an earlier run, unless this
// one starts over.
func (s *session) takeHealth(t *engine.Turn) {
	if s.opt.Fresh {
		t.Recovery().ForgetHealth()
		return
	}
	if err := t.Recovery().Health(s.store.Meta); err != nil {
		s.log.Warn("cannot read the health of the GPUs", "err", err)
	}
}

// boundMemory bounds the memory that garbage may take besides the queue itself: a
// scheduler shares its machine with the jobs.
func boundMemory(lines int) {
	const beside, perLine = 64 << 20, 1700
	debug.SetMemoryLimit(beside + int64(lines)*perLine)
	debug.SetGCPercent(200) // within that, collect rarely: it is cheaper
}

// earlier reads the store: jobs that have not ended, and those to run again with
// --retry.
func (s *session) earlier() (live, again []*job.Job, err error) {
	inFile := make(map[string]bool, len(s.file.Lines))
	marked := map[string]bool{}
	for _, line := range s.file.Lines {
		inFile[line.Key] = true
		marked[line.Key] = line.Spec.CancelMarked
	}
	var failed, done, cancelled []*job.Job
	known := identities{batch: s.opt.defaults().Batch, anyFile: s.opt.AsGpusched}
	err = s.store.Each(func(j *job.Job) error {
		key := known.key(j)
		retry := inFile[key] && !marked[key] && s.retries(j)
		switch {
		case !j.State.Terminal():
			live = append(live, j)
		case retry:
			again = append(again, j)
		case inFile[key] && j.Outcome == job.OK:
			done = append(done, j)
			s.remember(j)
		case inFile[key] && j.Outcome == job.WasCancelled:
			cancelled = append(cancelled, j)
			s.remember(j)
		case inFile[key]:
			failed = append(failed, j)
			s.remember(j)
		}
		s.queue.remember(j, key)
		if retry {
			e := s.queue.byID[j.ID]
			e.state, e.outcome, e.earlier, e.begun = job.Queued, "", false, false
		}
		return nil
	})
	if err != nil {
		return nil, nil, fmt.Errorf("read the store: %w", err)
	}
	s.sayEarlier(done, cancelled, failed, len(again))
	return live, again, nil
}

// retries reports whether a job that has ended runs again.
func (s *session) retries(j *job.Job) bool {
	return j.State.Terminal() && (s.opt.Retry == RetryAll || s.opt.Retry == RetryFailed && j.State != job.Finished)
}

// identities finds the keys of stored jobs. A job is that of a line if both execute
// the same and are of the same file.
type identities struct {
	batch   string
	anyFile bool           // jobs of every file count, as with gpusched
	seen    map[string]int // how many jobs of an older berth execute the same
}

// key is the key of the line that a job is, or one that no line of the file has. An
// older berth stored neither the file nor, in the key, what the block says.
func (k *identities) key(j *job.Job) string {
	switch {
	case j.Spec.Batch == "" && j.Spec.Shell != "":
		executed := jobfile.Executed(&j.Spec)
		if executed == j.Spec.Shell {
			return j.Key
		}
		if k.seen == nil {
			k.seen = map[string]int{}
		}
		k.seen[executed]++
		return jobfile.Key(executed, k.seen[executed])
	case j.Spec.Batch == "", j.Spec.Batch == k.batch, k.anyFile:
		return j.Key
	}
	return j.Spec.Batch + "\x00" + j.Key
}

func (s *session) sayEarlier(done, cancelled, failed []*job.Job, again int) {
	if s.narrator.theirs != nil {
		s.sayEach(done, func(j *job.Job) string {
			return fmt.Sprintf("job %s already completed ok — skipping (journal): %s", j.ID, j.Spec.Command())
		})
	} else {
		s.saySkipped(done, "that finished")
	}
	s.saySkipped(cancelled, "cancelled")
	switch {
	case again > 0 && s.opt.Retry == RetryAll:
		s.say(fmt.Sprintf("running %s of an earlier run again", text.Count(again, "job")))
	case again > 0:
		s.say(fmt.Sprintf("retrying %s that failed in an earlier run", text.Count(again, "job")))
	}
	s.sayEach(failed, func(j *job.Job) string {
		return fmt.Sprintf("%s failed in an earlier run [%s] — %s", label(j), j.Outcome, j.Spec.Command())
	})
	if len(failed) > 0 {
		s.say("the exit status includes " + text.Count(len(failed), "old failure") + "; retry with --retry-failed")
	}
}

// saySkipped names the jobs that do not run again.
func (s *session) saySkipped(jobs []*job.Job, ended string) {
	if len(jobs) == 0 {
		return
	}
	names := make([]string, 0, maxNamed+1)
	for i, j := range jobs {
		if i == maxNamed {
			names = append(names, fmt.Sprintf("and %d more", len(jobs)-i))
			break
		}
		names = append(names, strings.TrimPrefix(label(j), "job "))
	}
	s.say(fmt.Sprintf("skipping %s %s in an earlier run (--retry all runs them again): %s", text.Count(len(jobs), "job"), ended, strings.Join(names, ", ")))
}

// sayEach says a sentence about each job, up to a bound.
func (s *session) sayEach(jobs []*job.Job, sentence func(*job.Job) string) {
	for i, j := range jobs {
		if i == maxNamed {
			s.say(fmt.Sprintf("and %d more", len(jobs)-i))
			return
		}
		s.say(sentence(j))
	}
}

// startOver stops what an earlier run left running and forgets all its jobs. Logs
// and journal are moved, not deleted.
func (s *session) startOver(ctx context.Context, found []run.Found) error {
	waiting := map[string]bool{}
	for _, f := range found {
		switch f.Kind {
		case run.FoundRunning:
			waiting[f.Token] = true
			if err := s.machine.Runner.Stop(f.Token, job.StopInterrupt, freshGrace); err != nil {
				s.log.Warn("stop", "token", f.Token, "err", err)
			}
		case run.FoundLost:
			waiting[f.Token] = true
		case run.FoundEnded:
			s.machine.Runner.Ack(f.Token)
		}
	}
	if len(waiting) > 0 {
		s.say(fmt.Sprintf("starting over: stopping %s that an earlier run left running", text.Count(len(waiting), "job")))
	}
	for len(waiting) > 0 {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case ev := <-s.machine.Runner.Events():
			if ev.Kind.Final() {
				delete(waiting, ev.Token)
				s.machine.Runner.Ack(ev.Token)
			}
		}
	}
	if err := s.store.Wipe(); err != nil {
		return fmt.Errorf("forget the earlier run: %w", err)
	}
	if err := s.machine.Samples.Forget(func(string, string) bool { return true }); err != nil {
		s.log.Warn("forget the samples of the earlier run", "err", err)
	}
	s.lastSeq = 0
	if err := s.journal.Close(); err != nil {
		s.log.Warn("close", "err", err)
	}
	moved, err := s.layout.archive(time.Now())
	if err != nil {
		return err
	}
	if moved != "" {
		s.say("starting over: earlier logs moved to " + moved)
	}
	s.journal, err = openJournal(s.layout.journal())
	return err
}

// greet says what is about to run.
func (s *session) greet() {
	kind := text.Count(len(s.cards), "GPU")
	switch {
	case s.allAway:
		kind = "all for Slurm"
	case s.machine.NoGPUs:
		kind = "no GPU"
	case s.opt.Sim > 0:
		kind = fmt.Sprintf("%s of %d MiB", text.Count(len(s.cards), "simulated GPU"), s.opt.SimVRAMMiB)
	}
	s.say(fmt.Sprintf("%s in %s, %s, logs in %s", text.Count(s.queue.total, "job"), s.opt.File, kind, s.opt.LogDir))
	if s.sizes != "" {
		s.say("model sizes from " + s.sizes)
	}
	if s.machine.SimDir != "" {
		s.say("simulation directory: BERTH_SIM_DIR=" + s.machine.SimDir)
	}
	if s.opt.Jobs > 0 && s.cpuJobs > 0 {
		if cpus := s.machine.Host().CPUs; min(s.opt.Jobs, s.cpuJobs) > cpus {
			s.say(fmt.Sprintf("at most %s without a GPU run at a time here, not %d: each takes a CPU, or as many as its cpus= says", text.Count(cpus, "job"), s.opt.Jobs))
		}
	}
	if s.opt.Keys != nil {
		s.say("press d to detach: the jobs then go on without this terminal")
	}
	if s.besideAllocation() {
		s.warn(fmt.Sprintf("this machine is not a node of Slurm's job %s; srun berth run %s runs the jobs there", s.getenv("SLURM_JOB_ID"), s.opt.File))
	}
	if s.layout.state != s.layout.logDir {
		s.say(fmt.Sprintf("%s is on a network file system; the queue is in %s", s.opt.LogDir, s.layout.state))
	}
	s.sayNotes()
}

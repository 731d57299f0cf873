package daemon

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"berth/internal/api"
	"berth/internal/job"
	"berth/internal/job/reason"
	"berth/internal/queue"
	"berth/internal/queue/config"
	"berth/internal/queue/engine"
	"berth/internal/queue/engine/fault"
	"berth/internal/queue/engine/journal"
	"berth/internal/queue/engine/waiting"
	"berth/internal/queue/people"
	"berth/internal/queue/store"
	"berth/internal/sched/predict"
	"berth/internal/text"
	"berth/internal/text/problem"
)

// accept queues the jobs and waits until they are on disk.
func (s *submission) accept(ctx context.Context) (api.SubmitReply, error) {
	s.captureEnviron()
	s.listKinds()
	var refusal, unsaved error
	batch := journal.Batch{Jobs: s.jobs, Text: waiting.TextOf(s.jobs), Done: func(err error) { unsaved = err }}
	environ := ""
	if s.environ != nil {
		environ = store.BlobName(s.environ)
		batch.Blobs = map[string][]byte{environ: s.environ}
	}
	admissible := func(t *engine.Turn) error { return s.admissible(t, batch.Text, environ) }
	done, err := s.writeText(ctx, &batch, admissible)
	if err != nil {
		return api.SubmitReply{}, err
	}
	defer done()
	ran := false
	var gang *item
	err = s.h.svc.queue.Engine.Change(ctx, func(t *engine.Turn) {
		ran = true
		if refusal = cmp.Or(admissible(t), s.awaitNamesakes(t)); refusal != nil {
			return
		}
		s.number(t)
		s.noteAuto(t)
		gang = leftOut(t, s.items, s.jobs)
		t.Requests().Accept(batch)
	})
	switch {
	case refusal != nil:
		return api.SubmitReply{}, refusal
	case !ran:
		return api.SubmitReply{}, unlessEnded(err)
	case err != nil || unsaved != nil:
		return api.SubmitReply{}, notWritten(cmp.Or(unsaved, err))
	}
	s.h.twins.add(s.jobs)
	fault.Point("before reply")
	if gang != nil {
		gang.notes = append(gang.notes, s.h.svc.gainOf(ctx, s.jobs[gang.from])...)
	}
	return s.reply(), nil
}

// writeText writes a large request's text before the jobs are accepted, so that no
// commit is large. The caller calls done when they were accepted or refused.
func (s *submission) writeText(ctx context.Context, b *journal.Batch, admissible func(*engine.Turn) error) (done func(), err error) {
	if b.Text <= actBytes {
		return func() {}, nil
	}
	var refusal error
	if err := s.h.svc.Do(ctx, func(t *engine.Turn) { refusal = admissible(t) }); err != nil || refusal != nil {
		return nil, cmp.Or(err, refusal)
	}
	if done, err = s.h.svc.queue.Store.WriteText(s.jobs); err != nil {
		return nil, notWritten(err)
	}
	return done, nil
}

// maxAutoNotes bounds the jobs of a request that are asked about in the engine's
// goroutine.
const maxAutoNotes = 100

// noteAuto tells the caller where vram=auto is only a guess.
func (s *submission) noteAuto(t *engine.Turn) {
	asked := 0
	for i := range s.items {
		it := &s.items[i]
		if !it.spec.VRAMAuto || asked == maxAutoNotes {
			continue
		}
		asked++
		if mib, from := t.Explain().Auto(s.caller.Name, it.spec); from.Source == predict.FromProgram {
			it.notes = append(it.notes, autoGuess(mib, from.Samples))
		}
	}
}

// leftOut is the first of the items whose job takes no turns with the running ones; nil:
// none.
func leftOut(t *engine.Turn, items []item, jobs []*job.Job) *item {
	j := t.Parking().LeftOut(jobs)
	i := slices.IndexFunc(items, func(it item) bool { return jobs[it.from] == j })
	if i < 0 {
		return nil
	}
	return &items[i]
}

// autoGuess says that a declaration is a guess, and from what.
func autoGuess(mib int64, runs int) string {
	return fmt.Sprintf("vram: auto declares %s GiB on each GPU, a guess from %s of this program with other arguments", text.GiB(mib), text.Count(runs, "run"))
}

// captureEnviron records the environment the jobs were submitted with. A job
// that exports none of it may still need TERM.
func (s *submission) captureEnviron() {
	environ := s.request.Environ
	if s.request.Term != "" {
		environ = append(slices.Clone(environ), "TERM="+s.request.Term)
	}
	if len(environ) == 0 {
		return
	}
	data := people.PackEnviron(environ)
	name := store.BlobName(data)
	for _, j := range s.jobs {
		if j.Spec.Export != "none" || j.Spec.Pty {
			j.Environ, s.environ = name, data
		}
	}
}

// room says why a user cannot have that many more jobs; nil: there is room.
func room(t *engine.Turn, cfg *config.Config, c api.Caller, user string, more int) *problem.Problem {
	have, limit := t.Jobs().Owned(user), cfg.QueuedJobsFor(user)
	if limit > 0 && have+more > limit && !c.Admin {
		return problem.Newf(problem.TooMuch, "wait for some to end, or cancel some with berth cancel", "you have %d unfinished jobs; %d more would exceed the limit of %d", have, more, limit)
	}
	if size := t.Jobs().Size(); size+more > cfg.MaxQueue {
		return problem.Newf(problem.TooMuch, "try again later", "the queue has %d unfinished jobs; %d more would exceed its limit of %d", size, more, cfg.MaxQueue)
	}
	return nil
}

// admissible checks the jobs against the limits and the machine.
func (s *submission) admissible(t *engine.Turn, text int, environ string) error {
	if t.Stopping() {
		return stopping()
	}
	if full := room(t, s.cfg, s.caller, s.caller.Name, len(s.jobs)); full != nil {
		return full
	}
	if full := roomFor(t, s.cfg, s.caller.Name, text, environ); full != nil {
		return full
	}
	var bad mistakes
	for which, why := range t.Explain().Infeasible(s.caller.Name, s.kinds...) {
		if !s.endsHere(why) && !bad.add(s.located(s.kindOf[which], neverFits(why))) {
			break
		}
	}
	return bad.all()
}

// endsHere reports whether a job that can never run is accepted and ends infeasible,
// because only the machine is too small for it.
func (s *submission) endsHere(why reason.Reason) bool {
	return s.request.Batch != nil && s.request.Batch.Lenient && why.Kind != reason.OverUserLimit
}

// neverFits refuses a job that could never run here.
func neverFits(why reason.Reason) error {
	hint := "berth gpus shows what this machine has"
	switch why.Kind {
	case reason.TooManyGPUs:
		if why.Total == 0 {
			return problem.Newf(problem.Refused, queue.NoGPUHint, "this machine has no GPU")
		}
	case reason.TooManyCPUs, reason.TooMuchMemory:
		hint = "ask for less"
	case reason.RepeatedGPU:
		hint = "name each GPU once"
	case reason.OverUserLimit:
		hint = "ask for fewer, or ask your administrator for more"
		if why.NeverBorrows {
			hint = "--preemptible lets it give way to others (berth help order)"
		}
	}
	return problem.Newf(problem.Refused, hint, "%s", why)
}

// listKinds picks one spec of each kind of request: if it fits, all of its kind
// do. It runs outside the engine's goroutine.
func (s *submission) listKinds() {
	seen := map[requestKey]bool{}
	for i := range s.items {
		spec := s.items[i].spec
		if key := requestKeyOf(spec); !seen[key] && (s.lines == nil || !s.request.Batch.Lines[s.lines.fresh[i]].Cancel) {
			seen[key] = true
			s.kinds, s.kindOf = append(s.kinds, *spec), append(s.kindOf, i)
		}
	}
}

// requestKey is equal for specs that fit on the same cards.
type requestKey struct {
	gpus, cpus        int
	share             float64
	vramMiB, memMiB   int64
	gpuType           string
	cards             string // the ids and those that are allowed
	exclusive, noPark bool
	preemptible       job.Preemptible
	timeLimit         time.Duration
}

func requestKeyOf(s *job.Spec) requestKey {
	cards := ""
	if s.IDs != nil || s.Allow != nil {
		cards = fmt.Sprint(s.IDs, s.Allow)
	}
	return requestKey{s.GPUs, s.CPUs, s.Share, s.VRAMMiB, s.MemMiB, s.Type, cards, s.Exclusive, s.NoPark, s.Preemptible, s.TimeLimit}
}

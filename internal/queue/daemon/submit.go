package daemon

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"berth/internal/api"
	"berth/internal/job"
	"berth/internal/job/jobfile"
	"berth/internal/queue/config"
	"berth/internal/queue/engine"
	"berth/internal/text/problem"
)

// maxDependencies bounds how many other jobs one request can wait for.
const maxDependencies = 200_000

// submissions accepts jobs.
type submissions struct {
	svc     *service
	find    *finder
	cards   *cards
	twins   twins
	batches sync.Map // from a uid to the mutex under which the lines of its files are compared
	deleted deleted  // what is remembered of lines that were deleted
}

// Submit accepts jobs. They are on disk when it returns.
func (h *submissions) Submit(ctx context.Context, c api.Caller, r api.SubmitRequest) (api.SubmitReply, error) {
	dry := r.DryRun
	if r.CanSnapshot && !dry && h.svc.Config().Snapshot && slices.ContainsFunc(r.Jobs, func(s api.Spec) bool { return s.Snapshot == "" }) {
		return api.SubmitReply{}, api.ErrWantsSnapshots
	}
	reply, err := h.submit(ctx, c, &r)
	if dry {
		return reply, err
	}
	var ids []string
	for _, s := range reply.Jobs {
		ids = append(ids, s.ID)
	}
	h.svc.Note(c, "submit", ids, "", err)
	return reply, err
}

func (h *submissions) submit(ctx context.Context, c api.Caller, r *api.SubmitRequest) (api.SubmitReply, error) {
	s := submission{h: h, caller: c, request: r, cfg: h.svc.Config(), now: time.Now()}
	if len(r.Jobs) >= largeRequest {
		defer releaseSoon()
	}
	if err := s.read(ctx); err != nil {
		return api.SubmitReply{}, err
	}
	if r.Batch != nil {
		return s.acceptLines(ctx)
	}
	if slices.ContainsFunc(s.items, func(it item) bool { return it.dedup }) {
		h.twins.turn.Lock()
		defer h.twins.turn.Unlock()
		if err := h.twins.check(ctx, &s); err != nil {
			return api.SubmitReply{}, err
		}
	}
	if r.DryRun {
		return s.try(ctx)
	}
	return s.accept(ctx)
}

// submission is a request being turned into jobs.
type submission struct {
	h       *submissions
	caller  api.Caller
	request *api.SubmitRequest
	cfg     *config.Config
	now     time.Time

	specs   int // how many the request has
	asks    asks
	items   []item
	jobs    []*job.Job // of all items, in order
	made    maker
	environ []byte

	kinds  []job.Spec // one spec of each kind
	kindOf []int      // and the item it comes from

	executed string // of a line in the queue of a berth run: what the one being read executes
	lines    *lines // of a batch: all its lines, of which the items are the new ones; nil before they are known
}

// asks reads the keys of specs. Most of a large request have the terms of one of the last
// few, which are not read again.
type asks struct {
	known  []termsOf
	oldest int           // of these
	asked  jobfile.Asked // by the last spec that was read
}

// termsKept is how many a spec is compared with: a file mostly has a few kinds in turn.
const termsKept = 4

// termsOf is what a spec of the request asks for, apart from its command.
type termsOf struct {
	spec  *api.Spec // nil: none
	asked jobfile.Asked
}

func (a *asks) read(spec *api.Spec, now time.Time, cfg *config.Config) (asked *jobfile.Asked, err error) {
	for i := range a.known {
		if known := &a.known[i]; known.spec != nil && known.spec.SameTerms(spec) {
			if spec.Name != known.spec.Name && spec.Name != "" {
				err = jobfile.CheckPair(jobfile.Pair{Key: "name", Value: string(spec.Name)}, now)
			}
			a.asked = known.asked
			a.asked.Spec.Name = string(spec.Name)
			return &a.asked, err
		}
	}
	a.asked, err = jobfile.Ask(spec.Pairs(), now, cfg.JobDefaults(), cfg.MaxArray)
	if err == nil && len(a.known) > 0 {
		a.known[a.oldest], a.oldest = termsOf{spec, a.asked}, (a.oldest+1)%len(a.known)
	}
	return &a.asked, err
}

// maker allocates jobs together, which is cheaper than one by one. A long-lived one
// keeps the others in memory.
type maker struct{ spare []job.Job }

const jobsAtOnce = 16

// job returns a new one. Including it, this many are still to come.
func (m *maker) job(more int) *job.Job {
	if len(m.spare) == 0 {
		m.spare = make([]job.Job, min(jobsAtOnce, max(1, more)))
	}
	j := &m.spare[0]
	m.spare = m.spare[1:]
	return j
}

// item is one spec of the request and its jobs.
type item struct {
	spec      *job.Spec // of its first job
	hold      bool
	dedup     bool
	notBefore time.Time
	tasks     *jobfile.Array // nil: a single job
	from      int            // its jobs are jobs[from:to]
	to        int
	notes     []string
	// siblings are earlier items that it waits for, which have no ids yet.
	siblings  []sibling
	namesakes *job.Dependency // on the user's unfinished jobs of its name; nil: none
	perTask   bool            // its tasks wait for different jobs
	executed  string          // of a line in the queue of a berth run
	array     string          // that its tasks join; empty: one of their own
}

// sibling is an item of the same request, and what is required of it.
type sibling struct {
	item int
	job.Dependency
}

// read turns the request into jobs, or says what is wrong with it.
func (s *submission) read(ctx context.Context) error {
	r := s.request
	switch {
	case len(r.Jobs) == 0 && r.Batch == nil:
		return problem.Newf(problem.Invalid, "", "the request has no jobs")
	case len(r.Jobs) > s.cfg.MaxSpecs:
		return problem.Newf(problem.TooMuch, "send them in several requests", "%d jobs in one request; at most %d are accepted", len(r.Jobs), s.cfg.MaxSpecs)
	case r.Dir != "" && !filepath.IsAbs(r.Dir):
		return problem.Newf(problem.Invalid, "", "dir: expected an absolute path, found %.100q", r.Dir)
	case strings.IndexByte(r.Dir, 0) >= 0 || len(r.Dir) > maxDir:
		return problem.Newf(problem.Invalid, "", "dir: it contains a NUL byte or is longer than %d bytes", maxDir)
	case strings.IndexByte(r.Term, 0) >= 0 || len(r.Term) > maxTerm:
		return problem.Newf(problem.Invalid, "", "term: it contains a NUL byte or is longer than %d bytes", maxTerm)
	case r.Umask != nil && (*r.Umask < 0 || *r.Umask > 0o777):
		return problem.Newf(problem.Invalid, "", "umask: expected 0 to 0777, found %#o", *r.Umask)
	}
	for _, variable := range r.EnvironBytes {
		r.Environ = append(r.Environ, string(variable))
	}
	if err := checkEnviron(r.Environ, s.cfg.MaxEnviron); err != nil {
		return err
	}
	if err := s.checkBatch(); err != nil {
		return err
	}
	s.asks.known = make([]termsOf, max(0, min(termsKept, len(r.Jobs)-1)))
	s.specs, s.items, s.jobs = len(r.Jobs), make([]item, 0, len(r.Jobs)), make([]*job.Job, 0, len(r.Jobs))
	var bad mistakes
	for i := range r.Jobs {
		if err := s.readSpec(&r.Jobs[i]); err != nil && !bad.add(s.located(i, err)) {
			break
		}
	}
	if err := bad.all(); err != nil {
		return err
	}
	r.Jobs, s.asks.known = nil, nil // free them: there may be many
	if r.Batch != nil {
		return nil // its jobs wait for lines of the file
	}
	return s.resolveAfter(ctx)
}

// maxMistakes bounds how many problems of one request are reported.
const maxMistakes = 20

// mistakes are the problems of several jobs of a request, to be corrected at
// once.
type mistakes []error

// add reports whether the following jobs are worth checking: a limit that one
// exceeds, they exceed too.
func (m *mistakes) add(err error) (more bool) {
	*m = append(*m, err)
	kind := problem.KindOf(err)
	return len(*m) < maxMistakes && kind != "" && kind != problem.TooMuch
}

// all joins them into one problem with the kind and the hint of the first, or
// returns nil.
func (m mistakes) all() error {
	switch len(m) {
	case 0:
		return nil
	case 1:
		return m[0]
	}
	first, ok := errors.AsType[*problem.Problem](m[0])
	if !ok {
		return m[0]
	}
	whole := *first
	for _, err := range m[1:] {
		whole.What += "\n" + err.Error()
	}
	if len(m) == maxMistakes {
		whole.What += "\nand perhaps more"
	}
	return &whole
}

// located says which of several jobs a problem concerns.
func (s *submission) located(i int, err error) error {
	switch {
	case s.lines != nil:
		return atLine(s.request.Batch, s.lines.fresh[i], err)
	case s.request.Batch != nil:
		return atLine(s.request.Batch, i, err)
	case s.specs == 1:
		return err
	}
	return at(fmt.Sprintf("job %d of %d", i+1, s.specs), err)
}

// at names the place of a problem.
func at(place string, err error) error {
	if p, ok := errors.AsType[*problem.Problem](err); ok {
		where := *p
		where.What = place + ": " + p.What
		return &where
	}
	return fmt.Errorf("%s: %w", place, err)
}

// readSpec parses one spec with the grammar that all of berth shares.
func (s *submission) readSpec(spec *api.Spec) error {
	asked, err := s.asks.read(spec, s.now, s.cfg)
	if err != nil {
		return problem.Newf(problem.Invalid, "berth help jobspec lists the keys", "%v", err)
	}
	if len(spec.Bytes) > 0 {
		spec.Command = api.Command{Shell: string(spec.Bytes)}
	}
	if err := setCommand(&asked.Spec, spec.Command); err != nil {
		return err
	}
	var sweep *trials
	if spec.Sweep != nil {
		if sweep, err = s.readSweep(asked, spec.Sweep); err != nil {
			return err
		}
	}
	if s.request.Batch != nil && s.h.svc.runs != "" {
		s.executed = jobfile.Executed(&asked.Spec) // as its line says it: the file and the logs can be moved
	}
	setPlaces(&asked.Spec, s.request.Dir)
	if err := setSnapshot(&asked.Spec, s.request); err != nil {
		return err
	}
	if err := checkWords(&asked.Spec); err != nil {
		return err
	}
	if err := jobfile.CheckInject(&asked.Spec); err != nil {
		return problem.Newf(problem.Invalid, "give the command as separate words: berth submit -- python train.py", "%v", err)
	}
	terms := terms{caller: s.caller, cfg: s.cfg}
	asked.Spec.Interactive = s.request.Interactive
	if err := terms.place(&asked.Spec); err != nil {
		return err
	}
	if asked.Spec.To == job.ToSlurm && asked.Spec.SlurmEnv && spec.GPUs == "" && spec.VRAM == "" && spec.Type == "" {
		asked.Spec.GPUs = 0 // a script that was written for Slurm and names no GPU wants none there
	}
	if err := s.h.svc.capable(&asked.Spec); err != nil {
		return err
	}
	terms.boundTime(&asked.Spec)
	if err := terms.checkPriority(asked.Spec.Priority); err != nil {
		return err
	}
	if err := s.cfg.BoundGrace(asked.Spec.Grace); err != nil {
		return err
	}
	if err := s.cfg.BoundMemory(&asked.Spec); err != nil {
		return err
	}
	if s.cfg.Snapshot && spec.Snapshot == "" && !s.request.DryRun {
		terms.notes = append(terms.notes, "snapshot: it runs the code as it is when it starts: the config asks for snapshots (jobs.snapshot), but this client made none")
	}
	terms.notes = append(terms.notes, notesOn(asked, s.cfg, s.h.svc.cannotPark())...)
	return s.addJobs(asked, terms.notes, sweep)
}

// addJobs makes the jobs of one spec: one, or the tasks of an array or a sweep; never
// more than could be queued.
func (s *submission) addJobs(asked *jobfile.Asked, notes []string, sweep *trials) error {
	umask := -1
	if s.request.Umask != nil {
		umask = *s.request.Umask
	}
	tasks := 1
	if asked.Array != nil && s.request.Batch != nil {
		return problem.Newf(problem.Invalid, "write a line for each task", "array: expected no array in a jobs file")
	}
	if asked.Array == nil && asked.Spec.ArrayLimit > 0 {
		return problem.Newf(problem.Invalid, "for jobs of several arrays, use a group: berth group set NAME --limit N", "max: expected an array or a sweep, found a single job")
	}
	if asked.Array != nil {
		tasks = len(asked.Array.Indices)
		if asked.Spec.SlurmEnv || asked.Spec.To == job.ToSlurm {
			asked.Spec.ArrayShape = asked.Array.Shape()
		}
	}
	from := len(s.jobs)
	most := s.cfg.MaxQueue
	if own := s.cfg.QueuedJobsFor(s.caller.Name); own > 0 && !s.caller.Admin {
		most = min(most, own)
	}
	if from+tasks > most && s.request.Batch == nil { // a file has lines that the queue has, and that have ended
		return problem.Newf(problem.TooMuch, "submit fewer at a time", "the request has more than the %d jobs you may have queued", most)
	}
	for i := range tasks {
		j := s.made.job(s.specs - len(s.items))
		j.User, j.UID, j.Umask, j.Held, j.NotBefore = s.caller.Name, s.caller.UID, umask, asked.Hold, asked.NotBefore
		if j.Spec = asked.Spec; sweep != nil {
			var err error
			if j.Spec, err = s.specOf(sweep, &asked.Spec, i); err != nil {
				return err
			}
		}
		s.jobs = append(s.jobs, j)
	}
	s.items = append(s.items, item{
		spec: &s.jobs[from].Spec, hold: asked.Hold, dedup: asked.Dedup, notBefore: asked.NotBefore, tasks: asked.Array,
		from: from, to: len(s.jobs), notes: notes, executed: s.executed,
	})
	return nil
}

// resolveAfter turns `after` into ids of existing jobs.
func (s *submission) resolveAfter(ctx context.Context) error {
	if !slices.ContainsFunc(s.items, func(it item) bool { return len(it.spec.After) > 0 }) {
		return nil
	}
	waits := 0
	known := map[string][]string{} // from the word in the request to the ids it names
	named := map[string]int{}      // from a name to its item, among those so far
	names := map[string]bool{}     // of all items
	for i := range s.items {
		names[s.items[i].spec.Name] = true
	}
	for i := range s.items {
		it := &s.items[i]
		if i > 0 && s.items[i-1].spec.Name != "" {
			named[s.items[i-1].spec.Name] = i - 1
		}
		if len(it.spec.After) == 0 {
			continue
		}
		var wanted []job.Dependency
		more := 0
		wait := func(at int, dep job.Dependency) {
			it.siblings = append(it.siblings, sibling{at, dep})
			more += s.items[at].to - s.items[at].from
		}
		for _, dep := range it.spec.After {
			if dep.Job == jobfile.Namesakes {
				if it.spec.Name == "" {
					return s.located(i, problem.Newf(problem.Invalid, "add a name", "after: a job without a name has no others of its name"))
				}
				for at := range i {
					if s.items[at].spec.Name == it.spec.Name {
						wait(at, dep)
					}
				}
				it.namesakes = &dep
				continue
			}
			if at, ok := named[dep.Name]; ok {
				wait(at, dep)
				continue
			}
			if dep.Name != "" && names[dep.Name] {
				return s.located(i, problem.Newf(problem.Invalid, "put it first, or use the id of another job", "after: the job named %.60q is not an earlier job of this request", dep.Name))
			}
			word := dep.Job + dep.Name // it has one of the two
			if known[word] == nil {
				var err error
				if known[word], err = s.waitsFor(ctx, dep); err != nil {
					return s.located(i, err)
				}
			}
			wanted = append(wanted, dep)
		}
		waits += more * (it.to - it.from)
		it.perTask = it.tasks != nil && slices.ContainsFunc(wanted, func(dep job.Dependency) bool { return strings.HasSuffix(dep.Job, jobfile.SameTask) })
		for k, j := range s.jobs[it.from:it.to] {
			if k > 0 && !it.perTask {
				j.Spec.After = s.jobs[it.from].Spec.After
			} else {
				j.Spec.After = it.expand(k, wanted, known)
			}
			if waits += len(j.Spec.After); waits > maxDependencies {
				return s.located(i, problem.Newf(problem.TooMuch, "let one job wait for the array, and the others for that one", "the jobs of this request would wait for more than %d others in all", maxDependencies))
			}
		}
	}
	return nil
}

// expand is the dependencies of one of its jobs by ids. A task whose index another
// array lacks waits for all of that array, as in Slurm.
func (it *item) expand(k int, wanted []job.Dependency, known map[string][]string) (after []job.Dependency) {
	for _, dep := range wanted {
		ids := known[dep.Job+dep.Name]
		if array, each := strings.CutSuffix(dep.Job, jobfile.SameTask); each && it.tasks != nil {
			own, i := array+"_"+strconv.Itoa(it.tasks.Indices[k]), k
			if i >= len(ids) || ids[i] != own { // the arrays are not alike
				i = slices.Index(ids, own)
			}
			if i >= 0 {
				ids = ids[i : i+1]
			}
		}
		for _, id := range ids {
			dep.Job, dep.Name = id, ""
			after = append(after, dep)
		}
	}
	return after
}

// waitsFor is the jobs that one entry of `after` names.
func (s *submission) waitsFor(ctx context.Context, dep job.Dependency) ([]string, error) {
	word := strings.TrimSuffix(dep.Job, jobfile.SameTask)
	sel := api.Select{Words: []string{word}}
	if dep.Name != "" {
		ids, err := s.h.find.jobsNamed(ctx, s.caller, dep.Name, "", meaning{own: true})
		if err != nil {
			return nil, problem.Newf(problem.Refused, "use an id like 12, 17_3 or @, the name of a job of yours, or of an earlier job in the same file", "after: %w", err)
		}
		word, sel.Words = dep.Name, ids
	}
	ch, err := s.h.find.chooseBy(ctx, s.caller, sel, meaning{})
	if err != nil {
		return nil, err
	}
	found, missing, err := s.h.find.resolve(ctx, &ch, true)
	if err != nil {
		return nil, err
	}
	if len(missing) > 0 || len(found) == 0 {
		return nil, problem.Newf(problem.Refused, "berth list --all shows all jobs", "after: there is no job %.60s", word)
	}
	ids := make([]string, len(found))
	for i := range found {
		ids[i] = found[i].ID
	}
	return ids, nil
}

// number assigns the ids. The tasks of an array have the number of the first one
// and their index.
func (s *submission) number(t *engine.Turn) {
	if s.lines != nil {
		s.h.deleted.giveBack(t, s.jobs)
	}
	t.Queue().Number(s.jobs)
	if s.lines != nil {
		s.lines.order()
	}
	for _, it := range s.items {
		for k, j := range s.jobs[it.from:it.to] {
			if it.tasks != nil {
				j.ID = cmp.Or(it.array, strconv.FormatInt(s.jobs[it.from].Seq, 10)) + "_" + strconv.Itoa(it.tasks.Indices[k])
			}
		}
	}
	for _, it := range s.items {
		s.joinSiblings(it)
	}
}

// joinSiblings adds dependencies within the request, now that the jobs have ids.
func (s *submission) joinSiblings(it item) {
	var more []job.Dependency
	for _, sib := range it.siblings {
		first := s.items[sib.item]
		for _, j := range s.jobs[first.from:first.to] {
			more = append(more, job.Dependency{Job: j.ID, On: sib.On, Alt: sib.Alt, DelayS: sib.DelayS})
		}
	}
	s.join(it, more)
}

// join adds dependencies to the jobs of an item, each to its alternative.
func (s *submission) join(it item, more []job.Dependency) {
	if len(more) == 0 {
		return
	}
	for k, j := range s.jobs[it.from:it.to] {
		if k > 0 && !it.perTask {
			j.Spec.After = s.jobs[it.from].Spec.After
			continue
		}
		j.Spec.After = slices.Concat(j.Spec.After, more)
		slices.SortStableFunc(j.Spec.After, func(a, b job.Dependency) int { return cmp.Compare(a.Alt, b.Alt) })
	}
}

// maxNamesakes bounds how many jobs of its own name a job can wait for. Each of
// them may do the same.
const maxNamesakes = 1000

// awaitNamesakes lets jobs wait for those of their user and name. It is done in the
// engine's turn, so that two requests at the same time cannot miss one another.
func (s *submission) awaitNamesakes(t *engine.Turn) error {
	for i, it := range s.items {
		if it.namesakes == nil {
			continue
		}
		ids := t.Jobs().Namesakes(s.caller.Name, it.spec.Name)
		if len(ids) > maxNamesakes {
			return s.located(i, problem.Newf(problem.TooMuch, "submit it when some have ended", "after: more than %d jobs are named %.60s", maxNamesakes, it.spec.Name))
		}
		more := make([]job.Dependency, len(ids))
		for k, id := range ids {
			more[k] = *it.namesakes
			more[k].Job = id
		}
		s.join(it, more)
	}
	return nil
}

func (s *submission) reply() api.SubmitReply {
	reply := api.SubmitReply{Jobs: make([]api.Submitted, 0, len(s.items))}
	for _, it := range s.items {
		first := s.jobs[it.from]
		answer := api.Submitted{ID: first.ID, Name: first.Name(), Notes: it.notes}
		if it.tasks != nil {
			answer.ID, answer.Tasks = first.Array(), it.to-it.from
			if answer.Name = cmp.Or(first.Spec.Trial.Sweep, first.Spec.Name); answer.Name == "" {
				answer.Name = "job" + answer.ID
			}
		}
		reply.Jobs = append(reply.Jobs, answer)
	}
	return reply
}

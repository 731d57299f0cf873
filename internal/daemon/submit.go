package daemon

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"berth/internal/api"
	"berth/internal/engine"
	"berth/internal/job"
	"berth/internal/jobfile"
	"berth/internal/problem"
)

// A command is bounded by what the kernel takes: a single word, and not much
// more than this in all.
const (
	maxWord    = 128<<10 - 1
	maxCommand = 1 << 20
)

// maxDependencies bounds how many other jobs the jobs of one request wait for.
const maxDependencies = 200_000

// Submit takes jobs. They are on disk when it answers.
func (d *Daemon) Submit(ctx context.Context, c api.Caller, r api.SubmitRequest) (api.SubmitReply, error) {
	reply, err := d.submit(ctx, c, r)
	if r.DryRun {
		return reply, err
	}
	var ids []string
	for _, s := range reply.Jobs {
		ids = append(ids, s.ID)
	}
	d.note(c, "submit", ids, "", err)
	return reply, err
}

func (d *Daemon) submit(ctx context.Context, c api.Caller, r api.SubmitRequest) (api.SubmitReply, error) {
	s := submission{d: d, caller: c, request: &r, cfg: d.config(), now: time.Now()}
	if err := s.read(ctx); err != nil {
		return api.SubmitReply{}, err
	}
	if s.dedups() {
		d.twins.turn.Lock()
		defer d.twins.turn.Unlock()
		if err := d.twins.check(ctx, &s); err != nil {
			return api.SubmitReply{}, err
		}
	}
	if r.DryRun {
		return s.try(ctx)
	}
	return s.accept(ctx)
}

// submission is a request on its way to become jobs.
type submission struct {
	d       *Daemon
	caller  api.Caller
	request *api.SubmitRequest
	cfg     *Config
	now     time.Time

	items   []item
	jobs    []*job.Job // of all items, in order
	environ []byte
	notes   []string // on the job that is being read
	bytes   int      // what all jobs say

	kinds  []job.Spec // one of each kind of request
	kindOf []int      // and which item that is of
}

// item is one spec of the request and the jobs it became.
type item struct {
	asked jobfile.Asked
	from  int // its jobs are jobs[from:to]
	to    int
	notes []string
	// siblings are earlier items that it waits for. They have no ids yet.
	siblings []sibling
}

// sibling is an item of the same request, and how it has to end.
type sibling struct {
	item int
	on   job.Condition
}

// read turns the request into jobs, or says what is wrong with it.
func (s *submission) read(ctx context.Context) error {
	r := s.request
	switch {
	case len(r.Jobs) == 0:
		return problem.Newf(problem.Invalid, "", "the request holds no job")
	case len(r.Jobs) > s.cfg.MaxSpecs:
		return problem.Newf(problem.TooMuch, "send them in several requests", "%d jobs in one request, at most %d are taken", len(r.Jobs), s.cfg.MaxSpecs)
	case r.Dir != "" && !filepath.IsAbs(r.Dir):
		return problem.Newf(problem.Invalid, "", "dir: %.100q is not an absolute path", r.Dir)
	case strings.IndexByte(r.Dir, 0) >= 0 || len(r.Dir) > maxDir:
		return problem.Newf(problem.Invalid, "", "dir: it holds a zero byte, or more than %d", maxDir)
	case strings.IndexByte(r.Term, 0) >= 0 || len(r.Term) > maxTerm:
		return problem.Newf(problem.Invalid, "", "term: it holds a zero byte, or more than %d", maxTerm)
	case r.Umask != nil && (*r.Umask < 0 || *r.Umask > 0o777):
		return problem.Newf(problem.Invalid, "", "umask: expected 0 to 0777, found %#o", *r.Umask)
	}
	if err := checkEnviron(r.Environ, s.cfg.MaxEnviron); err != nil {
		return err
	}
	s.items = make([]item, 0, len(r.Jobs))
	for i := range r.Jobs {
		if err := s.readSpec(&r.Jobs[i]); err != nil {
			return s.located(i, err)
		}
	}
	return s.resolveAfter(ctx)
}

// located says which of several jobs a problem is about.
func (s *submission) located(i int, err error) error {
	if len(s.request.Jobs) == 1 {
		return err
	}
	if p, ok := errors.AsType[*problem.Problem](err); ok {
		where := *p
		where.What = fmt.Sprintf("job %d of %d: %s", i+1, len(s.request.Jobs), p.What)
		return &where
	}
	return fmt.Errorf("job %d: %w", i+1, err)
}

// readSpec reads one spec with the grammar all of berth shares.
func (s *submission) readSpec(spec *api.Spec) error {
	asked, err := jobfile.Ask(spec.Pairs(), s.now, job.Defaults(), s.cfg.MaxArray)
	if err != nil {
		return problem.Newf(problem.Invalid, "docs/reference/jobspec.md lists the keys", "%v", err)
	}
	if err := s.setCommand(&asked.Spec, spec.Command); err != nil {
		return err
	}
	s.setPlaces(&asked.Spec)
	if err := checkWords(&asked.Spec); err != nil {
		return err
	}
	if err := jobfile.CheckInject(&asked.Spec); err != nil {
		return problem.Newf(problem.Invalid, "berth submit -- python train.py: words are told apart, a shell line is not", "%v", err)
	}
	if err := s.d.capable(&asked.Spec); err != nil {
		return err
	}
	s.notes = nil
	asked.Spec.Interactive = s.request.Interactive
	s.boundTime(&asked.Spec)
	if err := s.checkPriority(asked.Spec.Priority); err != nil {
		return err
	}
	s.notes = append(s.notes, notesOn(&asked.Spec, s.cfg.Preempt == PreemptNever)...)
	return s.addJobs(asked)
}

// boundTime keeps a job within the time that any job has here, and one that
// someone sits at within its own. Who asked for more is told.
func (s *submission) boundTime(spec *job.Spec) {
	if limit := s.cfg.JobTime; exceeds(spec, limit) {
		if spec.TimeLimit > 0 {
			s.notes = append(s.notes, fmt.Sprintf("jobs have %s here", limit))
		}
		spec.TimeLimit = limit
	}
	if limit := s.cfg.InteractiveTime; spec.Interactive && exceeds(spec, limit) && !s.caller.Admin {
		s.notes = append(s.notes, fmt.Sprintf("interactive jobs end after %s here", limit))
		spec.TimeLimit = limit
	}
}

// exceeds reports whether a job may run longer than a limit that there is.
func exceeds(spec *job.Spec, limit time.Duration) bool {
	return limit > 0 && (spec.TimeLimit <= 0 || spec.TimeLimit > limit)
}

// checkPriority keeps users from passing everybody: priority comes before the
// fair share.
func (s *submission) checkPriority(priority int) error {
	if s.caller.Admin || priority <= s.cfg.MaxPriority {
		return nil
	}
	return problem.Newf(problem.Refused, "an administrator may; max_priority in the config is the bound", "priority %d: users may ask for %d at most", priority, s.cfg.MaxPriority)
}

// dedups reports whether a job must not be the same as another.
func (s *submission) dedups() bool {
	return slices.ContainsFunc(s.items, func(it item) bool { return it.asked.Dedup })
}

func (s *submission) setCommand(spec *job.Spec, command api.Command) error {
	size, longest := len(command.Shell), len(command.Shell)
	for _, word := range command.Argv {
		size, longest = size+len(word)+1, max(longest, len(word))
	}
	switch {
	case size == 0 || len(command.Argv) > 0 && command.Argv[0] == "" || len(command.Argv) == 0 && strings.TrimSpace(command.Shell) == "":
		return problem.Newf(problem.Invalid, "berth submit -- python train.py", "the job has no command")
	case size > maxCommand:
		return problem.Newf(problem.TooMuch, "put it into a script", "the command has %d bytes, at most %d are taken", size, maxCommand)
	case longest > maxWord:
		return problem.Newf(problem.TooMuch, "put it into a script", "a word of the command has %d bytes, the system takes at most %d", longest, maxWord)
	case strings.IndexByte(command.Shell+strings.Join(command.Argv, ""), 0) >= 0:
		return problem.Newf(problem.Invalid, "", "the command holds a zero byte")
	}
	spec.Shell, spec.Argv = command.Shell, command.Argv
	return nil
}

// setPlaces makes paths whole that were meant from where the caller stands.
func (s *submission) setPlaces(spec *job.Spec) {
	from := s.request.Dir
	if from == "" {
		from = "~"
	}
	whole := func(path string) string {
		if path == "" || filepath.IsAbs(path) || path == "~" || strings.HasPrefix(path, "~/") {
			return path
		}
		return filepath.Join(from, path)
	}
	spec.Venv = whole(spec.Venv)
	if spec.Dir = whole(spec.Dir); spec.Dir == "" {
		spec.Dir = from
	}
}

// addJobs makes the jobs of one spec: one, or the tasks of an array. No more
// are made than could be queued at all.
func (s *submission) addJobs(asked jobfile.Asked) error {
	umask := -1
	if s.request.Umask != nil {
		umask = *s.request.Umask
	}
	tasks := 1
	if asked.Array != nil {
		tasks, asked.Spec.ArrayLimit = len(asked.Array.Indices), asked.Array.Limit
	}
	from := len(s.jobs)
	most := s.cfg.MaxQueue
	if own := s.cfg.QueuedJobsFor(s.caller.Name); own > 0 && !s.caller.Admin {
		most = min(most, own)
	}
	if from+tasks > most {
		return problem.Newf(problem.TooMuch, "submit fewer at a time", "the request holds more than the %d jobs you may have queued", most)
	}
	if s.bytes += tasks * specBytes(&asked.Spec); s.bytes > maxRequestBytes {
		return problem.Newf(problem.TooMuch, "put what they have in common into a script", "the jobs of this request say more than %d MiB in all", maxRequestBytes>>20)
	}
	for range tasks {
		s.jobs = append(s.jobs, &job.Job{
			User: s.caller.Name, UID: s.caller.UID, Spec: asked.Spec, Umask: umask,
			Held: asked.Hold, NotBefore: asked.NotBefore,
		})
	}
	s.items = append(s.items, item{asked: asked, from: from, to: len(s.jobs), notes: s.notes})
	return nil
}

// resolveAfter turns what jobs wait for into ids of jobs that exist.
func (s *submission) resolveAfter(ctx context.Context) error {
	waits := 0
	known := map[string][]string{} // what was asked for to the ids it stands for
	named := map[string]int{}      // items so far
	for i := range s.items {
		it := &s.items[i]
		if i > 0 && s.items[i-1].asked.Spec.Name != "" {
			named[s.items[i-1].asked.Spec.Name] = i - 1
		}
		if len(it.asked.Spec.After) == 0 {
			continue
		}
		var after []job.Dependency
		more := 0
		for _, dep := range it.asked.Spec.After {
			if dep.Name != "" {
				at, ok := named[dep.Name]
				if !ok {
					return s.located(i, problem.Newf(problem.Invalid, "ids are like 12, 17_3 or @; a name is that of an earlier job in the same file", "after: no job before it in this request is named %.60q", dep.Name))
				}
				it.siblings = append(it.siblings, sibling{at, dep.On})
				more += s.items[at].to - s.items[at].from
				continue
			}
			ids, ok := known[dep.Job]
			if !ok {
				var err error
				if ids, err = s.waitsFor(ctx, dep.Job); err != nil {
					return s.located(i, err)
				}
				known[dep.Job] = ids
			}
			for _, id := range ids {
				after = append(after, job.Dependency{Job: id, On: dep.On})
			}
		}
		if waits += (len(after) + more) * (it.to - it.from); waits > maxDependencies {
			return s.located(i, problem.Newf(problem.TooMuch, "let one job wait for the array, and the others for that one", "the jobs of this request would wait for %d others in all, at most %d are taken", waits, maxDependencies))
		}
		it.asked.Spec.After = after
		for _, j := range s.jobs[it.from:it.to] {
			j.Spec.After = after
		}
	}
	return nil
}

// waitsFor is the jobs that one entry of `after` names.
func (s *submission) waitsFor(ctx context.Context, word string) ([]string, error) {
	ch, err := s.d.choose(s.caller, api.Select{Words: []string{word}}, false)
	if err != nil {
		return nil, err
	}
	found, missing, err := s.d.resolve(ctx, &ch, true)
	if err != nil {
		return nil, err
	}
	if len(missing) > 0 || len(found) == 0 {
		return nil, problem.Newf(problem.Refused, "berth list --all shows what there is", "after: there is no job %.60s", word)
	}
	ids := make([]string, len(found))
	for i := range found {
		ids[i] = found[i].ID
	}
	return ids, nil
}

// number gives the jobs their ids. The tasks of an array carry the number of
// the first of them, and their own index.
func (s *submission) number(t *engine.Turn) {
	t.Number(s.jobs)
	for _, it := range s.items {
		for k, j := range s.jobs[it.from:it.to] {
			j.Rank = j.Seq
			if it.asked.Array != nil {
				j.ID = strconv.FormatInt(s.jobs[it.from].Seq, 10) + "_" + strconv.Itoa(it.asked.Array.Indices[k])
			}
		}
	}
	for _, it := range s.items {
		s.joinSiblings(it)
	}
}

// joinSiblings lets an item's jobs wait for others of the same request, now
// that these have ids.
func (s *submission) joinSiblings(it item) {
	if len(it.siblings) == 0 {
		return
	}
	after := slices.Clone(s.jobs[it.from].Spec.After)
	for _, sib := range it.siblings {
		first := s.items[sib.item]
		for _, j := range s.jobs[first.from:first.to] {
			after = append(after, job.Dependency{Job: j.ID, On: sib.on})
		}
	}
	for _, j := range s.jobs[it.from:it.to] {
		j.Spec.After = after
	}
}

func (s *submission) reply() api.SubmitReply {
	reply := api.SubmitReply{Jobs: make([]api.Submitted, 0, len(s.items))}
	for _, it := range s.items {
		first := s.jobs[it.from]
		answer := api.Submitted{ID: first.ID, Name: first.Name(), Notes: it.notes}
		if it.asked.Array != nil {
			answer.ID, answer.Tasks = first.Array(), it.to-it.from
			if first.Spec.Name == "" {
				answer.Name = "job" + answer.ID
			}
		}
		reply.Jobs = append(reply.Jobs, answer)
	}
	return reply
}

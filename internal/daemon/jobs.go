package daemon

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"berth/internal/api"
	"berth/internal/job"
	"berth/internal/store"
)

// The size of a page.
const (
	pageDefault = 1000
	pageMost    = 10_000
)

// Jobs is a page of jobs.
func (d *Daemon) Jobs(ctx context.Context, c api.Caller, q api.Query) (api.JobPage, error) {
	ch, err := d.choose(c, q.Select, false)
	if err != nil {
		return api.JobPage{}, err
	}
	after, err := parseCursor(q.After)
	if err != nil {
		return api.JobPage{}, err
	}
	limit := min(q.Limit, pageMost)
	if limit <= 0 {
		limit = pageDefault
	}
	list := listing{d: d, ch: &ch, limit: limit, after: after, newest: q.Newest}
	list.over = q.Over || ch.named() || slices.ContainsFunc(ch.states, job.State.Terminal)
	if q.Since != nil {
		list.since = *q.Since
	}
	page, err := list.page(ctx)
	if err != nil {
		return api.JobPage{}, err
	}
	return d.showPage(ctx, c, list, page, q.Reasons)
}

func (d *Daemon) showPage(ctx context.Context, c api.Caller, list listing, page []job.Job, reasons bool) (api.JobPage, error) {
	var why map[string]string
	if reasons {
		var queued []string
		for i := range page {
			if page[i].State == job.Queued {
				queued = append(queued, page[i].ID)
			}
		}
		if err := d.do(ctx, func(time.Time) { why = d.engine.Reasons(queued) }); err != nil {
			return api.JobPage{}, err
		}
	}
	reply := api.JobPage{Jobs: make([]job.View, len(page)), Total: list.total, Counts: list.counts}
	for i := range page {
		reply.Jobs[i] = d.view(c, &page[i], why)
	}
	if list.more && len(page) > 0 {
		reply.Next = cursorText(store.CursorOf(&page[len(page)-1]))
	}
	return reply, nil
}

// listing is a page in the making. Live jobs come from the engine, the others
// from the store; a job that ends in between is taken from the store.
type listing struct {
	d      *Daemon
	ch     *choice
	limit  int
	after  store.Cursor
	newest bool
	over   bool
	since  time.Time

	more   bool
	total  int
	counts map[string]int
}

func (l *listing) page(ctx context.Context) ([]job.Job, error) {
	l.counts = map[string]int{}
	var live []job.Job
	var err error
	if l.since.IsZero() && !(l.newest && l.after != store.Cursor{}) {
		// Newest first, what is not over comes before all that is.
		most := l.limit + 1
		if l.newest {
			most = maxResolved // the newest are at the end
		}
		if live, l.total, err = l.d.liveAfter(ctx, l.ch, l.after.Seq, most); err != nil {
			return nil, err
		}
	}
	if err := l.d.do(ctx, func(time.Time) {
		queued, running := l.d.engine.Live()
		l.counts[string(job.Queued)], l.counts[string(job.Running)] = queued, running
	}); err != nil {
		return nil, err
	}
	var over []*job.Job
	if l.over && l.ch.wantsOver() {
		if over, err = l.ended(); err != nil {
			return nil, err
		}
	}
	return l.merge(live, over), nil
}

func (l *listing) ended() ([]*job.Job, error) {
	f := l.ch.filter()
	f.EndedSince = l.since
	counts, err := l.d.store.CountOver(f)
	if err != nil {
		return nil, err
	}
	for state, n := range counts {
		l.counts[string(state)] = n
		l.total += n
	}
	f.Newest, f.After, f.Limit = l.newest, l.after, l.limit+1
	return l.d.store.Find(f)
}

// merge puts the two together in order and cuts them to a page.
func (l *listing) merge(live []job.Job, over []*job.Job) []job.Job {
	ended := make(map[string]bool, len(over))
	page := make([]job.Job, 0, min(len(live)+len(over), l.limit+1))
	for _, j := range over {
		ended[j.ID] = true
	}
	for i := range live {
		if !ended[live[i].ID] && (l.newest || live[i].Seq > l.after.Seq) {
			page = append(page, live[i])
		}
	}
	if l.newest {
		slices.Reverse(page)
	}
	for _, j := range over {
		if l.ch.matches(j) {
			page = append(page, *j)
		}
	}
	if !l.newest {
		slices.SortFunc(page, func(a, b job.Job) int { return int(a.Seq - b.Seq) })
	}
	if len(page) > l.limit {
		page, l.more = page[:l.limit], true
	}
	return page
}

func cursorText(c store.Cursor) string { return fmt.Sprintf("%d.%d", c.Seq, c.Ended) }

func parseCursor(text string) (c store.Cursor, err error) {
	if text == "" {
		return c, nil
	}
	seq, ended, ok := strings.Cut(text, ".")
	if c.Seq, err = strconv.ParseInt(seq, 10, 64); err == nil && ok {
		c.Ended, err = strconv.ParseInt(ended, 10, 64)
	}
	if err != nil || !ok {
		return c, api.Problemf(api.Invalid, "take it from the page before", "%.60q is no cursor", text)
	}
	return c, nil
}

// Job is everything about one job.
func (d *Daemon) Job(ctx context.Context, c api.Caller, id string) (api.Detail, error) {
	j, err := d.find(ctx, c, id)
	if err != nil {
		return api.Detail{}, err
	}
	return d.detail(ctx, c, &j)
}

func (d *Daemon) detail(ctx context.Context, c api.Caller, j *job.Job) (api.Detail, error) {
	var reasons map[string]string
	position := 0
	if j.State == job.Queued {
		err := d.do(ctx, func(time.Time) {
			reasons = d.engine.Reasons([]string{j.ID})
			position = d.engine.Position(j.ID)
		})
		if err != nil {
			return api.Detail{}, err
		}
	}
	detail := api.Detail{
		View: d.view(c, j, reasons), Array: j.Array(), Held: j.Held, Position: position,
		TimeLimitS: j.Spec.TimeLimit.Seconds(), After: j.Spec.After,
		RetriesUsed: j.RetriesUsed, Requeues: j.Requeues, UUIDs: j.Grant.UUIDs, BudgetMiB: j.Grant.BudgetMiB,
		Stopping: string(j.Stop),
	}
	if j.NotBefore.After(time.Now()) {
		detail.NotBefore = &j.NotBefore
	}
	if verdict, _ := job.Judge(j.VRAMMiB, j.PeakMiB, d.config().Tolerance); j.State.Terminal() {
		detail.Verdict = string(verdict)
	}
	if d.maySee(c, j) {
		detail.Dir, detail.Settings = j.Spec.Dir, settings(&j.Spec)
	}
	if mayTouch(c, j) && len(j.Spec.Env) > 0 {
		detail.Env = map[string]string{}
		for _, v := range j.Spec.Env {
			detail.Env[v.Key] = v.Value
		}
	}
	return detail, nil
}

// settings lists what else was asked for, as people write it.
func settings(s *job.Spec) map[string]string {
	set := map[string]string{}
	add := func(key, value string, given bool) {
		if given {
			set[key] = value
		}
	}
	add("type", s.Type, s.Type != "")
	add("vram", "auto", s.VRAMAuto)
	add("ids", job.Grant{GPUs: s.IDs}.List(), len(s.IDs) > 0)
	add("allow", job.Grant{GPUs: s.Allow}.List(), len(s.Allow) > 0)
	add("exclusive", "yes", s.Exclusive)
	add("cpus", strconv.Itoa(s.CPUs), s.CPUs > 0)
	add("mem", fmt.Sprintf("%dM", s.MemMiB), s.MemMiB > 0)
	add("signal", fmt.Sprintf("%s@%d", s.WarnSignal, int(s.WarnBefore.Seconds())), s.WarnSignal != "")
	add("on_timeout", string(s.OnTimeout), s.TimeLimit > 0)
	add("retries", strconv.Itoa(s.Retries), s.Retries > 0)
	add("retry_on", string(s.RetryOn), s.Retries > 0)
	add("grace", s.Grace.String(), true)
	add("requeue", "yes", s.Requeue)
	add("preemptible", s.Preemptible, s.Preemptible != "")
	add("cap", s.Cap, s.Cap != "")
	add("venv", s.Venv, s.Venv != "")
	add("conda", s.Conda, s.Conda != "")
	add("setup", s.Setup, s.Setup != "")
	add("output", s.Output, s.Output != "")
	add("pty", "yes", s.Pty)
	add("export", s.Export, s.Export != "")
	add("array_limit", strconv.Itoa(s.ArrayLimit), s.ArrayLimit > 0)
	return set
}

// Why is what a job waits for.
func (d *Daemon) Why(ctx context.Context, c api.Caller, id string) (api.Why, error) {
	j, err := d.find(ctx, c, id)
	if err != nil {
		return api.Why{}, err
	}
	why := api.Why{ID: j.ID, State: string(j.State)}
	err = d.do(ctx, func(time.Time) {
		why.Queued, _ = d.engine.Live()
		if j.State == job.Queued {
			why.Text, why.Position = d.engine.Why(j.ID), d.engine.Position(j.ID)
		}
		if blocked := d.engine.Blocked(); blocked != "" {
			why.Notes = append(why.Notes, blocked)
		}
	})
	switch {
	case err != nil:
		return api.Why{}, err
	case j.State == job.Running:
		why.Text = fmt.Sprintf("it runs on %s since %s", cardsText(&j), j.StartedAt.Local().Format(time.DateTime))
	case j.State.Terminal():
		why.Text = "it is over: " + string(j.Outcome)
		if v := d.view(c, &j, nil); v.Reason != nil {
			why.Text += ", " + *v.Reason
		}
	case why.Text == "":
		why.Text = "it is about to start"
	}
	return why, nil
}

func cardsText(j *job.Job) string {
	if len(j.Grant.GPUs) == 0 {
		return "no GPU"
	}
	return "GPU " + j.Grant.List()
}

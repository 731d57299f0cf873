package api

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"net"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"berth/internal/job"
	"berth/internal/queue/fair"
	"berth/internal/text/problem"
)

// fake is a daemon in memory: it keeps what it is given and runs nothing.
type fake struct {
	mu       sync.Mutex
	changed  chan struct{} // closed and made anew with every change
	jobs     []Detail
	requests []SubmitRequest
	queries  []Query
	events   []Event
	waited   []WaitRequest
	callers  []Caller
	name     string // of the user at the socket; empty: there is no such user
	tokens   map[string]Token

	sessionKey string // of the one session, whose secret in tokens is its listener and key
	group      Group  // by secret
	notify     Notify
	paused     map[int]bool
	log        []byte
	logGap     LogGap // that part of it is gone
	logOver    bool
	logFails   bool
	logLeft    bool          // the backend stops before its server does
	stuck      chan struct{} // Submit waits for it, where it is set
	entered    chan struct{}
	listing    chan struct{} // likewise Jobs
	attached   net.Conn      // the job's end of a terminal
}

func newFake() *fake {
	f := &fake{changed: make(chan struct{}), name: "ann", group: exampleGroup, notify: exampleNotify, tokens: map[string]Token{}, paused: map[int]bool{}}
	for i := range 18 {
		f.jobs = append(f.jobs, Detail{View: exampleView})
		f.jobs[i].ID = strconv.Itoa(i + 1)
	}
	f.tokens[exampleToken.Secret] = exampleToken
	return f
}

// server answers every endpoint with it.
func (f *fake) server(o ServerOptions) *Server {
	o.Identify, o.Streams = f.Identify, Streams{Log: f.Log, Attach: f.Attach, Events: f.Events, Backup: f.Backup}
	s := NewServer(o)
	Handle(s, GetStatus, Plain(f.Status))
	Handle(s, Submit, f.Submit)
	Handle(s, ListJobs, f.Jobs)
	Handle(s, GetJob, ByID(f.Job))
	Handle(s, GetWhy, ByID(f.Why))
	Handle(s, Act, f.Act)
	Handle(s, EditJob, f.Edit)
	Handle(s, WaitForJobs, f.Wait)
	Handle(s, Adopt, f.Adopt)
	Handle(s, ListStrays, Plain(f.Strays))
	Handle(s, AdoptStrays, f.AdoptStrays)
	Handle(s, PauseGPU, f.pausing(true))
	Handle(s, ResumeGPU, f.pausing(false))
	Handle(s, DrainGPU, f.DrainGPU)
	Handle(s, SetHealth, f.SetHealth)
	Handle(s, ListCardEvents, f.CardHistory)
	Handle(s, GetJobSamples, f.JobSamples)
	Handle(s, GetGPUSamples, f.GPUSamples)
	Handle(s, ReleaseGPUs, f.ReleaseGPUs)
	Handle(s, GetStats, f.Stats)
	Handle(s, GetReplay, f.Replay)
	Handle(s, Reload, f.Reload)
	Handle(s, NewToken, f.NewToken)
	Handle(s, ListTokens, Plain(f.Tokens))
	Handle(s, RevokeToken, f.RevokeToken)
	Handle(s, OpenSession, f.OpenSession)
	Handle(s, EndSession, f.EndSession)
	Handle(s, ListBatches, f.Batches)
	Handle(s, ListGroups, f.Groups)
	Handle(s, SetGroup, f.SetGroup)
	Handle(s, RemoveGroup, f.RemoveGroup)
	Handle(s, GetNotify, f.Notify)
	Handle(s, SetNotify, f.SetNotify)
	Handle(s, SendNotify, f.SendNotify)
	for _, e := range endpoints() { // the others are answered with their examples
		if s.handlers[e.op()] == nil {
			s.handlers[e.op()] = answerWith(e)
		}
	}
	return s
}

// answerWith replies with the example of the description.
func answerWith(e operation) func(*exchange) error {
	q, r := e.types()
	return func(x *exchange) error {
		if err := x.read(reflect.New(q).Interface()); err != nil {
			return err
		}
		reply := reflect.New(r)
		reply.Elem().Set(reflect.ValueOf(examples[e.op().ID].reply))
		return x.reply(reply.Interface())
	}
}

func (f *fake) pausing(pause bool) func(context.Context, Caller, GPUIndex) (GPU, error) {
	return func(_ context.Context, _ Caller, q GPUIndex) (GPU, error) { return f.pause(q.Index, pause) }
}

// change does something under the lock and wakes whoever waits.
func (f *fake) change(do func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	do()
	close(f.changed)
	f.changed = make(chan struct{})
}

// await waits for the next change after looking.
func (f *fake) await(ctx context.Context, look func() bool) error {
	for {
		f.mu.Lock()
		done, changed := look(), f.changed
		f.mu.Unlock()
		if done {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (f *fake) Identify(_ context.Context, p Peer) (Caller, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	c := Caller{UID: p.UID, Name: f.name, Admin: p.UID == 0, PID: p.PID}
	if f.name == "" {
		return Caller{}, problem.Newf(problem.Forbidden, "", "there is no such user")
	}
	if p.Secret != "" || p.Proof.Session != "" {
		secret := p.Secret
		if secret == "" {
			secret = "session " + p.Way.Listener + f.sessionKey
		}
		token, known := f.tokens[secret]
		if !known || p.Proof.Session != "" && (token.ID != p.Proof.Session || !p.Proof.By(f.sessionKey)) {
			return Caller{}, problem.Newf(problem.Forbidden, "", "that token is not valid")
		}
		c = Caller{UID: 1000, Name: token.User, Token: token.ID, Way: p.Way}
	}
	f.callers = append(f.callers, c)
	return c, nil
}

func (f *fake) Status(_ context.Context, c Caller) (Status, error) {
	s := exampleStatus
	s.You = c
	return s, nil
}

func (f *fake) Submit(_ context.Context, _ Caller, r SubmitRequest) (SubmitReply, error) {
	f.mu.Lock()
	stuck, entered := f.stuck, f.entered
	f.mu.Unlock()
	if stuck != nil {
		entered <- struct{}{}
		<-stuck
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.requests = append(f.requests, r)
	var reply SubmitReply
	for i, spec := range r.Jobs {
		switch spec.Name {
		case "panic":
			panic("the backend has a bug")
		case "full":
			return SubmitReply{}, fmt.Errorf("store /root/y: %w", syscall.ENOSPC)
		case "broken":
			return reply, fmt.Errorf("secret path /root/x: %w", io.ErrClosedPipe)
		case "refused":
			return reply, problem.Newf(problem.Refused, "lower gpus", "job asks for 12 GPUs; this machine has 8 \x1b[31m")
		}
		reply.Jobs = append(reply.Jobs, Submitted{ID: strconv.Itoa(100 + i), Name: string(spec.Name)})
	}
	return reply, nil
}

func (f *fake) Jobs(ctx context.Context, _ Caller, q Query) (JobPage, error) {
	if f.listing != nil {
		if err := fair.Spend(ctx, q.Limit); err != nil {
			return JobPage{}, err
		}
		<-f.listing
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.queries = append(f.queries, q)
	limit := q.Limit
	if limit == 0 {
		limit = 1000
	}
	from, _ := strconv.Atoi(q.After)
	page := JobPage{Total: len(f.jobs), Counts: map[string]int{"running": len(f.jobs)}}
	for i := from; i < len(f.jobs) && len(page.Jobs) < limit; i++ {
		page.Jobs = append(page.Jobs, f.jobs[i].View)
	}
	if from+len(page.Jobs) < len(f.jobs) {
		page.Next = strconv.Itoa(from + len(page.Jobs))
	}
	return page, nil
}

func (f *fake) find(id string) (*Detail, error) {
	for i := range f.jobs {
		if f.jobs[i].ID == id {
			return &f.jobs[i], nil
		}
	}
	return nil, problem.Newf(problem.NotFound, "", "there is no job %s", id)
}

func (f *fake) Job(_ context.Context, _ Caller, id string) (Detail, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	d, err := f.find(id)
	if err != nil {
		return Detail{}, err
	}
	return *d, nil
}

func (f *fake) Why(ctx context.Context, c Caller, id string) (Why, error) {
	if _, err := f.Job(ctx, c, id); err != nil {
		return Why{}, err
	}
	w := exampleWhy
	w.ID = id
	return w, nil
}

func (f *fake) Act(_ context.Context, _ Caller, r ActRequest) (ActReply, error) {
	var reply ActReply
	for _, word := range r.Select.Words {
		reply.Jobs = append(reply.Jobs, Acted{ID: word, Done: true, What: r.Action})
	}
	return reply, nil
}

func (f *fake) Edit(_ context.Context, _ Caller, r EditRequest) (Detail, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	d, err := f.find(r.ID)
	if err != nil {
		return Detail{}, err
	}
	d.Settings = map[string]string{}
	for _, pair := range r.Set.Pairs() {
		d.Settings[pair.Key] = pair.Value
	}
	return *d, nil
}

// Wait answers at once, but for jobs named "forever".
func (f *fake) Wait(ctx context.Context, _ Caller, r WaitRequest) (WaitReply, error) {
	f.change(func() { f.waited = append(f.waited, r) })
	if slices.Contains(r.Select.Words, "forever") {
		<-ctx.Done()
		return WaitReply{}, ctx.Err()
	}
	return WaitReply{Done: true, Jobs: []job.View{exampleView}}, nil
}

// Log serves the one log there is. It can be read by several at once.
func (f *fake) Log(ctx context.Context, _ Caller, q LogQuery) (LogStream, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, err := f.find(q.ID); err != nil {
		return LogStream{}, err
	}
	offset := q.Offset
	switch {
	case q.Lines > 0:
		offset = lastLines(f.log, q.Lines)
	case offset < 0:
		offset = max(int64(len(f.log))+offset, 0)
	}
	ctx, cancel := context.WithCancel(ctx)
	attempt := q.Attempt
	if attempt == 0 {
		attempt = 2
	}
	return LogStream{ReadCloser: &fakeLog{f: f, ctx: ctx, cancel: cancel, at: offset, follow: q.Follow}, Attempt: attempt, Offset: offset}, nil
}

func lastLines(log []byte, lines int) int64 {
	at := len(bytes.TrimSuffix(log, []byte("\n")))
	for range lines {
		at = bytes.LastIndexByte(log[:at], '\n')
		if at < 0 {
			return 0
		}
	}
	return int64(at) + 1
}

type fakeLog struct {
	f      *fake
	ctx    context.Context
	cancel context.CancelFunc
	at     int64
	follow bool
}

func (l *fakeLog) Read(p []byte) (n int, err error) {
	waitErr := l.f.await(l.ctx, func() bool {
		gap := &l.f.logGap
		if gap.From <= l.at && l.at < gap.Next {
			err = &LogGap{From: l.at, Next: gap.Next}
			l.at = gap.Next
			return true
		}
		if l.at < int64(len(l.f.log)) {
			there := l.f.log[l.at:]
			if l.at < gap.From {
				there = l.f.log[l.at:gap.From]
			}
			n = copy(p, there)
			l.at += int64(n)
			return true
		}
		if l.f.logFails {
			err = io.ErrNoProgress
		} else if l.f.logLeft {
			err = context.Canceled
		} else if l.f.logOver || !l.follow {
			err = io.EOF
		}
		return err != nil
	})
	if waitErr != nil {
		return 0, waitErr
	}
	return n, err
}

func (l *fakeLog) Close() error { l.cancel(); return nil }

func (f *fake) Attach(_ context.Context, _ Caller, id string) (io.ReadWriteCloser, error) {
	ours, theirs := net.Pipe()
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, err := f.find(id); err != nil {
		return nil, err
	}
	f.attached = ours
	return theirs, nil
}

func (f *fake) Events(ctx context.Context, _ Caller, q EventQuery, send func(Event) error) error {
	if q.User == "nobody" {
		return problem.Newf(problem.NotFound, "", "there is no user nobody")
	}
	next := 0
	for {
		var batch []Event
		if err := f.await(ctx, func() bool {
			batch = slices.Clone(f.events[next:])
			next = len(f.events)
			return len(batch) > 0
		}); err != nil {
			return err
		}
		for _, e := range batch {
			if e.Seq != 0 && e.Seq <= q.Since {
				continue
			}
			if err := send(e); err != nil {
				return err
			}
		}
	}
}

func (f *fake) DrainGPU(_ context.Context, _ Caller, r DrainRequest) (Drained, error) {
	card, err := f.pause(r.Index, true)
	return Drained{GPU: card, Jobs: []Acted{{ID: "1", Done: r.Park}}}, err
}

func (f *fake) pause(index int, paused bool) (GPU, error) {
	if index > 7 {
		return GPU{}, problem.Newf(problem.NotFound, "", "there is no gpu%d", index)
	}
	f.change(func() { f.paused[index] = paused })
	card := exampleGPU
	card.Index, card.Paused = index, paused
	return card, nil
}

func (f *fake) SetHealth(_ context.Context, _ Caller, r HealthRequest) (GPU, error) {
	index := r.Index
	if index > 7 {
		return GPU{}, problem.Newf(problem.NotFound, "", "there is no gpu%d", index)
	}
	card := exampleGPU
	card.Index, card.Health, card.HealthReason = index, r.Health, r.Reason
	return card, nil
}

func (f *fake) CardHistory(_ context.Context, _ Caller, q CardQuery) ([]CardEvent, error) {
	event := exampleCardEvent
	event.GPU, event.Text = q.GPU, strconv.Itoa(q.Limit)
	if q.Since != nil {
		event.At = *q.Since
	}
	return []CardEvent{event}, nil
}

func (f *fake) JobSamples(_ context.Context, _ Caller, q JobSamplesQuery) (Samples, error) {
	return askedSamples(Samples{Job: q.ID, DeclaredMiB: exampleSamples.DeclaredMiB, Tracks: exampleSamples.Tracks}, q.SamplesQuery), nil
}

func (f *fake) GPUSamples(_ context.Context, _ Caller, q GPUSamplesQuery) (Samples, error) {
	return askedSamples(Samples{GPU: &q.Index, Tracks: exampleGPUSamples.Tracks}, q.SamplesQuery), nil
}

// askedSamples shows in a reply what was asked for.
func askedSamples(s Samples, q SamplesQuery) Samples {
	s.From, s.To, s.TotalMiB = exampleTime, exampleTime, int64(q.StepS)
	if q.From != nil {
		s.From = *q.From
	}
	if q.To != nil {
		s.To = *q.To
	}
	return s
}

func (f *fake) ReleaseGPUs(_ context.Context, _ Caller, r ReleaseRequest) (Released, error) {
	if r.End {
		return Released{Note: "taken hold of again"}, nil
	}
	return Released{Until: pointer(exampleTime.Add(time.Duration(r.ForS) * time.Second))}, nil
}

func (f *fake) Stats(_ context.Context, _ Caller, q StatsQuery) (Stats, error) {
	s := exampleStats
	if q.Since != nil {
		s.Since = *q.Since
	}
	return s, nil
}

func (f *fake) Replay(ctx context.Context, _ Caller, q ReplayQuery) (Replay, error) {
	r := exampleReplay
	if q.Since != nil {
		r.Since = *q.Since
	}
	r.Notes = q.Policies
	return r, nil
}

func (f *fake) Reload(_ context.Context, c Caller, r ReloadRequest) (Reloaded, error) {
	reply := exampleReloaded
	if r.DryRun && r.Text != nil {
		reply.Config = *r.Text
	}
	return reply, nil
}

func (f *fake) Backup(_ context.Context, c Caller, to io.Writer) error {
	if c.Token != "" {
		return problem.Newf(problem.Forbidden, "", "a backup is root's")
	}
	f.mu.Lock()
	data, fails := f.log, f.logFails
	f.mu.Unlock()
	if _, err := to.Write(data); err != nil {
		return err
	}
	if fails {
		return io.ErrNoProgress
	}
	return nil
}

func (f *fake) NewToken(_ context.Context, c Caller, r TokenRequest) (Token, error) {
	token := Token{ID: "k8", Name: r.Name, User: c.Name, Expires: exampleTime, Secret: "berth_new"}
	f.change(func() { f.tokens[token.Secret] = token })
	return token, nil
}

func (f *fake) OpenSession(_ context.Context, c Caller, r SessionRequest) (Session, error) {
	w := c.Way
	token := Token{ID: "s1", User: "ann", Expires: time.Now().Add(time.Hour)}
	err := error(problem.Newf(problem.Forbidden, "", "that login is not valid"))
	f.change(func() {
		if r.Secret == exampleLogin.Secret {
			f.sessionKey = r.Key
			f.tokens["session "+w.Listener+r.Key], err = token, nil
		}
	})
	return Session{ID: token.ID, User: token.User, Expires: token.Expires}, err
}

func (f *fake) EndSession(ctx context.Context, c Caller, _ None) (None, error) {
	if c.Token == "" {
		return None{}, nil // as the example of the description is sent
	}
	return f.RevokeToken(ctx, c, TokenID{ID: c.Token})
}

func (f *fake) Tokens(context.Context, Caller) ([]Token, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var all []Token
	for _, token := range f.tokens {
		all = append(all, withoutSecret(token))
	}
	return all, nil
}

func (f *fake) Batches(_ context.Context, c Caller, q BatchQuery) ([]BatchSum, error) {
	if q.File == "" {
		return nil, nil
	}
	return []BatchSum{{File: q.File, User: cmp.Or(q.User, c.Name), Tasks: exampleBatches[0].Tasks}}, nil
}

func (f *fake) Groups(_ context.Context, c Caller, q GroupQuery) ([]Group, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if q.User == "nobody" {
		return nil, nil
	}
	return []Group{f.group}, nil
}

func (f *fake) SetGroup(_ context.Context, c Caller, r GroupRequest) (Group, error) {
	f.change(func() {
		f.group = Group{Name: r.Name, User: cmp.Or(r.User, c.Name), Paused: r.Paused != nil && *r.Paused}
		if n, err := strconv.Atoi(string(r.Limit)); err == nil {
			f.group.Limit = &n
		}
	})
	return f.group, nil
}

func (f *fake) RemoveGroup(_ context.Context, _ Caller, q GroupRemoval) (None, error) {
	if f.group.Name != q.Name || q.User != "" && q.User != f.group.User {
		return None{}, problem.Newf(problem.NotFound, "", "%s has no group %s", q.User, q.Name)
	}
	f.change(func() { f.group = Group{} })
	return None{}, nil
}

func (f *fake) Notify(_ context.Context, _ Caller, q NotifyQuery) (Notify, error) {
	n := f.notify
	if !q.Secrets {
		n.Key = ""
	}
	return n, nil
}

func (f *fake) SetNotify(_ context.Context, _ Caller, r NotifyRequest) (Notify, error) {
	f.change(func() {
		if r.Rules != nil {
			f.notify.Rules = *r.Rules
		}
		if r.NewKey {
			f.notify.Key = "whsec_new"
		}
	})
	return f.notify, nil
}

func (f *fake) SendNotify(_ context.Context, _ Caller, r NotifyTest) ([]NotifyResult, error) {
	return []NotifyResult{{Target: r.Target, Error: strings.Join(r.Jobs, ",")}}, nil
}

func (f *fake) RevokeToken(_ context.Context, _ Caller, q TokenID) (None, error) {
	found := false
	f.change(func() {
		for secret, token := range f.tokens {
			if token.ID == q.ID {
				delete(f.tokens, secret)
				found = true
			}
		}
	})
	if !found {
		return None{}, problem.Newf(problem.NotFound, "", "there is no token %s", q.ID)
	}
	return None{}, nil
}

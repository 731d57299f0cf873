package cli_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"berth/internal/api"
	"berth/internal/cli"
	"berth/internal/job"
	"berth/internal/job/jobfile"
	"berth/internal/job/reason"
	"berth/internal/tests/testkit"
	"berth/internal/text/problem"
)

// fakeDaemon is a daemon in memory that runs nothing: a test ends its jobs.
type fakeDaemon struct {
	older bool // it does not know the parameters of later versions

	mu           sync.Mutex
	changed      chan struct{} // closed and made anew with every change
	jobs         []*api.Detail
	logs         map[string]*fakeLog
	gpus         []api.GPU
	cardEvents   []api.CardEvent
	reloads      []api.ReloadRequest
	reloaded     api.Reloaded
	reloadErr    error
	releases     []api.ReleaseRequest
	holdsNothing bool
	tokens       []api.Token
	groups       []api.Group
	notify       api.Notify
	terminals    map[string]net.Conn // the job's end of a terminal, once someone attached

	submitted []api.SubmitRequest
	queries   []api.Query
	acts      []api.ActRequest
	edits     []api.EditRequest
	stats     []api.StatsQuery
	refusal   *problem.Problem // of the next submission
	attaches  int
	read      int // bytes of logs
	requests  []string
	waits     atomic.Int64
}

type fakeLog struct {
	text []byte
	over bool
}

func newFakeDaemon() *fakeDaemon {
	return &fakeDaemon{changed: make(chan struct{}), logs: map[string]*fakeLog{}, terminals: map[string]net.Conn{}}
}

// add puts a job into the queue. Its id and user may be left out.
func (f *fakeDaemon) add(d api.Detail) *api.Detail {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.addLocked(d)
}

func (f *fakeDaemon) addLocked(d api.Detail) *api.Detail {
	if d.ID == "" {
		d.ID = strconv.Itoa(len(f.jobs) + 1)
	}
	if d.Name == "" {
		d.Name = "job" + d.ID
	}
	if d.User == "" {
		d.User = "ann"
	}
	if d.State == "" {
		d.State = job.Queued
	}
	f.jobs = append(f.jobs, &d)
	f.wake()
	return &d
}

func (f *fakeDaemon) wake() {
	close(f.changed)
	f.changed = make(chan struct{})
}

// change does something to a job.
func (f *fakeDaemon) change(id string, do func(d *api.Detail)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, d := range f.jobs {
		if d.ID == id {
			do(d)
		}
	}
	f.wake()
}

// end lets a job end.
func (f *fakeDaemon) end(id string, outcome job.Outcome) {
	f.change(id, func(d *api.Detail) {
		d.View = over(d.View, outcome)
	})
}

// over is a job as it is when it has ended.
func over(v job.View, outcome job.Outcome) job.View {
	v.Outcome = &outcome
	v.State = outcome.State()
	return v
}

func (f *fakeDaemon) write(id, text string, isOver bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.logs[id] == nil {
		f.logs[id] = &fakeLog{}
	}
	f.logs[id].text = append(f.logs[id].text, text...)
	f.logs[id].over = isOver
	f.wake()
}

// until waits until look is true, which it is asked under the lock.
func (f *fakeDaemon) until(ctx context.Context, look func() bool) error {
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

func (f *fakeDaemon) served(operation string, _ int, _ time.Duration, _ bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.requests = append(f.requests, operation)
}

// server answers what a test asks for.
func (f *fakeDaemon) server(version string) *api.Server {
	s := api.NewServer(api.ServerOptions{Identify: f.Identify, Version: version, Streams: api.Streams{Log: f.Log, Attach: f.Attach, Backup: f.Backup}, Served: f.served})
	api.Handle(s, api.GetStatus, api.Plain(f.Status))
	api.Handle(s, api.Submit, f.Submit)
	api.Handle(s, api.ListJobs, f.Jobs)
	api.Handle(s, api.GetJob, api.ByID(f.Job))
	api.Handle(s, api.GetWhy, api.ByID(f.Why))
	api.Handle(s, api.Act, f.Act)
	api.Handle(s, api.EditJob, f.Edit)
	api.Handle(s, api.WaitForJobs, f.Wait)
	api.Handle(s, api.ListBatches, f.Batches)
	api.Handle(s, api.ListSnapshots, api.Plain(f.Snapshots))
	api.Handle(s, api.ListGPUs, api.Plain(f.GPUs))
	api.Handle(s, api.PauseGPU, func(ctx context.Context, c api.Caller, q api.GPUIndex) (api.GPU, error) {
		return f.PauseGPU(ctx, c, q.Index, true)
	})
	api.Handle(s, api.ResumeGPU, func(ctx context.Context, c api.Caller, q api.GPUIndex) (api.GPU, error) {
		return f.PauseGPU(ctx, c, q.Index, false)
	})
	api.Handle(s, api.SetHealth, f.SetHealth)
	api.Handle(s, api.ListCardEvents, f.CardHistory)
	api.Handle(s, api.ReleaseGPUs, f.ReleaseGPUs)
	api.Handle(s, api.Reload, f.Reload)
	api.Handle(s, api.GetStats, f.Stats)
	api.Handle(s, api.GetSnapshot, api.Plain(f.Snapshot))
	api.Handle(s, api.ListGroups, f.Groups)
	api.Handle(s, api.SetGroup, f.SetGroup)
	api.Handle(s, api.RemoveGroup, f.RemoveGroup)
	api.Handle(s, api.GetNotify, f.Notify)
	api.Handle(s, api.SetNotify, f.SetNotify)
	api.Handle(s, api.SendNotify, f.SendNotify)
	api.Handle(s, api.NewToken, f.NewToken)
	api.Handle(s, api.ListTokens, api.Plain(f.Tokens))
	api.Handle(s, api.RevokeTokens, f.RevokeTokens)
	api.Handle(s, api.RevokeToken, f.RevokeToken)
	return s
}

// serve listens at a socket until the returned function is called.
func (f *fakeDaemon) serve(t *testing.T, socket string) (stop func()) {
	t.Helper()
	return f.serveAs(t, socket, "test")
}

// serveAs is serve by another version of the daemon.
func (f *fakeDaemon) serveAs(t *testing.T, socket, version string) (stop func()) {
	t.Helper()
	listener, err := api.Listen(socket, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	server := f.server(version)
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = server.ServeUnix(listener)
	}()
	var once sync.Once
	stop = func() {
		once.Do(func() {
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
			defer cancel()
			_ = server.Shutdown(ctx)
			<-served
		})
	}
	t.Cleanup(stop)
	return stop
}

// startFake serves a fake daemon that the command line of this test finds.
func startFake(t *testing.T) *fakeDaemon {
	t.Helper()
	f := newFakeDaemon()
	socket := filepath.Join(t.TempDir(), "berth.sock")
	f.serve(t, socket)
	t.Setenv("BERTH_SOCKET", socket)
	t.Setenv("COLUMNS", "")
	return f
}

// said is what a command line printed and returned.
type said struct {
	code     int
	out, err string
}

func berth(args ...string) said {
	var out, complaint bytes.Buffer
	code := cli.Main(args, &out, &complaint)
	return said{code, out.String(), complaint.String()}
}

// berthUntil is berth that goes on once it has complained like this: then it is
// ready for what happens next.
func berthUntil(t *testing.T, complaint string, args ...string) (done <-chan said) {
	t.Helper()
	var out, complaints testkit.Buffer
	ended := make(chan said, 1)
	go func() { ended <- said{cli.Main(args, &out, &complaints), out.String(), complaints.String()} }()
	testkit.Eventually(t, "it says "+complaint, func() bool { return strings.Contains(complaints.String(), complaint) })
	return ended
}

// wants fails unless a command line returned this status and said this much.
func (s said) wants(t *testing.T, code int, out, complaint string) {
	t.Helper()
	if s.code != code || !strings.Contains(s.out, out) || !strings.Contains(s.err, complaint) {
		t.Errorf("exit status %d, want %d\nstdout %q, want %q\nstderr %q, want %q", s.code, code, s.out, out, s.err, complaint)
	}
}

func (f *fakeDaemon) Identify(_ context.Context, p api.Peer) (api.Caller, error) {
	return api.Caller{UID: p.UID, Name: "ann", PID: p.PID}, nil
}

func (f *fakeDaemon) Status(_ context.Context, c api.Caller) (api.Status, error) {
	return api.Status{Version: "test", PID: 4242, StateDir: "/nonexistent", Since: time.Now(), Counts: map[string]int{"queued": 2}, You: c}, nil
}

func (f *fakeDaemon) Submit(_ context.Context, _ api.Caller, r api.SubmitRequest) (api.SubmitReply, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.submitted = append(f.submitted, r)
	if f.refusal != nil {
		return api.SubmitReply{}, f.refusal
	}
	var reply api.SubmitReply
	for _, spec := range r.Jobs {
		if r.DryRun {
			reply.Jobs = append(reply.Jobs, api.Submitted{Name: string(spec.Name), State: string(spec.Type), Reason: string(spec.Setup), GPUIDs: []int{0}})
			continue
		}
		one := api.Submitted{Name: string(spec.Name)}
		if array, err := jobfile.ParseArray(string(spec.Array), 1000); spec.Array != "" && err == nil {
			one.ID, one.Tasks = strconv.Itoa(len(f.jobs)+1), len(array.Indices)
			for _, index := range array.Indices {
				f.addLocked(api.Detail{View: job.View{ID: one.ID + "_" + strconv.Itoa(index), Name: string(spec.Name), GPUs: 1}})
			}
		} else {
			one.ID = f.addLocked(api.Detail{View: job.View{Name: string(spec.Name), GPUs: 1}}).ID
		}
		if spec.Dedup != "" {
			one.Notes = []string{"no such job was there"}
		}
		reply.Jobs = append(reply.Jobs, one)
	}
	return reply, nil
}

// find is the jobs that a selection means.
func (f *fakeDaemon) find(s api.Select) ([]*api.Detail, error) {
	sel, err := jobfile.ParseSelection(s.Words)
	if err != nil {
		return nil, problem.Newf(problem.Invalid, "", "%v", err)
	}
	for _, back := range sel.Last {
		if back >= len(f.jobs) {
			return nil, problem.Newf(problem.NotFound, "", "you have no job so far back")
		}
		sel.IDs = append(sel.IDs, f.jobs[len(f.jobs)-1-back].ID)
	}
	var found []*api.Detail
	for _, d := range f.jobs {
		base, _, _ := strings.Cut(d.ID, "_")
		number, _ := strconv.ParseInt(base, 10, 64)
		named := len(s.Words) == 0 || sel.All || slices.Contains(sel.IDs, d.ID) || slices.Contains(sel.IDs, base)
		for _, r := range sel.Ranges {
			named = named || r.Array == "" && r.From <= number && number <= r.To || r.Array == base
		}
		if named && (s.Name == "" || s.Name == d.Name) && (s.User == "" || s.User == d.User || s.User == "*") &&
			(len(s.States) == 0 || slices.Contains(s.States, string(d.State))) {
			found = append(found, d)
		}
	}
	if len(found) == 0 && len(sel.IDs) > 0 {
		return nil, problem.Newf(problem.NotFound, "berth list shows the jobs", "no job %s", sel.IDs[0])
	}
	return found, nil
}

func (f *fakeDaemon) Jobs(_ context.Context, _ api.Caller, q api.Query) (api.JobPage, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.queries = append(f.queries, q)
	if f.older && (q.Queue || q.Order || q.Arrays) {
		return api.JobPage{}, problem.Newf(problem.Invalid, "", `there is no parameter "arrays"`)
	}
	found, err := f.find(q.Select)
	if err != nil {
		return api.JobPage{}, err
	}
	page := api.JobPage{Counts: map[string]int{}, Jobs: []job.View{}}
	after, _ := strconv.Atoi(q.After)
	for i, d := range found {
		if d.State.Terminal() && !q.Over && len(q.Words) == 0 {
			continue
		}
		page.Counts[string(d.State)]++
		page.Total++
		switch {
		case i < after:
		case len(page.Jobs) == q.Limit:
			if page.Next == "" {
				page.Next = strconv.Itoa(i)
			}
		default:
			page.Jobs = append(page.Jobs, d.View)
		}
	}
	if q.Queue {
		page.Next, page.Matching = "", page.Counts
	}
	return page, nil
}

func (f *fakeDaemon) one(word string) (*api.Detail, error) {
	found, err := f.find(api.Select{Words: []string{word}})
	if err == nil && len(found) != 1 {
		err = problem.Newf(problem.Invalid, "name one", "%s is %d jobs", word, len(found))
	}
	if err != nil {
		return nil, err
	}
	return found[0], nil
}

func (f *fakeDaemon) Job(_ context.Context, _ api.Caller, id string) (api.Detail, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	d, err := f.one(id)
	if err != nil {
		return api.Detail{}, err
	}
	return *d, nil
}

func (f *fakeDaemon) Why(_ context.Context, _ api.Caller, id string) (api.Why, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	d, err := f.one(id)
	if err != nil {
		return api.Why{}, err
	}
	return api.Why{Story: reason.Story{ID: d.ID, Text: "needs 2 GPUs; \x1b[31mnone", Position: 3, Queued: 1200}, State: string(d.State), Notes: []string{"gpu0 is paused"}}, nil
}

func (f *fakeDaemon) Act(_ context.Context, _ api.Caller, r api.ActRequest) (api.ActReply, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.acts = append(f.acts, r)
	found, err := f.find(r.Select)
	var reply api.ActReply
	for _, d := range found {
		one := api.Acted{ID: d.ID, Done: d.User == "ann", State: string(d.State), What: r.Action + " done"}
		if !one.Done {
			one.What = "it belongs to " + d.User
		}
		reply.Jobs = append(reply.Jobs, one)
	}
	return reply, err
}

func (f *fakeDaemon) Edit(_ context.Context, _ api.Caller, r api.EditRequest) (api.Detail, error) {
	id := r.ID
	f.mu.Lock()
	defer f.mu.Unlock()
	f.edits = append(f.edits, r)
	d, err := f.one(id)
	if err != nil {
		return api.Detail{}, err
	}
	if d.State != job.Queued {
		return api.Detail{}, problem.Newf(problem.Refused, "", "job %s is %s", d.ID, d.State)
	}
	return *d, nil
}

func (f *fakeDaemon) Wait(ctx context.Context, _ api.Caller, r api.WaitRequest) (api.WaitReply, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Duration(r.TimeoutS*float64(time.Second)))
	defer cancel()
	f.waits.Add(1)
	f.change("", nil)
	var reply api.WaitReply
	var err error
	_ = f.until(ctx, func() bool {
		reply = api.WaitReply{}
		var found []*api.Detail
		if found, err = f.find(r.Select); err != nil {
			return true
		}
		open := 0
		for _, d := range found {
			reply.Jobs = append(reply.Jobs, d.View)
			if !d.State.Terminal() {
				open++
			}
		}
		reply.Done = open == 0 || r.Any && open < len(found)
		return reply.Done
	})
	return reply, err
}

// fakeLogReader reads a log as it grows.
type fakeLogReader struct {
	f      *fakeDaemon
	ctx    context.Context
	id     string
	at     int64
	follow bool
}

func (r *fakeLogReader) Read(p []byte) (n int, err error) {
	wait := r.f.until(r.ctx, func() bool {
		log := r.f.logs[r.id]
		if log == nil {
			return !r.follow
		}
		n = copy(p, log.text[min(r.at, int64(len(log.text))):])
		return n > 0 || log.over || !r.follow
	})
	r.at += int64(n)
	r.f.mu.Lock()
	r.f.read += n
	r.f.wake()
	r.f.mu.Unlock()
	if n == 0 && wait == nil {
		wait = io.EOF
	}
	return n, wait
}

func (r *fakeLogReader) Close() error { return nil }

func (f *fakeDaemon) Log(ctx context.Context, _ api.Caller, q api.LogQuery) (api.LogStream, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	d, err := f.one(q.ID)
	if err != nil {
		return api.LogStream{}, err
	}
	attempt := max(q.Attempt, d.Attempt)
	key := q.ID
	if attempt > 1 {
		key = fmt.Sprintf("%s/%d", q.ID, attempt)
	}
	offset := q.Offset
	if log := f.logs[key]; log != nil && q.Lines > 0 {
		lines := bytes.SplitAfter(log.text, []byte("\n"))
		for _, line := range lines[:max(0, len(lines)-1-q.Lines)] {
			offset += int64(len(line))
		}
	}
	return api.LogStream{ReadCloser: &fakeLogReader{f, ctx, key, offset, q.Follow}, Attempt: max(attempt, 1), Offset: offset}, nil
}

func (f *fakeDaemon) Attach(_ context.Context, _ api.Caller, id string) (io.ReadWriteCloser, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if d, err := f.one(id); err != nil || d.State != job.Running {
		return nil, problem.Newf(problem.Refused, "", "job %s does not run", id)
	}
	theirs, ours := net.Pipe()
	f.terminals[id] = ours
	f.attaches++
	f.wake()
	return theirs, nil
}

func (f *fakeDaemon) GPUs(context.Context, api.Caller) ([]api.GPU, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.gpus), nil
}

func (f *fakeDaemon) PauseGPU(_ context.Context, _ api.Caller, index int, paused bool) (api.GPU, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := range f.gpus {
		if f.gpus[i].Index == index {
			f.gpus[i].Paused = paused
			return f.gpus[i], nil
		}
	}
	return api.GPU{}, problem.Newf(problem.NotFound, "berth gpus shows the cards", "there is no gpu%d", index)
}

func (f *fakeDaemon) SetHealth(_ context.Context, c api.Caller, r api.HealthRequest) (api.GPU, error) {
	index := r.Index
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := range f.gpus {
		if f.gpus[i].Index == index {
			f.gpus[i].Health, f.gpus[i].HealthReason, f.gpus[i].HealthBy = r.Health, r.Reason, c.Name
			f.cardEvents = append(f.cardEvents, api.CardEvent{At: time.Now(), GPU: &f.gpus[i].Index, Text: fmt.Sprintf("gpu%d %s by %s: %s", index, r.Health, c.Name, r.Reason)})
			return f.gpus[i], nil
		}
	}
	return api.GPU{}, problem.Newf(problem.NotFound, "berth gpus shows the cards", "there is no gpu%d", index)
}

func (f *fakeDaemon) CardHistory(_ context.Context, _ api.Caller, q api.CardQuery) ([]api.CardEvent, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var events []api.CardEvent
	for _, ev := range slices.Backward(f.cardEvents) {
		if len(events) < q.Limit && (q.GPU == nil || ev.GPU == nil || *ev.GPU == *q.GPU) && (q.Since == nil || ev.At.After(*q.Since)) {
			events = append(events, ev)
		}
	}
	return events, nil
}

func (f *fakeDaemon) Reload(_ context.Context, _ api.Caller, r api.ReloadRequest) (api.Reloaded, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.reloads = append(f.reloads, r)
	return f.reloaded, f.reloadErr
}

func (f *fakeDaemon) ReleaseGPUs(_ context.Context, _ api.Caller, r api.ReleaseRequest) (api.Released, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.releases = append(f.releases, r)
	if f.holdsNothing {
		return api.Released{Note: "there is nothing to let go of"}, nil
	}
	if r.End {
		return api.Released{}, nil
	}
	until := time.Now().Add(time.Duration(r.ForS) * time.Second)
	return api.Released{Until: &until}, nil
}

func (f *fakeDaemon) Stats(_ context.Context, _ api.Caller, q api.StatsQuery) (api.Stats, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.stats = append(f.stats, q)
	return api.Stats{Since: time.Now(), Until: time.Now(), GPUs: 2, GPUHours: 12.5, Users: []api.StatsLine{{Key: "ann", Jobs: 3}}}, nil
}

func (f *fakeDaemon) Snapshots(context.Context, api.Caller) (api.SnapshotIDs, error) {
	return api.SnapshotIDs{}, nil
}

func (f *fakeDaemon) Snapshot(context.Context, api.Caller) (json.RawMessage, error) {
	return json.RawMessage(`{"format":"berth-snapshot","version":1,"now":"2026-03-01T14:02:10Z","queue":[]}`), nil
}

func (f *fakeDaemon) Backup(_ context.Context, _ api.Caller, to io.Writer) error {
	_, err := io.WriteString(to, "every job there is")
	return err
}

func (f *fakeDaemon) NewToken(_ context.Context, c api.Caller, r api.TokenRequest) (api.Token, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	token := api.Token{ID: strconv.Itoa(len(f.tokens) + 1), Name: r.Name, User: c.Name, Expires: time.Now().Add(time.Duration(r.TTLS) * time.Second), Secret: "s3cret"}
	f.tokens = append(f.tokens, token)
	return token, nil
}

func (f *fakeDaemon) Tokens(context.Context, api.Caller) ([]api.Token, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	tokens := slices.Clone(f.tokens)
	for i := range tokens {
		tokens[i].Secret = ""
	}
	return tokens, nil
}

func (f *fakeDaemon) Batches(context.Context, api.Caller, api.BatchQuery) ([]api.BatchSum, error) {
	return nil, nil
}

func (f *fakeDaemon) Groups(context.Context, api.Caller, api.GroupQuery) ([]api.Group, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.groups), nil
}

func (f *fakeDaemon) SetGroup(_ context.Context, c api.Caller, r api.GroupRequest) (api.Group, error) {
	name := r.Name
	f.mu.Lock()
	defer f.mu.Unlock()
	g := api.Group{Name: name, User: cmp.Or(r.User, c.Name), Paused: r.Paused != nil && *r.Paused}
	f.groups = append(f.groups, g)
	return g, nil
}

func (f *fakeDaemon) RemoveGroup(_ context.Context, _ api.Caller, q api.GroupRemoval) (api.None, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.groups = slices.DeleteFunc(f.groups, func(g api.Group) bool { return g.Name == q.Name })
	return api.None{}, nil
}

func (f *fakeDaemon) Notify(_ context.Context, _ api.Caller, q api.NotifyQuery) (api.Notify, error) {
	secrets := q.Secrets
	f.mu.Lock()
	defer f.mu.Unlock()
	n := f.notify
	if !secrets {
		n.Key = ""
	}
	return n, nil
}

func (f *fakeDaemon) SetNotify(_ context.Context, _ api.Caller, r api.NotifyRequest) (api.Notify, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if r.Rules != nil {
		f.notify.Rules = *r.Rules
	}
	if r.NewKey {
		f.notify.Key, f.notify.Signed = "whsec_bmV3", true
	}
	return f.notify, nil
}

func (f *fakeDaemon) SendNotify(_ context.Context, _ api.Caller, r api.NotifyTest) ([]api.NotifyResult, error) {
	return []api.NotifyResult{{Target: r.Target}}, nil
}

func (f *fakeDaemon) RevokeTokens(_ context.Context, c api.Caller, q api.RevokeQuery) (r api.Revoked, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.tokens = slices.DeleteFunc(f.tokens, func(t api.Token) bool {
		ends := t.User == cmp.Or(q.User, c.Name)
		if ends {
			r.IDs = append(r.IDs, t.ID)
		}
		return ends
	})
	return r, nil
}

func (f *fakeDaemon) RevokeToken(_ context.Context, _ api.Caller, q api.TokenID) (api.None, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	before := len(f.tokens)
	f.tokens = slices.DeleteFunc(f.tokens, func(t api.Token) bool { return t.ID == q.ID })
	if len(f.tokens) == before {
		return api.None{}, problem.Newf(problem.NotFound, "", "there is no token %s", q.ID)
	}
	return api.None{}, nil
}

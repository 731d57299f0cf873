package batch

import (
	"bytes"
	"context"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"berth/internal/api"
	"berth/internal/job"
	"berth/internal/job/jobfile"
	"berth/internal/tests/testkit"
)

// fakeQueue is a queue in memory that starts nothing.
type fakeQueue struct {
	jobs []*job.Job
	ends atomic.Int32 // how many streams of events end at once
}

func (q *fakeQueue) Identify(context.Context, api.Peer) (api.Caller, error) {
	return api.Caller{Name: "ann"}, nil
}

func (q *fakeQueue) Status(context.Context, api.Caller) (api.Status, error) {
	return api.Status{}, nil
}

func (q *fakeQueue) GPUs(context.Context, api.Caller) ([]api.GPU, error) {
	return []api.GPU{{TotalMiB: 1000}}, nil
}

func (q *fakeQueue) Jobs(context.Context, api.Caller, api.Query) (page api.JobPage, err error) {
	for _, j := range q.jobs {
		page.Jobs = append(page.Jobs, j.View())
	}
	return page, nil
}

func (q *fakeQueue) Events(ctx context.Context, _ api.Caller, _ api.EventQuery, _ func(api.Event) error) error {
	if q.ends.Add(-1) < 0 {
		<-ctx.Done()
	}
	return nil
}

// send answers as a queue does that is made to match a file.
func (q *fakeQueue) send(lines []*jobfile.Line, retry string) (reply api.SubmitReply) {
	for _, line := range lines {
		i := slices.IndexFunc(q.jobs, func(j *job.Job) bool { return j.Key == line.Key })
		if i < 0 {
			reply.Jobs = append(reply.Jobs, api.Submitted{ID: strconv.Itoa(100 + line.Number)})
			continue
		}
		j := q.jobs[i]
		again := j.State.Terminal() && !line.Spec.CancelMarked && (retry == api.RetryAll || retry == api.RetryFailed && j.Outcome != job.OK)
		reply.Jobs = append(reply.Jobs, api.Submitted{ID: j.ID, State: string(j.State), Again: again})
	}
	return reply
}

// link is a connection to it, as an own queue.
func (q *fakeQueue) link(t *testing.T, o *Options) *Link {
	client := api.DialQueue(filepath.Join(t.TempDir(), "none"), func() (*api.Server, func(), error) {
		s := api.NewServer(api.ServerOptions{Identify: q.Identify, Streams: api.Streams{Events: q.Events}})
		api.Handle(s, api.GetStatus, api.Plain(q.Status))
		api.Handle(s, api.ListGPUs, api.Plain(q.GPUs))
		api.Handle(s, api.ListJobs, q.Jobs)
		return s, func() {}, nil
	})
	t.Cleanup(client.Close)
	return &Link{Client: client, Own: &OwnQueue{}, Send: func(_ context.Context, lines []*jobfile.Line, _, _ bool) (api.SubmitReply, error) {
		return q.send(lines, o.Retry), nil
	}}
}

// following is a berth run whose words go to a buffer. Its queue has jobs of an
// earlier run, one for each of the first lines; no outcome: queued.
func following(t *testing.T, text string, had ...job.Outcome) (*follower, *bytes.Buffer) {
	t.Helper()
	out := &bytes.Buffer{}
	f := newFollower(Options{File: "jobs.txt", HostOptions: HostOptions{LogDir: t.TempDir(), Tolerance: 0.1}, Out: out})
	t.Cleanup(func() { f.voice.screen.finish() })
	f.source.file = parsed(t, text)
	q := &fakeQueue{}
	for i, outcome := range had {
		line := f.source.file.Lines[i]
		j := &job.Job{ID: strconv.Itoa(i + 1), Key: line.Key, Spec: line.Spec, State: job.Queued, Attempt: job.Attempt{Number: 1}}
		if outcome != "" {
			j.State, j.Outcome = outcome.State(), outcome
		}
		q.jobs = append(q.jobs, j)
	}
	f.link = q.link(t, &f.opt)
	return f, out
}

func parsed(t *testing.T, text string) jobfile.File {
	t.Helper()
	file, err := jobfile.Parse("jobs.txt", []byte(text), job.Defaults())
	testkit.Must(t, err)
	return file
}

// said is what was printed, line by line.
func said(f *follower, out *bytes.Buffer) []string {
	f.voice.screen.flush()
	return strings.Split(strings.TrimSpace(out.String()), "\n")
}

// event is one as the queue sends it.
func event(kind job.EventKind, j *job.Job) api.Event {
	v := j.View()
	return api.Event{Time: at0, Kind: kind, Job: &v}
}

func TestWhatIsHeardIsToldAndCounted(t *testing.T) {
	t.Parallel()
	f, out := following(t, "a\n")
	testkit.Must(t, f.enter(t.Context()))
	said(f, out)
	out.Reset()
	f.hear(event(job.EventStarted, started("101", "a", 0)))
	if got := said(f, out); len(got) != 1 || got[0] != "[15:09:26] job 101 started on gpu [0] (1/1 dispatched, no vram declared: alone on its GPU) — a" {
		t.Errorf("it says %q", got)
	}
	if f.jobs.counts.running != 1 || f.view.jobs["101"] == nil || f.over() {
		t.Errorf("counted %+v", f.jobs.counts)
	}
	out.Reset()
	f.voice.json = true
	f.hear(event(job.EventEnded, ended(started("101", "a", 0), job.OK, time.Second)))
	f.voice.warn("something")
	if got := said(f, out); len(got) != 2 || !strings.HasPrefix(got[0], `{"time":"2026-03-14T15:09:26Z","event":"ended","job":{"id":"101",`) || !strings.Contains(got[1], `"event":"warning","text":"something"`) {
		t.Errorf("as JSON it says %q", got)
	}
	if len(f.view.jobs) != 0 || !f.over() {
		t.Errorf("it goes on with %+v", f.jobs.counts)
	}
}

// TestWhoseJobsAreFollowed: all of the queue that the run has started, and in another
// only those of the file, one of an older berth's that names no file included.
func TestWhoseJobsAreFollowed(t *testing.T) {
	t.Parallel()
	for batch, mine := range map[string]bool{"": false, "/w/other.txt": false, "/w/jobs.txt": true} {
		for own, all := range map[*OwnQueue]bool{nil: false, {Joined: true}: false, {}: true} {
			f, _ := following(t, "a\n")
			testkit.Must(t, f.enter(t.Context()))
			f.batch, f.link.Own = "/w/jobs.txt", own
			j := started("900", "a", 0)
			j.Spec.Batch = batch
			if f.hear(event(job.EventStarted, j)); f.jobs.counts.running == 1 != (all || mine) {
				t.Errorf("of %q in %+v: %+v", batch, own, f.jobs.counts)
			}
			if f.hear(event(job.EventStarted, started("101", "a", 0))); f.jobs.counts.queued != 0 {
				t.Errorf("the job of a line, in %+v: %+v", own, f.jobs.counts)
			}
		}
	}
}

func TestATerminalGetsTheSameLinesAsAPipe(t *testing.T) {
	t.Parallel()
	var heard [2]string
	for i, live := range []bool{false, true} {
		f, out := following(t, "a\n")
		f.voice.screen.live = live
		f.voice.screen.width, f.voice.screen.height = func() int { return 80 }, func() int { return 24 }
		f.jobs.take([]string{"1"})
		f.account = newAccount(at0, 1)
		f.hear(event(job.EventStarted, started("1", "a", 0)))
		f.hear(event(job.EventEnded, ended(started("1", "a", 0), job.OK, time.Second)))
		f.voice.screen.finish()
		heard[i] = out.String()
	}
	if heard[0] != heard[1] || !strings.Contains(heard[1], "job 1 started on gpu [0]") {
		t.Errorf("a pipe gets:\n%sa terminal:\n%s", heard[0], heard[1])
	}
}

// TestWhenARunIsOver: with its jobs, or when it was left. With --watch it waits for
// new lines, and once it was told to stop, for the end of its own queue.
func TestWhenARunIsOver(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		running, watch bool
		stop           stop
		daemon, lost   bool
		want           bool
	}{
		"a job runs":                            {running: true},
		"all have ended":                        {want: true},
		"new lines may come":                    {watch: true},
		"it was left":                           {running: true, stop: stop{left: true}, want: true},
		"it was told to stop":                   {watch: true, stop: stop{asked: 1}},
		"it was, and the queue has ended":       {running: true, stop: stop{asked: 1}, lost: true, want: true},
		"all of a daemon's have ended":          {daemon: true, want: true},
		"a daemon's run, and were to be halted": {daemon: true, running: true, stop: stop{asked: 1}},
	} {
		f, _ := following(t, "a\n")
		f.opt.Watch, f.stop, f.lost = test.watch, test.stop, test.lost
		if test.daemon {
			f.link.Own = nil
		}
		if test.running {
			f.jobs.follow(job.Event{Kind: job.EventStarted, Job: started("1", "a")})
		}
		if got := f.over(); got != test.want {
			t.Errorf("%s: over is %v", name, got)
		}
	}
}

// TestANoteOnALineIsSaidOnce: again only if the line is changed.
func TestANoteOnALineIsSaidOnce(t *testing.T) {
	t.Parallel()
	f, _ := following(t, "")
	for _, step := range []struct {
		file string
		note string // of the queue, on the first line
		want string
	}{
		{"[gpus=1.5] a\nb\n", "", "line 1: gpus: 1.5 means 2 whole GPUs; a fraction below 1 shares one"},
		{"[gpus=1.5] a\nb\n", "", ""},
		{"[gpus=1.5] a\nb\n", "it is late", "line 1: it is late"},
		{"[gpus=1.5] a\nb\n", "it is late", ""},
		{"c\n[gpus=1.5] a\n[gpus=2] b\n", "", ""},
		{"c\n[gpus=1.5] a\n[gpus=2.5] b\n", "", "line 3: gpus: 2.5 means 3 whole GPUs; a fraction below 1 shares one"},
		{"[gpus=1.5 gpus=0.5] c\n[gpus=3.0] a\n", "", ""},
	} {
		file := parsed(t, step.file)
		reply := api.SubmitReply{Jobs: make([]api.Submitted, len(file.Lines))}
		if step.note != "" {
			reply.Jobs[0].Notes = []string{step.note}
		}
		if got := strings.Join(f.voice.remarks(file, reply), "\n"); got != step.want {
			t.Errorf("%q: %q, want %q", step.file, got, step.want)
		}
	}
}

// TestWhatNoEventToldIsFoundOut: a run that was stopped or connects late misses
// events. What two polls find is told once, whatever events come late. A job that is
// gone was lost, unless its line is gone too.
func TestWhatNoEventToldIsFoundOut(t *testing.T) {
	t.Parallel()
	f, out := following(t, "a\nb\nc\nd\n", "", "", "", "")
	q := &fakeQueue{}
	f.link = q.link(t, &f.opt)
	f.account = newAccount(at0, 1)
	f.jobs.take([]string{"5"}) // its line was deleted, and so was it
	f.jobs.take([]string{"1", "2", "3", "4"})
	f.hear(event(job.EventStarted, started("1", "a", 0)))
	q.jobs = []*job.Job{ended(started("1", "a", 0), job.OK, time.Second), started("2", "b", 0), ended(started("3", "c"), "exit:3", time.Second)}
	late := event(job.EventEnded, ended(started("1", "a", 0), job.OK, time.Second))
	late.Time = time.Now()
	said(f, out)
	out.Reset()
	f.missed.maybe.Store(true)
	f.missed.look(t.Context(), f)
	if f.jobs.counts != (tally{running: 1, queued: 4}) || !f.missed.maybe.Load() {
		t.Errorf("after one poll: %+v, asks again: %v", f.jobs.counts, f.missed.maybe.Load())
	}
	for range 2 {
		f.missed.look(t.Context(), f)
		f.hear(late)
	}
	if want := (tally{ok: 1, failed: 2, running: 1}); f.jobs.counts != want || f.missed.maybe.Load() || f.account.ended != 3 || f.jobs.begun != 3 {
		t.Errorf("%+v, want %+v; %d ended, %d begun, asks again: %v", f.jobs.counts, want, f.account.ended, f.jobs.begun, f.missed.maybe.Load())
	}
	if got := strings.Join(said(f, out), "\n"); strings.Count(got, "job 1 finished [OK]") != 1 || strings.Count(got, "job 2 started") != 1 || strings.Count(got, "job 3 failed [exit:3]") != 1 ||
		strings.Count(got, "job 4 failed [LOST]") != 1 || strings.Contains(got, "job 5") {
		t.Errorf("it says %s", got)
	}
	f.hear(event(job.EventEnded, started("2", "b", 0))) // from before: it runs
	after := event(job.EventEnded, ended(started("2", "b", 0), job.OK, time.Second))
	after.Time = time.Now()
	if f.hear(after); f.jobs.counts != (tally{ok: 2, failed: 2}) || !f.over() {
		t.Errorf("at the end: %+v", f.jobs.counts)
	}
}

// TestAStreamThatBeginsAgainMayHaveMissedSomething, and so may one that begins now.
func TestAStreamThatBeginsAgainMayHaveMissedSomething(t *testing.T) {
	t.Parallel()
	for since, atOnce := range map[int64]bool{7: false, -1: true} {
		f, _ := following(t, "a\n")
		q := &fakeQueue{}
		if !atOnce {
			q.ends.Store(1)
		}
		link := q.link(t, &f.opt)
		link.Own, link.Since = nil, since
		go f.listen(t.Context(), link, f.events, f.streamed)
		testkit.Eventually(t, "something may be missed", f.missed.maybe.Load)
		if q.ends.Load() >= 0 {
			t.Errorf("since %d: the first stream was taken for another", since)
		}
	}
}

// TestAQueueThatEndedWithItsJobsIsNoProblem: a run that was suspended may come back
// after it. One that ended before its jobs is.
func TestAQueueThatEndedWithItsJobsIsNoProblem(t *testing.T) {
	t.Parallel()
	for outcome, well := range map[job.Outcome]bool{job.OK: true, "": false} {
		f, _ := following(t, "a\n", "")
		testkit.Must(t, f.enter(t.Context()))
		left := &fakeQueue{jobs: []*job.Job{started("1", "a", 0)}}
		if outcome != "" {
			ended(left.jobs[0], outcome, time.Second)
		}
		f.link.Own.Read = func() *api.Client { return left.link(t, &f.opt).Client }
		err := f.cutOff(t.Context(), context.Canceled)
		if (err == nil) != well || well && f.jobs.counts != (tally{ok: 1}) || !f.over() {
			t.Errorf("%q: %v, %+v", outcome, err, f.jobs.counts)
		}
	}
}

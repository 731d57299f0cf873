package batch

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"berth/internal/job"
	"berth/internal/jobfile"
)

// clerk replaces the engine: it does what it is asked, as the engine would,
// and tells of it when the test lets it.
type clerk struct {
	next    int64
	jobs    map[string]*job.Job
	news    []job.Event // what happened and was not told yet
	stopped map[string]bool
}

func newClerk() *clerk { return &clerk{jobs: map[string]*job.Job{}, stopped: map[string]bool{}} }

func (c *clerk) Number(jobs []*job.Job) {
	for _, j := range jobs {
		c.next++
		j.Seq, j.ID = c.next, strconv.FormatInt(c.next, 10)
	}
}

func (c *clerk) Submit(jobs []*job.Job) {
	for _, j := range jobs {
		j.Submitted(at0)
		c.jobs[j.ID] = j
	}
}

func (c *clerk) Edit(id string, spec job.Spec, rank int64) {
	if j := c.jobs[id]; j != nil && j.State == job.Queued {
		j.Spec, j.Rank = spec, rank
	}
}

func (c *clerk) Withdraw(id string) bool {
	j := c.jobs[id]
	if j == nil || j.State != job.Queued {
		return false
	}
	delete(c.jobs, id)
	c.tell(job.EventDequeued, j)
	return true
}

func (c *clerk) Cancel(id, _ string) bool {
	j := c.jobs[id]
	if j == nil || j.State.Terminal() {
		return false
	}
	if j.State == job.Running {
		c.stopped[id] = true
		return true
	}
	c.end(j, job.WasCancelled)
	return true
}

func (c *clerk) tell(kind job.EventKind, j *job.Job) {
	c.news = append(c.news, job.Event{At: at0, Kind: kind, Job: j.Clone()})
}

func (c *clerk) start(j *job.Job) {
	j.MustTo(job.Running)
	j.Attempt.Number++
	c.tell(job.EventStarted, j)
}

func (c *clerk) end(j *job.Job, outcome job.Outcome) {
	j.MustTo(outcome.State())
	j.Outcome = outcome
	c.tell(job.EventEnded, j)
}

// in lists the jobs in a state, by rank.
func (c *clerk) in(state job.State) []*job.Job {
	var list []*job.Job
	for _, j := range c.jobs {
		if j.State == state {
			list = append(list, j)
		}
	}
	slices.SortFunc(list, func(a, b *job.Job) int {
		if a.Rank != b.Rank {
			return int(a.Rank - b.Rank)
		}
		return int(a.Seq - b.Seq)
	})
	return list
}

// row is a line of the file that is being edited.
type row struct {
	command  string
	vram     int
	priority int
	cancel   bool
}

func (r row) String() string {
	text := fmt.Sprintf("[vram=%d priority=%d", r.vram, r.priority)
	if r.cancel {
		text += " cancel"
	}
	return text + "] " + r.command
}

// editor changes a file while jobs start and end, and knows what should come of
// it: a line is pending if it is in the file, was never cancelled, does not
// run and is not over. It knows nothing of how the queue does that.
type editor struct {
	t      *rapid.T
	rows   []row
	queue  *queue
	clerk  *clerk
	before map[string]bool // ids that were over before this run
}

func (u *editor) parse() jobfile.File {
	var text strings.Builder
	for _, r := range u.rows {
		fmt.Fprintln(&text, r)
	}
	file, err := jobfile.Parse("jobs", []byte(text.String()), job.Defaults())
	if err != nil {
		u.t.Fatalf("the test writes malformed files: %v", err)
	}
	return file
}

// hear lets the queue know what happened.
func (u *editor) hear() {
	for _, ev := range u.clerk.news {
		u.queue.follow(ev)
	}
	u.clerk.news = nil
}

// save applies the file and holds the outcome against what should be.
func (u *editor) save() {
	running := map[string]bool{}
	for _, j := range u.clerk.in(job.Running) {
		running[j.Key] = true
	}
	isOver := map[string]bool{}
	for _, j := range u.clerk.jobs {
		isOver[j.Key] = j.State.Terminal()
	}
	u.queue.apply(u.parse(), u.clerk)
	var want []string
	for _, line := range u.parse().Lines {
		if line.Spec.CancelMarked && running[line.Key] {
			for _, j := range u.clerk.in(job.Running) {
				if j.Key == line.Key && !u.clerk.stopped[j.ID] {
					u.t.Fatalf("running job %s is marked cancel and was not stopped", j.ID)
				}
			}
		}
		if !running[line.Key] && !isOver[line.Key] && !line.Spec.CancelMarked {
			want = append(want, fmt.Sprintf("%s %s vram %d priority %d", line.Key, line.Command, line.Spec.VRAMMiB, line.Spec.Priority))
		}
	}
	var got []string
	for _, j := range u.clerk.in(job.Queued) {
		got = append(got, fmt.Sprintf("%s %s vram %d priority %d", j.Key, j.Spec.Command(), j.Spec.VRAMMiB, j.Spec.Priority))
	}
	if !slices.Equal(got, want) {
		u.t.Fatalf("pending:\n\t%s\nwant:\n\t%s", strings.Join(got, "\n\t"), strings.Join(want, "\n\t"))
	}
	for key := range running {
		if n := u.jobsOf(key); n != 1 {
			u.t.Fatalf("%d jobs stand for the running line %s", n, key)
		}
	}
}

func (u *editor) jobsOf(key string) (n int) {
	for _, j := range u.clerk.jobs {
		if j.Key == key {
			n++
		}
	}
	return n
}

// restart is a new berth over the same store.
func (u *editor) restart() {
	u.hear()
	u.queue = newQueue()
	for _, id := range slices.Sorted(maps.Keys(u.clerk.jobs)) {
		j := u.clerk.jobs[id]
		u.queue.remember(j, j.Key)
		u.before[id] = j.State.Terminal()
	}
	u.save()
}

// count is what the tally should be, the slow way.
func (u *editor) count() tally {
	inFile := map[string]bool{}
	for _, line := range u.parse().Lines {
		inFile[line.Key] = true
	}
	var want tally
	for id, j := range u.clerk.jobs {
		if u.before[id] && !inFile[j.Key] {
			continue
		}
		want.add(&entry{state: j.State, earlier: u.before[id]}, 1)
	}
	return want
}

func TestAQueueFollowsItsFile(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		u := &editor{t: rt, queue: newQueue(), clerk: newClerk(), before: map[string]bool{}}
		pick := func(n int, what string) int { return rapid.IntRange(0, n-1).Draw(rt, what) }
		randomRow := func() row {
			return row{command: "run " + string(rune('a'+pick(4, "command"))), vram: 1000 * (1 + pick(3, "vram")), priority: pick(3, "priority")}
		}
		edit := func(f func(i int)) func(*rapid.T) {
			return func(*rapid.T) {
				if len(u.rows) > 0 {
					f(pick(len(u.rows), "line"))
				}
			}
		}
		rt.Repeat(map[string]func(*rapid.T){
			"append": func(*rapid.T) { u.rows = append(u.rows, randomRow()) },
			"insert": edit(func(i int) { u.rows = slices.Insert(u.rows, i, randomRow()) }),
			"delete": edit(func(i int) { u.rows = slices.Delete(u.rows, i, i+1) }),
			"double": edit(func(i int) { u.rows = append(u.rows, u.rows[i]) }),
			"swap":   edit(func(i int) { k := pick(len(u.rows), "with"); u.rows[i], u.rows[k] = u.rows[k], u.rows[i] }),
			"change": edit(func(i int) { command := u.rows[i].command; u.rows[i] = randomRow(); u.rows[i].command = command }),
			"cancel": edit(func(i int) { u.rows[i].cancel = !u.rows[i].cancel }),
			"save":   func(*rapid.T) { u.save() },
			"start": func(*rapid.T) {
				if queued := u.clerk.in(job.Queued); len(queued) > 0 {
					u.clerk.start(queued[pick(len(queued), "job")])
				}
			},
			"end": func(rt *rapid.T) {
				if running := u.clerk.in(job.Running); len(running) > 0 {
					u.clerk.end(running[pick(len(running), "job")], rapid.SampledFrom([]job.Outcome{job.OK, "exit:3", job.OOM, "exit:1"}).Draw(rt, "outcome"))
				}
			},
			"back": func(*rapid.T) {
				if running := u.clerk.in(job.Running); len(running) > 0 {
					j := running[pick(len(running), "job")]
					j.MustTo(job.Queued)
					u.clerk.tell(job.EventRequeued, j)
				}
			},
			"hear":    func(*rapid.T) { u.hear() },
			"restart": func(*rapid.T) { u.restart() },
			"": func(*rapid.T) {
				if q := u.queue; q.begun > q.total {
					rt.Fatalf("%d of %d lines have begun", q.begun, q.total)
				}
			},
		})
		// At the end all is told, and the numbers have to be right.
		u.hear()
		u.save()
		u.hear()
		if got, want := u.queue.counts, u.count(); got != want {
			rt.Fatalf("counted %+v, want %+v", got, want)
		}
		code, _ := u.queue.status()
		want := 0
		for id, j := range u.clerk.jobs {
			inFile := slices.ContainsFunc(u.parse().Lines, func(l *jobfile.Line) bool { return l.Key == j.Key })
			if j.State.Terminal() && (inFile || !u.before[id]) {
				want = max(want, j.Outcome.Status())
			}
		}
		if code != want {
			rt.Fatalf("exit status %d, want %d", code, want)
		}
	})
}

func apply(t *testing.T, q *queue, c *clerk, text string) {
	t.Helper()
	file, err := jobfile.Parse("jobs", []byte(text), job.Defaults())
	if err != nil {
		t.Fatal(err)
	}
	q.apply(file, c)
}

func TestNamesInAfterBecomeIDs(t *testing.T) {
	q, c := newQueue(), newClerk()
	apply(t, q, c, "[name=prep] a\n[after=prep:any] b\n")
	want := job.Dependency{Job: "1", Name: "prep", On: job.AfterAny}
	if got := c.jobs["2"].Spec.After; len(got) != 1 || got[0] != want {
		t.Fatalf("after %+v", got)
	}
	// The name moves to another line: the dependency follows it.
	apply(t, q, c, "a\n[name=prep] c\n[after=prep:any] b\n")
	if got := c.jobs["2"].Spec.After; len(got) != 1 || got[0].Job != "3" {
		t.Errorf("after the edit: %+v", got)
	}
	// It may also stand below.
	apply(t, q, c, "[after=late] d\n[name=late] e\n")
	d, e := c.in(job.Queued)[0], c.in(job.Queued)[1]
	if d.Spec.After[0].Job != e.ID {
		t.Errorf("d waits for %+v, e is %s", d.Spec.After, e.ID)
	}
}

func TestALineMarkedCancelFromTheFirstNeverRuns(t *testing.T) {
	q, c := newQueue(), newClerk()
	apply(t, q, c, "[cancel] a\nb\n")
	if j := c.jobs["1"]; j.Outcome != job.WasCancelled || j.Spec.CancelMarked {
		t.Errorf("%s %s, marked %v", j.State, j.Outcome, j.Spec.CancelMarked)
	}
	if n := len(c.in(job.Queued)); n != 1 {
		t.Errorf("%d queued", n)
	}
}

func TestAJobThatCameBackWithoutALineIsDequeued(t *testing.T) {
	q, c := newQueue(), newClerk()
	apply(t, q, c, "a\nb\n")
	c.start(c.jobs["1"])
	for _, ev := range c.news {
		q.follow(ev)
	}
	c.jobs["1"].MustTo(job.Queued) // it goes back, and nobody has heard of it yet
	apply(t, q, c, "b\n")
	if c.jobs["1"] != nil {
		t.Error("it is still queued, though its line is gone")
	}
}

func TestAJobWhoseLineWasDeletedWhileItRanIsNotWantedBack(t *testing.T) {
	q, c := newQueue(), newClerk()
	apply(t, q, c, "a\nb\n")
	c.start(c.jobs["1"])
	c.start(c.jobs["2"])
	for _, ev := range c.news {
		q.follow(ev)
	}
	apply(t, q, c, "b\n")
	if q.wanted("1") || !q.wanted("2") || !q.wanted("nobody") {
		t.Errorf("wanted: 1 %v, 2 %v, an unknown job %v", q.wanted("1"), q.wanted("2"), q.wanted("nobody"))
	}
	q.follow(job.Event{Kind: job.EventDequeued, Job: c.jobs["1"]})
	if q.counts.running != 1 || q.byID["1"] != nil {
		t.Errorf("dequeued, and still counted: %+v", q.counts)
	}
}

func TestOnlyLinesOfTheFileCountAsBegun(t *testing.T) {
	q, c := newQueue(), newClerk()
	hear := func() {
		for _, ev := range c.news {
			q.follow(ev)
		}
		c.news = nil
	}
	apply(t, q, c, "a\nb\n")
	c.start(c.jobs["1"])
	hear()
	if q.begun != 1 {
		t.Errorf("%d of %d have begun", q.begun, q.total)
	}
	// It never ran, goes back, and is placed a second time.
	c.jobs["1"].MustTo(job.Queued)
	c.jobs["1"].Attempt.Number = 0
	c.tell(job.EventRequeued, c.jobs["1"])
	c.start(c.jobs["1"])
	hear()
	if q.begun != 1 {
		t.Errorf("placed twice, %d of %d have begun", q.begun, q.total)
	}
	apply(t, q, c, "b\n")
	if q.begun != 0 || q.total != 1 {
		t.Errorf("without its line, %d of %d have begun", q.begun, q.total)
	}
}

func TestTallyReadsAsASentence(t *testing.T) {
	tests := []struct {
		tally tally
		want  string
	}{
		{tally{}, "0 ok"},
		{tally{ok: 3}, "3 ok"},
		{tally{ok: 1, failed: 2, cancelled: 3, running: 4, queued: 5}, "1 ok, 2 failed, 3 cancelled, 4 running, 5 queued"},
	}
	for _, test := range tests {
		if got := test.tally.String(); got != test.want {
			t.Errorf("%+v reads %q, want %q", test.tally, got, test.want)
		}
	}
}

// TestWhichLinesGetWhichCode: waiting lines that of the start, later ones that of
// the moment they are read, and none of them another later.
func TestWhichLinesGetWhichCode(t *testing.T) {
	clerk, q := newClerk(), newQueue()
	version := func(id string, commands ...string) jobfile.File {
		var file jobfile.File
		for _, command := range commands {
			file.Lines = append(file.Lines, &jobfile.Line{Key: command, Spec: job.Spec{Shell: command, GPUs: 1, Snapshot: job.Snapshot{Tree: "/tree", ID: id, Path: "/" + id}}})
		}
		return file
	}
	q.remember(&job.Job{ID: "1", Key: "ran", State: job.Running, Spec: job.Spec{Snapshot: job.Snapshot{Tree: "/tree", ID: "earlier", Path: "/earlier"}}}, "ran")
	q.remember(&job.Job{ID: "2", Key: "waits", State: job.Queued, Spec: job.Spec{Snapshot: job.Snapshot{Tree: "/tree", ID: "earlier", Path: "/earlier"}}}, "waits")
	clerk.next = 2
	for _, id := range []string{"1", "2"} {
		clerk.jobs[id] = &job.Job{ID: id, State: job.Queued} // the first runs again soon
	}
	check := func(says string, want map[string]string) {
		t.Helper()
		for id, code := range want {
			if got := clerk.jobs[id].Spec.Snapshot.ID; got != code {
				t.Errorf("%s: job %s runs %q, want %q", says, id, got, code)
			}
		}
	}
	q.apply(version("start", "ran", "waits", "new"), clerk)
	check("at the start", map[string]string{"1": "earlier", "2": "start", "3": "start"})
	q.apply(version("later", "ran", "waits", "new", "added"), clerk)
	check("a line is added", map[string]string{"1": "earlier", "2": "start", "3": "start", "4": "later"})
	last := version("last", "ran", "waits", "new", "added")
	last.Lines[1].Spec.Snapshot = job.Snapshot{}
	last.Lines[2].Spec.Snapshot.Tree = "/other"
	q.apply(last, clerk)
	check("a line says otherwise", map[string]string{"2": "", "3": "last", "4": "later"})
}

// TestANoteOnALineIsSaidOnce: again only if the line is changed.
func TestANoteOnALineIsSaidOnce(t *testing.T) {
	q, c := newQueue(), newClerk()
	for _, step := range []struct{ file, want string }{
		{"[gpus=1.5] a\nb\n", "[line 1: gpus: 1.5 means 2 whole GPUs; a fraction below 1 shares one]"},
		{"[gpus=1.5] a\nb\n", "[]"},
		{"c\n[gpus=1.5] a\n[gpus=2] b\n", "[]"},
		{"c\n[gpus=1.5] a\n[gpus=2.5] b\n", "[line 3: gpus: 2.5 means 3 whole GPUs; a fraction below 1 shares one]"},
		{"[gpus=1.5 gpus=0.5] c\n[gpus=3.0] a\n", "[]"},
	} {
		file, err := jobfile.Parse("jobs", []byte(step.file), job.Defaults())
		if err != nil {
			t.Fatal(err)
		}
		if q.apply(file, c); fmt.Sprint(q.notes) != step.want {
			t.Errorf("%q: %q, want %s", step.file, q.notes, step.want)
		}
		q.notes = nil
	}
}

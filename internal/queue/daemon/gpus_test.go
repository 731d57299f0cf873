package daemon

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"berth/internal/api"
	"berth/internal/job"
	"berth/internal/machine/gpu"
	"berth/internal/queue/access"
	"berth/internal/queue/engine"
	"berth/internal/tests/testkit"
	"berth/internal/text/problem"
)

// fault lets things go wrong in the lab's simulation directory; "" ends that.
func (l *lab) fault(text string) {
	l.t.Helper()
	path := filepath.Join(l.d.svc.queue.SimDir, "fault")
	if err := os.WriteFile(path+".new", []byte(text), 0o644); err != nil {
		l.t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		l.t.Fatal(err)
	}
}

// TestCardsAreShownThroughADriverThatHangs: at once, as they were last read,
// marked as such and with the reason; and as they are once it answers again.
func TestCardsAreShownThroughADriverThatHangs(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	if card := l.cards()[0]; card.Stale || card.StaleReason != "" {
		t.Fatalf("%+v", card)
	}
	l.fault("hang")
	l.until("the cards are marked", func() bool { return l.cards()[0].Stale })
	if card := l.cards()[0]; !strings.Contains(card.StaleReason, "does not answer; last reading ") || card.TotalMiB != 24576 {
		t.Errorf("%+v", card)
	}
	// A call that waited for the driver would take two seconds.
	calls := 0
	l.until("fifty calls are answered", func() bool {
		l.cards()
		calls++
		return calls == 50
	})
	l.fault("")
	l.until("the cards are read again", func() bool { return !l.cards()[0].Stale })
}

func TestCardsThatCannotBeReadSayWhy(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.fault("unreadable")
	l.until("the cards are marked", func() bool { return l.cards()[0].Stale })
	if card := l.cards()[0]; !strings.Contains(card.StaleReason, "simulated") || card.Health != "ok" {
		t.Errorf("%+v", card)
	}
	l.fault("")
	l.until("the cards are read again", func() bool { return !l.cards()[0].Stale })
}

// fakeEyes is an engine whose looks come in when the test says.
type fakeEyes struct {
	asked      int
	at, failed time.Time
	trouble    error
}

func (f *fakeEyes) Look()                      { f.asked++ }
func (f *fakeEyes) ReadAt() (time.Time, error) { return f.at, f.trouble }
func (f *fakeEyes) FailedAt() time.Time        { return f.failed }

func TestALookIsWaitedForUntilItComesInOrFails(t *testing.T) {
	t.Parallel()
	noon := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	after := func(d time.Duration) time.Time { return noon.Add(d) }
	var l looks
	eyes := &fakeEyes{at: noon.Add(-time.Hour)}
	if _, silent := l.state(eyes, noon, glanceTime); silent {
		t.Error("nobody asked, and an answer is missing")
	}
	l.ask(eyes, noon)
	l.ask(eyes, after(40*time.Millisecond)) // does not begin anew
	if _, silent := l.state(eyes, after(50*time.Millisecond), glanceTime); silent {
		t.Error("it was given up too early")
	}
	if _, silent := l.state(eyes, after(51*time.Millisecond), glanceTime); !silent {
		t.Error("it is not noticed that no answer comes")
	}
	if _, silent := l.state(eyes, after(lookTime), lookTime); silent {
		t.Error("it was given up too early by who has more patience")
	}
	if _, silent := l.state(eyes, after(lookTime+1), lookTime); !silent {
		t.Error("all patience does not end")
	}
	eyes.at = after(time.Second)
	if _, silent := l.state(eyes, after(2*time.Second), glanceTime); silent {
		t.Error("it came in, and is still waited for")
	}
	l.ask(eyes, after(3*time.Second))
	eyes.failed, eyes.trouble = after(4*time.Second), os.ErrDeadlineExceeded
	if failed, silent := l.state(eyes, after(5*time.Second), glanceTime); silent || !failed.Equal(eyes.failed) {
		t.Errorf("it failed, and is %v %v", failed, silent)
	}
	eyes.at, eyes.trouble = after(6*time.Second), nil
	if failed, _ := l.state(eyes, after(7*time.Second), glanceTime); !failed.IsZero() || eyes.asked != 3 {
		t.Errorf("an old failure counts: %v, %d", failed, eyes.asked)
	}
}

func TestProcessesOnACardHaveNames(t *testing.T) {
	l := newLab(t)
	l.fault(fmt.Sprintf("dead-pid 1 %d 500\ndead-pid 1 4194304 64\n", os.Getpid()))
	l.until("they are listed", func() bool { return len(l.cards()[1].Processes) == 2 })
	cards := l.cards()
	if cards[0].Processes == nil || len(cards[0].Processes) != 0 {
		t.Errorf("gpu0: %+v", cards[0].Processes)
	}
	name, err := os.ReadFile("/proc/self/comm")
	if err != nil {
		t.Fatal(err)
	}
	at := slices.IndexFunc(cards[1].Processes, func(p api.GPUProcess) bool { return p.PID == os.Getpid() })
	if at < 0 {
		t.Fatalf("%+v", cards[1].Processes)
	}
	here, gone := cards[1].Processes[at], cards[1].Processes[1-at]
	if here.Command+"\n" != string(name) || here.User == "" || *here.UsedMiB != 500 || here.Job != "" || here.Graphics {
		t.Errorf("%+v", here)
	}
	if gone.Command != "" || gone.User != "" || *gone.UsedMiB != 64 {
		t.Errorf("a process that is not there: %+v", gone)
	}
	l.fault("no-processes")
	l.until("they are not known", func() bool { return l.cards()[1].Processes == nil })
}

func TestHiddenProcessesHaveNamesOnlyForTheirOwnersAndAdministrators(t *testing.T) {
	l := newLab(t)
	for _, test := range []struct {
		name   string
		caller api.Caller
		hidden bool
		named  bool
	}{
		{"nothing is hidden", api.Caller{UID: 4711, Name: "eve"}, false, true},
		{"another's is hidden", api.Caller{UID: 4711, Name: "eve"}, true, false},
		{"one's own is not", api.Caller{UID: os.Getuid(), Name: "me"}, true, true},
		{"an administrator sees all", api.Caller{UID: 4711, Name: "eve", Admin: true}, true, true},
	} {
		cards := []api.GPU{{Processes: []api.GPUProcess{{PID: os.Getpid()}, {PID: os.Getpid()}}}}
		l.d.cards.nameProcesses(test.caller, cards, []listedProcess{{visible: true}, {place: 1}}, test.hidden)
		p := cards[0].Processes
		if named := p[0].Command != "" && p[0].User != ""; named != test.named || p[1].Command != "" || p[1].User != "" {
			t.Errorf("%s: %+v", test.name, p)
		}
	}
}

func TestHiddenProcesses(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name, mounts string
		want         bool
	}{
		{"an ordinary mount hides nothing", "proc /proc proc rw,nosuid,relatime 0 0\n", false},
		{"hidepid hides", "proc /proc proc rw,relatime,hidepid=2 0 0\n", true},
		{"hidepid by name hides", "sysfs /sys sysfs rw 0 0\nproc /proc proc rw,hidepid=invisible,gid=4 0 0\n", true},
		{"hidepid that is off hides nothing", "proc /proc proc rw,hidepid=off 0 0\n", false},
		{"another place's option is not ours", "proc /srv/proc proc rw,hidepid=2 0 0\n", false},
		{"nothing known hides nothing", "", false},
	} {
		if got := procHides(test.mounts); got != test.want {
			t.Errorf("%s: %v", test.name, got)
		}
	}
}

// TestACardIsQuarantinedAndCleared by an administrator only, and it is written
// down who did it.
func TestACardIsQuarantinedAndCleared(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	eve := api.Caller{UID: 4711, Name: "eve"}
	_, err := l.d.cards.SetHealth(l.ctx, eve, api.HealthRequest{GPUIndex: api.GPUIndex{Index: 1}, Health: api.HealthQuarantined})
	wantProblem(t, err, problem.Forbidden, "administrator")
	_, err = api.Call(l.ctx, l.Client, api.SetHealth, api.HealthRequest{GPUIndex: api.GPUIndex{Index: 7}, Health: api.HealthQuarantined})
	wantProblem(t, err, problem.NotFound, "no GPU 7", "berth gpus")
	l.cards() // a card has to have been seen before it can be judged
	card, err := api.Call(l.ctx, l.Client, api.SetHealth, api.HealthRequest{GPUIndex: api.GPUIndex{Index: 1}, Health: api.HealthQuarantined, Reason: "fan\nis  loud"})
	if err != nil || card.Health != "quarantined" || card.HealthReason != "fan is loud" || card.HealthBy == "" || card.HealthSince.IsZero() {
		t.Fatalf("%+v, %v", card, err)
	}
	waits := l.one(sh("true", "ids", "1"))
	l.until("it says why it waits", func() bool { return strings.Contains(value(l.job(waits).Reason), "gpu1") })
	if l.job(waits).State != job.Queued {
		t.Error("it runs on a quarantined card")
	}
	l.restart()
	if card := l.cards()[1]; card.Health != "quarantined" || card.HealthBy == "" {
		t.Errorf("after a restart: %+v", card)
	}
	if card, err = api.Call(l.ctx, l.Client, api.SetHealth, api.HealthRequest{GPUIndex: api.GPUIndex{Index: 1}, Health: api.HealthOK}); err != nil || card.Health != "ok" || card.HealthReason != "" {
		t.Errorf("%+v, %v", card, err)
	}
	l.finished(waits)
	wantAudit(t, l, "gpu quarantine", "gpu clear")
}

// audited are the lines of the audit log.
func (l *lab) audited() (entries []access.Entry) {
	l.t.Helper()
	for line := range strings.Lines(testkit.Read(l.t, filepath.Join(l.opt.Places.StateDir, access.AuditName))) {
		var e access.Entry
		testkit.Must(l.t, json.Unmarshal([]byte(line), &e))
		entries = append(entries, e)
	}
	return entries
}

// wantAudit looks for actions that were done and one that was refused.
func wantAudit(t *testing.T, l *lab, actions ...string) {
	t.Helper()
	entries := l.audited()
	for _, action := range actions {
		if !slices.ContainsFunc(entries, func(e access.Entry) bool { return e.Action == action && e.Result == "ok" }) {
			t.Errorf("the audit has no %s", action)
		}
	}
	if !slices.ContainsFunc(entries, func(e access.Entry) bool { return e.Action == actions[0] && e.User == "eve" && e.Result != "ok" }) {
		t.Errorf("the audit does not have that eve tried to %s", actions[0])
	}
}

func TestTheHistoryOfTheCards(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.cards()
	for _, index := range []int{1, 0} {
		if _, err := api.Call(l.ctx, l.Client, api.PauseGPU, api.GPUIndex{Index: index}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := api.Call(l.ctx, l.Client, api.SetHealth, api.HealthRequest{GPUIndex: api.GPUIndex{Index: 1}, Health: api.HealthQuarantined, Reason: "smoke"}); err != nil {
		t.Fatal(err)
	}
	// Another reason is told of, the same again is not.
	for range 2 {
		if _, err := api.Call(l.ctx, l.Client, api.SetHealth, api.HealthRequest{GPUIndex: api.GPUIndex{Index: 1}, Health: api.HealthQuarantined, Reason: "fire"}); err != nil {
			t.Fatal(err)
		}
	}
	one, none := 1, 7
	const changed = "gpu1 quarantined by "
	if events, err := api.Call(l.ctx, l.Client, api.ListCardEvents, api.CardQuery{Limit: 1}); err != nil || len(events) != 1 || !strings.HasSuffix(events[0].Text, ": fire; the previous reason was: smoke") {
		t.Errorf("%+v, %v", events, err)
	}
	before := time.Now().Add(time.Hour)
	for _, test := range []struct {
		name  string
		query api.CardQuery
		want  []string
	}{
		{"of all cards, the newest first", api.CardQuery{}, []string{changed, "gpu1 quarantined by ", "gpu0 paused by ", "gpu1 paused by "}},
		{"of one", api.CardQuery{GPU: &one}, []string{changed, "gpu1 quarantined by ", "gpu1 paused by "}},
		{"the last one", api.CardQuery{Limit: 1}, []string{changed}},
		{"of the future", api.CardQuery{Since: &before}, nil},
	} {
		events, err := api.Call(l.ctx, l.Client, api.ListCardEvents, test.query)
		if err != nil || len(events) != len(test.want) {
			t.Errorf("%s: %+v, %v", test.name, events, err)
			continue
		}
		for i, ev := range events {
			if !strings.HasPrefix(ev.Text, test.want[i]) || ev.GPU == nil || cardName(*ev.GPU)+" " != test.want[i][:5] || ev.At.IsZero() {
				t.Errorf("%s: %+v, want %q", test.name, ev, test.want[i])
			}
		}
	}
	if events, err := api.Call(l.ctx, l.Client, api.ListCardEvents, api.CardQuery{GPU: &one, Since: &before}); err != nil || len(events) > 0 {
		t.Errorf("nothing happened to GPU 1 since: %+v, %v", events, err)
	}
	_, err := api.Call(l.ctx, l.Client, api.ListCardEvents, api.CardQuery{GPU: &none})
	wantProblem(t, err, problem.NotFound, "this machine has no GPU")
}

func TestAQuarantineOfWhatIsQuarantinedAlreadyIsToldOfOnce(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.fault("xid 1 79")
	l.until("the card is out of service", func() bool { return l.cards()[1].Health == "quarantined" })
	card, err := api.Call(l.ctx, l.Client, api.SetHealth, api.HealthRequest{GPUIndex: api.GPUIndex{Index: 1}, Health: api.HealthQuarantined, Reason: "to the workshop"})
	if err != nil || card.HealthReason != "to the workshop" {
		t.Fatalf("%+v, %v", card, err)
	}
	events, err := api.Call(l.ctx, l.Client, api.ListCardEvents, api.CardQuery{})
	if err != nil || len(events) != 2 || !strings.HasSuffix(events[0].Text, ": to the workshop") || !strings.Contains(events[1].Text, "Xid 79") {
		t.Errorf("%+v, %v", events, err)
	}
}

func TestACardThatIsInPartsIsNamedByThem(t *testing.T) {
	t.Parallel()
	there := []gpu.Device{{Index: 0}, {Index: 200, Part: &gpu.Part{Of: 1}}, {Index: 201, Part: &gpu.Part{Of: 1}}}
	wantProblem(t, noCard(1, there), problem.NotFound, "GPU 1 is partitioned; its parts are 200, 201", "name the parts")
	wantProblem(t, noCard(2, there), problem.NotFound, "this machine has no GPU 2", "berth gpus")
}

// holder is a source that can let go of its driver.
type holder struct {
	gpu.Source
	mu       sync.Mutex
	until    time.Time
	releases int
	during   func() // what happens while it lets go
}

func (h *holder) Release(d time.Duration) {
	if d > 0 && h.during != nil {
		h.during()
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.releases++
	if h.until = time.Now().Add(d); d == 0 {
		h.until = time.Time{}
	}
}

func (h *holder) Released() time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.until
}

func TestTheDriverIsLetGoOf(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	reply, err := api.Call(l.ctx, l.Client, api.ReleaseGPUs, api.ReleaseRequest{})
	if err != nil || reply.Until != nil || !strings.Contains(reply.Note, "nothing to release") {
		t.Errorf("a simulation directory: %+v, %v", reply, err)
	}
	h := &holder{Source: l.d.svc.queue.Source}
	if err := l.d.svc.Do(l.ctx, func(t *engine.Turn) { l.d.svc.queue.Source = h }); err != nil {
		t.Fatal(err)
	}
	eve, root := api.Caller{UID: 4711, Name: "eve"}, api.Caller{Name: "root", Admin: true}
	_, err = l.d.cards.ReleaseGPUs(l.ctx, eve, api.ReleaseRequest{ForS: 60})
	wantProblem(t, err, problem.Forbidden, "administrator")
	line, open := l.gate("gate")
	var runs string
	h.during = func() {
		runs = l.one(sh(line, "ids", "0"))
		l.untilState(runs, job.Running)
	}
	_, err = l.d.cards.ReleaseGPUs(l.ctx, root, api.ReleaseRequest{ForS: 60})
	wantProblem(t, err, problem.Refused, "jobs are running on the GPUs: "+runs)
	if !h.Released().IsZero() {
		t.Error("a job was quicker, and it was let go of all the same")
	}
	h.during, h.releases = nil, 0
	_, err = l.d.cards.ReleaseGPUs(l.ctx, root, api.ReleaseRequest{ForS: 60})
	wantProblem(t, err, problem.Refused, "jobs are running on the GPUs: "+runs, "--force")
	if h.releases != 0 {
		t.Error("it was let go of all the same")
	}
	reply, err = l.d.cards.ReleaseGPUs(l.ctx, root, api.ReleaseRequest{ForS: 600, Force: true})
	if err != nil || reply.Until == nil || time.Until(*reply.Until) < 9*time.Minute {
		t.Fatalf("%+v, %v", reply, err)
	}
	if card := l.cards()[1]; !card.Stale || card.LetGoUntil == nil || !strings.Contains(card.StaleReason, "released until") {
		t.Errorf("%+v", card)
	}
	for range 2 { // the second changes nothing and is not told of
		if reply, err = l.d.cards.ReleaseGPUs(l.ctx, root, api.ReleaseRequest{End: true}); err != nil || reply.Until != nil || !h.Released().IsZero() {
			t.Errorf("%+v, %v", reply, err)
		}
	}
	if card := l.cards()[1]; card.LetGoUntil != nil || card.Stale {
		t.Errorf("%+v", card)
	}
	events, err := api.Call(l.ctx, l.Client, api.ListCardEvents, api.CardQuery{})
	if err != nil || len(events) != 2 || events[0].GPU != nil || !strings.Contains(events[0].Text, "in use again by root") || !strings.Contains(events[1].Text, "released until") {
		t.Errorf("%+v, %v", events, err)
	}
	open()
	l.finished(runs)
	wantAudit(t, l, "gpu release")
}

package batch

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"berth/internal/job"
	"berth/internal/machine/gpu"
	"berth/internal/queue"
	"berth/internal/queue/engine"
	"berth/internal/queue/engine/settings"
	"berth/internal/queue/series"
	"berth/internal/queue/store"
	"berth/internal/sched"
	"berth/internal/tests/testkit"
)

// hosted is a host with a store and a journal, and no daemon.
type hosted struct {
	*Host
	said []string
}

func newHost(t *testing.T) *hosted {
	t.Helper()
	h, dir := &hosted{}, t.TempDir()
	st, err := store.Open(filepath.Join(dir, "store"))
	testkit.Must(t, err)
	t.Cleanup(func() { st.Close() })
	h.Host, err = NewHost(HostOptions{LogDir: dir}, nil, dir, func(w Word) { h.said = append(h.said, w.Say) })
	testkit.Must(t, err)
	h.store = st
	h.begin(t)
	return h
}

// begin lets a run of the queue begin, in the same process.
func (h *hosted) begin(t *testing.T) {
	t.Helper()
	if h.journal != nil {
		testkit.Must(t, h.journal.Close())
	}
	m := &queue.Queue{Store: h.store, Log: silent(), Samples: series.New(filepath.Join(h.opt.LogDir, "samples"), 0, silent())}
	_, err := h.Began(t.Context(), m, nil)
	testkit.Must(t, err)
	t.Cleanup(h.Close)
}

// engine is one with a card, as the daemon makes it when a run begins.
func (h *hosted) engine(t *testing.T) *engine.Engine {
	t.Helper()
	h.begin(t)
	device := gpu.Unknown(0, "GPU-a", "Card")
	device.TotalMiB = 1000
	e := engine.New(engine.Config{Settings: settings.Settings{Rules: sched.DefaultRules(), Devices: []gpu.Device{device}, Poll: time.Second}, Publish: h.Publish}, h.store, nil, nil, nil, nil, 0)
	e.Outside(at0, func(turn *engine.Turn) {
		testkit.Must(t, turn.Recovery().Health(h.store.Meta), turn.Groups().Restore(h.store.Metas), h.Restored(turn))
	})
	testkit.Must(t, e.Step(at0))
	return e
}

func TestHowTheCardsStoodOutlivesARun(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	e := h.engine(t)
	e.Outside(at0, func(t *engine.Turn) { t.Health().Set(0, gpu.HealthQuarantined, "ann", "it smells") })
	testkit.Must(t, e.Step(at0))
	for _, run := range []struct {
		fresh bool
		want  gpu.HealthState
	}{{false, gpu.HealthQuarantined}, {true, gpu.HealthOK}, {false, gpu.HealthOK}} {
		h.opt.Fresh = run.fresh
		h.engine(t).Outside(at0, func(turn *engine.Turn) {
			if v := turn.Cards().HealthOf("GPU-a"); v.State != run.want {
				t.Errorf("%+v: the card is %v", run, v.State)
			}
		})
	}
}

// TestTheLimitsOfGroupsAreThoseOfTheRun, and not of an earlier one.
func TestTheLimitsOfGroupsAreThoseOfTheRun(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	for _, limits := range []map[string]int{{"a": 1, "b": 2}, {"b": 3}, nil} {
		h.opt.GroupLimits = limits
		h.engine(t).Outside(at0, func(turn *engine.Turn) {
			got := map[string]int{}
			for _, g := range turn.Groups().List("") {
				got[g.Name] = g.Limit
			}
			if fmt.Sprint(got) != fmt.Sprint(limits) {
				t.Errorf("with %v: %v", limits, got)
			}
		})
	}
}

func TestPublishKeepsTheJournalAndCounts(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	h.jobs.take([]string{"1"})
	j := started("1", "a", 0)
	tx := store.Tx{Events: []*job.Event{{At: at0, Kind: job.EventStarted, Job: j}}}
	testkit.Must(t, h.store.Commit(tx))
	h.Publish([]job.Event{*tx.Events[0], {At: at0, Kind: job.EventUsage, Job: j, Text: "gpu0:256 MiB"}})
	if got := numbers(t, h.layout.journal()); got != "1" {
		t.Errorf("the journal has %s", got)
	}
	if h.jobs.counts.running != 1 || !h.report.changed {
		t.Errorf("counted %+v", h.jobs.counts)
	}
}

func TestAJournalThatFellBehindIsMendedBeforeItGoesOn(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	var tx store.Tx
	for range 3 {
		tx.Events = append(tx.Events, &job.Event{At: at0, Kind: job.EventWarning, Text: "x"})
	}
	testkit.Must(t, h.store.Commit(tx))
	h.journal.behind = true
	h.keep([]job.Event{*tx.Events[2]})
	if got := numbers(t, h.layout.journal()); got != "1 2 3" {
		t.Errorf("the journal has %s", got)
	}
}

func TestWhatIsOverIsRememberedUpToABound(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	for i := range 1000 {
		h.Publish([]job.Event{{At: at0, Kind: job.EventEnded, Job: ended(started(fmt.Sprint(i), "x"), job.OK, 0)}})
	}
	if len(h.report.ended) > 2*boardEnded || h.report.ended[len(h.report.ended)-1].ID != "999" {
		t.Errorf("%d are remembered, the last is %s", len(h.report.ended), h.report.ended[len(h.report.ended)-1].ID)
	}
}

func TestTheBoardIsAtMostAPollBehind(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	h.opt.Poll = time.Hour
	e, j := h.engine(t), &job.Job{Spec: spec("a")}
	e.Outside(at0, func(t *engine.Turn) {
		t.Queue().Number([]*job.Job{j})
		t.Queue().Submit([]*job.Job{j})
		h.Took(t, "jobs.txt", []string{j.ID})
	})
	e.Outside(at0, h.After)
	wants := func(when, words string, has bool) {
		t.Helper()
		if text := testkit.Read(t, h.report.board.path); strings.Contains(text, words) != has {
			t.Fatalf("%s the board has:\n%s", when, text)
		}
	}
	wants("at first", "0/1 done", true)
	e.Outside(at0, func(t *engine.Turn) { t.Requests().Cancel(j.ID, "asked") })
	testkit.Must(t, e.Step(at0))
	e.Outside(at0.Add(time.Minute), h.After)
	wants("within a poll", "1/1 done", false)
	e.Outside(at0.Add(time.Hour), h.After)
	wants("a poll later", "1/1 done", true)
	testkit.Write(t, h.report.board.path, "untouched")
	e.Outside(at0.Add(3*time.Hour), h.After)
	wants("with nothing new", "untouched", true)
	h.jobs.take([]string{j.ID, "2"})
	e.Outside(at0.Add(3*time.Hour), h.Over)
	wants("at the end", "1/2 done", true)
}

package soak

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"berth/internal/api"
	"berth/internal/tests/fakenvml"
	"berth/internal/tests/testkit"
)

// helper is the directory of programs that read real cards. It is built when
// the first test wants it.
var helper = sync.OnceValues(func() (string, error) {
	dir := filepath.Join(programs, "helper")
	return dir, testkit.Build(dir, "", "cmd/berth", "cmd/berth-keep", "cmd/berth-gpu")
})

// rack is a host with cards of a driver that can be broken.
type rack struct {
	*host
	box *fakenvml.Box
}

func newRack(t *testing.T, cards int) *rack {
	t.Helper()
	var list []fakenvml.Card
	for i := range cards {
		list = append(list, fakenvml.H100(i))
	}
	r := &rack{host: newHost(t, cards), box: fakenvml.New(t, list...)}
	dir, err := helper()
	if err != nil {
		t.Fatal(err)
	}
	r.program = dir
	r.flags = []string{"--poll", "0.2"}
	r.env = append(r.env, r.box.Env()...)
	return r
}

func (r *rack) card(index int) api.GPU {
	r.t.Helper()
	cards, err := api.Call(r.ctx(), r.client, api.ListGPUs, api.None{})
	if err != nil {
		r.t.Fatal(err)
	}
	for _, card := range cards {
		if card.Index == index {
			return card
		}
	}
	r.t.Fatalf("berth knows no gpu%d: %+v", index, cards)
	return api.GPU{}
}

// give submits a job for one card and returns its id.
func (r *rack) give(index int, command ...string) string {
	r.t.Helper()
	args := append([]string{"submit", "--gpu-ids", fmt.Sprint(index), "--vram", "1G", "--"}, command...)
	out, errOut, status := r.cli(args...)
	if status != 0 {
		r.t.Fatalf("berth submit: %d %s", status, errOut)
	}
	return strings.Fields(out)[len(strings.Fields(out))-1]
}

func (r *rack) state(id string) string { return string(r.job(id).State) }

// latencies asks the daemon all sorts of things without a pause until stopped.
// It counts the answers, and in the end returns how long they took, shortest
// first.
func (r *rack) latencies(answers *atomic.Int64) (stop func() []time.Duration) {
	over, done := make(chan struct{}), make(chan []time.Duration, 1)
	go func() {
		var all []time.Duration
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for n := 0; ; n++ {
			select {
			case <-over:
				slices.Sort(all)
				done <- all
				return
			case <-tick.C:
			}
			begun := time.Now()
			var err error
			switch n % 3 {
			case 0:
				_, err = api.Call(r.ctx(), r.client, api.ListGPUs, api.None{})
			case 1:
				_, err = api.Call(r.ctx(), r.client, api.GetStatus, api.None{})
			case 2:
				_, err = api.Call(r.ctx(), r.client, api.ListJobs, api.Query{})
			}
			if err != nil {
				r.t.Errorf("the daemon does not answer: %v", err)
			}
			all = append(all, time.Since(begun))
			answers.Add(1)
		}
	}()
	return func() []time.Duration { close(over); return <-done }
}

// plug is one way to break the driver under a daemon that has jobs on all
// cards, and what must be seen.
type plug struct {
	name   string
	pull   func(b *fakenvml.Box)
	health string // of card 1; empty: it goes on
	blind  bool   // no card can be read meanwhile, so that nothing starts
	mend   func(b *fakenvml.Box)
	xid    int  // the error that is shown with the card
	human  bool // it takes a person, a reset or a reboot to trust the card again
}

var plugs = []plug{
	{name: "a card that never answers again", pull: func(b *fakenvml.Box) { b.Hang(1) }, health: "quarantined", mend: func(b *fakenvml.Box) { b.Restore(1) }},
	{name: "a card that never answers, in a call that cannot be ended politely", pull: func(b *fakenvml.Box) { b.HangHard(1) }, health: "quarantined", mend: func(b *fakenvml.Box) { b.Restore(1) }},
	{name: "a card that falls off the bus", pull: func(b *fakenvml.Box) { b.LoseForSession(1) }, health: "quarantined", mend: func(b *fakenvml.Box) { b.Restore(1) }},
	{name: "a card that vanishes, so that those behind it are renumbered", pull: func(b *fakenvml.Box) { b.Remove(1) }, health: "quarantined", mend: func(b *fakenvml.Box) { b.Restore(1) }},
	{name: "a driver that does not start any more", pull: func(b *fakenvml.Box) { b.HangInit(true); killHelper(b) }, blind: true, mend: func(b *fakenvml.Box) { b.HangInit(false) }},
	{name: "a driver that is taken away", pull: func(b *fakenvml.Box) { b.FailInit(9); killHelper(b) }, blind: true, mend: func(b *fakenvml.Box) { b.FailInit(0) }},
	{name: "a card about which the library takes its process down", pull: func(b *fakenvml.Box) { b.Abort(1) }, health: "quarantined", mend: func(b *fakenvml.Box) { b.Restore(1) }},
	{name: "an application's error", pull: func(b *fakenvml.Box) { b.Xid(1, 31) }, xid: 31},
	{name: "an error that needs a reset", pull: func(b *fakenvml.Box) { b.Xid(1, 95) }, xid: 95, health: "quarantined", human: true},
}

// killHelper ends whoever holds the driver, as a crash would.
func killHelper(b *fakenvml.Box) {
	for _, pid := range b.Inits() {
		if p, err := os.FindProcess(pid); err == nil {
			_ = p.Kill() // it may be gone
		}
	}
}

func TestPullingThePlug(t *testing.T) {
	for _, p := range plugs {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			p.test(t)
		})
	}
}

func (p plug) test(t *testing.T) {
	r := newRack(t, 4)
	daemon := r.up()
	var held []string
	for i := range 4 {
		held = append(held, r.give(i, "sleep", "600"))
	}
	testkit.Eventually(t, "jobs run on all cards", func() bool {
		return !slices.ContainsFunc(held, func(id string) bool { return r.state(id) != "running" })
	})
	var answers atomic.Int64
	stop := r.latencies(&answers)
	begun := time.Now()
	p.pull(r.box)
	pulled := answers.Load()
	if p.health != "" {
		testkit.Eventually(t, "the bad card is "+p.health, func() bool { return r.card(1).Health == p.health })
		t.Logf("%s after %s: %s", p.health, since(begun), r.card(1).HealthReason)
	}
	if p.xid != 0 {
		testkit.Eventually(t, "the card's last error is shown", func() bool {
			last := r.card(1).LastXid
			return last != nil && last.Code == p.xid
		})
	}
	if p.blind {
		testkit.Eventually(t, "the cards are shown as not read lately", func() bool { return r.card(0).Stale })
	}
	r.othersGoOn(p)
	waiting := r.waits(p)
	testkit.Eventually(t, "the daemon gave as many answers as one that does not wait for the driver", func() bool { return answers.Load()-pulled >= 200 })
	if p.mend != nil {
		p.mend(r.box)
	}
	if p.human {
		if _, errOut, status := r.cli("gpu", "clear", "1"); status != 0 {
			t.Fatal(errOut)
		}
	}
	testkit.Eventually(t, "the card is trusted again, without a restart", func() bool {
		card := r.card(1)
		return card.Health == "ok" && !card.Stale
	})
	for _, id := range waiting {
		testkit.Eventually(t, "what waited for the card has run", func() bool { return r.state(id) == "finished" })
	}
	for _, id := range held {
		if state := r.state(id); state != "running" {
			t.Errorf("a job on the cards is %s", state)
		}
	}
	all := stop()
	t.Logf("%d answers, p50 %s, p99 %s, longest %s", len(all), all[len(all)/2], all[len(all)*99/100], all[len(all)-1])
	r.mustHoldTheDriverOnce()
	for _, id := range held {
		r.cli("cancel", "--grace", "0", id)
	}
	r.down(daemon)
}

// othersGoOn sees that jobs still start on the good cards, unless none can be
// read.
func (r *rack) othersGoOn(p plug) {
	r.t.Helper()
	for _, index := range []int{0, 3} {
		id := r.give(index, "true")
		if p.blind {
			continue
		}
		testkit.Eventually(r.t, "a job starts on a good card", func() bool { return r.state(id) == "finished" })
	}
}

// waits submits a job for the bad card, which must not start.
func (r *rack) waits(p plug) []string {
	r.t.Helper()
	if p.health == "" && !p.blind {
		return nil
	}
	id := r.give(1, "true")
	testkit.Never(r.t, 2*time.Second, "a job starts on a card that is not to be trusted", func() bool { return r.state(id) != "queued" })
	return []string{id}
}

// mustHoldTheDriverOnce counts the processes that hold the driver now: of all
// that ever did, at most one helper is left, and perhaps one that hangs.
func (r *rack) mustHoldTheDriverOnce() {
	r.t.Helper()
	testkit.Eventually(r.t, "one process at most holds the driver", func() bool {
		alive := 0
		for _, pid := range r.box.Inits() {
			if _, err := os.Stat(fmt.Sprintf("/proc/%d", pid)); err == nil {
				alive++
			}
		}
		return alive <= 1
	})
}

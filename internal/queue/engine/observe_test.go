package engine

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"berth/internal/job"
	"berth/internal/machine/gpu"
	"berth/internal/machine/keep"
	"berth/internal/machine/run"
)

func TestExceeds(t *testing.T) {
	tests := []struct {
		name     string
		declared int64
		peaks    []int64
		want     int
	}{
		{"within the declaration", 10000, []int64{9000, 10000}, 0},
		{"above it but within tolerance", 10000, []int64{11000}, 0},
		{"beyond tolerance", 10000, []int64{11001}, 1},
		{"told once however far it goes", 10000, []int64{12000, 15000, 9000, 20000}, 1},
		{"nothing was declared, so nothing is exceeded", 0, []int64{20000}, 0},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			r := runOne(t, vram(test.declared))
			for _, mib := range test.peaks {
				r.uses("1", 0, mib)
				r.pass(time.Second)
			}
			var told []job.Event
			for _, ev := range r.told {
				if ev.Kind == job.EventExceeds {
					told = append(told, ev)
				}
			}
			if len(told) != test.want {
				t.Fatalf("told %d times, want %d", len(told), test.want)
			}
			if test.want > 0 && (told[0].Seq == 0 || !strings.HasSuffix(told[0].Text, "10000 MiB declared")) {
				t.Errorf("told %+v", told[0])
			}
		})
	}
}

func TestExceedsIsToldAgainOfANewAttempt(t *testing.T) {
	r := runOne(t, vram(1000), retries(1))
	r.uses("1", 0, 2000)
	r.pass(time.Second)
	r.clear(0)
	r.end("1", keep.Record{ExitCode: 1}, true)
	r.uses("1", 0, 9000)
	r.pass(time.Second)
	if n := len(slices.DeleteFunc(r.kinds(), func(s string) bool { return s != "exceeds 1" })); n != 2 {
		t.Errorf("told %d times of two attempts", n)
	}
}

func TestUsageIsShownInSteps(t *testing.T) {
	// seeds: G25
	r := runOne(t, vram(20000))
	var shown []string
	for _, mib := range []int64{100, 255, 256, 400, 511, 512, 5000, 4000, 5255, 5256} {
		r.uses("1", 0, mib)
		r.pass(time.Second)
	}
	for _, ev := range r.told {
		if ev.Kind == job.EventUsage {
			shown = append(shown, ev.Text)
			if ev.Seq != 0 {
				t.Errorf("usage is kept: %+v", ev)
			}
		}
	}
	if got, want := strings.Join(shown, ", "), "gpu0:256 MiB, gpu0:512 MiB, gpu0:5000 MiB, gpu0:5256 MiB"; got != want {
		t.Errorf("shown %s, want %s", got, want)
	}
}

func TestUnreadableCardsStartNothingAndEndNothing(t *testing.T) {
	r := newRig(t, 2)
	r.submit(spec())
	r.told = nil
	blind := func() {
		r.now = r.now.Add(time.Second)
		r.at().observer.observe(gpu.Sample{}, errors.New("driver does not answer"))
		r.step()
	}
	blind()
	r.submit(spec())
	blind()
	blind()
	r.wantTold("gpus_unreadable", "queued 2")
	r.wantRow("1", job.Running, "")
	r.wantRow("2", job.Queued, "")
	if got := r.at().explain.Blocked(); got != "the GPUs cannot be read: driver does not answer" {
		t.Errorf("blocked: %q", got)
	}
	r.pass(time.Second)
	r.wantTold("gpus_readable", "started 2")
	r.pass(time.Second)
	r.wantTold()
}

func TestACPUJobStartsThoughTheCardsCannotBeRead(t *testing.T) {
	r := newRig(t, 1)
	r.at().observer.observe(gpu.Sample{}, errors.New("driver does not answer"))
	r.submit(spec(cpu), spec())
	r.wantRow("1", job.Running, "")
	r.wantRow("2", job.Queued, "")
}

func TestACardThatIsMissingIsStale(t *testing.T) {
	r := newRig(t, 2)
	both := r.devices
	r.devices = both[:1]
	r.now = r.now.Add(time.Second)
	r.look()
	cards := r.at().cards.Book.List()
	if len(cards) != 2 || cards[0].Stale || !cards[1].Stale || cards[1].HealthReason == "" {
		t.Fatalf("cards %+v", cards)
	}
	r.submit(spec(), spec())
	r.wantRow("2", job.Queued, "")
	r.devices = both
	for range 5 {
		r.pass(time.Second)
		r.wantRow("2", job.Queued, "")
	}
	r.pass(time.Second)
	r.wantRow("2", job.Running, "")
}

func TestOnlyTheCardsThatWereAskedFor(t *testing.T) {
	r := newRig(t, 3, func(c *Config) { c.Cards = []int{2} })
	if cards := r.at().cards.Book.List(); len(cards) != 1 || cards[0].Index != 2 {
		t.Fatalf("cards %+v", cards)
	}
	r.submit(spec())
	if got := r.row("1").Grant.GPUs; !slices.Equal(got, []int{2}) {
		t.Errorf("granted %v", got)
	}
}

func TestALookOlderThanTheLastEndStartsNothing(t *testing.T) {
	r := newRig(t, 1)
	r.submit(spec(), spec())
	r.now = r.now.Add(time.Millisecond)
	r.hear(run.Ended, "1", keep.Record{}, false)
	r.step()
	if !r.at().observer.needsSample() {
		t.Error("it does not want to look again")
	}
	r.wantRow("2", job.Queued, "")
	r.look()
	r.step()
	r.wantRow("2", job.Running, "")
}

func TestBudgetsGrowWithWhatIsUsed(t *testing.T) {
	r := newRig(t, 1)
	r.submit(spec(vram(8000)))
	r.uses("1", 0, 20000)
	r.pass(time.Second)
	// 20000 with the spike buffer is 22000: 2064 are left after the margin.
	r.submit(spec(vram(2000)), spec(vram(2100)))
	r.wantRow("2", job.Running, "")
	r.wantRow("3", job.Queued, "")
}

func TestWhatAnotherBerthBookedIsNotFree(t *testing.T) {
	r := newRig(t, 1)
	r.others = []gpu.Entry{
		{Key: "other/1", UUIDs: []string{"GPU-0"}, BudgetMiB: []int64{20000}},
		{Key: "other/2", UUIDs: []string{"GPU-of-another-container"}, BudgetMiB: []int64{20000}},
	}
	r.submit(spec(vram(4000)), spec(vram(5000)), spec())
	r.wantRow("1", job.Running, "")
	r.wantRow("2", job.Queued, "")
	r.wantRow("3", job.Queued, "")
	r.others = nil
	r.pass(time.Second)
	r.wantRow("2", job.Running, "")
}

func TestRunningSaysWhatIsKnown(t *testing.T) {
	r := newRig(t, 2)
	r.submit(spec(vram(8000)), spec(vram(8000), gpus(2)))
	if list := r.at().attempts.List(); len(list) != 2 || list[0].Job.ID != "1" || list[0].NowMiB != -1 {
		t.Errorf("before it was measured: %+v", list)
	}
	r.uses("2", 1, 3000)
	r.pass(time.Second)
	r.uses("2", 1, 2000)
	r.pass(time.Second)
	if list := r.at().attempts.List(); list[1].NowMiB != 2000 || list[1].PeakMiB != 3000 {
		t.Errorf("measured: %+v", list[1])
	}
}

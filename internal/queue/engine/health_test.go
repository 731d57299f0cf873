package engine

import (
	"errors"
	"strings"
	"testing"
	"time"

	"berth/internal/job"
	"berth/internal/machine/gpu"
	"berth/internal/machine/keep"
	"berth/internal/machine/run"
	"berth/internal/queue/engine/cards"
	"berth/internal/sched"
)

// lose takes a card out of a look, as one that has fallen off the bus.
func (r *rig) lose(index int) {
	r.now = r.now.Add(time.Second)
	s := gpu.Sample{At: r.now, Faults: []gpu.Fault{{Index: index, Kind: gpu.FaultLost}}}
	for _, d := range r.devices {
		if d.Index != index {
			s.Devices = append(s.Devices, d)
		}
	}
	r.at().observer.observe(s, nil)
	r.step()
}

func (r *rig) xid(index, code int) {
	r.now = r.now.Add(time.Second)
	x := gpu.Xid{At: r.now, UUID: r.devices[index].UUID, Code: code}
	r.at().observer.observe(gpu.Sample{At: r.now, Devices: r.devices, Xids: []gpu.Xid{x}}, nil)
	r.step()
}

func (r *rig) texts(kind job.EventKind) (list []string) {
	for _, ev := range r.told {
		if ev.Kind == kind {
			text := ev.Text
			if ev.Job != nil {
				text = ev.Job.ID + ": " + text
			}
			list = append(list, text)
			if ev.Seq == 0 {
				r.t.Errorf("%q is not kept", text)
			}
		}
	}
	r.told = nil
	return list
}

func (r *rig) wantTexts(kind job.EventKind, want ...string) {
	r.t.Helper()
	if got := strings.Join(r.texts(kind), "\n"); got != strings.Join(want, "\n") {
		r.t.Errorf("told\n%s\nwant\n%s", got, strings.Join(want, "\n"))
	}
}

func card0(s *job.Spec) { s.IDs, s.GPUs = []int{0}, 1 }

func TestAJobOnALostCardIsToldAndItsFailureSaysSo(t *testing.T) {
	r := newRig(t, 2)
	r.submit(spec(card0))
	r.lose(0)
	r.wantTexts(job.EventCard, "gpu0 quarantined: has fallen off the bus", "1: gpu0 quarantined: has fallen off the bus; job 1 keeps running")
	r.wantRow("1", job.Running, "")
	if j := r.at().line.Roster.Get("1"); r.at().attempts.Copy(j).Detail != "gpu0 was lost while it ran (has fallen off the bus)" {
		t.Errorf("it shows %q", r.at().attempts.Copy(j).Detail)
	}
	r.hear(run.Ended, "1", keep.Record{ExitCode: 1, Stragglers: 1}, false)
	r.step()
	want := "gpu0 was lost while it ran (has fallen off the bus); left 1 background process behind, which was killed"
	if row := r.row("1"); row.Outcome != job.Exited(1) || row.Detail != want {
		t.Errorf("%s (%s)", row.Outcome, row.Detail)
	}
}

func TestAJobThatGetsByWithoutItsCardIsASuccess(t *testing.T) {
	r := newRig(t, 1)
	r.submit(spec())
	r.lose(0)
	r.end("1", keep.Record{}, false)
	r.wantRow("1", job.Finished, job.OK)
	if detail := r.row("1").Detail; detail != "" {
		t.Errorf("it carries %q", detail)
	}
}

func TestTheTroubleOfACardIsRecalledAfterARestart(t *testing.T) {
	r := newRig(t, 2)
	r.submit(spec(card0))
	r.xid(0, 48)
	j := r.row("1")
	r.again(run.Found{Token: j.Keep, Kind: run.FoundRunning, Job: "1", Attempt: 1})
	r.told = nil
	r.pass(time.Second)
	r.wantTexts(job.EventCard)
	if v := r.at().cards.Book.HealthOf("GPU-0"); v.State != gpu.HealthQuarantined || v.LastXid.Code != 48 {
		t.Errorf("%+v", v)
	}
	if got := r.e.turn.attempts.Active["1"].Trouble; got != "gpu0 was quarantined while it ran (Xid 48 (double-bit ECC error))" {
		t.Errorf("trouble %q", got)
	}
}

func TestAJobThatEndedOnALostCardWhileNoBerthLookedSaysSo(t *testing.T) {
	r := newRig(t, 2)
	r.submit(spec(card0))
	r.lose(0)
	record := keep.Record{ExitCode: 1, Job: "1", Attempt: 1}
	r.again(run.Found{Token: r.row("1").Keep, Kind: run.FoundEnded, Job: "1", Attempt: 1, Record: record})
	r.step()
	want := "gpu0 was lost while it ran (has fallen off the bus)"
	if row := r.row("1"); row.Outcome != job.Exited(1) || row.Detail != want {
		t.Errorf("%s (%s)", row.Outcome, row.Detail)
	}
}

func TestOnlyACardThatIsOKTakesJobs(t *testing.T) {
	r := newRig(t, 1)
	r.xid(0, 31)
	r.submit(spec())
	r.wantRow("1", job.Running, "")
	r.xid(0, 74)
	r.end("1", keep.Record{}, false)
	r.submit(spec())
	r.pass(time.Second)
	r.wantRow("2", job.Queued, "")
	if why := r.at().explain.Why("2"); !strings.Contains(why, "gpu0 is suspect: Xid 74 (NVLink error)") {
		t.Errorf("it waits because: %s", why)
	}
	if !r.at().health.Set(0, gpu.HealthOK, "root", "") || r.at().health.Set(7, gpu.HealthOK, "root", "") {
		t.Error("a card that is there was refused, or one that is not was taken")
	}
	r.step()
	r.wantRow("2", job.Running, "")
}

func TestAPersonsWordIsKept(t *testing.T) {
	r := newRig(t, 1)
	r.told = nil
	r.at().health.Set(0, gpu.HealthQuarantined, "root", "fan is loud")
	r.step()
	r.wantTexts(job.EventCard, "gpu0 quarantined by root: fan is loud")
	// Another reason changes nothing else, and is kept all the same.
	r.at().health.Set(0, gpu.HealthQuarantined, "root", "fan is stuck")
	r.step()
	r.again()
	r.look()
	r.submit(spec())
	r.wantRow("1", job.Queued, "")
	if card := r.at().cards.Book.List()[0]; card.Health != sched.HealthQuarantined || card.HealthReason != "fan is stuck" {
		t.Errorf("%+v", card)
	}
}

func TestAnXidThatComesWithAFailedLookCounts(t *testing.T) {
	r := newRig(t, 1)
	x := gpu.Xid{At: r.now, UUID: "GPU-0", Code: 79}
	r.at().observer.observe(gpu.Sample{Xids: []gpu.Xid{x}}, errors.New("driver does not answer"))
	r.pass(time.Second)
	r.submit(spec())
	r.wantRow("1", job.Queued, "")
}

func TestWhatWasSaidBeforeTheFirstLookCounts(t *testing.T) {
	about := func(code int) []gpu.Xid { return []gpu.Xid{{At: start0, UUID: "GPU-0", Code: code}} }
	for name, test := range map[string]struct {
		found, failed []gpu.Xid
	}{
		"while the cards were found": {found: about(79)},
		"with a look that failed":    {failed: about(79)},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, 1)
			r.boot(nil, nil, func(c *Config) { c.Xids = test.found })
			r.at().observer.observe(gpu.Sample{Xids: test.failed}, errors.New("driver does not answer"))
			r.pass(time.Second)
			r.submit(spec())
			r.wantRow("1", job.Queued, "")
			if v := r.at().cards.Book.HealthOf("GPU-0"); v.State != gpu.HealthQuarantined {
				t.Errorf("it is %v", v.State)
			}
			if len(r.e.turn.cards.Early) > 0 {
				t.Error("it is kept though it was heard")
			}
		})
	}
	r := newRig(t, 1)
	r.boot(nil, nil)
	for range cards.MaxEarly + 1 {
		r.at().observer.observe(gpu.Sample{Xids: about(31)}, errors.New("driver does not answer"))
	}
	if len(r.e.turn.cards.Early) != cards.MaxEarly {
		t.Errorf("%d are kept", len(r.e.turn.cards.Early))
	}
}

func TestACardWithNothingToDoIsLookedAtNowAndThen(t *testing.T) {
	r := newRig(t, 1)
	r.now = r.now.Add(cards.RestIntervalSlow - time.Millisecond)
	if r.at().observer.needsSample() {
		t.Error("it is looked at too often")
	}
	r.now = r.now.Add(time.Millisecond)
	if !r.at().observer.needsSample() {
		t.Error("it is not looked at")
	}
	r.lose(0)
	if r.now = r.now.Add(cards.RestInterval - time.Millisecond); r.at().observer.needsSample() {
		t.Error("a card in trouble is looked at too often for what a look costs")
	}
	if r.now = r.now.Add(time.Millisecond); !r.at().observer.needsSample() {
		t.Error("a card in trouble is not looked at more often")
	}
	r.submit(spec())
	if !r.e.at(r.now.Add(time.Second)).observer.needsSample() {
		t.Error("it is not looked at each poll though a job waits for it")
	}
}

func TestCardsThatSomebodyWatchesAreNotLeftAlone(t *testing.T) {
	r := newRig(t, 1)
	r.e.turn.cards.Source = cheapSource{}
	for range int(2 * cards.RestAfter / cards.RestInterval) {
		r.pass(cards.RestInterval)
	}
	if r.at().Resting() || !r.e.at(r.now.Add(cards.RestInterval)).observer.needsSample() {
		t.Error("what is shown of them would be old")
	}
}

func TestCardsThatNobodyHasUseForAreLeftAlone(t *testing.T) {
	r := newRig(t, 1, func(c *Config) { c.Rest = true })
	r.e.turn.cards.Source = cheapSource{}
	rest := func(d time.Duration) {
		for end := r.now.Add(d); r.now.Before(end); {
			r.pass(cards.RestInterval)
		}
	}
	rest(cards.RestAfter - cards.RestInterval)
	if r.at().Resting() || !r.e.at(r.now.Add(cards.RestInterval)).observer.needsSample() {
		t.Fatal("they are left alone too soon")
	}
	rest(cards.RestInterval)
	if !r.at().Resting() || r.e.at(r.now.Add(time.Hour)).observer.needsSample() || !r.e.at(r.now.Add(cards.RestGlance)).observer.needsSample() {
		t.Fatal("they are not left alone")
	}
	r.at().cards.Book.Look()
	if !r.at().observer.needsSample() {
		t.Error("somebody who asks for them is not shown them")
	}
	r.pass(time.Second)
	if r.at().Resting() {
		t.Error("somebody who asked may ask again")
	}
	rest(cards.RestAfter)
	r.submit(spec())
	if r.at().Resting() || !r.e.at(r.now.Add(time.Hour)).observer.needsSample() {
		t.Error("a job waits for nobody's look")
	}
	r.pass(time.Hour)
	r.wantRow("1", job.Running, "")
}

func TestACardInTroubleIsNeverLeftAlone(t *testing.T) {
	r := newRig(t, 1, func(c *Config) { c.Rest = true })
	r.e.turn.cards.Source = cheapSource{}
	for range int(cards.RestAfter/time.Minute) + 1 {
		r.now = r.now.Add(time.Minute)
		r.lose(0)
	}
	if r.at().Resting() {
		t.Error("nobody would see it come back")
	}
}

func TestACardThatNeverComesBackIsNotWatchedClosely(t *testing.T) {
	r := newRig(t, 2)
	r.e.turn.cards.Source = cheapSource{}
	r.submit(spec(card0))
	r.uses("1", 0, 8000)
	r.pass(time.Second)
	r.lose(0)
	r.hear(run.Ended, "1", keep.Record{ExitCode: 1}, false)
	r.submit(spec(card0))
	for range int(cards.LeftPatience / time.Second) {
		r.lose(0)
	}
	if got := r.at().cards.Due(r.now, r.at().observer.work()).Sub(r.now); got != cards.TroubleInterval {
		t.Errorf("it is looked at every %s", got)
	}
}

func TestAJobWithoutACardIsNotWatchedClosely(t *testing.T) {
	r := newRig(t, 1)
	r.e.turn.cards.Source = cheapSource{}
	r.submit(spec(cpu))
	r.look()
	if got := r.at().cards.Due(r.now, r.at().observer.work()).Sub(r.now); got != time.Second {
		t.Errorf("the cards are looked at every %s", got)
	}
}

func TestACardIsClosedUntilTheMemoryOfItsLastJobIsFree(t *testing.T) {
	r := newRig(t, 1)
	r.submit(spec(vram(12000)), spec(func(s *job.Spec) { s.VRAMMiB, s.Exclusive = 1000, true }))
	r.uses("1", 0, 12000)
	r.pass(time.Second)
	r.told = nil
	r.end("1", keep.Record{}, false) // the driver still lists its process
	r.wantRow("2", job.Queued, "")
	if why := r.at().explain.Why("2"); !strings.Contains(why, "gpu0: the memory of job 1 is not free yet: 12000 MiB") {
		t.Errorf("it waits because: %s", why)
	}
	if card := r.at().cards.Book.List()[0]; card.Health != sched.HealthOK || card.HealthReason == "" {
		t.Errorf("%+v", card)
	}
	r.devices[0].Processes = nil // now it does not, and the memory is still in use
	for range 28 {
		r.pass(time.Second)
	}
	r.wantTexts(job.EventCard)
	for range 3 {
		r.pass(time.Second)
	}
	r.wantTexts(job.EventCard, "gpu0 suspect: the memory of job 1 is not free yet: 11936 MiB, 30s after its end")
	r.wantRow("2", job.Queued, "")
	r.clear(0)
	r.pass(time.Second)
	if got := r.texts(job.EventCard); len(got) != 1 || !strings.HasPrefix(got[0], "gpu0 ok again") {
		t.Errorf("told %q", got)
	}
	r.wantRow("2", job.Running, "")
}

// TestMemoryOfNobodyKnowsWhomIsHeldForStrangers: where processes are not listed
// and some of the memory came back, the rest condemns no card.
func TestMemoryOfNobodyKnowsWhomIsHeldForStrangers(t *testing.T) {
	for used, want := range map[int64]gpu.HealthState{12000: gpu.HealthSuspect, 7000: gpu.HealthOK} {
		r := newRig(t, 1)
		r.devices[0].ProcessesKnown = false
		r.pass(time.Second)
		r.submit(spec(vram(8000)))
		r.devices[0].UsedMiB = 12000
		r.pass(time.Second)
		r.devices[0].UsedMiB = used
		r.end("1", keep.Record{}, false)
		r.submit(spec(vram(2000)))
		r.wantRow("2", job.Queued, "")
		r.pass(31 * time.Second)
		if v := r.at().cards.Book.HealthOf("GPU-0"); v.State != want {
			t.Errorf("with %d MiB left it is %+v", used, v)
		}
		r.pass(time.Second)
		if r.row("2").State == job.Running != (want == gpu.HealthOK) {
			t.Errorf("with %d MiB left the next job is %s", used, r.row("2").State)
		}
	}
}

func TestMemoryThatIsFreeAtOnceHoldsNothingUp(t *testing.T) {
	r := newRig(t, 1)
	r.submit(spec(), spec())
	r.uses("1", 0, 12000)
	r.pass(time.Second)
	r.clear(0)
	r.end("1", keep.Record{}, false)
	r.wantRow("2", job.Running, "")
}

func TestAPersonMayTakeWhatIsLeftForGranted(t *testing.T) {
	r := newRig(t, 1)
	r.submit(spec(vram(12000)))
	r.uses("1", 0, 12000)
	r.pass(time.Second)
	r.devices[0].Processes = nil
	r.end("1", keep.Record{}, false)
	r.pass(31 * time.Second)
	if v := r.at().cards.Book.HealthOf("GPU-0"); v.Cause != gpu.CauseLeftover {
		t.Fatalf("%+v", v)
	}
	r.submit(spec(vram(9000)))
	r.wantRow("2", job.Queued, "")
	r.at().health.Set(0, gpu.HealthOK, "root", "")
	r.step()
	r.wantRow("2", job.Running, "")
	r.pass(time.Second)
	if v := r.at().cards.Book.HealthOf("GPU-0"); v.State != gpu.HealthOK {
		t.Errorf("%+v", v)
	}
}

func TestPartsThatWereDividedAnewAreForgotten(t *testing.T) {
	r := newRig(t, 2)
	whole := r.devices[1]
	part := whole
	part.Index, part.UUID, part.Part = gpu.PartIndex(1, 0), "MIG-0", &gpu.Part{Of: 1}
	other := part
	other.Index, other.UUID = gpu.PartIndex(1, 1), "MIG-1"
	r.devices = []gpu.Device{r.devices[0], part, other}
	r.pass(time.Second)
	r.devices = []gpu.Device{r.devices[0], part}
	r.pass(time.Second)
	if cards := r.at().cards.Book.List(); len(cards) != 2 || cards[1].Index != part.Index || cards[1].Stale {
		t.Errorf("%+v", cards)
	}
	r.wantTexts(job.EventCard)
}

// cheapSource costs nothing, so that jobs are watched closely.
type cheapSource struct{ gpu.Source }

func (cheapSource) Cheap() bool { return true }

func TestAJobIsWatchedCloselyAtItsStartAndNearItsDeclaration(t *testing.T) {
	r := newRig(t, 1)
	r.e.turn.cards.Source = cheapSource{}
	r.submit(spec(vram(10000)))
	interval := func() time.Duration { return r.at().cards.Due(r.now, r.at().observer.work()).Sub(r.now) }
	r.look()
	if got := interval(); got != cards.CloseInterval {
		t.Errorf("at its start it is looked at every %s", got)
	}
	r.uses("1", 0, 5000)
	r.pass(11 * time.Second)
	if got := interval(); got != time.Second {
		t.Errorf("far from its declaration it is looked at every %s", got)
	}
	r.uses("1", 0, 9100)
	r.pass(time.Second)
	if got := interval(); got != cards.CloseInterval {
		t.Errorf("near its declaration it is looked at every %s", got)
	}
	for range 11 {
		r.pass(time.Second)
	}
	if got := interval(); got != time.Second {
		t.Errorf("when nothing changes it is looked at every %s", got)
	}
	r.did = nil
	r.pass(100 * time.Millisecond)
	r.wantDid()
}

func TestTroubleIsLookedAtMoreOften(t *testing.T) {
	r := newRig(t, 2, func(c *Config) { c.Poll = 20 * time.Second })
	interval := func() time.Duration { return r.at().cards.Due(r.now, r.at().observer.work()).Sub(r.now) }
	r.e.turn.cards.Source = cheapSource{}
	if got := interval(); got != 20*time.Second {
		t.Errorf("at rest they are looked at every %s", got)
	}
	r.e.turn.cfg.Poll = 2 * time.Second
	if got := interval(); got != cards.RestInterval {
		t.Errorf("at rest they are looked at every %s", got)
	}
	r.lose(0)
	if got := interval(); got != cards.TroubleInterval {
		t.Errorf("a card in trouble is looked at every %s", got)
	}
	for range 7 {
		r.pass(time.Second)
	}
	if got := interval(); got != cards.RestInterval {
		t.Errorf("one that is well again is looked at every %s", got)
	}
	r.at().observer.observe(gpu.Sample{}, errors.New("driver does not answer"))
	if got := interval(); got != cards.TroubleInterval {
		t.Errorf("cards that cannot be read are looked at every %s", got)
	}
}

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

// lookThatTook is a look at the cards by a driver that takes its time.
func (r *rig) lookThatTook(d time.Duration) {
	began := r.now
	r.now = r.now.Add(d)
	r.at().observer.observe(gpu.Sample{At: began, Devices: slices.Clone(r.devices)}, nil)
}

func TestASlowDriverStartsJobsAllTheSame(t *testing.T) {
	r := newRig(t, 1)
	r.now = r.now.Add(time.Minute)
	r.submit(spec(vram(4000)))
	r.wantRow("1", job.Queued, "")
	if !r.at().observer.needsSample() {
		t.Fatal("no look is wanted")
	}
	r.lookThatTook(3 * time.Second)
	r.step()
	r.wantRow("1", job.Running, "")
}

func TestAnOldLookSaysSoAndHoldsNoCPUJobUp(t *testing.T) {
	r := newRig(t, 1)
	r.now = r.now.Add(time.Minute)
	r.submit(spec(vram(4000)), spec(func(s *job.Spec) { s.GPUs = 0 }))
	r.wantRow("1", job.Queued, "")
	r.wantRow("2", job.Running, "")
	if why := r.at().explain.Why("1"); !strings.Contains(why, "gpu0 has no recent reading") {
		t.Errorf("it waits because: %s", why)
	}
}

// With nvidia-smi a reading takes a while, and the one before counts until then.
func TestAReadingCountsUntilTheNextCanBeThere(t *testing.T) {
	r := newRig(t, 1)
	r.lookThatTook(300 * time.Millisecond)
	r.submit(spec(), spec())
	for _, step := range []struct {
		after time.Duration
		stale bool
	}{{time.Second, false}, {500 * time.Millisecond, false}, {200 * time.Millisecond, true}} {
		r.now = r.now.Add(step.after)
		if why := r.at().explain.Why("2"); strings.Contains(why, "no recent reading") != step.stale {
			t.Errorf("%v later it waits because: %s", step.after, why)
		}
	}
}

func TestAnEndMakesOnlyItsOwnCardsWaitForALook(t *testing.T) {
	r := newRig(t, 2)
	r.submit(spec(), spec())
	r.now = r.now.Add(100 * time.Millisecond)
	r.look()
	r.now = r.now.Add(100 * time.Millisecond)
	r.hear(run.Ended, "1", keep.Record{}, false)
	r.submit(spec(func(s *job.Spec) { s.IDs, s.GPUs = []int{0}, 1 }), spec(vram(1000)))
	r.wantRow("3", job.Queued, "")
	if why := r.at().explain.Why("3"); !strings.Contains(why, "gpu0 has no recent reading") {
		t.Errorf("it waits because: %s", why)
	}
	if !r.at().observer.needsSample() {
		t.Error("no look is wanted")
	}
	r.look()
	r.step()
	r.wantRow("3", job.Running, "")
}

func TestCardsThatCannotBeReadAreAskedOncePerPoll(t *testing.T) {
	r := newRig(t, 1)
	r.now = r.now.Add(2 * time.Second)
	r.at().observer.observe(gpu.Sample{}, errors.New("driver does not answer"))
	r.submit(spec())
	r.now = r.now.Add(900 * time.Millisecond)
	if r.at().observer.needsSample() {
		t.Error("a sick driver is asked again within a poll")
	}
	r.now = r.now.Add(200 * time.Millisecond)
	if !r.at().observer.needsSample() {
		t.Error("it is not asked again after a poll")
	}
}

func TestALostCardIsToldWithWhoIsOnIt(t *testing.T) {
	r := newRig(t, 2)
	r.submit(spec(func(s *job.Spec) { s.IDs, s.GPUs = []int{1}, 1 }))
	whole := r.devices
	r.told, r.devices = nil, whole[:1]
	for range 9 {
		r.pass(time.Second)
	}
	r.wantTold("card") // suspect
	r.pass(time.Second)
	r.wantTold("card", "card 1") // quarantined
	r.told, r.devices = nil, whole
	for range 6 {
		r.pass(time.Second)
	}
	r.wantTold("card") // ok again
	r.wantRow("1", job.Running, "")
}

func TestAnothersJobOverItsDeclarationIsHeldAtItsPeak(t *testing.T) {
	r := newRig(t, 1)
	r.others = []gpu.Entry{{Key: "theirs", UUIDs: []string{"GPU-0"}, BudgetMiB: []int64{3072}, HolderPID: 9}}
	r.submit(spec(vram(30000))) // reads the ledger
	r.uses("theirs", 0, 15000)
	r.pass(time.Second)
	r.pass(time.Second)
	r.submit(spec(vram(12000)))
	r.pass(time.Second)
	r.wantRow("2", job.Queued, "")
	if why := r.at().explain.Why("2"); !strings.Contains(why, "12000 MiB") {
		t.Errorf("it waits because: %s", why)
	}
	r.others = nil
	r.clear(0)
	r.pass(time.Second)
	r.wantRow("2", job.Running, "")
}

// TestABookingOfAnEarlierVersion for a job that this berth has taken over is no
// other's: the card is not booked twice.
func TestABookingOfAnEarlierVersion(t *testing.T) {
	r := newRig(t, 1)
	r.submit(spec(vram(12000)))
	r.wantRow("1", job.Running, "")
	own := r.booked[0]
	r.others = []gpu.Entry{{Key: "before/1", UUIDs: own.UUIDs, BudgetMiB: own.BudgetMiB, HolderPID: own.HolderPID}}
	r.look()
	r.submit(spec(vram(8000)))
	r.wantRow("2", job.Running, "")
	if others := r.at().cards.Bookings.Others(); len(others) > 0 {
		t.Errorf("held by others: %+v", others)
	}
}

func TestAnothersJobIsNoStrangerWhileNothingIsQueued(t *testing.T) {
	theirs := []gpu.Entry{{Key: "theirs", UUIDs: []string{"GPU-0"}, BudgetMiB: []int64{3072}, HolderPID: 9}}
	for name, before := range map[string]bool{"of before the first look": true, "of later": false} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, 1)
			if before {
				r.others = theirs
				r.uses("theirs", 0, 2000)
				r.again()
			}
			r.look()
			r.others = theirs
			r.uses("theirs", 0, 2000)
			if !before {
				r.look()
			}
			if card := r.at().cards.Book.List()[0]; card.UsedMiB != 2000 || card.ForeignMiB != 0 || len(r.at().cards.Bookings.Others()) != 1 {
				t.Errorf("%+v is held by %+v", card, r.at().cards.Bookings.Others())
			}
			// What cannot be read for once changes nothing, and is no news while nothing waits.
			r.told, r.othersErr = nil, errors.New("the ledger is gone")
			r.look()
			if card := r.at().cards.Book.List()[0]; card.ForeignMiB != 0 || len(r.at().cards.Bookings.Others()) != 1 || len(r.told) > 0 {
				t.Errorf("%+v is held by %+v; told %+v", card, r.at().cards.Bookings.Others(), r.told)
			}
			r.others, r.othersErr = nil, nil
			r.clear(0)
			r.look()
			if len(r.at().cards.Bookings.Others()) != 0 {
				t.Errorf("it is over, and holds %+v", r.at().cards.Bookings.Others())
			}
		})
	}
}

func TestOurJobOverItsDeclarationIsBookedAtItsPeak(t *testing.T) {
	r := newRig(t, 1)
	r.submit(spec(vram(3000)))
	r.uses("1", 0, 15000)
	r.pass(time.Second)
	if len(r.booked) != 1 || r.booked[0].BudgetMiB[0] != 16500 {
		t.Errorf("the others are told %+v", r.booked)
	}
}

func TestAJobEndedWhenItEndedNotWhenBerthHeardOfIt(t *testing.T) {
	r := newRig(t, 1)
	r.submit(spec())
	r.now = r.now.Add(8 * time.Hour)
	r.end("1", keep.Record{Elapsed: 2 * time.Second}, false)
	if row := r.row("1"); row.EndedAt.Sub(row.StartedAt) != 2*time.Second {
		t.Errorf("from %v to %v", row.StartedAt, row.EndedAt)
	}
}

func TestAnOrderThatIsNotTakenEndsTheJob(t *testing.T) {
	r := newRig(t, 1)
	r.goErr = errors.New("its environment is too long")
	r.submit(spec())
	r.goErr = nil
	r.step()
	r.wantRow("1", job.Failed, job.Launch)
	r.submit(spec())
	r.pass(time.Second)
	r.wantRow("2", job.Running, "")
}

func TestJobsThatWaitForOneAnotherRunAgainTogether(t *testing.T) {
	r := newRig(t, 1)
	waits := spec(func(s *job.Spec) { s.GPUs, s.After = 0, []job.Dependency{{Job: "2", On: job.AfterOK}} })
	r.submit(waits, spec(func(s *job.Spec) { s.GPUs = 0 }))
	r.end("2", keep.Record{ExitCode: 1}, false)
	r.wantRow("1", job.Cancelled, job.Depends)
	r.at().queue.Again([]*job.Job{r.row("1").Clone(), r.row("2").Clone()})
	r.step()
	r.wantRow("1", job.Queued, "")
	r.wantRow("2", job.Running, "")
	r.end("2", keep.Record{}, false)
	r.wantRow("1", job.Running, "")
}

// TestBeforeAnyCardWasSeenNothingIsRefused: a driver that is late at boot must
// not end the jobs that wait for its cards.
func TestBeforeAnyCardWasSeenNothingIsRefused(t *testing.T) {
	r := newRig(t, 0)
	r.submit(spec())
	r.step()
	if j := r.at().line.Roster.Get("1"); j == nil || j.State != job.Queued {
		t.Errorf("the job is %+v", j)
	}
	for _, why := range r.at().explain.Infeasible("ann", spec()) {
		t.Errorf("it is refused: %s", why)
	}
}

// TestALookThatWasBegunBeforeAnEndStartsNothing: what it shows may be from before
// the end, though it came in after.
func TestALookThatWasBegunBeforeAnEndStartsNothing(t *testing.T) {
	r := newRig(t, 1)
	r.submit(spec(), spec())
	begun := r.now.Add(time.Second)
	r.now = begun.Add(50 * time.Millisecond)
	r.hear(run.Ended, "1", keep.Record{}, false)
	r.now = begun.Add(100 * time.Millisecond)
	r.at().observer.observe(gpu.Sample{At: begun, Devices: r.devices}, nil)
	r.step()
	r.wantRow("2", job.Queued, "")
	if !r.at().observer.needsSample() {
		t.Error("it does not want to look again")
	}
	r.look()
	r.step()
	r.wantRow("2", job.Running, "")
}

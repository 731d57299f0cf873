package engine

import (
	"slices"
	"strings"
	"testing"
	"time"

	"berth/internal/job"
	"berth/internal/machine/keep"
	"berth/internal/machine/run"
	"berth/internal/queue/engine/running"
)

// says gives the engine what a supervisor says of its job's parking.
func (r *rig) says(id string, n keep.ParkNews) {
	r.t.Helper()
	j := r.at().line.Roster.Get(id)
	if j == nil {
		r.t.Fatalf("job %s is over already", id)
	}
	r.at().observer.absorb(run.Event{Kind: run.Parking, Token: j.Keep, Job: id, Attempt: j.Attempt.Number, Park: n})
	r.pass(10 * time.Millisecond)
}

var (
	wasParked   = keep.ParkNews{Parked: true, Took: 2 * time.Second}
	wasResumed  = keep.ParkNews{Took: time.Second}
	hasNoRoom   = keep.ParkNews{Parked: true, Took: time.Second, Why: "not enough free memory"}
	wasRefused  = keep.ParkNews{Took: time.Second, Why: "lock: not supported (801)"}
	foundParked = keep.ParkNews{Parked: true}
	foundAwake  = keep.ParkNews{}
)

// freeMiB is a host with this much free memory, whatever is parked.
func freeMiB(mib int64) func(int64) int64 { return func(int64) int64 { return mib } }

// parkedRig has job 1 running on a card with 5000 MiB for ten seconds.
func parkedRig(t *testing.T, change ...func(*Config)) *rig {
	r := newRig(t, 1, change...)
	r.submit(job.Spec{Argv: []string{"a"}, GPUs: 1, TimeLimit: time.Hour})
	r.uses("1", 0, 5000)
	r.pass(10 * time.Second)
	r.did = nil
	return r
}

// park parks job 1 for a person.
func (r *rig) park() {
	r.t.Helper()
	if why := r.at().parker.Park("1", "ann", time.Time{}); why != "" {
		r.t.Fatalf("not parked: %s", why)
	}
	r.step()
	r.clear(0)
	r.says("1", wasParked)
	r.wantRow("1", job.Parked, "")
}

func TestAParkedJobGivesItsCardAwayAndGoesOnThere(t *testing.T) {
	r := parkedRig(t)
	if why := r.at().parker.Park("1", "ann", time.Time{}); why != "" {
		t.Fatalf("not parked: %s", why)
	}
	r.step()
	r.wantDid("commit 1:running", "park t1 24576")
	r.clear(0)
	r.says("1", wasParked)
	r.wantDid("commit 1:parked", "book ")
	if row := r.row("1"); row.Parking.HostMiB() != 5000 || row.Parking.Times != 1 || row.Parking.Served < 10*time.Second {
		t.Errorf("on disk %+v", row.Parking)
	}
	r.submit(job.Spec{Argv: []string{"b"}, GPUs: 1})
	r.wantRow("2", job.Running, "")
	r.did = nil
	if !r.at().parker.Unpark("1", "ann") {
		t.Fatal("not unparked")
	}
	r.pass(time.Hour)
	r.wantRow("1", job.Parked, "") // its card is taken
	r.did = nil
	r.end("2", keep.Record{}, false)
	r.wantRow("1", job.Running, "")
	if got := r.did[len(r.did)-1]; got != "resume t1 GPU-0 5000" {
		t.Errorf("did %q", r.did)
	}
	r.says("1", wasResumed)
	r.pass(20 * time.Second)
	r.end("1", keep.Record{}, false)
	r.wantRow("1", job.Finished, job.OK)
	if row := r.row("1"); row.Attempt.Number != 1 || row.Worked(r.now).Round(time.Second) != 30*time.Second {
		t.Errorf("it worked %v in attempt %d", row.Worked(r.now), row.Attempt.Number)
	}
}

// TestAJobThatComesBackAtOnceWorksOn: it got its card again in the round in which it was
// parked.
func TestAJobThatComesBackAtOnceWorksOn(t *testing.T) {
	r := parkedRig(t)
	if why := r.at().parker.Park("1", "ann", time.Time{}); why != "" {
		t.Fatalf("not parked: %s", why)
	}
	r.step()
	if !r.at().parker.Unpark("1", "ann") {
		t.Fatal("not unparked")
	}
	r.clear(0)
	row := r.row("1")
	r.at().observer.absorb(run.Event{Kind: run.Parking, Token: row.Keep, Job: "1", Attempt: row.Attempt.Number, Park: wasParked})
	r.pass(0)
	r.wantRow("1", job.Running, "")
	worked := r.row("1").Worked(r.now)
	r.says("1", wasResumed)
	if r.pass(time.Minute); r.row("1").Worked(r.now) < worked+time.Minute {
		t.Errorf("it worked %v before and %v a minute later", worked, r.row("1").Worked(r.now))
	}
}

// A long queue must not push a parked job off the first page of a list.
func TestAParkedJobIsListedBeforeTheQueue(t *testing.T) {
	r := parkedRig(t)
	if why := r.at().parker.Park("1", "ann", time.Time{}); why != "" {
		t.Fatalf("not parked: %s", why)
	}
	r.step()
	r.clear(0)
	r.says("1", wasParked)
	r.submit(job.Spec{Argv: []string{"b"}, GPUs: 1}, job.Spec{Argv: []string{"c"}, GPUs: 1})
	for _, unparked := range []bool{false, true} {
		if unparked {
			r.at().parker.Unpark("1", "ann")
		}
		var ids []string
		r.at().explain.InOrder(func(j *job.Job) bool { ids = append(ids, j.ID); return true })
		if !slices.Equal(ids, []string{"1", "2", "3"}) {
			t.Errorf("unparked %v: listed %v", unparked, ids)
		}
	}
}

func TestAJobThatCannotBeParkedGoesOnAndSaysWhy(t *testing.T) {
	r := parkedRig(t)
	r.at().parker.Park("1", "ann", time.Time{})
	r.step()
	r.says("1", wasRefused)
	row := r.row("1")
	if row.State != job.Running || row.Parking.Phase != job.ParkNone || !strings.Contains(row.Parking.Refused, "not supported") || row.Held {
		t.Errorf("on disk %+v", row)
	}
	// A person may ask again.
	if why := r.at().parker.Park("1", "ann", time.Time{}); why != "" {
		t.Errorf("not tried again: %s", why)
	}
	for name, change := range map[string]func(*Config){
		"the driver is too old": func(c *Config) { c.Parking.Cannot = "the driver is too old" },
		"it uses 4.9 GiB on its GPUs, and the host has room for 2.0 GiB of parked jobs (scheduling.park_memory)": func(c *Config) {
			c.Parking.FreeMiB, c.Parking.MemoryMiB = freeMiB(100_000), 2048
		},
		"it uses 4.9 GiB on its GPUs, and parked jobs of ann may take 1.0 GiB more of the host's memory (limits.parked_memory)": func(c *Config) {
			c.Parking.FreeMiB, c.Parking.MemoryMiB, c.Parking.UserMiB = freeMiB(100_000), 50_000, 1024
		},
	} {
		r := parkedRig(t, change)
		if why := r.at().parker.Park("1", "ann", time.Time{}); why != name {
			t.Errorf("refused with %q, want %q", why, name)
		}
		r.step()
		r.wantDid()
	}
}

func TestAParkedJobComesBackAtItsTime(t *testing.T) {
	r := parkedRig(t)
	r.at().parker.Park("1", "ann", r.now.Add(time.Hour))
	r.step()
	r.clear(0)
	r.says("1", wasParked)
	r.pass(50 * time.Minute)
	r.wantRow("1", job.Parked, "")
	r.pass(11 * time.Minute)
	r.wantRow("1", job.Running, "")
}

func TestAParkedJobIsCancelled(t *testing.T) {
	r := parkedRig(t)
	r.park()
	r.did = nil
	r.at().requests.CancelBy("1", "ann", 0)
	r.step()
	r.wantDid("commit 1:parked", "stop t1 cancel 0s")
	r.hear(run.Ended, "1", keep.Record{Stop: "cancel", Signal: 9}, false)
	r.pass(time.Second)
	r.wantRow("1", job.Cancelled, job.WasCancelled)
	if row := r.row("1"); row.PeakMiB[0] != 5000 || row.Detail != "cancelled by ann while parked" {
		t.Errorf("its peak is %v, and it is said to be %s", row.PeakMiB, row.Detail)
	}
	r.submit(job.Spec{Argv: []string{"b"}, GPUs: 1})
	r.wantRow("2", job.Running, "")
}

func TestAJobWhoseCardIsFullStaysParked(t *testing.T) {
	r := parkedRig(t)
	r.park()
	r.at().parker.Unpark("1", "ann")
	r.pass(time.Second)
	r.wantRow("1", job.Running, "")
	r.says("1", hasNoRoom)
	r.wantRow("1", job.Parked, "")
	r.pass(running.ResumeDelay / 2)
	r.wantRow("1", job.Parked, "")
	r.pass(running.ResumeDelay)
	r.wantRow("1", job.Running, "")
	r.says("1", wasResumed)
	if row := r.row("1"); row.Parking.Phase != job.ParkNone {
		t.Errorf("on disk %+v", row.Parking)
	}
}

func TestAJobThatCouldNotBeResumedDidNotEndWell(t *testing.T) {
	for requeue, state := range map[bool]job.State{false: job.Failed, true: job.Queued} {
		r := parkedRig(t)
		r.e.turn.line.Roster.Get("1").Spec.Requeue = requeue
		r.park()
		r.at().parker.Unpark("1", "ann")
		r.pass(time.Second)
		r.devices[0].UsedMiB = 24576 // so that it does not start again at once
		r.hear(run.Ended, "1", keep.Record{Stop: keep.StopBroken, Signal: 9, Note: "restore failed"}, false)
		r.pass(10 * time.Millisecond)
		if row := r.row("1"); row.State != state || !requeue && (row.Outcome != job.Resume || !strings.Contains(row.Detail, "restore failed")) {
			t.Errorf("requeue %v: %s %q %s", requeue, row.State, row.Outcome, row.Detail)
		}
	}
}

// TestParkingSurvivesACrash kills berth in every phase. The supervisor says what
// is, and the store what was wanted.
func TestParkingSurvivesACrash(t *testing.T) {
	out := func(r *rig) { r.at().parker.Park("1", "ann", time.Time{}); r.step() }
	back := func(r *rig) { r.park(); r.at().parker.Unpark("1", "ann"); r.pass(time.Second) }
	for name, test := range map[string]struct {
		before func(*rig)
		says   keep.ParkNews
		state  job.State
		did    string // last
	}{
		"the order to park was lost":   {out, foundAwake, job.Running, "park t1 24576"},
		"it was parked meanwhile":      {out, foundParked, job.Parked, "book "},
		"it is parked":                 {(*rig).park, foundParked, job.Parked, ""},
		"the order to resume was lost": {back, foundParked, job.Running, "resume t1 GPU-0 5000"},
		"it was resumed meanwhile":     {back, foundAwake, job.Running, "commit 1:running"},
		"the store is older":           {(*rig).park, foundAwake, job.Running, "commit 1:running"},
	} {
		t.Run(name, func(t *testing.T) {
			r := parkedRig(t)
			test.before(r)
			r.again(run.Found{Token: "t1", Job: "1", Attempt: 1, Kind: run.FoundRunning})
			r.look()
			r.step()
			r.did = nil
			r.says("1", test.says)
			r.wantRow("1", test.state, "")
			last := ""
			if len(r.did) > 0 {
				last = r.did[len(r.did)-1]
			}
			if last != test.did {
				t.Errorf("did %q, want %q last", r.did, test.did)
			}
			if held := len(r.at().attempts.Active) == 1; held != (test.state == job.Running) {
				t.Errorf("holds its card: %v", held)
			}
		})
	}
}

func TestAParkedJobWhoseSupervisorDiedIsLost(t *testing.T) {
	r := parkedRig(t)
	r.park()
	r.hear(run.Lost, "1", keep.Record{}, false)
	r.pass(time.Second)
	r.wantRow("1", job.Failed, job.Lost)
	r = parkedRig(t)
	r.park()
	r.again()
	r.pass(time.Second)
	r.wantRow("1", job.Failed, job.Lost)
}

// parkable is a job that lets itself be parked.
func parkable(priority int) job.Spec {
	return job.Spec{Argv: []string{"p"}, GPUs: 1, Priority: priority, Preemptible: "park"}
}

func TestAJobWithAHigherPriorityHasAnotherParked(t *testing.T) {
	r := newRig(t, 1)
	r.submit(parkable(0))
	r.uses("1", 0, 5000)
	r.pass(time.Hour)
	r.did = nil
	r.submit(job.Spec{Argv: []string{"b"}, GPUs: 1, Priority: 5})
	if got := r.did[len(r.did)-1]; got != "park t1 24576" {
		t.Fatalf("did %q", r.did)
	}
	r.clear(0)
	r.says("1", wasParked)
	r.wantRow("1", job.Parked, "")
	r.wantRow("2", job.Running, "")
	r.pass(time.Minute)
	r.end("2", keep.Record{}, false)
	r.wantRow("1", job.Running, "") // it comes back by itself
	r.says("1", wasResumed)
	if row := r.row("1"); row.Attempt.Number != 1 || row.Parking.Times != 1 || row.PreemptedFor != "" {
		t.Errorf("on disk %+v", row)
	}
}

func TestAJobThatRefusedToBeParkedIsNotAskedAgain(t *testing.T) {
	r := newRig(t, 1)
	r.submit(parkable(0))
	r.uses("1", 0, 5000)
	r.pass(time.Hour)
	r.submit(job.Spec{Argv: []string{"b"}, GPUs: 1, Priority: 5})
	r.says("1", wasRefused)
	r.did = nil
	r.pass(time.Hour)
	r.wantRow("1", job.Running, "")
	r.wantRow("2", job.Queued, "")
	for _, did := range r.did {
		if strings.HasPrefix(did, "park") {
			t.Errorf("did %q", r.did)
		}
	}
}

func TestAJobIsNotParkedWithoutRoomOnTheHost(t *testing.T) {
	for room, want := range map[int64]string{4000: "", 6000: "park t1 24576"} {
		r := newRig(t, 1, func(c *Config) { c.Parking.FreeMiB, c.Parking.MemoryMiB = freeMiB(100_000), room })
		r.submit(parkable(0))
		r.uses("1", 0, 5000)
		r.pass(time.Hour)
		r.did = nil
		r.submit(job.Spec{Argv: []string{"b"}, GPUs: 1, Priority: 5})
		if last := r.did[len(r.did)-1]; strings.HasPrefix(last, "park") != (want != "") || want != "" && last != want {
			t.Errorf("with room for %d MiB it did %q", room, r.did)
		}
	}
}

// TestAJobComesBackWithWhatItReallyHad: it grew between the last measurement and
// the moment it was saved, and a restore without room for all of it would destroy
// it.
func TestAJobComesBackWithWhatItReallyHad(t *testing.T) {
	r := parkedRig(t)
	r.at().parker.Park("1", "ann", time.Time{})
	r.step()
	r.clear(0)
	r.says("1", keep.ParkNews{Parked: true, Took: time.Second, MiB: 9000})
	if got := r.row("1").Parking.HostMiB(); got != 9000 {
		t.Errorf("%d MiB are on the host", got)
	}
	r.at().parker.Unpark("1", "ann")
	r.pass(time.Second)
	if got := r.did[len(r.did)-1]; got != "resume t1 GPU-0 9000" {
		t.Errorf("did %q", r.did)
	}
	// What is missing is spread over the cards of a gang.
	p := job.Parking{CardMiB: map[int]int64{0: 1000, 1: 3000}}
	if p.Saved(7000); p.CardMiB[0] != 2500 || p.CardMiB[1] != 4500 {
		t.Errorf("a gang needs %v", p.CardMiB)
	}
	if p.Saved(10); p.HostMiB() != 7000 {
		t.Errorf("a gang needs %v", p.CardMiB)
	}
}

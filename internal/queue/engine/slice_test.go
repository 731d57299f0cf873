package engine

import (
	"slices"
	"strings"
	"testing"
	"time"

	"berth/internal/job"
	"berth/internal/machine/keep"
	"berth/internal/queue/engine/running"
	"berth/internal/queue/engine/settings"
)

// slicing is a job with a time slice of an hour.
func slicing() job.Spec {
	return job.Spec{Argv: []string{"a"}, GPUs: 1, TimeLimit: time.Hour, OnTimeout: job.TimeoutPark}
}

// TestATimeSliceEndsInTheQueue: the job is parked at its limit, goes behind the
// jobs that wait, and has a fresh limit when it comes back.
func TestATimeSliceEndsInTheQueue(t *testing.T) {
	r := newRig(t, 1, func(c *Config) { c.Submissions = true })
	r.submit(slicing(), slicing(), slicing())
	turns := ""
	for range 7 {
		for id := range r.at().attempts.Active {
			turns += id
			r.uses(id, 0, 5000)
			r.pass(59 * time.Minute)
			r.wantRow(id, job.Running, "")
			r.pass(2 * time.Minute)
			if row := r.row(id); row.Parking.Phase != job.ParkOut || row.Parking.By != job.ParkedByLimit {
				t.Fatalf("job %s after its slice: %+v", id, row.Parking)
			}
			r.clear(0)
			r.says(id, wasParked)
			r.wantRow(id, job.Parked, "")
			if row := r.row(id); row.Parking.Sliced != row.Parking.Served || row.Held {
				t.Errorf("job %s has used %v of its next limit", id, row.Slice(r.now))
			}
			r.pass(time.Second)
		}
		for id := range r.at().attempts.Active {
			if r.row(id).Parking.Phase == job.ParkBack {
				r.says(id, wasResumed)
			}
		}
	}
	if turns != "1231231" {
		t.Errorf("they ran in the order %s", turns)
	}
}

// TestATimeSliceAlone: nobody waits, so the job just goes on, with a fresh limit.
func TestATimeSliceAlone(t *testing.T) {
	r := newRig(t, 1)
	r.submit(slicing())
	r.uses("1", 0, 5000)
	r.pass(61 * time.Minute)
	row := r.row("1")
	if row.State != job.Running || row.Parking.Phase != job.ParkNone || row.Slice(r.now) > time.Second {
		t.Errorf("it is %s %+v", row.State, row.Parking)
	}
	r.kinds()
	r.pass(61 * time.Minute)
	if told := r.kinds(); slices.Contains(told, "notice 1") || r.row("1").Slice(r.now) > time.Second {
		t.Errorf("at its second limit: told %q, %v used", told, r.row("1").Slice(r.now))
	}
	r.submit(job.Spec{Argv: []string{"b"}, GPUs: 1})
	r.pass(30 * time.Minute)
	r.wantRow("1", job.Running, "")
	r.pass(31 * time.Minute)
	if row := r.row("1"); row.Parking.Phase != job.ParkOut {
		t.Errorf("with a job waiting it is %s %+v", row.State, row.Parking)
	}
}

// TestATimeSliceThatCannotEndInParking: a job that is refused goes on, unless the
// administrator limits how long jobs run; without parking, the limit ends it.
func TestATimeSliceThatCannotEndInParking(t *testing.T) {
	for _, test := range []struct {
		name   string
		change func(*Config)
		refuse bool
		want   string
	}{
		{"refused", func(*Config) {}, true, ""},
		{"refused where times are limited", func(c *Config) { c.Parking.Strict = true }, true, "stop t1 timeout"},
		{"no room on the host", func(c *Config) {
			c.Parking.FreeMiB, c.Parking.MemoryMiB, c.Parking.Strict = freeMiB(4096), 2048, true
		}, false, ""},
		{"a machine that cannot", func(c *Config) { c.Parking.Cannot = "the driver is too old" }, false, "stop t1 timeout"},
	} {
		r := newRig(t, 1, test.change)
		r.submit(slicing(), job.Spec{Argv: []string{"b"}, GPUs: 1})
		r.uses("1", 0, 5000)
		r.pass(61 * time.Minute)
		if test.refuse {
			r.says("1", wasRefused)
		}
		r.pass(time.Second)
		did := strings.Join(r.did, "\n")
		if got := strings.Contains(did, "stop t1"); got != (test.want != "") || !strings.Contains(did, test.want) {
			t.Errorf("%s: did %q", test.name, r.did)
		}
		if row := r.row("1"); test.want == "" && row.Slice(r.now) > time.Minute {
			t.Errorf("%s: it has used %v of its limit", test.name, row.Slice(r.now))
		}
		r.did = nil
		if r.pass(61 * time.Minute); test.refuse && test.want == "" && strings.Contains(strings.Join(r.did, "\n"), "park t1") {
			t.Errorf("%s: tried again: %q", test.name, r.did)
		}
	}
}

// TestATimeSliceIsWorthItsCost: with a limit shorter than parking takes, a third of
// the time at most goes to parking.
func TestATimeSliceIsWorthItsCost(t *testing.T) {
	r := newRig(t, 1)
	spec := slicing()
	spec.TimeLimit = time.Second
	r.submit(spec, job.Spec{Argv: []string{"b"}, GPUs: 1})
	r.uses("1", 0, 17000) // 10.1 s out, 3.7 s back
	r.pass(27 * time.Second)
	if row := r.row("1"); row.Parking.Phase != job.ParkNone {
		t.Errorf("parked after %v", row.Worked(r.now))
	}
	r.pass(2 * time.Second)
	if row := r.row("1"); row.Parking.Phase != job.ParkOut {
		t.Fatalf("not parked after %v", row.Worked(r.now))
	}
	// Once it has resumed, the time that took does not count as run.
	r.clear(0)
	r.says("1", keep.ParkNews{Parked: true})
	r.end("2", keep.Record{}, false)
	r.submit(job.Spec{Argv: []string{"b"}, GPUs: 1})
	r.says("1", keep.ParkNews{})
	r.uses("1", 0, 17000)
	r.pass(30 * time.Second)
	if row := r.row("1"); row.Parking.Phase != job.ParkNone || row.Parking.Times != 1 {
		t.Errorf("parked again after %v", r.now.Sub(row.RunsSince()))
	}
	r.pass(2 * time.Second)
	if row := r.row("1"); row.Parking.Phase != job.ParkOut {
		t.Errorf("not parked again after %v", r.now.Sub(row.RunsSince()))
	}
}

// TestHostMemoryForParkedJobs: what is parked and what is on its way count, and
// some is never given away.
func TestHostMemoryForParkedJobs(t *testing.T) {
	with := func(user string, phase job.ParkPhase, mib int64) *running.Attempt {
		return &running.Attempt{Job: &job.Job{User: user, Attempt: job.Attempt{Parking: job.Parking{Phase: phase, CardMiB: map[int]int64{0: mib}}}}}
	}
	host := func(parkedMiB int64) int64 { return 16_000 - parkedMiB }
	for _, test := range []struct {
		name    string
		parking settings.Parking
		want    int64
		bobs    int64
	}{
		{"all that is free", settings.Parking{FreeMiB: freeMiB(21_000)}, 21_000 - 1000 - 1024, 21_000 - 1000 - 1024},
		{"an amount for all", settings.Parking{MemoryMiB: 9000, FreeMiB: freeMiB(100_000)}, 4000, 4000},
		{"an amount that is not there", settings.Parking{MemoryMiB: 90_000, FreeMiB: freeMiB(4096)}, 4096 - 1000 - 1024, 4096 - 1000 - 1024},
		{"all of it is taken", settings.Parking{MemoryMiB: 3000, FreeMiB: freeMiB(100_000)}, 0, 0},
		{"none may be taken", settings.Parking{MemoryMiB: -1, FreeMiB: freeMiB(100_000)}, 0, 0},
		{"a part for each user", settings.Parking{MemoryMiB: 90_000, UserMiB: 6000, FreeMiB: freeMiB(100_000)}, 85_000, 2000},
		{"a part for each user, of what is left", settings.Parking{MemoryMiB: 6000, UserMiB: 5500, FreeMiB: freeMiB(100_000)}, 1000, 1000},
		{"a host that shows nothing of what is parked", settings.Parking{MemoryMiB: 90_000, FreeMiB: host}, 16_000 - 4000 - 1000 - 1024, 16_000 - 4000 - 1000 - 1024},
	} {
		r := newRig(t, 1, func(c *Config) { c.Parking = test.parking })
		s := r.at().attempts
		s.Active["1"], s.Parked["2"] = with("ann", job.ParkOut, 1000), with("bob", job.ParkNone, 4000)
		if got, known := s.Parking.Room(); got.AllMiB != test.want || got.Of("bob") != test.bobs || !known {
			t.Errorf("%s: %d MiB, %d of them for bob; want %d and %d", test.name, got.AllMiB, got.Of("bob"), test.want, test.bobs)
		}
	}
}

// TestWhatIsLeftOfALimit: a slice begins anew, an ordinary limit does not.
func TestWhatIsLeftOfALimit(t *testing.T) {
	cfg := &settings.Settings{}
	j := &job.Job{Spec: job.Spec{TimeLimit: time.Hour}}
	j.Parking.Served = 40 * time.Minute
	if got := cfg.Left(j); got != 20*time.Minute {
		t.Errorf("%v are left", got)
	}
	j.Parking.Sliced = 40 * time.Minute
	if got := cfg.Left(j); got != time.Hour {
		t.Errorf("%v are left of a fresh limit", got)
	}
}

// TestAnIdleJobIsParkedUntilAPersonAsks.
func TestAnIdleJobIsParkedUntilAPersonAsks(t *testing.T) {
	for _, noPark := range []bool{false, true} {
		r := newRig(t, 1, func(c *Config) { c.Parking.Idle = time.Hour })
		r.submit(job.Spec{Argv: []string{"notebook"}, GPUs: 1, NoPark: noPark})
		r.uses("1", 0, 5000)
		r.devices[0].UtilPct = 0
		for range 59 {
			r.pass(time.Minute)
		}
		r.wantRow("1", job.Running, "")
		for range 3 {
			r.pass(time.Minute)
		}
		row := r.row("1")
		if got := row.Parking.Phase == job.ParkOut && row.Parking.By == job.ParkedByIdling && row.Held; got == noPark {
			t.Fatalf("idle for an hour with NoPark %v: %+v", noPark, row.Parking)
		}
		if noPark {
			continue
		}
		r.clear(0)
		r.says("1", wasParked)
		r.pass(time.Hour)
		r.wantRow("1", job.Parked, "")
		if !r.at().parker.Unpark("1", "ann") {
			t.Fatal("not unparked")
		}
		r.pass(time.Second)
		r.wantRow("1", job.Running, "")
		r.uses("1", 0, 5000)
		r.says("1", wasResumed)
		for range 50 {
			r.pass(time.Minute)
		}
		r.wantRow("1", job.Running, "") // its hour begins anew
		token := r.row("1").Keep
		r.at().parker.Attend(token, "ann")
		r.at().parker.Attend(token, "ann")
		r.at().parker.Unattend(token)
		for range 120 {
			r.pass(time.Minute)
		}
		if got := r.row("1").Parking.Phase; got != job.ParkNone {
			t.Errorf("%v while somebody is attached to it", got)
		}
		r.at().parker.Unattend(token)
		for range 59 {
			r.pass(time.Minute)
		}
		r.wantRow("1", job.Running, "")
		r.pass(3 * time.Minute)
		if got := r.row("1").Parking.Phase; got != job.ParkOut {
			t.Errorf("%v an hour after the last detached", got)
		}
		r.at().parker.Attend(token, "ann") // while it is on its way out
		r.clear(0)
		r.says("1", wasParked)
		r.pass(time.Second)
		r.wantRow("1", job.Running, "")
	}
}

// TestWhichJobsAreParkedForOthers, by what they and the config say.
func TestWhichJobsAreParkedForOthers(t *testing.T) {
	all := func(c *Config) { c.Parking.All = true }
	full := func(c *Config) { c.Parking.FreeMiB, c.Parking.MemoryMiB = freeMiB(4096), 2048 }
	for _, test := range []struct {
		name   string
		spec   job.Spec
		change func(*Config)
		want   string // the act, without its supervisor
	}{
		{"one that says nothing", job.Spec{}, func(*Config) {}, ""},
		{"one that says nothing, under all", job.Spec{}, all, "park"},
		{"one with no_park, under all", job.Spec{NoPark: true}, all, ""},
		{"a gang that says nothing, under all", job.Spec{GPUs: 2}, all, ""},
		{"a gang that asked for it", job.Spec{GPUs: 2, Preemptible: job.PreemptByPark}, func(*Config) {}, "park"},
		{"requeue", job.Spec{Preemptible: job.PreemptByRequeue}, all, "stop"},
		{"requeue, where parking comes first", job.Spec{Preemptible: job.PreemptByRequeue}, func(c *Config) { c.Parking.First = true }, "park"},
		{"either", job.Spec{Preemptible: job.PreemptByEither}, func(*Config) {}, "park"},
		{"either, where none can be parked", job.Spec{Preemptible: job.PreemptByEither}, func(c *Config) { c.Parking.Cannot = "no" }, "stop"},
		{"either, without room on the host", job.Spec{Preemptible: job.PreemptByEither}, full, "stop"},
		{"park, without room on the host", job.Spec{Preemptible: job.PreemptByPark}, full, ""},
		{"either, where nothing is preempted", job.Spec{Preemptible: job.PreemptByEither}, func(c *Config) { c.KeepAll = true }, ""},
	} {
		test.spec.Argv, test.spec.GPUs = []string{"a"}, max(1, test.spec.GPUs)
		r := newRig(t, test.spec.GPUs, test.change)
		r.submit(test.spec)
		r.uses("1", 0, 5000)
		r.pass(time.Hour)
		r.did = nil
		r.submit(job.Spec{Argv: []string{"b"}, GPUs: test.spec.GPUs, Priority: 5})
		r.pass(time.Second)
		got := ""
		for _, did := range r.did {
			if word, _, _ := strings.Cut(did, " "); word == "park" || word == "stop" {
				got = word
			}
		}
		if got != test.want {
			t.Errorf("%s: did %q, want %q", test.name, r.did, test.want)
		}
		if waits := r.e.turn.cfg.Parks(&test.spec); waits != (test.want == "park") && !strings.Contains(test.name, "room") {
			t.Errorf("%s: while it waits, it counts as one that is parked: %v", test.name, waits)
		}
	}
}

// TestTheCostOfParkingIsLearnt, and outlives a restart.
func TestTheCostOfParkingIsLearnt(t *testing.T) {
	r := parkedRig(t)
	before := r.at().attempts.Parking.Pace
	r.at().parker.Park("1", "ann", time.Time{})
	r.step()
	r.clear(0)
	r.says("1", keep.ParkNews{Parked: true, Took: 10 * time.Second}) // 500 MiB/s
	slower := r.at().attempts.Parking.Pace
	if slower.Out >= before.Out || slower.Out < 500 || slower.Back != before.Back {
		t.Errorf("before %+v, after %+v", before, slower)
	}
	r.at().parker.Unpark("1", "ann")
	r.step()
	r.says("1", keep.ParkNews{Took: 100 * time.Millisecond}) // 50,000 MiB/s
	faster := r.at().attempts.Parking.Pace
	if faster.Back <= before.Back || faster.Out != slower.Out {
		t.Errorf("before %+v, after %+v", before, faster)
	}
	if err := r.at().parker.RestorePace(func(key string) (string, error) { return r.meta[key], nil }); err != nil || r.at().attempts.Parking.Pace != faster {
		t.Errorf("read back %+v: %v", r.at().attempts.Parking.Pace, err)
	}
	if rate := 1700.0; running.Learn(&rate, 100, time.Minute) || running.Learn(&rate, 5000, 0) || rate != 1700 {
		t.Errorf("a little memory, or a time that is not known, changed it to %v", rate)
	}
	for _, odd := range []string{"{", `{"out":0,"back":5}`, `{"out":-1,"back":100}`} {
		if err := r.at().parker.RestorePace(func(string) (string, error) { return odd, nil }); err == nil {
			t.Errorf("%s was believed", odd)
		}
	}
}

// TestAJobSaysHowLongItsKernelsAreWaitedFor.
func TestAJobSaysHowLongItsKernelsAreWaitedFor(t *testing.T) {
	r := newRig(t, 1, func(c *Config) { c.Parking.Patience = time.Minute })
	for said, want := range map[time.Duration]time.Duration{0: time.Minute, 5 * time.Minute: 5 * time.Minute} {
		j := &job.Job{Spec: job.Spec{ParkTimeout: said}}
		if got := r.at().attempts.Parking.OrderFor(j).Patience; got != want {
			t.Errorf("said %v: waits %v, want %v", said, got, want)
		}
	}
}

package engine

import (
	"strings"
	"testing"
	"time"

	"berth/internal/job"
	"berth/internal/machine/keep"
	"berth/internal/machine/run"
	"berth/internal/queue/engine/running"
)

func saves(when job.Checkpoint) func(*job.Spec) {
	return func(s *job.Spec) { s.Preemptible, s.Checkpoint = "requeue", when }
}

// TestJobsThatSaveTheirWorkTakeTurns: an equal job that waits gets the cards of one
// that has run for long, once that has run for an interval and a restart.
func TestJobsThatSaveTheirWorkTakeTurns(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name          string
		spec          job.Spec
		first, second time.Duration // until it makes room, in its first attempt and in its second; 0: it does not
	}{
		{"one that says nothing of it", spec(gives), 0, 0},
		{"every half hour", spec(saves(job.Checkpoint(30 * time.Minute))), 30 * time.Minute, 32 * time.Minute},
		{"when it is told to", spec(saves(job.CheckpointTold)), 260 * time.Second, 260 * time.Second},
		{"when it is told to, with a minute to do it", spec(saves(job.CheckpointTold), func(s *job.Spec) { s.Grace = time.Minute }), 6 * time.Minute, 6 * time.Minute},
	} {
		r := newRig(t, 1)
		r.submit(test.spec)
		r.submit(spec())
		// leaves is how long it runs until it is told to stop, and ends 10 s later.
		leaves := func() time.Duration {
			from := r.now
			for ; r.now.Sub(from) < time.Hour; r.pass(10 * time.Second) {
				if r.row("1").Leaving() {
					took := r.now.Sub(from)
					r.now = r.now.Add(10 * time.Second)
					r.hear(run.Ended, "1", aside(), false)
					r.pass(time.Second)
					return took
				}
			}
			return 0
		}
		if took := leaves(); took != test.first {
			t.Errorf("%s: it made room after %s, want %s", test.name, took, test.first)
		}
		if test.first == 0 {
			continue
		}
		r.wantRow("1", job.Queued, "")
		r.wantRow("2", job.Running, "")
		if kept := r.row("1").Checkpoints; kept.Ran != test.first || kept.Lost != 0 || kept.Stopping != 10*time.Second {
			t.Errorf("%s: its first attempt came to %+v", test.name, kept)
		}
		r.end("2", keep.Record{}, false)
		if row := r.row("1"); row.State != job.Running || row.Attempt.Number != 2 {
			t.Fatalf("%s: it does not run again: %+v", test.name, row)
		}
		r.submit(spec())
		if took := leaves(); took != test.second {
			t.Errorf("%s: again it made room after %s, want %s", test.name, took, test.second)
		}
		if kept := r.row("1").Checkpoints; kept.Ran != test.first+test.second-2*time.Minute || kept.Lost != 0 || kept.Stopping != 20*time.Second {
			t.Errorf("%s: two attempts came to %+v", test.name, kept)
		}
	}
}

// TestWhatIsNotSavedIsLost: of a program that ends as one that saved nothing, or says
// when it saved.
func TestWhatIsNotSavedIsLost(t *testing.T) {
	t.Parallel()
	const never = -24 * time.Hour
	killed := keep.Record{Stop: string(job.StopPreempt), Signal: 15}
	for _, test := range []struct {
		name     string
		when     job.Checkpoint
		told     bool // ten minutes before its end
		end      keep.Record
		lost     time.Duration
		interval time.Duration // of the next attempt
		wrote    time.Duration // its file, after its start; 0: it has none
	}{
		{"told to stop, it saves", job.CheckpointTold, false, aside(), 0, 0, 0},
		{"told to stop, it ends as TERM ends it", job.CheckpointTold, false, keep.Record{Stop: string(job.StopPreempt), ExitCode: 143}, 0, 0, 0},
		{"told to stop, it dies", job.CheckpointTold, false, killed, 70 * time.Minute, 70 * time.Minute, 0},
		{"told to stop, it dies, and had reported a save", job.CheckpointTold, true, killed, 10 * time.Minute, 0, 0},
		{"by the clock, it tells nothing", job.Checkpoint(30 * time.Minute), false, killed, 10 * time.Minute, 70 * time.Minute, 0},
		{"by the clock, it reports a save", job.Checkpoint(15 * time.Minute), true, killed, 10 * time.Minute, 15 * time.Minute, 0},
		{"told to stop, it saves to no file", job.CheckpointTold, false, aside(), 70 * time.Minute, 70 * time.Minute, never},
		{"told to stop, it dies after it wrote its file", job.CheckpointTold, false, killed, time.Minute, 0, 69 * time.Minute},
		{"told to stop, its file is from before it started", job.CheckpointTold, false, aside(), 70 * time.Minute, 70 * time.Minute, -time.Minute},
		{"told to stop, its file is from a clock that is ahead", job.CheckpointTold, false, aside(), 0, 0, 2 * time.Hour},
		{"by the clock, it wrote its file after it reported a save", job.Checkpoint(15 * time.Minute), true, killed, 5 * time.Minute, 15 * time.Minute, 65 * time.Minute},
		{"by the clock, it reported a save after it wrote its file", job.Checkpoint(15 * time.Minute), true, killed, 10 * time.Minute, 15 * time.Minute, 50 * time.Minute},
		{"by the clock, it does not write its file", job.Checkpoint(30 * time.Minute), false, killed, 70 * time.Minute, 70 * time.Minute, never},
	} {
		r := newRig(t, 1)
		r.submit(spec(saves(test.when), func(s *job.Spec) {
			if test.wrote != 0 {
				s.SavesTo = "ckpt"
			}
		}))
		r.pass(time.Hour)
		if why := r.at().requests.Saved("2"); why == "" {
			t.Error("a job that is not there saved")
		}
		if test.told {
			if why := r.at().requests.Saved("1"); why != "" {
				t.Error(why)
			}
			r.step()
		}
		r.now = r.now.Add(10 * time.Minute)
		r.at().requests.Requeue("1", "ann", 0)
		if test.wrote != 0 && test.wrote != never {
			test.end.Saved = r.row("1").StartedAt.Add(test.wrote)
		}
		r.hear(run.Ended, "1", test.end, false)
		r.step()
		row := r.row("1")
		if row.Checkpoints.Lost != test.lost || row.Interval() != test.interval {
			t.Errorf("%s: it kept %+v, and its next attempt runs for %s", test.name, row.Checkpoints, row.Interval())
		}
		if p := r.at().attempts.Parking.PreemptMode(&running.Attempt{Job: row}); p.SavesEvery != test.interval {
			t.Errorf("%s: it can be preempted as %+v", test.name, p)
		}
	}
	r := newRig(t, 1)
	r.submit(spec(gives))
	if why := r.at().requests.Saved("1"); why != "it was not submitted with --checkpoint" {
		t.Error(why)
	}
}

// TestAGangThatSavesItsWorkRanksAsWhatItIs: it has the rank of a fresh job only
// until it has run, and what it ran for outlives a restart of berth.
func TestAGangThatSavesItsWorkRanksAsWhatItIs(t *testing.T) {
	t.Parallel()
	r := newRig(t, 2)
	r.submit(spec(saves(job.CheckpointTold), gpus(2)))
	r.pass(time.Hour)
	r.submit(spec(gpus(2)))
	r.end("1", aside(), false)
	r.again(run.Found{Token: r.row("2").Keep, Job: "2", Attempt: 1, Kind: run.FoundRunning})
	r.look()
	r.submit(spec(gpus(2)))
	r.end("2", keep.Record{}, false)
	if first, fresh := r.row("1"), r.row("3"); first.State != job.Queued || fresh.State != job.Running {
		t.Errorf("after an hour of service it is %s, and a fresh job %s", first.State, fresh.State)
	}
}

// TestAGangThatSavesItsWorkGetsATurn: one that gives nothing back until it ends gets
// none of an older job's.
func TestAGangThatSavesItsWorkGetsATurn(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		spec job.Spec
		want bool
	}{{spec(gpus(2)), false}, {spec(gpus(2), saves(job.CheckpointTold)), true}} {
		r := newRig(t, 2)
		r.submit(spec(gpus(2), saves(job.CheckpointTold)))
		r.pass(time.Hour)
		r.submit(test.spec)
		if left := r.row("1").Leaving(); left != test.want {
			t.Errorf("for a gang with checkpoint %v it makes room: %v", test.spec.Checkpoint, left)
		}
	}
}

// TestWhatEachEndKeeps: whatever runs it again, it goes on from what it saved.
func TestWhatEachEndKeeps(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name   string
		record keep.Record
		stop   job.Stop
		want   time.Duration
	}{
		{"its time limit", keep.Record{Stop: string(job.StopTimeout)}, "", time.Hour},
		{"a failure", keep.Record{ExitCode: 1}, "", time.Hour},
		{"berth was stopped", keep.Record{Stop: string(job.StopInterrupt)}, job.StopInterrupt, time.Hour},
	} {
		r := newRig(t, 1)
		s := spec(saves(job.CheckpointTold), retries(1), onFail, limited(job.TimeoutRequeue, 3))
		r.submit(s)
		r.pass(time.Hour)
		r.hear(run.Ended, "1", test.record, false)
		r.step()
		if row := r.row("1"); row.Checkpoints.Ran != test.want {
			t.Errorf("%s: it is %s and kept %+v", test.name, row.State, row.Checkpoints)
		}
	}
}

// TestAGangThatCouldNotBeParkedTellsOfOthers: of its program, until one can be. New
// settings do not change that.
func TestAGangThatCouldNotBeParkedTellsOfOthers(t *testing.T) {
	t.Parallel()
	either := func(s *job.Spec) { s.Preemptible = job.PreemptByEither }
	for _, test := range []struct {
		name   string
		gpus   int
		second string // its command
		says   keep.ParkNews
		parked bool   // the first one was parked by hand later
		want   string // how the second makes room
	}{
		{"the same program", 2, "python train.py --lr 2", wasRefused, false, "stop"},
		{"another program", 2, "python other.py", wasRefused, false, "park"},
		{"the same program, which could be parked later", 2, "python train.py --lr 2", wasRefused, true, "park"},
		{"with one GPU, which may be chance", 1, "python train.py --lr 2", wasRefused, false, "park"},
		{"the same program, which was just ending", 2, "python train.py --lr 2", keep.ParkNews{Why: "it is being stopped"}, false, "park"},
	} {
		r := newRig(t, test.gpus)
		r.submit(spec(either, gpus(test.gpus), command("python train.py --lr 1")))
		r.pass(time.Hour)
		r.submit(spec(gpus(test.gpus), priority(5)))
		r.says("1", test.says)
		r.at().requests.Cancel("2", "asked")
		r.step()
		if test.parked {
			r.at().parker.Park("1", "ann", time.Time{})
			r.step()
			r.says("1", keep.ParkNews{Parked: true, Took: time.Second})
		}
		r.at().requests.Cancel("1", "asked")
		r.end("1", keep.Record{Stop: string(job.StopCancel)}, false)
		c := r.e.turn.cfg
		r.at().set.Rules(c.Rules, c.Limits)
		r.at().set.Parking(c.Parking)
		r.submit(spec(either, gpus(test.gpus), command(test.second)))
		r.pass(time.Hour)
		r.did = nil
		r.submit(spec(gpus(test.gpus), priority(5)))
		got := ""
		for _, did := range r.did {
			if word, _, _ := strings.Cut(did, " "); word == "park" || word == "stop" {
				got = word
			}
		}
		if got != test.want {
			t.Errorf("%s: did %q, want %q", test.name, r.did, test.want)
		}
	}
}

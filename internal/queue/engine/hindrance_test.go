package engine

import (
	"testing"
	"time"

	"berth/internal/job"
	"berth/internal/machine/gpu"
	"berth/internal/machine/keep"
	"berth/internal/machine/run"
)

// hinder reports something about the first attempt of job 1.
func (r *rig) hinder(kind run.EventKind, pid int, state byte) {
	r.at().observer.absorb(run.Event{Kind: kind, Token: "t1", Job: "1", Attempt: 1, Process: keep.Stuck{PID: pid, State: state}})
	r.step()
}

func (r *rig) health(index int) string {
	return r.at().cards.Book.HealthOf(r.devices[index].UUID).State.String()
}

func (r *rig) shows(id string) string {
	j := r.at().line.Roster.Get(id)
	return r.at().attempts.Copy(j).Detail
}

func TestTheCardOfAProcessThatDoesNotEndTakesNoJob(t *testing.T) {
	r := newRig(t, 1)
	small := spec(card0, func(s *job.Spec) { s.VRAMMiB = 1000 })
	r.submit(small)
	r.at().requests.CancelBy("1", "ann", time.Second)
	r.step()
	r.told = nil
	r.hinder(run.Stuck, 4711, 'D')
	const says = "process 4711 does not end (state D: waiting in the kernel), 30s after KILL"
	r.wantTexts(job.EventWarning, "1: "+says)
	if got := r.shows("1"); got != says {
		t.Errorf("it shows %q", got)
	}
	r.look()
	r.submit(small)
	if r.wantRow("2", job.Queued, ""); r.health(0) != "suspect" {
		t.Errorf("the card is %s", r.health(0))
	}

	// A berth that is started again knows it, too.
	r.again(run.Found{Token: "t1", Job: "1", Attempt: 1, Kind: run.FoundRunning})
	if r.look(); r.health(0) != "suspect" {
		t.Errorf("after a restart the card is %s", r.health(0))
	}
	r.hear(run.Ended, "1", keep.Record{Stop: "cancel", Signal: 9, ExitCode: -1}, false)
	r.pass(time.Second)
	r.wantRow("1", job.Cancelled, job.WasCancelled)
	r.wantRow("2", job.Running, "")
}

func TestACardIsOpenIfTheJobEndedMeanwhile(t *testing.T) {
	r := newRig(t, 1)
	r.submit(spec(card0))
	r.hinder(run.Stuck, 4711, 'D')
	if r.health(0) != "suspect" {
		t.Fatalf("the card is %s", r.health(0))
	}
	r.again(run.Found{Token: "t1", Job: "1", Attempt: 1, Kind: run.FoundEnded, Record: keep.Record{ExitCode: 0}})
	if r.look(); r.health(0) != gpu.HealthOK.String() {
		t.Errorf("the card is %s", r.health(0))
	}
}

func TestAnAdministratorMayOpenTheCardAllTheSame(t *testing.T) {
	r := newRig(t, 1)
	r.submit(spec(card0))
	r.hinder(run.Stuck, 4711, 'D')
	r.at().health.Set(0, gpu.HealthOK, "root", "")
	if r.health(0) != "ok" {
		t.Errorf("the card is %s", r.health(0))
	}
}

func TestASilentSupervisorIsReportedAndItsJobGoesOn(t *testing.T) {
	r := newRig(t, 1)
	r.submit(spec(card0))
	r.told = nil
	r.hinder(run.Silent, 99, 'T')
	const says = "its supervisor (process 99) does not answer: it is stopped (state T: stopped by a signal)"
	r.wantTexts(job.EventWarning, "1: "+says)
	if r.wantRow("1", job.Running, ""); r.shows("1") != says {
		t.Errorf("it shows %q", r.shows("1"))
	}
	r.hinder(run.Answers, 99, 'S')
	r.wantTexts(job.EventNotice, "1: its supervisor answers again")
	if r.shows("1") != "" || r.health(0) != "ok" {
		t.Errorf("it shows %q on a card that is %s", r.shows("1"), r.health(0))
	}
}

func TestATimeLimitIsEnforcedForASilentSupervisorOnly(t *testing.T) {
	for _, silent := range []bool{false, true} {
		r := newRig(t, 1)
		r.submit(spec(card0, func(s *job.Spec) { s.TimeLimit, s.Grace = time.Minute, 10*time.Second }))
		if silent {
			r.hinder(run.Silent, 99, 'T')
		}
		r.pass(59 * time.Second)
		r.wantStop("1", job.NoStop)
		r.pass(2 * time.Second)
		if !silent {
			r.wantStop("1", job.NoStop)
			continue
		}
		r.wantStop("1", job.StopTimeout)
		r.hear(run.Lost, "1", keep.Record{}, false)
		r.step()
		r.wantRow("1", job.Failed, job.Timeout)
		const says = "reached its time limit of 1m0s; its supervisor did not answer and was killed, so its exit status is not known"
		if got := r.rows["1"].Detail; got != says {
			t.Errorf("got %q", got)
		}
	}
}

func TestACancelledJobOfASilentSupervisorIsCancelled(t *testing.T) {
	r := newRig(t, 1)
	r.submit(spec(card0))
	r.hinder(run.Silent, 99, 'T')
	r.at().requests.CancelBy("1", "ann", time.Second)
	r.step()
	r.hear(run.Lost, "1", keep.Record{}, false)
	r.step()
	r.wantRow("1", job.Cancelled, job.WasCancelled)
	const says = "cancelled by ann while running; its supervisor did not answer and was killed, so its exit status is not known"
	if got := r.rows["1"].Detail; got != says {
		t.Errorf("got %q", got)
	}
}

func (r *rig) wantStop(id string, want job.Stop) {
	r.t.Helper()
	if got := r.rows[id].Stop; got != want {
		r.t.Errorf("job %s is being stopped for %q, want %q", id, got, want)
	}
}

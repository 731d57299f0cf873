package batch

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"berth/internal/job"
	"berth/internal/tests/testkit"
)

func happen(a *account, at time.Duration, kind job.EventKind, j *job.Job) {
	a.follow(job.Event{At: at0.Add(at), Kind: kind, Job: j}, 0.1)
}

func wantHours(t *testing.T, a *account, at time.Duration, used, idle float64) {
	t.Helper()
	gotUsed, gotIdle := a.hours(at0.Add(at))
	if fmt.Sprintf("%.3f %.3f", gotUsed, gotIdle) != fmt.Sprintf("%.3f %.3f", used, idle) {
		t.Errorf("after %s: %.3f used, %.3f idle; want %.3f and %.3f", at, gotUsed, gotIdle, used, idle)
	}
}

func TestCardTimeIsCountedOncePerCard(t *testing.T) {
	t.Parallel()
	a := newAccount(at0, 2)
	one, two := started("1", "x", 0), started("2", "x", 0)
	happen(a, 0, job.EventStarted, one)
	happen(a, time.Hour, job.EventStarted, two)
	wantHours(t, a, 2*time.Hour, 2, 2)
	happen(a, 2*time.Hour, job.EventEnded, one)
	wantHours(t, a, 3*time.Hour, 3, 3) // the other is still there
	happen(a, 3*time.Hour, job.EventRetry, two)
	wantHours(t, a, 4*time.Hour, 3, 5)
	happen(a, 4*time.Hour, job.EventStarted, two)
	wantHours(t, a, 5*time.Hour, 4, 6)
}

func TestAParkedJobTakesNoCardTime(t *testing.T) {
	t.Parallel()
	a := newAccount(at0, 1)
	j := started("1", "x", 0)
	happen(a, 0, job.EventStarted, j)
	j.MustTo(job.Parked)
	happen(a, time.Hour, job.EventParked, j)
	happen(a, 2*time.Hour, job.EventAdopted, j) // by another berth
	wantHours(t, a, 3*time.Hour, 1, 2)
	j.MustTo(job.Running)
	happen(a, 3*time.Hour, job.EventResumed, j)
	happen(a, 4*time.Hour, job.EventEnded, ended(j, job.OK, 4*time.Hour))
	wantHours(t, a, 4*time.Hour, 2, 2)
}

func TestAJobThatEndedBeforeTakesNothingFromOneThatRuns(t *testing.T) {
	t.Parallel()
	a := newAccount(at0, 1)
	happen(a, 0, job.EventAdopted, started("1", "x", 0))
	happen(a, 0, job.EventEnded, ended(started("2", "x", 0), job.OK, time.Second))
	wantHours(t, a, time.Hour, 1, 0)
}

func TestAJobThatNeverRanTakesNoCardTime(t *testing.T) {
	t.Parallel()
	a := newAccount(at0, 1)
	happen(a, 0, job.EventStarted, started("1", "x", 0))
	happen(a, time.Minute, job.EventEnded, ended(&job.Job{ID: "2", Spec: spec("x")}, job.Infeasible, 0))
	happen(a, time.Minute, job.EventRequeued, &job.Job{ID: "3", Spec: spec("x")})
	happen(a, time.Minute, job.EventPreempted, &job.Job{ID: "4", Spec: spec("x")})
	wantHours(t, a, time.Hour, 1, 0)
	if a.ended != 1 {
		t.Errorf("%d are over", a.ended)
	}
}

func measured(id string, declared, peak int64, outcome job.Outcome, d time.Duration) *job.Job {
	j := ended(started(id, "x", 0), outcome, d)
	j.VRAMMiB, j.PeakMiB = declared, map[int]int64{0: peak}
	return j
}

func TestSummary(t *testing.T) {
	t.Parallel()
	a := newAccount(at0, 2)
	for i, j := range []*job.Job{
		measured("1", 10000, 9800, job.OK, time.Hour),           // right
		measured("2", 20000, 5000, job.OK, time.Minute),         // wasteful, shortly
		measured("3", 20000, 5000, job.OK, 10*time.Hour),        // wasteful, for long
		measured("4", 4000, 6000, job.OOM, time.Second),         // dangerous
		measured("5", 20000, 100, "exit:1", time.Hour),          // it did not get far
		ended(started("6", "x", 1), "exit:3", time.Second),      // nothing declared
		ended(started("7", "x", 1), "exit:3", time.Second),      //
		ended(started("8", "x"), job.WasCancelled, time.Second), //
	} {
		happen(a, time.Duration(i)*time.Minute, job.EventStarted, j)
		happen(a, time.Duration(i+1)*time.Minute, job.EventEnded, j)
	}
	outcomes := map[job.Outcome]int{"exit:3": 2, "exit:1": 1, job.OOM: 1, job.WasCancelled: 1}
	counts := tally{ok: 5, failed: 4, cancelled: 1, earlier: 2}
	golden(t, "summary", strings.Join(a.lines(at0.Add(30*time.Minute), counts, outcomes), "\n")+"\n")

	line, err := json.Marshal(summaryRecord(at0.Add(30*time.Minute), a, counts, 3))
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "summary-json", string(line)+"\n")
}

func TestWhatWasOverEarlierIsCountedHoweverItEnded(t *testing.T) {
	t.Parallel()
	f, _ := following(t, "a\nb\nc\n", job.OK, "exit:3", job.WasCancelled)
	testkit.Must(t, f.enter(t.Context()))
	head := newAccount(at0, 0).lines(at0.Add(time.Second), f.jobs.counts, nil)[0]
	if want := "0 jobs in 1.0s: 1 ok, 1 failed, 1 cancelled (3 of them in an earlier run)"; head != want {
		t.Errorf("it says %q, want %q", head, want)
	}
}

func TestAdviceIsBoundedToWhatMatters(t *testing.T) {
	t.Parallel()
	a := newAccount(at0, 1)
	for i := range 30 {
		happen(a, 0, job.EventEnded, measured(fmt.Sprint(i), 20000, 5000, job.OK, time.Duration(i)*time.Hour))
	}
	happen(a, 0, job.EventEnded, measured("danger", 1000, 5000, job.OK, time.Second))
	lines := a.lines(at0, tally{}, nil)
	text := strings.Join(lines, "\n")
	if len(a.advice) != maxAdvice || !strings.Contains(text, "and 21 more") {
		t.Errorf("%d are kept:\n%s", len(a.advice), text)
	}
	if !strings.Contains(text, "job danger declared 1000 MiB, peak 5000 (+400%): raise it to 5376") || !strings.Contains(text, "job 29 ") || strings.Contains(text, "job 0 ") {
		t.Errorf("not the ones that matter:\n%s", text)
	}
}

func TestAQuietRunSaysLittle(t *testing.T) {
	t.Parallel()
	lines := newAccount(at0, 0).lines(at0.Add(time.Second), tally{}, nil)
	if len(lines) != 1 || lines[0] != "0 jobs in 1.0s: 0 ok" {
		t.Errorf("%q", lines)
	}
}

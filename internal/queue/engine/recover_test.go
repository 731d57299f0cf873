package engine

import (
	"slices"
	"testing"
	"time"

	"berth/internal/job"
	"berth/internal/machine/keep"
	"berth/internal/machine/run"
)

func placed(id, token string, attempt int) *job.Job {
	return &job.Job{ID: id, State: job.Running, Attempt: job.Attempt{Keep: token, Number: attempt}}
}

// begun and since are when a job was placed, and when a supervisor last started
// one.
func begun(j *job.Job, second int64) *job.Job {
	j.StartedAt = time.Unix(second, 0)
	return j
}

func since(f run.Found, second int64) run.Found {
	f.Record.StartedAt = time.Unix(second, 0)
	return f
}

func TestRecover(t *testing.T) {
	at := func(kind run.FoundKind, token, id string, attempt int) run.Found {
		return run.Found{Kind: kind, Token: token, Job: id, Attempt: attempt}
	}
	tests := []struct {
		name   string
		job    *job.Job
		found  []run.Found
		want   fateKind
		strays int
	}{
		{"a queued job is queued still", &job.Job{ID: "7", State: job.Queued}, nil, fateQueued, 0},
		{"a queued job whose earlier attempt is still on a record stays queued; that end is on disk", &job.Job{ID: "7", State: job.Queued, Attempt: job.Attempt{Keep: ""}}, []run.Found{at(run.FoundEnded, "a", "7", 1)}, fateQueued, 1},
		{"its supervisor holds it: adopt", placed("7", "a", 2), []run.Found{at(run.FoundRunning, "a", "7", 2)}, fateRunning, 0},
		{"its supervisor left a record: that is its end", placed("7", "a", 2), []run.Found{at(run.FoundEnded, "a", "7", 2)}, fateEnded, 0},
		{"its supervisor is dead: wait until its processes are gone", placed("7", "a", 2), []run.Found{at(run.FoundLost, "a", "7", 2)}, fateLosing, 0},
		{"its supervisor is there with nothing: go never came", placed("7", "a", 2), []run.Found{at(run.FoundEmpty, "a", "", 0)}, fateNeverRan, 0},
		{"its supervisor has an older job on record: go never came", placed("7", "a", 1), []run.Found{at(run.FoundEnded, "a", "5", 1)}, fateNeverRan, 1},
		{"its supervisor has the job's own older attempt on record: go never came", placed("7", "a", 2), []run.Found{at(run.FoundEnded, "a", "7", 1)}, fateNeverRan, 1},
		{"its supervisor cannot say what it held: what it held is lost", placed("7", "a", 2), []run.Found{at(run.FoundLost, "a", "", 0)}, fateLosing, 0},
		{"its supervisor has had another job since, which runs: nobody knows", begun(placed("7", "a", 1), 1), []run.Found{since(at(run.FoundRunning, "a", "9", 1), 2)}, fateVanished, 1},
		{"its supervisor has had another job since, which ended: nobody knows", begun(placed("7", "a", 1), 1), []run.Found{since(at(run.FoundEnded, "a", "9", 1), 2)}, fateVanished, 1},
		{"its supervisor started something since, and is empty: nobody knows", begun(placed("7", "a", 1), 1), []run.Found{since(at(run.FoundEmpty, "a", "", 0), 2)}, fateVanished, 0},
		{"its supervisor had a job before, and is empty: go never came", begun(placed("7", "a", 1), 2), []run.Found{since(at(run.FoundEmpty, "a", "", 0), 1)}, fateNeverRan, 0},
		{"its supervisor is alive and cannot say what it holds: that is this job", placed("7", "a", 1), []run.Found{at(run.FoundRunning, "a", "", 0)}, fateRunning, 0},
		{"nothing is left of its supervisor: nobody knows", placed("7", "a", 2), nil, fateForgotten, 0},
		{"another supervisor's word is not about it", placed("7", "a", 2), []run.Found{at(run.FoundRunning, "b", "7", 2)}, fateForgotten, 1},
		{"an empty supervisor nobody waits for is no stray", &job.Job{ID: "7", State: job.Queued}, []run.Found{at(run.FoundEmpty, "a", "", 0)}, fateQueued, 0},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			fates, strays := Recover([]*job.Job{test.job}, test.found)
			if len(fates) != 1 || fates[0].Kind != test.want || fates[0].Job != test.job {
				t.Errorf("fates %+v, want kind %d", fates, test.want)
			}
			if len(strays) != test.strays {
				t.Errorf("%d strays, want %d: %+v", len(strays), test.strays, strays)
			}
		})
	}
}

// runOne has one job running under t1, and everything so far behind it.
func runOne(t *testing.T, change ...func(*job.Spec)) *rig {
	t.Helper()
	r := newRig(t, 1)
	r.submit(spec(change...))
	r.wantRow("1", job.Running, "")
	r.did, r.told = nil, nil
	return r
}

func foundOne(kind run.FoundKind, record keep.Record) run.Found {
	record.BootID = orElse(record.BootID, keep.BootID())
	return run.Found{Kind: kind, Token: "t1", Job: "1", Attempt: 1, Record: record}
}

func TestRestoreAdoptsWhatRuns(t *testing.T) {
	r := runOne(t, vram(8000))
	r.again(foundOne(run.FoundRunning, keep.Record{}))
	r.pass(time.Millisecond)
	r.wantTold("adopted 1")
	if _, running := r.at().explain.Live(); running != 1 {
		t.Errorf("%d running", running)
	}
	r.end("1", keep.Record{ExitCode: 4}, false)
	r.wantRow("1", job.Failed, "exit:4")
}

func TestRestoreTakesOverAnEndWithItsStatus(t *testing.T) {
	r := runOne(t)
	r.again(foundOne(run.FoundEnded, keep.Record{ExitCode: 9}))
	r.wantDid() // nothing is acknowledged before it is on disk
	r.step()
	r.wantDid("commit 1:failed", "ack t1", "book ")
	r.wantRow("1", job.Failed, "exit:9")
}

func TestRestoreRepeatsACancellation(t *testing.T) {
	r := runOne(t)
	r.at().requests.Cancel("1", "asked")
	r.commitErr = nil
	r.step()
	r.did = nil
	r.again(foundOne(run.FoundRunning, keep.Record{}))
	r.step()
	if !slices.Contains(r.did, "stop t1 cancel 10s") {
		t.Errorf("the cancelled job was adopted without being stopped: %q", r.did)
	}
}

func TestRestoreForgetsAnInterruption(t *testing.T) {
	r := runOne(t)
	r.at().requests.Interrupt(false)
	r.step()
	r.again(foundOne(run.FoundRunning, keep.Record{}))
	r.did = nil
	r.step()
	if row := r.row("1"); row.Stop != job.NoStop {
		t.Errorf("it is still marked %s", row.Stop)
	}
	r.wantDid("commit 1:running")
}

func TestRestoreOfWhatTheMachineTookDown(t *testing.T) {
	tests := []struct {
		name    string
		change  func(*job.Spec)
		record  keep.Record
		state   job.State
		outcome job.Outcome
	}{
		{"a job that did not ask for it is lost", func(*job.Spec) {}, keep.Record{BootID: "earlier"}, job.Failed, job.Lost},
		{"one that did runs again", requeue, keep.Record{BootID: "earlier"}, job.Running, ""},
		{"one whose supervisor alone was killed is lost, whatever it asked for", requeue, keep.Record{}, job.Failed, job.Lost},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			r := runOne(t, test.change)
			r.again(foundOne(run.FoundLost, test.record))
			r.pass(time.Millisecond)
			r.wantRow("1", job.Running, "") // its processes may still be there
			r.hear(run.Lost, "1", test.record, false)
			r.pass(time.Millisecond)
			r.wantRow("1", test.state, test.outcome)
		})
	}
}

func TestRestoreOfASupervisorThatLostItsRecord(t *testing.T) {
	r := runOne(t)
	r.again(run.Found{Kind: run.FoundLost, Token: "t1"})
	r.step()
	r.wantRow("1", job.Running, "")
	r.at().observer.absorb(run.Event{Kind: run.Lost, Token: "t1"})
	r.step()
	r.wantRow("1", job.Failed, job.Lost)
}

func TestRestoreOfAPlacementThatNeverRanDoesNotCountTheAttempt(t *testing.T) {
	r := runOne(t)
	r.again(run.Found{Kind: run.FoundEmpty, Token: "t1"})
	r.step()
	r.wantRow("1", job.Queued, "")
	if row := r.row("1"); row.Attempt.Number != 0 || row.Log != "" || row.Keep != "" {
		t.Errorf("attempt %d, log %q, keep %q are left", row.Attempt.Number, row.Log, row.Keep)
	}
	r.pass(time.Millisecond)
	r.wantRow("1", job.Running, "")
	if row := r.row("1"); row.Attempt.Number != 1 {
		t.Errorf("it runs as attempt %d", row.Attempt.Number)
	}
}

func TestRestoreKeepsWhatARetryLearnt(t *testing.T) {
	r := runOne(t, vram(8000), retries(2))
	r.end("1", keep.Record{ExitCode: 1}, true)
	row := r.row("1")
	if row.VRAMMiB != 10000 || row.RetriesUsed != 1 || row.Attempt.Number != 2 {
		t.Fatalf("after out of memory: %d MiB, %d retries used, attempt %d", row.VRAMMiB, row.RetriesUsed, row.Attempt.Number)
	}
	r.again(run.Found{Kind: run.FoundEmpty, Token: row.Keep})
	r.pass(time.Millisecond)
	row = r.row("1")
	if row.VRAMMiB != 10000 || row.Grant.BudgetMiB != 10000 || row.RetriesUsed != 1 {
		t.Errorf("after a crash: %d MiB, budget %d, %d retries used", row.VRAMMiB, row.Grant.BudgetMiB, row.RetriesUsed)
	}
}

func TestRetryFoundAtTheStartKnowsTheCards(t *testing.T) {
	r := runOne(t, vram(22000), retries(1))
	f := foundOne(run.FoundEnded, keep.Record{ExitCode: 1})
	f.OOM = true
	r.boot([]*job.Job{r.row("1").Clone()}, []run.Found{f}, func(c *Config) { c.Devices = r.devices })
	r.pass(time.Millisecond)
	r.wantRow("1", job.Running, "")
	if row := r.row("1"); row.VRAMMiB != 24064 {
		t.Errorf("the retry declares %d MiB; the card can hold 24064", row.VRAMMiB)
	}
}

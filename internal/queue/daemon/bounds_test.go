package daemon

import (
	"errors"
	"log/slog"
	"slices"
	"testing"
	"time"

	"berth/internal/api"
	"berth/internal/job"
	"berth/internal/machine/gpu"
	"berth/internal/queue"
	"berth/internal/queue/config"
	"berth/internal/queue/store"
	"berth/internal/text/problem"
)

func TestUsersMayNotPassEverybodyByPriority(t *testing.T) {
	t.Parallel()
	cfg := config.Default(true)
	for _, row := range []struct {
		admin    bool
		priority int
		ok       bool
	}{
		{false, 0, true}, {false, -5, true}, {false, 1, false}, {false, 2_000_000_000, false},
		{true, 2_000_000_000, true},
	} {
		s := terms{cfg: &cfg, caller: api.Caller{UID: 1000, Admin: row.admin}}
		if err := s.checkPriority(row.priority); (err == nil) != row.ok {
			t.Errorf("admin %v, priority %d: %v", row.admin, row.priority, err)
		}
	}
}

func TestAJobThatSomeoneSitsAtKeepsItsLimit(t *testing.T) {
	t.Parallel()
	cfg := config.Default(true)
	cfg.InteractiveTime = time.Hour
	for _, row := range []struct {
		name        string
		interactive bool
		admin       bool
		asked, want time.Duration
	}{
		{"no limit asked for", true, false, 0, time.Hour},
		{"more than the limit, as by an edit", true, false, 5 * time.Hour, time.Hour},
		{"less", true, false, time.Minute, time.Minute},
		{"a job nobody sits at", false, false, 5 * time.Hour, 5 * time.Hour},
		{"an administrator's", true, true, 5 * time.Hour, 5 * time.Hour},
	} {
		s := terms{cfg: &cfg, caller: api.Caller{UID: 1000, Admin: row.admin}}
		spec := job.Spec{Interactive: row.interactive, TimeLimit: row.asked}
		s.boundTime(&spec)
		if spec.TimeLimit != row.want {
			t.Errorf("%s: %s, want %s", row.name, spec.TimeLimit, row.want)
		}
	}
}

// TestNoJobHasMoreThanTheTimeOfAll: a limit for all jobs is one for
// administrators, too, and a shorter one of a job's own stays.
//
// seeds: M1 M18
func TestNoJobHasMoreThanTheTimeOfAll(t *testing.T) {
	t.Parallel()
	cfg := config.Default(true)
	for _, row := range []struct{ all, asked, want time.Duration }{
		{0, 0, 0}, {0, time.Hour, time.Hour}, {time.Minute, 0, time.Minute}, {time.Minute, time.Second, time.Second}, {time.Minute, time.Hour, time.Minute},
	} {
		cfg.JobTime = row.all
		for _, admin := range []bool{false, true} {
			s := terms{cfg: &cfg, caller: api.Caller{UID: 1000, Admin: admin}}
			spec := job.Spec{TimeLimit: row.asked, OnTimeout: job.TimeoutRequeue}
			s.boundTime(&spec)
			if spec.TimeLimit != row.want || spec.OnTimeout != job.TimeoutRequeue || (len(s.notes) > 0) != (row.asked > row.want) {
				t.Errorf("of %s at most, %s asked: %s, notes %q", row.all, row.asked, spec.TimeLimit, s.notes)
			}
		}
	}
}

// TestJobsOfOneRequestWaitForOneAnother: a name stands for an earlier job of
// the same request, an array's for all its tasks.
func TestJobsOfOneRequestWaitForOneAnother(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	ids := l.submit(
		sh("exit 3", "gpus", "0", "name", "prep"),
		sh("true", "gpus", "0", "name", "many", "array", "0-2"),
		sh("true", "gpus", "0", "after", "prep:fail,many"),
		sh("true", "gpus", "0", "after", "prep"),
	)
	if j := l.end(ids[2]); j.State != job.Finished || len(j.After) != 4 {
		t.Errorf("after both it is %s, waiting for %v", j.State, j.After)
	}
	if j := l.end(ids[3]); j.State != job.Cancelled || value(j.Outcome) != job.Depends {
		t.Errorf("after a failure it is %s", j.State)
	}
	l.refused(api.SubmitRequest{Jobs: []api.Spec{
		sh("true", "gpus", "0", "after", "later"), sh("true", "gpus", "0", "name", "later"),
	}}, problem.Invalid, "later", "not an earlier job")
	l.refused(api.SubmitRequest{Jobs: []api.Spec{sh("true", "gpus", "0", "after", "preparation")}}, problem.Refused, "no job of yours is named preparation")
	// Of the names of earlier requests, an unfinished job counts before an ended one.
	if j := l.end(l.one(sh("true", "gpus", "0", "after", "prep"))); j.State != job.Cancelled || j.After[0].Job != ids[0] {
		t.Errorf("after an old failure it is %s, waiting for %v", j.State, j.After)
	}
	again := l.submit(sh("true", "gpus", "0", "name", "prep", "hold", "yes"), sh("true", "gpus", "0", "name", "prep", "hold", "yes"))
	both := l.job(l.one(sh("true", "gpus", "0", "after", "prep")))
	if len(both.After) != 2 || both.After[0].Job != again[0] || both.After[1].Job != again[1] {
		t.Errorf("it waits for %v, not for %v", both.After, again)
	}
}

// TestACardThatIsMissingIsWaitedFor: what was there yesterday is still the
// machine's, what was there last week is not.
func TestACardThatIsMissingIsWaitedFor(t *testing.T) {
	t.Parallel()
	st, err := store.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	cfg := config.Default(false)
	at := time.Now()
	begin := func(now time.Time, there ...int) []int {
		d, m := newDaemon(Options{}), &queue.Queue{Store: st, Log: slog.New(slog.DiscardHandler)}
		d.svc.cfg.Store(&cfg)
		var devices []gpu.Device
		for _, index := range there {
			devices = append(devices, gpu.Device{Index: index, UUID: string(rune('a' + index)), TotalMiB: 1000})
		}
		var missing []int
		for _, dev := range d.record.rememberCards(m, devices, now) {
			missing = append(missing, dev.Index)
		}
		return missing
	}
	if missing := begin(at, 0, 1, 2); missing != nil {
		t.Errorf("at first %v are missing", missing)
	}
	if missing := begin(at.Add(time.Hour), 0); !slices.Equal(missing, []int{1, 2}) {
		t.Errorf("an hour later %v are missing", missing)
	}
	if missing := begin(at.Add(2*time.Hour), 0, 1); !slices.Equal(missing, []int{2}) {
		t.Errorf("then %v are missing", missing)
	}
	if missing := begin(at.Add(25*time.Hour), 0); !slices.Equal(missing, []int{1}) {
		t.Errorf("a day later %v are missing", missing)
	}
	cfg.GPUs = []int{0}
	if missing := begin(at.Add(26*time.Hour), 0); missing != nil {
		t.Errorf("of the cards that are wanted %v are missing", missing)
	}
	if _, err := st.Meta(cardsKey); err != nil && !errors.Is(err, store.ErrNotFound) {
		t.Error(err)
	}
}

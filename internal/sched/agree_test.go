package sched

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"berth/internal/job/reason"
)

// TestWhyShowAndTheForecastAgree: "show" tells a job's position and its reason
// among those of many jobs, "why" the story of one, and the forecast may be asked
// for alone. Whoever asks in two ways gets one answer, and it is that of the plan.
func TestWhyShowAndTheForecastAgree(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawTimed(t)
		plan := Decide(s)
		starts, refused := outcome(plan)
		jobs := Order(s, s.Queue.Len())
		shown, stories := Reasons(s, jobs), NewPreview(s, jobs).Stories()
		for i, id := range jobs {
			why, story, f := Explain(s, id), stories[i], Expect(s, id)
			if story.ID != id || story.Position != i+1 || Position(s, id) != i+1 || story.Queued != len(jobs) {
				t.Fatalf("job %s is number %d; the story says %d of %d, its position %d", id, i+1, story.Position, story.Queued, Position(s, id))
			}
			if story.Kind != why.Kind || story.Text != why.String() {
				t.Fatalf("job %s: %s %q, explained as %s %q", id, story.Kind, story.Text, why.Kind, why)
			}
			if diff := cmp.Diff(stripped(f), stripped(story.Forecast())); f.None == "" && diff != "" || story.NoStart != f.None {
				t.Fatalf("job %s (-expected +told):\n%s", id, diff)
			}
			_, starting := starts[id]
			checkPlanned(t, id, starting, refused[id], shown[i], story)
			checkExpected(t, id, why.Kind, f)
			if why.Kind == reason.WaitsBehind {
				checkFollows(t, id, Expect(s, why.Job), f)
			}
			checkKept(t, &plan, &story)
		}
	})
}

// stripped is a forecast without what only a decision about it needs.
func stripped(f reason.Forecast) reason.Forecast {
	f.Behind = ""
	return f
}

// checkPlanned holds both reasons to what is decided.
func checkPlanned(t *rapid.T, id string, starts, refused bool, shown reason.Reason, story reason.Story) {
	for _, kind := range []reason.Kind{shown.Kind, story.Kind} {
		if starts != (kind == reason.StartsNow) || refused != kind.Infeasible() {
			t.Fatalf("job %s: starts %v, refused %v, and is told %s", id, starts, refused, kind)
		}
	}
	// Of a job that waits, what is shown counts what later jobs get as gone too.
	if (starts || refused) && shown.String() != story.Text {
		t.Fatalf("job %s: shown %q, told %q", id, shown, story.Text)
	}
}

// checkExpected holds a forecast to the kind of wait.
func checkExpected(t *rapid.T, id string, kind reason.Kind, f reason.Forecast) {
	none := map[reason.Kind]reason.NoForecast{
		reason.WaitsForLimit: reason.NoneLimit, reason.WaitsForArray: reason.NoneArray, reason.WaitsForReadings: reason.NoneUnreadable,
		reason.WaitsForGroup: reason.NoneGroup, reason.WaitsForResume: reason.NonePaused,
	}[kind]
	if kind.Infeasible() {
		none = reason.NoneInfeasible
	}
	soon := kind == reason.StartsNow || kind == reason.WaitsForTurn
	switch {
	case none != "" && f.None != none:
		t.Fatalf("job %s waits for %s, and the forecast is %s", id, kind, f)
	case none == "" && f.None != "" && f.None != reason.NoneClosed && kind != reason.WaitsBehind:
		t.Fatalf("job %s waits for %s, and no start is expected: %s", id, kind, f.None)
	case soon && !(f.Low.Equal(f.Now) && f.Mid.Equal(f.Now) && f.High.Equal(f.Now)):
		t.Fatalf("job %s waits for %s, and is expected later: %+v", id, kind, f)
	case !soon && f.None == "" && !f.High.IsZero() && !f.High.After(f.Now):
		t.Fatalf("job %s waits for %s, and is expected now: %+v %s", id, kind, f, f)
	}
}

// checkFollows holds the forecast of a job to that of the one it may not pass.
func checkFollows(t *rapid.T, id string, first, f reason.Forecast) {
	// A limit may hold back the job in front by then, which lets this one go first.
	if first.None != "" && f.None != first.None {
		t.Fatalf("job %s: %+v, and the job in front %+v", id, f, first)
	}
}

// checkKept holds what is said to be kept to the plan's reservations.
func checkKept(t *rapid.T, plan *Plan, story *reason.Story) {
	kept := plan.keeps(story.ID)
	if (kept == nil) != (story.Kept == nil) || kept != nil && (!kept.At.Equal(story.Kept.At) || joinIDs(kept.Cards) != joinIDs(story.Kept.Cards)) {
		t.Fatalf("job %s: the plan keeps %+v, the story %+v", story.ID, kept, story.Kept)
	}
	for _, c := range story.Cards {
		if c.Fits != (c.Obstacle == "") || c.What == "" || c.Obstacle == reason.ObstacleReserved && plan.keeps(c.KeptFor) == nil {
			t.Fatalf("job %s: gpu%d: %+v", story.ID, c.GPU, c)
		}
	}
}

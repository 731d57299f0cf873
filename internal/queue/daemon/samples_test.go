package daemon

import (
	"fmt"
	"testing"
	"time"

	"berth/internal/api"
	"berth/internal/job"
	"berth/internal/queue/series"
	"berth/internal/queue/store"
	"berth/internal/text/problem"
)

// measured records points of a job as the engine would, a second apart.
func (l *lab) measured(kind series.Kind, owner, id string, attempt int, from time.Time, mib ...int64) {
	track := series.Track{Kind: kind, Owner: owner, ID: id, Attempt: attempt}
	for i, m := range mib {
		p := series.Point{At: from.Add(time.Duration(i) * time.Second), MiB: m, UtilPct: 50, PowerW: series.Unknown, TempC: series.Unknown}
		l.d.svc.queue.Samples.Record([]series.Reading{{Track: track, Point: p}})
		l.d.svc.queue.Samples.Record(nil) // each is kept
	}
}

func highestMiB(s api.Samples) (mib int64, points int) {
	for _, track := range s.Tracks {
		for _, p := range track.Points {
			points++
			mib = max(mib, value(p.VRAMMiB))
		}
	}
	return mib, points
}

func TestAJobsSamplesAreItsOwnersAndAGPUsEverybodys(t *testing.T) {
	t.Parallel()
	l := newSharedLab(t)
	ann, bob, root := l.as("daemon"), l.as("nobody"), l.as("root")
	id := ann.submit(sh("true", "gpus", "0"))[0]
	l.end(id)
	l.measured(series.Job, ann.Name, id, 1, time.Now(), 4000)
	for _, test := range []struct {
		who  person
		kind problem.Kind
	}{{ann, ""}, {root, ""}, {bob, problem.Forbidden}} {
		got, err := l.d.samples.JobSamples(l.ctx, test.who.Caller, api.JobSamplesQuery{JobID: api.JobID{ID: id}})
		if problem.KindOf(err) != test.kind {
			t.Errorf("%s: %v, want %q", test.who.Name, err, test.kind)
		}
		if mib, _ := highestMiB(got); err == nil && mib != 4000 {
			t.Errorf("%s sees %+v", test.who.Name, got)
		}
	}
	if _, err := l.d.samples.GPUSamples(l.ctx, bob.Caller, api.GPUSamplesQuery{}); err != nil {
		t.Errorf("of a GPU: %v", err)
	}
	_, err := l.d.samples.GPUSamples(l.ctx, bob.Caller, api.GPUSamplesQuery{GPUIndex: api.GPUIndex{Index: 7}})
	wantProblem(t, err, problem.NotFound, "no GPU 7")
	// The same number may have been another user's before the state was restored.
	l.measured(series.Job, bob.Name, id, 1, time.Now(), 9000)
	if got, err := l.d.samples.JobSamples(l.ctx, ann.Caller, api.JobSamplesQuery{JobID: api.JobID{ID: id}}); err != nil {
		t.Error(err)
	} else if mib, _ := highestMiB(got); mib != 4000 {
		t.Errorf("with another user's job of that number: %d MiB", mib)
	}
}

func TestSamplesAreBoundedAndKeepTheirPeak(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	id := l.one(sh("true", "gpus", "0"))
	j := l.end(id)
	many := make([]int64, api.MaxTrackPoints+500)
	for i := range many {
		many[i] = int64(1000 + i%7)
	}
	many[1234] = 77_777
	begin := j.SubmittedAt.Add(time.Second)
	l.measured(series.Job, j.User, id, 1, begin, many...)
	at := func(second int) *time.Time { moment := begin.Add(time.Duration(second) * time.Second); return &moment }
	later := at(len(many))
	row, err := l.d.svc.queue.Store.Job(id)
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name   string
		query  api.SamplesQuery
		most   int
		peak   int64
		points int
	}{
		{"everything", api.SamplesQuery{}, api.MaxTrackPoints, 77_777, 0},
		{"coarse", api.SamplesQuery{StepS: 100}, 25, 77_777, 0},
		{"coarser than it is long", api.SamplesQuery{StepS: 100_000}, 1, 77_777, 0},
		{"a part", api.SamplesQuery{From: at(1230), To: at(1240)}, 11, 77_777, 11},
		{"a part without the peak", api.SamplesQuery{From: at(1235), To: at(1240)}, 6, 1006, 6},
	} {
		got := l.d.samples.jobSamples(row, test.query, *later)
		if peak, points := highestMiB(got); points > test.most || peak != test.peak || test.points > 0 && points != test.points {
			t.Errorf("%s: %d points with at most %d MiB, want at most %d with %d", test.name, points, peak, test.most, test.peak)
		}
	}
}

func TestParkedStretchesLastUntilTheJobIsMeasuredAgain(t *testing.T) {
	t.Parallel()
	point := func(s int) series.Point { return series.Point{At: noon.Add(time.Duration(s) * time.Second)} }
	ran, parked := series.Track{Kind: series.Job}, series.Track{Kind: series.Parked}
	for _, test := range []struct {
		name  string
		found map[series.Track][]series.Point
		job   job.Job
		want  string
	}{
		{"never", map[series.Track][]series.Point{ran: {point(1)}}, job.Job{}, ""},
		{"twice", map[series.Track][]series.Point{ran: {point(0), point(10), point(30)}, parked: {point(2), point(5), point(20)}}, job.Job{State: job.Running}, "2-10 20-30 "},
		{"now", map[series.Track][]series.Point{ran: {point(0)}, parked: {point(2), point(9)}}, job.Job{State: job.Parked}, "2- "},
		{"until its end", map[series.Track][]series.Point{parked: {point(2), point(9)}}, job.Job{State: job.Cancelled, Attempt: job.Attempt{EndedAt: noon.Add(12 * time.Second)}}, "2-12 "},
	} {
		got := ""
		for _, s := range parkedStretches(test.found, &test.job) {
			got += fmt.Sprint(s.From.Sub(noon).Seconds(), "-")
			if s.To != nil {
				got += fmt.Sprint(s.To.Sub(noon).Seconds())
			}
			got += " "
		}
		if got != test.want {
			t.Errorf("%s: %q, want %q", test.name, got, test.want)
		}
	}
}

func TestForgottenJobsTakeTheirSamplesAlong(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	gone := l.one(sh("true", "gpus", "0"))
	user := l.end(gone).User // it ends first
	kept := l.one(sh("true", "gpus", "0"))
	l.end(kept)
	for _, id := range []string{gone, kept} {
		l.measured(series.Job, user, id, 1, time.Now(), 4000)
	}
	l.restart() // they are on disk
	if _, err := l.d.svc.queue.Store.Forget(store.Keep{Jobs: 1}); err != nil {
		t.Fatal(err)
	}
	l.d.samples.forgetSamples()
	left := l.d.svc.queue.Samples.Read(time.Time{}, time.Now().Add(time.Hour), func(t series.Track) bool { return t.Kind == series.Job })
	for track := range left {
		if track.ID != kept {
			t.Errorf("left %+v", track)
		}
	}
	if len(left) != 1 {
		t.Errorf("left %d tracks", len(left))
	}
}

package api

import (
	"fmt"
	"math"
	"testing"
	"time"

	"berth/internal/text/problem"
)

func TestSamplesGoThereAndBack(t *testing.T) {
	c := serve(t, newFake(), Limits{}).client
	later := exampleTime.Add(time.Hour)
	got, err := Call(t.Context(), c, GetJobSamples, JobSamplesQuery{JobID: JobID{ID: "17"}, SamplesQuery: SamplesQuery{From: &exampleTime, To: &later, StepS: 60}})
	if err != nil || got.Job != "17" || !got.To.Equal(later) || got.TotalMiB != 60 || len(got.Tracks) != 1 || *got.Tracks[0].Points[0].VRAMMiB != 17904 {
		t.Errorf("of a job: %+v, %v", got, err)
	}
	got, err = Call(t.Context(), c, GetGPUSamples, GPUSamplesQuery{GPUIndex: GPUIndex{Index: 3}})
	if err != nil || *got.GPU != 3 || got.Parked == nil {
		t.Errorf("of a GPU: %+v, %v", got, err)
	}
	if _, err := Call(t.Context(), c, GetJobSamples, JobSamplesQuery{JobID: JobID{ID: "17"}, SamplesQuery: SamplesQuery{From: &later, To: &exampleTime}}); problem.KindOf(err) != problem.Invalid {
		t.Errorf("a period that ends before it begins: %v", err)
	}
	if _, err := Call(t.Context(), c, GetJobSamples, JobSamplesQuery{JobID: JobID{ID: "17"}, SamplesQuery: SamplesQuery{StepS: -1}}); problem.KindOf(err) != problem.Invalid {
		t.Errorf("a negative step: %v", err)
	}
}

func TestTheHighestCountsUntilItsPointAndNotAcrossAGap(t *testing.T) {
	track := func(points ...SamplePoint) SampleTrack { return SampleTrack{Points: points} }
	at := func(second int, mib int64, gap bool) SamplePoint {
		return SamplePoint{At: exampleTime.Add(time.Duration(second) * time.Second), VRAMMiB: &mib, AfterGap: gap}
	}
	from, to := exampleTime, exampleTime.Add(10*time.Second)
	for _, test := range []struct {
		name   string
		tracks []SampleTrack
		want   string
	}{
		{"nothing", nil, "[NaN NaN NaN NaN NaN NaN NaN NaN NaN NaN]"},
		{"it lasts until its point", []SampleTrack{track(at(0, 1, true), at(3, 2, false))}, "[1 2 2 2 NaN NaN NaN NaN NaN NaN]"},
		{"a gap is unknown", []SampleTrack{track(at(0, 1, true), at(3, 2, true))}, "[1 NaN NaN 2 NaN NaN NaN NaN NaN NaN]"},
		{"the fullest counts", []SampleTrack{track(at(0, 1, true), at(9, 1, false)), track(at(4, 5, true))}, "[1 1 1 1 5 1 1 1 1 1]"},
		{"a peak in one part stays", []SampleTrack{track(at(2, 9, true), at(2, 1, false))}, "[NaN NaN 9 NaN NaN NaN NaN NaN NaN NaN]"},
		{"from before the period", []SampleTrack{track(at(-5, 3, true), at(1, 4, false))}, "[4 4 NaN NaN NaN NaN NaN NaN NaN NaN]"},
	} {
		if got := fmt.Sprint(Samples{Tracks: test.tracks}.Highest(from, to, 10)); got != test.want {
			t.Errorf("%s: %s, want %s", test.name, got, test.want)
		}
	}
	if got := (Samples{Tracks: []SampleTrack{track(at(0, 7, true))}}).Highest(from, from, 2); got[0] != 7 || !math.IsNaN(got[1]) {
		t.Errorf("a single moment: %v", got)
	}
}

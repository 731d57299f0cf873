package api

import (
	"math"
	"time"

	"berth/internal/text/problem"
)

// SamplesQuery selects a part of the past.
type SamplesQuery struct {
	From  *time.Time `query:"from" about:"only points from this time on; default: the beginning"`
	To    *time.Time `query:"to" about:"only points until this time; default: now"`
	StepS int        `query:"step" range:"1..2592000" about:"at least this many seconds between two points. Points in between are merged, and maxima are kept"`
}

// JobSamplesQuery asks what a job used.
type JobSamplesQuery struct {
	JobID
	SamplesQuery
}

// GPUSamplesQuery asks what a card did.
type GPUSamplesQuery struct {
	GPUIndex
	SamplesQuery
}

func (q *SamplesQuery) check(*Limits) error {
	if q.From != nil && q.To != nil && q.To.Before(*q.From) {
		return problem.Newf(problem.Invalid, "", "to %s is before from %s", q.To.Format(time.RFC3339), q.From.Format(time.RFC3339))
	}
	return nil
}

// Samples is what was measured of a job or a GPU over time. Each value counts
// from the point before until its own time.
type Samples struct {
	Job         string        `json:"job,omitempty"`
	GPU         *int          `json:"gpu,omitempty"`
	From        time.Time     `json:"from"`
	To          time.Time     `json:"to"`
	DeclaredMiB *int64        `json:"declared_mib" doc:"what the job declared for each of its GPUs; null: nothing, or a GPU"`
	TotalMiB    int64         `json:"total_mib,omitempty" doc:"of a GPU"`
	Tracks      []SampleTrack `json:"tracks" doc:"one for each attempt and GPU of a job, in order; one for a GPU"`
	Parked      []Stretch     `json:"parked" doc:"when the job was parked"`
}

// SampleTrack is one line of points.
type SampleTrack struct {
	GPU     int           `json:"gpu"`
	Attempt int           `json:"attempt,omitempty"`
	Points  []SamplePoint `json:"points" doc:"in order of time"`
}

// SamplePoint is what was measured until a time, since the point before.
type SamplePoint struct {
	At           time.Time `json:"at"`
	VRAMMiB      *int64    `json:"vram_mib" doc:"the most; null: not measured"`
	Util         *float64  `json:"util" doc:"of the GPU, which others may use too; percent, mean"`
	PowerW       *float64  `json:"power_w" doc:"of the GPU, mean"`
	TemperatureC *float64  `json:"temperature_c" doc:"of the GPU, the highest"`
	AfterGap     bool      `json:"after_gap" doc:"nothing was measured between the point before and this one"`
}

// Stretch is a time from one moment to another.
type Stretch struct {
	From time.Time  `json:"from"`
	To   *time.Time `json:"to" doc:"null: it goes on"`
}

// Bounds on a reply with samples.
const (
	MaxSamplePoints = 20_000 // in all
	MaxTrackPoints  = 2_000  // of one track
)

func (s *Samples) fill() { s.Tracks, s.Parked = list(s.Tracks), list(s.Parked) }

// Highest is the memory on the fullest of the GPUs in n equal parts of a period,
// in MiB: NaN where nothing was measured. A value counts from the point before
// until its own, unless there is a gap between them.
func (s Samples) Highest(from, to time.Time, n int) []float64 {
	values := make([]float64, n)
	for i := range values {
		values[i] = math.NaN()
	}
	part := func(at time.Time) int {
		if !to.After(from) {
			return 0
		}
		return max(0, min(n-1, int(float64(at.Sub(from))/float64(to.Sub(from))*float64(n))))
	}
	for _, track := range s.Tracks {
		for i, p := range track.Points {
			if p.VRAMMiB == nil || p.At.Before(from) || p.At.After(to) {
				continue
			}
			last := part(p.At)
			first := last
			switch {
			case i == 0 || p.AfterGap:
			case track.Points[i-1].At.Before(from):
				first = 0
			default:
				first = min(last, part(track.Points[i-1].At)+1)
			}
			for at := first; at <= last; at++ {
				if mib := float64(*p.VRAMMiB); !(values[at] >= mib) { // also for NaN
					values[at] = mib
				}
			}
		}
	}
	return values
}

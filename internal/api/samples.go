package api

import (
	"context"
	"math"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"berth/internal/text/problem"
)

// SamplesQuery selects a part of the past.
type SamplesQuery struct {
	From, To *time.Time
	StepS    int // the least time between two points; 0: as fine as they are kept, within the bounds
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
	maxStepS        = 30 * 24 * 3600
)

var sampleParams = []param{
	{name: "from", in: "query", kind: "time", about: "only points from this time on; default: the beginning"},
	{name: "to", in: "query", kind: "time", about: "only points until this time; default: now"},
	{name: "step", in: "query", kind: "integer", about: "at least this many seconds between two points. Points in between are merged, and maxima are kept"},
}

func sampleOperations() []route {
	index := param{name: "index", in: "path", kind: "integer", example: 0, about: "the number of the GPU in berth gpus"}
	return []route{
		{method: get, path: "/v1/jobs/{id}/samples", handle: (*exchange).getJobSamples, heavy: true, long: true, doc: doc{
			id: "job-samples", tag: "jobs", summary: "Read what a job used over time",
			about:  "Memory on each of its GPUs, and how busy those were. Only users who may see the job's command get them. A reply has at most 2000 points for each attempt and GPU and 20000 in all; more are merged.",
			params: append([]param{pathID}, sampleParams...), reply: exampleSamples, kinds: []problem.Kind{problem.Invalid, problem.NotFound, problem.Forbidden},
		}},
		{method: get, path: "/v1/gpus/{index}/samples", handle: (*exchange).getGPUSamples, heavy: true, long: true, doc: doc{
			id: "gpu-samples", tag: "gpus", summary: "Read what a GPU did over time",
			about:  "Memory, utilisation, power and temperature.",
			params: append([]param{index}, sampleParams...), reply: exampleGPUSamples, kinds: []problem.Kind{problem.Invalid, problem.NotFound},
		}},
	}
}

func (q SamplesQuery) values() url.Values {
	v := url.Values{}
	putTime(v, "from", q.From)
	putTime(v, "to", q.To)
	putInt(v, "step", int64(q.StepS))
	return v
}

func readSamplesQuery(p *params) (SamplesQuery, error) {
	q := SamplesQuery{From: p.time("from"), To: p.time("to"), StepS: int(p.int("step", 1, maxStepS))}
	if err := p.done(); err != nil {
		return q, err
	}
	if q.From != nil && q.To != nil && q.To.Before(*q.From) {
		return q, problem.Newf(problem.Invalid, "", "to %s is before from %s", q.To.Format(time.RFC3339), q.From.Format(time.RFC3339))
	}
	return q, nil
}

func (x *exchange) samplesQuery() (SamplesQuery, error) {
	p, err := x.params()
	if err != nil {
		return SamplesQuery{}, err
	}
	return readSamplesQuery(p)
}

func (x *exchange) getJobSamples() error {
	id, err := x.id()
	if err != nil {
		return err
	}
	q, err := x.samplesQuery()
	if err != nil {
		return err
	}
	samples, err := x.backend.JobSamples(x.r.Context(), x.caller, id, q)
	samples.Tracks, samples.Parked = list(samples.Tracks), list(samples.Parked)
	return x.reply(samples, err)
}

func (x *exchange) getGPUSamples() error {
	index, err := x.index()
	if err != nil {
		return err
	}
	q, err := x.samplesQuery()
	if err != nil {
		return err
	}
	samples, err := x.backend.GPUSamples(x.r.Context(), x.caller, index, q)
	samples.Tracks, samples.Parked = list(samples.Tracks), list(samples.Parked)
	return x.reply(samples, err)
}

// JobSamples reads what a job used over time.
func (c *Client) JobSamples(ctx context.Context, id string, q SamplesQuery) (Samples, error) {
	return call[Samples](ctx, c, http.MethodGet, jobPath(id, "samples"), q.values(), nil)
}

// GPUSamples reads what a card did over time.
func (c *Client) GPUSamples(ctx context.Context, index int, q SamplesQuery) (Samples, error) {
	return call[Samples](ctx, c, http.MethodGet, "/v1/gpus/"+strconv.Itoa(index)+"/samples", q.values(), nil)
}

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

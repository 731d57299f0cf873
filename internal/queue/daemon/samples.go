package daemon

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"berth/internal/api"
	"berth/internal/job"
	"berth/internal/machine/gpu"
	"berth/internal/queue/engine"
	"berth/internal/queue/series"
	"berth/internal/queue/store"
	"berth/internal/text/problem"
)

// samples shows what jobs and GPUs used over time.
type samples struct {
	svc  *service
	find *finder
}

// JobSamples is what a job used over time. When it used how much says what it
// does, so that whoever may not see its command does not get it.
func (h *samples) JobSamples(ctx context.Context, c api.Caller, q api.JobSamplesQuery) (api.Samples, error) {
	j, err := h.find.Find(ctx, c, q.ID)
	if err != nil {
		return api.Samples{}, err
	}
	if !h.svc.maySee(c, &j) {
		return api.Samples{}, problem.Newf(problem.Forbidden, "", "job %s belongs to %s", j.ID, j.User)
	}
	return h.jobSamples(&j, q.SamplesQuery, time.Now()), nil
}

func (h *samples) jobSamples(j *job.Job, q api.SamplesQuery, now time.Time) api.Samples {
	// A number may have been given twice, if the state was restored in between.
	reply := period(q, j.SubmittedAt, now)
	found := h.svc.queue.Samples.Read(reply.From, reply.To, func(t series.Track) bool {
		return t.Kind != series.GPU && t.ID == j.ID && t.Owner == j.User
	})
	reply.Job, reply.DeclaredMiB = j.ID, j.View().VRAMMiB
	reply.Tracks = sampleTracks(found, q)
	reply.Parked = parkedStretches(found, j)
	return reply
}

// GPUSamples is what a card did over time. Everybody may see it, as in berth
// gpus.
func (h *samples) GPUSamples(ctx context.Context, _ api.Caller, q api.GPUSamplesQuery) (api.Samples, error) {
	index := q.Index
	var card gpu.Device
	var known bool
	var devices []gpu.Device
	err := h.svc.Do(ctx, func(t *engine.Turn) {
		devices = t.Cards().Devices()
		for _, dev := range devices {
			if dev.Index == index {
				card, known = dev, true
			}
		}
	})
	switch {
	case err != nil:
		return api.Samples{}, err
	case !known:
		return api.Samples{}, noCard(index, devices)
	}
	reply := period(q.SamplesQuery, time.Time{}, time.Now())
	found := h.svc.queue.Samples.Read(reply.From, reply.To, func(t series.Track) bool { return t.Kind == series.GPU && t.ID == card.UUID })
	reply.GPU, reply.TotalMiB = &index, card.TotalMiB
	reply.Tracks = sampleTracks(found, q.SamplesQuery)
	for i := range reply.Tracks {
		reply.Tracks[i].GPU = index
	}
	return reply, nil
}

// period is the time that a query asks for, at most from begin until now.
func period(q api.SamplesQuery, begin, now time.Time) api.Samples {
	s := api.Samples{From: begin.UTC(), To: now.UTC()}
	if q.From != nil && q.From.After(s.From) {
		s.From = q.From.UTC()
	}
	if q.To != nil && q.To.Before(s.To) {
		s.To = q.To.UTC()
	}
	return s
}

// sampleTracks are the measured tracks in order, thinned to the bounds of a
// reply. Of very many, the last are kept.
func sampleTracks(found map[series.Track][]series.Point, q api.SamplesQuery) []api.SampleTrack {
	var order []series.Track
	for track := range found {
		if track.Kind != series.Parked {
			order = append(order, track)
		}
	}
	slices.SortFunc(order, func(a, b series.Track) int {
		return cmp.Or(cmp.Compare(a.Attempt, b.Attempt), cmp.Compare(a.GPU, b.GPU))
	})
	order = order[max(0, len(order)-api.MaxSamplePoints):]
	tracks := []api.SampleTrack{}
	most := min(api.MaxTrackPoints, api.MaxSamplePoints/max(1, len(order)))
	for _, track := range order {
		points := found[track]
		if q.StepS > 0 && len(points) > 1 {
			span := points[len(points)-1].At.Sub(points[0].At)
			points = series.Thin(points, max(1, int(span/(time.Duration(q.StepS)*time.Second))))
		}
		tracks = append(tracks, api.SampleTrack{GPU: track.GPU, Attempt: track.Attempt, Points: samplePoints(series.Thin(points, most))})
	}
	return tracks
}

func samplePoints(points []series.Point) []api.SamplePoint {
	list := make([]api.SamplePoint, len(points))
	for i, p := range points {
		list[i] = api.SamplePoint{At: p.At, VRAMMiB: orNil(p.MiB), Util: orNil(p.UtilPct), PowerW: orNil(p.PowerW), TemperatureC: orNil(p.TempC), AfterGap: p.Begins}
	}
	return list
}

// parkedStretches is when a job was parked. Parked jobs are looked at rarely, so
// a stretch lasts until the job was measured again.
func parkedStretches(found map[series.Track][]series.Point, j *job.Job) []api.Stretch {
	var parked, ran []series.Point
	for track, points := range found {
		if track.Kind == series.Parked {
			parked = append(parked, points...)
		} else {
			ran = append(ran, points...)
		}
	}
	byTime := func(a, b series.Point) int { return a.At.Compare(b.At) }
	slices.SortFunc(parked, byTime)
	slices.SortFunc(ran, byTime)
	stretches := []api.Stretch{}
	for _, p := range parked {
		if n := len(stretches); n > 0 && (stretches[n-1].To == nil || p.At.Before(*stretches[n-1].To)) {
			continue
		}
		s := api.Stretch{From: p.At}
		at, _ := slices.BinarySearchFunc(ran, p, byTime)
		switch {
		case at < len(ran):
			s.To = &ran[at].At
		case j.State != job.Parked:
			s.To = &parked[len(parked)-1].At
			if !j.EndedAt.IsZero() {
				s.To = &j.EndedAt
			}
		}
		stretches = append(stretches, s)
	}
	return stretches
}

// forgetSamples removes the samples of jobs that are forgotten.
func (h *samples) forgetSamples() {
	err := h.svc.queue.Samples.Forget(func(owner, id string) bool {
		j, err := h.svc.queue.Store.Job(id)
		return errors.Is(err, store.ErrNotFound) || err == nil && j.User != owner
	})
	if err != nil {
		h.svc.queue.Log.Error("forget samples", "err", err)
	}
}

package stats

import (
	"math"
	"slices"

	"berth/internal/api"
	"berth/internal/job"
)

// row is the sum over the jobs of one user, one day, or all.
type row struct {
	jobs, finished, failed, cancelled int

	gpuSeconds float64
	cpuSeconds float64
	utilSum    float64 // percent times GPU-seconds
	utilTime   float64 // GPU-seconds with a measurement

	waits   waits
	ran     int
	runTime float64 // seconds

	parkings int
	parked   float64 // seconds
	lost     float64 // seconds that attempts ran in vain, of jobs that save their own work
}

// ended counts a finished job.
func (l *row) ended(j *job.Job) {
	l.jobs++
	switch j.State {
	case job.Finished:
		l.finished++
	case job.Cancelled:
		l.cancelled++
	default:
		l.failed++
	}
	if j.StartedAt.IsZero() {
		return
	}
	// Nothing becomes negative if the clock was set back.
	l.ran++
	l.runTime += j.Worked(j.EndedAt).Seconds()
	l.parkings += j.Parking.Times
	l.parked += j.WasParked().Seconds()
	l.lost += j.Checkpoints.Lost.Seconds()
	if !j.SubmittedAt.IsZero() {
		l.waits.add(max(0, j.StartedAt.Sub(j.SubmittedAt).Seconds()))
	}
}

// used counts GPU and CPU time.
func (l *row) used(gpuSeconds, cpuSeconds float64, util *float64) {
	l.gpuSeconds += gpuSeconds
	l.cpuSeconds += cpuSeconds
	if util != nil {
		l.utilSum += *util * gpuSeconds
		l.utilTime += gpuSeconds
	}
}

func (l *row) avgUtil() *float64 { return ratio(l.utilSum, l.utilTime) }

func ratio(sum, over float64) *float64 {
	if over <= 0 {
		return nil
	}
	r := sum / over
	return &r
}

func (l *row) public(key string) api.StatsLine {
	line := api.StatsLine{
		Key: key, Jobs: l.jobs, Finished: l.finished, Failed: l.failed, Cancelled: l.cancelled,
		GPUHours: l.gpuSeconds / 3600, CPUHours: l.cpuSeconds / 3600, AvgUtil: l.avgUtil(), RunMeanS: ratio(l.runTime, float64(l.ran)),
		Parkings: l.parkings, ParkedS: l.parked, LostS: l.lost,
	}
	if l.waits.count > 0 {
		slices.Sort(l.waits.kept)
		line.WaitMeanS = ratio(l.waits.sum, float64(l.waits.count))
		line.WaitP50S, line.WaitP95S = l.waits.percentile(0.50), l.waits.percentile(0.95)
		highest := l.waits.highest
		line.WaitMaxS = &highest
	}
	return line
}

// maxWaits bounds the values kept for percentiles.
const maxWaits = 200_000

// waits is a distribution. Its percentiles are exact up to maxWaits values;
// beyond that they are taken from every second value, every fourth, and so on.
// Count, sum and maximum are always exact.
type waits struct {
	kept    []float64
	every   int // one in this many is kept; 0 means 1
	count   int
	sum     float64
	highest float64
}

func (w *waits) add(seconds float64) {
	w.every = max(w.every, 1)
	if w.count%w.every == 0 {
		w.kept = append(w.kept, seconds)
	}
	w.count++
	w.sum += seconds
	w.highest = max(w.highest, seconds)
	if len(w.kept) < maxWaits {
		return
	}
	for i := range maxWaits / 2 {
		w.kept[i] = w.kept[2*i]
	}
	w.kept = w.kept[:maxWaits/2]
	w.every *= 2
}

// percentile is the smallest kept value that is at least as large as this part
// of all. The values must be sorted.
func (w *waits) percentile(part float64) *float64 {
	rank := int(math.Ceil(part * float64(len(w.kept))))
	value := w.kept[max(rank, 1)-1]
	return &value
}

package daemon

import (
	"math"
	"slices"

	"berth/internal/api"
	"berth/internal/job"
)

// statsLine sums up the jobs of one user, one day, or all.
type statsLine struct {
	jobs, finished, failed, cancelled int

	gpuSeconds float64
	utilSum    float64 // percent times GPU-seconds
	utilTime   float64 // GPU-seconds something was measured in

	waits   waits
	ran     int
	runTime float64 // seconds
}

// ended counts a job that is over.
func (l *statsLine) ended(j *job.Job) {
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
	// A clock that was set back makes nothing negative.
	l.ran++
	l.runTime += max(0, j.EndedAt.Sub(j.StartedAt).Seconds())
	if !j.SubmittedAt.IsZero() {
		l.waits.add(max(0, j.StartedAt.Sub(j.SubmittedAt).Seconds()))
	}
}

// used counts time on cards.
func (l *statsLine) used(gpuSeconds float64, util *float64) {
	l.gpuSeconds += gpuSeconds
	if util != nil {
		l.utilSum += *util * gpuSeconds
		l.utilTime += gpuSeconds
	}
}

func (l *statsLine) avgUtil() *float64 { return ratio(l.utilSum, l.utilTime) }

func ratio(sum, over float64) *float64 {
	if over <= 0 {
		return nil
	}
	r := sum / over
	return &r
}

func (l *statsLine) public(key string) api.StatsLine {
	line := api.StatsLine{
		Key: key, Jobs: l.jobs, Finished: l.finished, Failed: l.failed, Cancelled: l.cancelled,
		GPUHours: l.gpuSeconds / 3600, AvgUtil: l.avgUtil(), RunMeanS: ratio(l.runTime, float64(l.ran)),
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

// maxWaits bounds what one line keeps for its percentiles.
const maxWaits = 200_000

// waits is a distribution. Its percentiles are exact up to maxWaits values;
// beyond, they are those of every second, every fourth value and so on, in the
// order they came. Count, sum and maximum are always exact.
type waits struct {
	kept    []float64
	every   int // one of so many is kept; 0 is 1
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

// percentile is the smallest kept value that so large a part is not above. The
// values have to be in order.
func (w *waits) percentile(part float64) *float64 {
	rank := int(math.Ceil(part * float64(len(w.kept))))
	value := w.kept[max(rank, 1)-1]
	return &value
}

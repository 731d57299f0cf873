package sim

import "math"

// Unit says how a figure is formatted for people.
type Unit int

// The units.
const (
	Number Unit = iota
	Seconds
	Percent // the figure itself is a share of 1
	Milliseconds
	MiB
)

// Figure is one number of the metrics. All code that prints, averages or
// compares metrics uses this table.
type Figure struct {
	Name  string // as in JSON
	Title string // as people read it
	Unit  Unit
	Of    func(*Metrics) *float64
	Bound func(*Metrics) *float64 // the lower bound; nil: not known
}

// Figures are all figures, in the order in which they are shown.
func Figures() []Figure {
	return []Figure{
		{Name: "wait_mean_s", Title: "wait, mean", Unit: Seconds, Of: func(m *Metrics) *float64 { return &m.WaitMeanS }},
		{Name: "wait_p50_s", Title: "wait, p50", Unit: Seconds, Of: func(m *Metrics) *float64 { return &m.WaitP50S }},
		{Name: "wait_p95_s", Title: "wait, p95", Unit: Seconds, Of: func(m *Metrics) *float64 { return &m.WaitP95S }},
		{Name: "wait_p99_s", Title: "wait, p99", Unit: Seconds, Of: func(m *Metrics) *float64 { return &m.WaitP99S }},
		{Name: "wait_max_s", Title: "wait, longest", Unit: Seconds, Of: func(m *Metrics) *float64 { return &m.WaitMaxS }},
		{Name: "bounded_slowdown_mean", Title: "slowdown, mean", Of: func(m *Metrics) *float64 { return &m.BoundedSlowdownMean }},
		{
			Name: "flow_mean_s", Title: "turnaround, mean", Unit: Seconds,
			Of: func(m *Metrics) *float64 { return &m.FlowMeanS }, Bound: func(m *Metrics) *float64 { return &m.Bounds.FlowMeanS },
		},
		{
			Name: "makespan_s", Title: "makespan", Unit: Seconds,
			Of: func(m *Metrics) *float64 { return &m.MakespanS }, Bound: func(m *Metrics) *float64 { return &m.Bounds.MakespanS },
		},
		{Name: "gpu_allocated", Title: "GPU allocation", Unit: Percent, Of: func(m *Metrics) *float64 { return &m.GPUAllocated }},
		{Name: "gpu_useful", Title: "GPU utilisation", Unit: Percent, Of: func(m *Metrics) *float64 { return &m.GPUUseful }},
		{Name: "gpu_lost", Title: "parking overhead", Unit: Percent, Of: func(m *Metrics) *float64 { return &m.GPULost }},
		{Name: "gpu_wasted", Title: "lost work", Unit: Percent, Of: func(m *Metrics) *float64 { return &m.GPUWasted }},
		{Name: "fragmentation", Title: "fragmentation", Unit: Percent, Of: func(m *Metrics) *float64 { return &m.Fragmentation }},
		{Name: "jain_users", Title: "fairness (Jain)", Of: func(m *Metrics) *float64 { return &m.JainUsers }},
		{Name: "worst_over_median_user", Title: "worst/median user", Of: func(m *Metrics) *float64 { return &m.WorstOverMedianUser }},
		{Name: "preemptions", Title: "preemptions", Of: func(m *Metrics) *float64 { return &m.Preemptions }},
		{Name: "gpu_fixed", Title: "cannot give way", Unit: Percent, Of: func(m *Metrics) *float64 { return &m.GPUFixed }},
		{Name: "host_full", Title: "host memory full", Unit: Percent, Of: func(m *Metrics) *float64 { return &m.HostFull }},
		{Name: "own_gpus_busy", Title: "own GPUs busy", Unit: Percent, Of: func(m *Metrics) *float64 { return &m.OwnGPUsBusy }},
		{Name: "parked_max_mib", Title: "parked memory, most", Unit: MiB, Of: func(m *Metrics) *float64 { return &m.ParkedMaxMiB }},
		{Name: "ooms", Title: "out of memory", Of: func(m *Metrics) *float64 { return &m.OOMs }},
		{Name: "decisions", Title: "decisions", Of: func(m *Metrics) *float64 { return &m.Decisions }},
		{Name: "decision_p50_ms", Title: "decision, p50", Unit: Milliseconds, Of: func(m *Metrics) *float64 { return &m.DecisionP50Ms }},
		{Name: "decision_p99_ms", Title: "decision, p99", Unit: Milliseconds, Of: func(m *Metrics) *float64 { return &m.DecisionP99Ms }},
	}
}

// average is the mean of several replays under one policy, and half the width
// of the 95 % confidence interval of each figure, by name. One replay has no
// interval.
func average(replays []Metrics) (Metrics, map[string]float64) {
	mean := replays[0]
	intervals := map[string]float64{}
	for _, f := range Figures() {
		middle, half := interval(replays, f.Of)
		*f.Of(&mean) = middle
		if len(replays) > 1 {
			intervals[f.Name] = half
		}
		if f.Bound != nil {
			*f.Bound(&mean), _ = interval(replays, f.Bound)
		}
	}
	return mean, intervals
}

func interval(replays []Metrics, of func(*Metrics) *float64) (mean, half float64) {
	n := float64(len(replays))
	for i := range replays {
		mean += *of(&replays[i])
	}
	mean /= n
	if len(replays) < 2 {
		return mean, 0
	}
	squares := 0.0
	for i := range replays {
		squares += (*of(&replays[i]) - mean) * (*of(&replays[i]) - mean)
	}
	return mean, studentT(len(replays)-1) * math.Sqrt(squares/(n-1)/n)
}

// studentT is the 97.5 % quantile of Student's t-distribution. Between the rows
// it uses the next smaller number of degrees, so no interval is too narrow.
func studentT(degrees int) float64 {
	quantiles := [...]float64{
		12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228,
		2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086,
		2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
	}
	switch {
	case degrees <= len(quantiles):
		return quantiles[degrees-1]
	case degrees < 60:
		return quantiles[len(quantiles)-1]
	case degrees < 120:
		return 2.000
	}
	return 1.980
}

package sim

import (
	"math"
	"slices"
	"time"
)

// Metrics are the figures of a replay: a stable contract. Shares are of 1.
type Metrics struct {
	Policy     string `json:"policy"`
	Jobs       int    `json:"jobs"`       // that ran
	Infeasible int    `json:"infeasible"` // that can never run on this machine
	Unfinished int    `json:"unfinished"` // that wait for something that never happens
	TimedOut   int    `json:"timed_out"`  // of those that ran: ended by their time limits
	Users      int    `json:"users"`

	WaitMeanS           float64 `json:"wait_mean_s"` // from submission to end, without the run itself
	WaitP50S            float64 `json:"wait_p50_s"`
	WaitP95S            float64 `json:"wait_p95_s"`
	WaitP99S            float64 `json:"wait_p99_s"`
	WaitMaxS            float64 `json:"wait_max_s"`
	BoundedSlowdownMean float64 `json:"bounded_slowdown_mean"`
	FlowMeanS           float64 `json:"flow_mean_s"`
	MakespanS           float64 `json:"makespan_s"`
	GPUAllocated        float64 `json:"gpu_allocated"` // of the GPU time until the last end
	GPUUseful           float64 `json:"gpu_useful"`    // the same without timed out jobs and lost work
	GPULost             float64 `json:"gpu_lost"`      // spent on parking and resuming jobs
	GPUWasted           float64 `json:"gpu_wasted"`    // spent on work that was lost
	Fragmentation       float64 `json:"fragmentation"` // free, but scattered over cards so that a waiting job does not fit
	JainUsers           float64 `json:"jain_users"`    // of users' mean bounded slowdowns
	WorstOverMedianUser float64 `json:"worst_over_median_user"`
	Preemptions         float64 `json:"preemptions"`
	GPUFixed            float64 `json:"gpu_fixed"`      // of the GPU time: of jobs that could not give way while others waited
	HostFull            float64 `json:"host_full"`      // of the time: jobs waited, and no memory of the host was left to park one
	OwnGPUsBusy         float64 `json:"own_gpus_busy"`  // of the time: a parked job waited for its GPUs, and as many others were free
	ParkedMaxMiB        float64 `json:"parked_max_mib"` // the host's memory that parked jobs took at most
	OOMs                float64 `json:"ooms"`           // starts that failed for lack of memory
	Decisions           float64 `json:"decisions"`
	DecisionP50Ms       float64 `json:"decision_p50_ms"`
	DecisionP99Ms       float64 `json:"decision_p99_ms"`

	Bounds Bounds `json:"bounds"`
}

// slowdownFloorS is τ of the bounded slowdown: a job of one second that waits
// for ten should not count as slowed down much.
const slowdownFloorS = 10

// measure computes the figures of a replay.
func measure(in input, res Result) Metrics {
	m := Metrics{
		Policy: in.Policy.Name, Decisions: float64(res.Decisions), Bounds: lowerBounds(in, res),
		Preemptions: float64(res.Preemptions), OOMs: float64(res.OOMs), ParkedMaxMiB: float64(res.HostPeakMiB),
	}
	s := gather(&in, &res)
	m.Jobs, m.Infeasible, m.Unfinished = len(s.waits), s.refused, s.unfinished
	m.TimedOut, m.Users = s.timedOut, len(s.users)
	if m.Jobs == 0 {
		return m
	}
	slices.Sort(s.waits)
	m.WaitMeanS = s.waitSum / float64(m.Jobs)
	m.WaitP50S, m.WaitP95S = Quantile(s.waits, 0.50), Quantile(s.waits, 0.95)
	m.WaitP99S, m.WaitMaxS = Quantile(s.waits, 0.99), Quantile(s.waits, 1)
	m.BoundedSlowdownMean = s.slowdownSum / float64(m.Jobs)
	m.FlowMeanS = s.flowSum / float64(m.Jobs)
	m.MakespanS = (s.last - s.first).Seconds()
	if capacity := m.MakespanS * float64(in.Machine.GPUs); capacity > 0 {
		m.GPUAllocated = res.AllocatedGPUSeconds / capacity
		lost := s.timedOutGPUSeconds + res.OverheadGPUSeconds + res.WastedGPUSeconds
		m.GPUUseful = max(0, res.AllocatedGPUSeconds-lost) / capacity
		m.GPULost = res.OverheadGPUSeconds / capacity
		m.GPUWasted = res.WastedGPUSeconds / capacity
		m.GPUFixed = res.FixedGPUSeconds / capacity
		m.HostFull, m.OwnGPUsBusy = res.HostFullSeconds/m.MakespanS, res.OwnCardsSeconds/m.MakespanS
		m.Fragmentation = res.FragmentedGPUSeconds / capacity
	}
	m.JainUsers, m.WorstOverMedianUser = fairness(s.users)
	times := slices.Sorted(slices.Values(res.DecisionTimes))
	m.DecisionP50Ms, m.DecisionP99Ms = milliseconds(Quantile(times, 0.50)), milliseconds(Quantile(times, 0.99))
	return m
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// sums are totals of a replay, in seconds.
type sums struct {
	waits                         []float64
	waitSum, flowSum, slowdownSum float64
	timedOutGPUSeconds            float64
	refused, unfinished, timedOut int
	first, last                   Millis
	users                         map[string]*mean
}

type mean struct {
	sum   float64
	count int
}

// gather adds up the jobs in the order of their submission, so that the order
// of the input does not change the last digit of a sum.
func gather(in *input, res *Result) sums {
	s := sums{users: map[string]*mean{}, waits: make([]float64, 0, len(in.Jobs))}
	for _, i := range bySubmission(in.Jobs) {
		j, fate := &in.Jobs[i], &res.Fates[i]
		switch {
		case fate.Refused != nil:
			s.refused++
			continue
		case fate.Unfinished:
			s.unfinished++
			continue
		}
		if len(s.waits) == 0 {
			s.first = max(j.Submit, res.Began)
			s.last = s.first
		}
		s.last = max(s.last, fate.End)
		wait, ran := (fate.End - j.Submit - j.runs()).Seconds(), j.runs().Seconds()
		s.waits = append(s.waits, wait)
		s.waitSum += wait
		s.flowSum += wait + ran
		slowdown := max(1, (wait+ran)/max(ran, slowdownFloorS))
		s.slowdownSum += slowdown
		if s.users[j.User] == nil {
			s.users[j.User] = &mean{}
		}
		s.users[j.User].sum += slowdown
		s.users[j.User].count++
		if fate.TimedOut {
			s.timedOut++
			s.timedOutGPUSeconds += ran * float64(j.GPUs) * float64(in.Machine.part(j)) / wholeCard
		}
	}
	return s
}

// fairness is Jain's index of the users' mean slowdowns, 1 if all fare alike,
// and the ratio of the worst user's to the median user's.
func fairness(users map[string]*mean) (jain, worstOverMedian float64) {
	means := make([]float64, 0, len(users))
	for _, m := range users {
		means = append(means, m.sum/float64(m.count))
	}
	slices.Sort(means)
	var sum, squares float64
	for _, x := range means {
		sum += x
		squares += x * x
	}
	n := len(means)
	median := (means[(n-1)/2] + means[n/2]) / 2
	return sum * sum / (float64(n) * squares), means[n-1] / median
}

// Quantile is the smallest of the sorted values that the share q of them does
// not exceed; 0 if there are no values.
func Quantile[T float64 | time.Duration](sorted []T, q float64) T {
	if len(sorted) == 0 {
		return 0
	}
	rank := int(math.Ceil(q*float64(len(sorted)) - 1e-9))
	return sorted[min(max(rank, 1), len(sorted))-1]
}

package gpu

import (
	"maps"
	"math"
	"slices"
)

// Holding is a job that holds cards now, of this berth or another.
type Holding struct {
	Key       string
	Cards     []int
	BudgetMiB []int64 // parallel to Cards; 0: the whole card
}

// OwnerFunc returns the job that a process belongs to. known is false if the
// pid could not be looked up, which does not make it external.
type OwnerFunc func(pid int) (key string, ok bool, known bool)

// CardUse is what placement needs to know about a card's use.
type CardUse struct {
	Index          int
	ForeignMiB     int64
	IdleForeignMiB int64 // likewise without graphics-only processes: decides whether a card is idle
	Unattributed   bool  // processes on this card cannot be matched to jobs
}

// blindLimit is how many samples in a row a card may go without a complete
// match before the meter stops expecting one. A single such sample is only a
// process that ended between the sample and the lookup.
const blindLimit = 3

// maxMeterKeys bounds the jobs that are remembered after they ended without a
// call of Forget.
const maxMeterKeys = 4096

// Meter derives the external use of each card and the measured use of each job
// from samples. It is pure: the order of cards, processes and holdings within
// a sample does not matter.
type Meter struct {
	spikeBuffer float64
	cards       map[int]*cardState
	jobs        map[string]*jobState
	sawProcess  bool // the driver has listed a process at least once
}

// jobState is what was measured of one job.
type jobState struct {
	peakMiB     map[int]int64
	nowMiB      map[int]int64
	topMiB      map[int]int64 // the most since the sample before the last
	blind       map[int]bool  // cards on which its use was invisible for too long
	seen        bool          // at least one of its processes was measured
	utilSum     float64
	utilSamples int
}

// NewMeter makes a meter that counts external processes at their peak times 1
// + spikeBuffer.
func NewMeter(spikeBuffer float64) *Meter {
	return &Meter{spikeBuffer: spikeBuffer, cards: map[int]*cardState{}, jobs: map[string]*jobState{}}
}

// SetSpikeBuffer changes it for later samples.
func (m *Meter) SetSpikeBuffer(spikeBuffer float64) { m.spikeBuffer = spikeBuffer }

// Observe takes in one sample and the holdings at its time.
func (m *Meter) Observe(s Sample, holdings []Holding, owner OwnerFunc) []CardUse {
	held := map[string]bool{}
	holders := map[int][]cardHolder{}
	for _, h := range holdings {
		if len(h.Cards) != len(h.BudgetMiB) {
			panic("bug: holding " + h.Key + " does not have one budget per card")
		}
		held[h.Key] = true
		m.job(h.Key)
		for i, card := range h.Cards {
			holders[card] = append(holders[card], cardHolder{h.Key, h.BudgetMiB[i]})
		}
	}
	if len(m.jobs) > maxMeterKeys {
		maps.DeleteFunc(m.jobs, func(key string, _ *jobState) bool { return !held[key] })
	}
	for _, d := range s.Devices {
		m.sawProcess = m.sawProcess || len(d.Processes) > 0
	}

	uses := make([]CardUse, 0, len(s.Devices))
	measured := make(map[int]cardMeasure, len(s.Devices))
	for i := range s.Devices {
		d := &s.Devices[i]
		measure := m.card(d.Index).observe(d, holders[d.Index], held, owner, m.sawProcess, m.spikeBuffer)
		m.card(d.Index).checkDepartures(s.At, d, holders[d.Index])
		measured[d.Index] = measure
		uses = append(uses, measure.use)
	}
	m.measureJobs(measured, holdings)
	m.averageUtil(s.Devices, holdings)
	slices.SortFunc(uses, func(a, b CardUse) int { return a.Index - b.Index })
	return uses
}

// measureJobs raises the peaks of the jobs that hold cards now. Memory on a
// card that was not allocated to a job is the job's all the same.
func (m *Meter) measureJobs(measured map[int]cardMeasure, holdings []Holding) {
	for _, j := range m.jobs {
		j.nowMiB, j.topMiB = nil, nil
	}
	for card, measure := range measured {
		for key, usedMiB := range measure.ownMiB {
			j := m.job(key)
			j.seen = true
			j.record(card, usedMiB)
			j.top(card, measure.topMiB[key])
		}
	}
	for _, h := range holdings {
		j := m.job(h.Key)
		for _, card := range h.Cards {
			measure, sampled := measured[card]
			switch {
			case !sampled:
			case measure.blind:
				j.lose(card)
			case j.seen && !measure.use.Unattributed:
				// If the job's processes are visible and none is on this
				// card, it uses nothing there: a measurement, not a gap.
				j.record(card, measure.ownMiB[h.Key])
			}
		}
	}
}

func (m *Meter) averageUtil(devices []Device, holdings []Holding) {
	utilPct := map[int]float64{}
	for _, d := range devices {
		if d.UtilPct >= 0 {
			utilPct[d.Index] = d.UtilPct
		}
	}
	for _, h := range holdings {
		sum, cards := 0.0, 0
		for _, card := range h.Cards {
			if pct, known := utilPct[card]; known {
				sum += pct
				cards++
			}
		}
		if cards > 0 {
			j := m.job(h.Key)
			j.utilSum += sum / float64(cards)
			j.utilSamples++
		}
	}
}

// Peak is the peak VRAM of a job by card; nil if it was never measured, or was
// invisible for too long to be trusted.
func (m *Meter) Peak(key string) map[int]int64 {
	if j := m.jobs[key]; j != nil && len(j.peakMiB) > 0 {
		return maps.Clone(j.peakMiB)
	}
	return nil
}

// Now is the VRAM of a job in the last sample; nil if not measured.
func (m *Meter) Now(key string) map[int]int64 {
	if j := m.jobs[key]; j != nil {
		return maps.Clone(j.nowMiB)
	}
	return nil
}

// Top is the most VRAM of a job since the sample before the last; nil if not
// measured.
func (m *Meter) Top(key string) map[int]int64 {
	if j := m.jobs[key]; j != nil {
		return maps.Clone(j.topMiB)
	}
	return nil
}

// AvgUtil is the mean utilisation of a job's cards while it held them.
func (m *Meter) AvgUtil(key string) (float64, bool) {
	j := m.jobs[key]
	if j == nil || j.utilSamples == 0 {
		return 0, false
	}
	return j.utilSum / float64(j.utilSamples), true
}

// Seed sets the peaks of a job that an earlier berth measured.
func (m *Meter) Seed(key string, peaks map[int]int64) {
	j := m.job(key)
	for card, peakMiB := range peaks {
		j.seen = true
		j.raise(card, peakMiB)
	}
}

// Forget drops all measurements of a job. Once it holds no cards, what its
// processes still use counts as external.
func (m *Meter) Forget(key string) { delete(m.jobs, key) }

func (m *Meter) card(index int) *cardState {
	c := m.cards[index]
	if c == nil {
		c = &cardState{processes: map[int]*trackedProcess{}}
		m.cards[index] = c
	}
	return c
}

func (m *Meter) job(key string) *jobState {
	j := m.jobs[key]
	if j == nil {
		j = &jobState{}
		m.jobs[key] = j
	}
	return j
}

func (j *jobState) record(card int, usedMiB int64) {
	if j.nowMiB == nil {
		j.nowMiB = map[int]int64{}
	}
	j.nowMiB[card] = usedMiB
	j.top(card, usedMiB)
}

func (j *jobState) top(card int, usedMiB int64) {
	if j.topMiB == nil {
		j.topMiB = map[int]int64{}
	}
	j.topMiB[card] = max(j.topMiB[card], usedMiB)
	j.raise(card, usedMiB)
}

func (j *jobState) raise(card int, usedMiB int64) {
	if j.blind[card] {
		return
	}
	if j.peakMiB == nil {
		j.peakMiB = map[int]int64{}
	}
	j.peakMiB[card] = max(j.peakMiB[card], usedMiB)
}

// lose discards the peak on a card for good: the job may have used far more
// since.
func (j *jobState) lose(card int) {
	if j.blind == nil {
		j.blind = map[int]bool{}
	}
	j.blind[card] = true
	delete(j.peakMiB, card)
}

// buffered is a peak with room for a spike. The small subtraction keeps 1000 ×
// 1.1 from becoming 1101.
func buffered(peakMiB int64, spikeBuffer float64) int64 {
	return int64(math.Ceil(float64(peakMiB)*(1+spikeBuffer) - 1e-6))
}

package predict

import "slices"

// mostMiB is more than any card has, and can be doubled without overflow.
const mostMiB = 1 << 40

// notePeak keeps the measured peak of a run that succeeded or ran out of memory:
// one that was stopped early may not have reached its peak.
func (s *shelf) notePeak(p Past, most int) {
	if p.PeakMiB > 0 && (p.OK || p.OOM) {
		s.peaks = push(s.peaks, peak{exact: checksum(p.Command), mib: min(p.PeakMiB, mostMiB)}, most)
	}
}

// VRAM estimates what a job will use on each card, from the measured peaks of the
// same command on the same number of cards (a split model takes less on each).
//
// If the exact command has run before, HighMiB is its highest peak. Otherwise
// the estimate comes from runs with other numbers, such as another batch size.
// The highest of n peaks typically lies 1/n below the true maximum, so that much
// is added; a single run is doubled, to protect jobs on the same card.
func (b *Book) VRAM(a Ask) (Memory, bool) {
	at := shelfKey{user: bounded(a.User), command: key(a.Command, a.Key), gpus: max(0, a.GPUs)}
	s := b.commands.shelves[at]
	if s == nil || len(s.peaks) == 0 {
		return Memory{Source: FromNothing}, false
	}
	var room [mostRuns]int64
	peaks, asked := room[:0], checksum(a.Command)
	for _, p := range s.peaks {
		if a.Command != "" && p.exact == asked {
			peaks = append(peaks, p.mib)
		}
	}
	if len(peaks) > 0 {
		return memory(peaks), true
	}
	for _, p := range s.peaks {
		peaks = append(peaks, p.mib)
	}
	m := memory(peaks)
	m.Source = FromProgram
	m.HighMiB += (m.HighMiB + int64(m.Samples) - 1) / int64(m.Samples)
	return m, true
}

// memory is the lowest, the median and the highest of some peaks.
func memory(peaks []int64) Memory {
	slices.Sort(peaks)
	return Memory{
		LowMiB: peaks[0], MidMiB: peaks[len(peaks)/2], HighMiB: peaks[len(peaks)-1],
		Source: FromCommand, Samples: len(peaks),
	}
}

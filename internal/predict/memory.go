package predict

import "slices"

// mostMiB is more than any card has, and twice of it is still a number.
const mostMiB = 1 << 40

// notePeak keeps what a run was measured at, if it ran to its end or for want of
// memory: one that was stopped early had not reached its peak.
func (s *shelf) notePeak(p Past, most int) {
	if p.PeakMiB > 0 && (p.OK || p.OOM) {
		s.peaks = push(s.peaks, peak{exact: checksum(p.Command), mib: min(p.PeakMiB, mostMiB)}, most)
	}
}

// VRAM guesses what a job will use on each card, from the measured peaks of the
// same command on as many cards: what a card holds of a model that is split
// depends on their number. Runs of the very same command say it exactly; HighMiB
// is their highest peak, and the margin that every peak gets is enough. Else it
// is what runs say whose numbers were others, a batch size perhaps. Of n peaks
// that lie anywhere below a bound, the highest misses it by 1/n as a rule: so
// much is added, and one run alone is doubled, for its neighbours' sake.
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
	m.HighMiB += (m.HighMiB + int64(m.Samples) - 1) / int64(m.Samples)
	return m, true
}

// memory is the lowest, the middle and the highest of some peaks.
func memory(peaks []int64) Memory {
	slices.Sort(peaks)
	return Memory{
		LowMiB: peaks[0], MidMiB: peaks[len(peaks)/2], HighMiB: peaks[len(peaks)-1],
		Source: FromCommand, Samples: len(peaks),
	}
}

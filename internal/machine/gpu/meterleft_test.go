package gpu

import (
	"testing"
	"time"
)

// sampleAt is a card at a moment, in seconds.
func sampleAt(second int, s Sample) Sample {
	s.At = healthStart.Add(time.Duration(second) * time.Second)
	return s
}

func TestMeterKnowsWhenMemoryIsFree(t *testing.T) {
	job, neighbour := process(7, 8000, false), process(8, 3000, false)
	external, nameless := process(9, 500, false), process(6, -1, false)
	mine := ownedBy(map[int]string{7: "a", 8: "b"})
	both := append(holds("a", 8000), holds("b", 3000)...)
	tests := map[string]struct {
		before   []Sample // while nobody, then a, is on the card
		beside   []Holding
		after    Sample
		wantMiB  int64
		wantFree bool
	}{
		"memory that is gone at the first look is free": {
			before: []Sample{card(0), card(8000, job)}, after: card(0), wantFree: true,
		},
		"a process that is still listed is not": {
			before: []Sample{card(0), card(8000, job)}, after: card(8000, job), wantMiB: 8000,
		},
		"nor is memory that no process explains": {
			before: []Sample{card(0), card(8000, job)}, after: card(8000), wantMiB: 7936,
		},
		"a listed process of unknown size counts": {
			before: []Sample{card(0), card(8000, job)}, after: card(0, process(7, -1, false)), wantMiB: 1,
		},
		"a little more than before is free": {
			before: []Sample{card(0), card(8000, job)}, after: card(64), wantFree: true,
		},
		"what no process explained before does not count as the job's": {
			before: []Sample{card(900), card(8900, job)}, after: card(964), wantFree: true,
		},
		"an external process that came meanwhile does not count as the job's": {
			before: []Sample{card(0), card(8000, job)}, after: card(500, external), wantFree: true,
		},
		"a neighbour's memory does not count as the job's": {
			before: []Sample{card(0), card(11000, job, neighbour)}, beside: holds("b", 3000), after: card(3050, neighbour), wantFree: true,
		},
		"nor is a little that its program accounts for": {
			before: []Sample{card(0), card(11000, job, neighbour)}, beside: holds("b", 3000), after: card(3128, neighbour), wantFree: true,
		},
		"but more than that is": {
			before: []Sample{card(0), card(11000, job, neighbour)}, beside: holds("b", 3000), after: card(3200, neighbour), wantMiB: 72,
		},
		"a job that was never seen on the card left nothing there": {
			before: []Sample{card(0)}, after: card(0), wantFree: true,
		},
		"one that was never seen may leave something all the same": {
			before: []Sample{card(0), card(0, process(5, 0, false))}, after: card(5000), wantMiB: 4936,
		},
		"where processes are hidden the memory must be what it was before": {
			before: []Sample{unlisted(500), unlisted(8500)}, after: unlisted(8500), wantMiB: 7936,
		},
		"or below what the other jobs there were promised": {
			before: []Sample{unlisted(500), unlisted(8500)}, beside: holds("b", 3000), after: unlisted(3564), wantFree: true,
		},
		"an external process of unknown size that came meanwhile does not count as the job's": {
			before: []Sample{card(0), card(10000, job, nameless)}, after: card(2000, nameless), wantFree: true,
		},
		"a neighbour of unknown size may use what it was promised": {
			before: []Sample{card(0), card(11000, process(7, -1, false), process(8, -1, false))}, beside: holds("b", 3000),
			after: card(3000, process(8, -1, false)), wantFree: true,
		},
		"but no more than that": {
			before: []Sample{card(0), card(11000, process(7, -1, false), process(8, -1, false))}, beside: holds("b", 3000),
			after: card(4000, process(8, -1, false)), wantMiB: 936,
		},
		"a neighbour with the whole card to itself may use all of it": {
			before: []Sample{unlisted(500), unlisted(8500)}, beside: holds("b", 0), after: unlisted(8500), wantFree: true,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			m := NewMeter(0.10)
			for i, s := range test.before {
				holdings := both
				if i == 0 {
					holdings = nil
				} else if test.beside == nil {
					holdings = holds("a", 8000)
				}
				m.Observe(sampleAt(i, s), holdings, mine)
			}
			m.Ended("a", []int{0}, healthStart.Add(10*time.Second))
			m.Forget("a")
			if _, is := m.Left(0); is || !m.Leaving(time.Time{}) {
				t.Fatal("judged before a look")
			}
			m.Observe(sampleAt(9, card(0)), test.beside, mine)
			if !m.Leaving(time.Time{}) {
				t.Fatal("judged by a look from before its end")
			}
			m.Observe(sampleAt(11, test.after), test.beside, mine)
			left, is := m.Left(0)
			if is == test.wantFree || left.MiB != test.wantMiB || m.Leaving(time.Time{}) != is {
				t.Fatalf("left %+v %v, want %d MiB", left, is, test.wantMiB)
			}
			if test.wantFree {
				return
			}
			m.Observe(sampleAt(12, card(0, process(3, 0, false))), nil, mine)
			if left, is := m.Left(0); is {
				t.Errorf("after it was gone: %+v", left)
			}
		})
	}
}

func TestMeterTellsBlindMemoryFromALeak(t *testing.T) {
	for name, test := range map[string]struct {
		after int64
		want  bool
	}{
		"nothing was given back: a leak":        {8500, false},
		"some was: who knows whose the rest is": {5000, true},
	} {
		t.Run(name, func(t *testing.T) {
			m := NewMeter(0.10)
			m.Observe(sampleAt(0, unlisted(500)), nil, hidden)
			m.Observe(sampleAt(1, unlisted(8500)), holds("a", 8000), hidden)
			m.Ended("a", []int{0}, healthStart.Add(2*time.Second))
			m.Observe(sampleAt(3, unlisted(test.after)), nil, hidden)
			left, is := m.Left(0)
			if !is || left.Blind != test.want {
				t.Fatalf("%+v %v", left, is)
			}
			if m.Accept(0); m.Leaving(time.Time{}) {
				t.Error("not accepted")
			}
		})
	}
}

func TestMeterTakesANumberThatComesBackForAnotherProcess(t *testing.T) {
	m := NewMeter(0.10)
	mine := ownedBy(map[int]string{7: "a"})
	m.Observe(sampleAt(0, card(0)), nil, mine)
	m.Observe(sampleAt(1, card(8000, process(7, 8000, false))), holds("a", 8000), mine)
	m.Ended("a", []int{0}, healthStart.Add(2*time.Second))
	m.Observe(sampleAt(3, card(8000)), nil, external)
	m.Observe(sampleAt(4, card(100, process(7, 100, false))), nil, external)
	if left, is := m.Left(0); is {
		t.Errorf("left %+v", left)
	}
}

func TestMeterPeaksBetweenSamples(t *testing.T) {
	m := NewMeter(0.10)
	mine := ownedBy(map[int]string{7: "a", 8: "a"})
	spiky := func(pid int, nowMiB, peakMiB int64) Process {
		return Process{PID: pid, UsedMiB: nowMiB, PeakMiB: peakMiB, UtilPct: -1}
	}
	use := m.Observe(card(2500, spiky(7, 1000, 4000), spiky(8, 1000, 0), spiky(9, 500, 900)), holds("a", 8000), mine)
	if got := m.Peak("a")[0]; got != 5000 {
		t.Errorf("peak %d MiB", got)
	}
	if got := m.Now("a")[0]; got != 2000 {
		t.Errorf("now %d MiB", got)
	}
	if use[0].ForeignMiB != 990 {
		t.Errorf("an external process of 900 MiB at its peak is held at %d MiB", use[0].ForeignMiB)
	}
	m.Observe(card(2500, spiky(7, 1000, 1000), spiky(8, 1000, 1000)), holds("a", 8000), mine)
	if got := m.Peak("a")[0]; got != 5000 {
		t.Errorf("the peak fell to %d MiB", got)
	}
}

func TestMeterTakesWhatADeadProcessHoldsForForeign(t *testing.T) {
	m := NewMeter(0.10)
	alive := ownedBy(map[int]string{7: "a", 8: "a"})
	dead := ownedBy(map[int]string{8: "a"})
	sample := card(5000, process(7, 4000, false), process(8, 1000, false))
	m.Observe(sample, holds("a", 8000), alive)
	if use := m.Observe(sample, holds("a", 8000), dead)[0]; use.ForeignMiB != 0 || use.Unattributed {
		t.Errorf("a process that may just have left: %+v", use)
	}
	if use := m.Observe(sample, holds("a", 8000), dead)[0]; use.ForeignMiB != 4400 || use.Unattributed {
		t.Errorf("a process that is dead and still listed: %+v", use)
	}
	if got := m.Now("a")[0]; got != 1000 {
		t.Errorf("the job is left with %d MiB", got)
	}
}

func TestMeterUnused(t *testing.T) {
	busy := func(pid int, mib int64, utilPct float64) Process {
		return Process{PID: pid, UsedMiB: mib, UtilPct: utilPct}
	}
	tests := map[string]struct {
		utilPct   float64
		processes []Process
		usedMiB   int64
		heldMiB   int64 // -1: in use
	}{
		"memory on a card that does nothing is unused":      {0, []Process{busy(7, 5000, -1)}, 6000, 5000},
		"so is a bare context":                              {0, []Process{busy(7, 64, -1)}, 6000, 64},
		"a card that computes is in use":                    {1, []Process{busy(7, 5000, -1)}, 6000, -1},
		"what is not known is in use":                       {-1, []Process{busy(7, 5000, -1)}, 6000, -1},
		"a card that computes for others is not used by it": {90, []Process{busy(7, 5000, 0), busy(9, 100, 90)}, 6000, 5000},
		"one whose part is not known may be in use":         {90, []Process{busy(7, 5000, -1), busy(9, 100, 90)}, 6000, -1},
		"parts that explain nothing are not believed":       {90, []Process{busy(7, 5000, 0), busy(9, 100, 0)}, 6000, -1},
		"memory that no process explains may be its own":    {0, nil, 6000, -1},
		"memory of a process outside may be its own":        {0, []Process{busy(9, 5000, 0)}, 5000, -1},
		"an empty card is unused":                           {0, nil, 10, 0},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			m := NewMeter(0.10)
			s := card(test.usedMiB, test.processes...)
			s.Devices[0].UtilPct = test.utilPct
			m.Observe(s, holds("a", 8000), ownedBy(map[int]string{7: "a"}))
			card, heldMiB, unused := m.Unused("a", []int{0})
			if unused != (test.heldMiB >= 0) || unused && (card != 0 || heldMiB != test.heldMiB) {
				t.Errorf("gpu%d %d MiB %v", card, heldMiB, unused)
			}
			if _, _, unused := m.Unused("a", []int{0, 1}); unused {
				t.Error("unused on a card that nobody looked at")
			}
		})
	}
}

func TestMeterDoesNotTakeARemainderForAProcessThatIsStillThere(t *testing.T) {
	m := NewMeter(0.10)
	own := process(7, -1, false)
	mine := ownedBy(map[int]string{7: "a"})
	m.Observe(sampleAt(0, card(500)), nil, mine)
	m.Observe(sampleAt(1, card(8500, own)), holds("a", 8000), mine)
	m.Ended("a", []int{0}, healthStart.Add(2*time.Second))
	m.Observe(sampleAt(3, card(5000, own)), nil, mine)
	if left, is := m.Left(0); !is || left.Blind {
		t.Errorf("its own process is still listed, but it says %+v %v", left, is)
	}
	m.Observe(sampleAt(4, card(5000, process(9, -1, false))), nil, mine)
	if left, is := m.Left(0); !is || !left.Blind {
		t.Errorf("who knows whose the rest is, but it says %+v %v", left, is)
	}
}

func TestMeterLeavingIsOfJobsThatEndedLately(t *testing.T) {
	m := NewMeter(0.10)
	m.Observe(sampleAt(0, card(0)), nil, hidden)
	m.Ended("a", []int{0}, healthStart.Add(10*time.Second))
	if !m.Leaving(healthStart.Add(9*time.Second)) || m.Leaving(healthStart.Add(10*time.Second)) {
		t.Error("a job that ended at 10 s leaves after 9 s, and not after 10 s")
	}
}

package gpu

import (
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// The properties run on random machines in which processes come, grow, shrink
// and go. Few pids and sizes make collisions and ties.

// drawOwners decides for each pid whose it is, for good.
func drawOwners(t *rapid.T) map[int]string {
	owners := map[int]string{}
	for pid := 1; pid <= 8; pid++ {
		if key := rapid.SampledFrom([]string{"", "a", "b", "?"}).Draw(t, "owner"); key != "" {
			owners[pid] = key
		}
	}
	return owners
}

func drawSample(t *rapid.T) Sample {
	var s Sample
	for index := range 2 {
		d := Device{Index: index, TotalMiB: 24576, UtilPct: rapid.SampledFrom([]float64{-1, 0, 50, 100}).Draw(t, "util")}
		d.ProcessesKnown = rapid.IntRange(0, 5).Draw(t, "known") > 0
		pids := rapid.SliceOfNDistinct(rapid.IntRange(1, 8), 0, 5, rapid.ID[int]).Draw(t, "pids")
		for _, pid := range pids {
			p := Process{PID: pid, UsedMiB: rapid.SampledFrom([]int64{-1, 0, 1, 10, 999, 1000, 5000}).Draw(t, "mib"), Graphics: pid == 1}
			d.UsedMiB += max(p.UsedMiB, 0)
			if d.ProcessesKnown {
				d.Processes = append(d.Processes, p)
			}
		}
		d.UsedMiB += rapid.SampledFrom([]int64{0, 0, 9, 3000}).Draw(t, "unexplained")
		s.Devices = append(s.Devices, d)
	}
	return s
}

func drawHoldings(t *rapid.T) []Holding {
	var holdings []Holding
	for _, key := range rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"a", "b"}), 0, 2, rapid.ID[string]).Draw(t, "held") {
		h := Holding{Key: key}
		for _, card := range rapid.SliceOfNDistinct(rapid.IntRange(0, 1), 1, 2, rapid.ID[int]).Draw(t, "cards") {
			h.Cards = append(h.Cards, card)
			h.BudgetMiB = append(h.BudgetMiB, rapid.SampledFrom([]int64{0, 100, 6000}).Draw(t, "budget"))
		}
		holdings = append(holdings, h)
	}
	return holdings
}

// ownNow is what the held jobs are listed with on a card.
func ownNow(d Device, holdings []Holding, owners map[int]string) int64 {
	var sum int64
	for _, p := range d.Processes {
		if slices.ContainsFunc(holdings, func(h Holding) bool { return h.Key == owners[p.PID] }) {
			sum += max(p.UsedMiB, 0)
		}
	}
	return sum
}

func budgets(d Device, holdings []Holding) int64 {
	var sum int64
	for _, h := range holdings {
		for i, card := range h.Cards {
			if card == d.Index && h.BudgetMiB[i] == 0 {
				sum += d.TotalMiB
			} else if card == d.Index {
				sum += h.BudgetMiB[i]
			}
		}
	}
	return sum
}

func TestMeterNeverCountsTooLittle(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m, owners := NewMeter(0.10), drawOwners(t)
		for range rapid.IntRange(1, 12).Draw(t, "samples") {
			s, holdings := drawSample(t), drawHoldings(t)
			for i, use := range m.Observe(s, holdings, ownedBy(owners)) {
				d := s.Devices[i]
				if !use.Unattributed && use.ForeignMiB < d.UsedMiB-ownNow(d, holdings, owners) {
					t.Fatalf("%+v with %d MiB used and %d MiB our own", use, d.UsedMiB, ownNow(d, holdings, owners))
				}
				if use.ForeignMiB < d.UsedMiB-budgets(d, holdings) && use.Unattributed {
					t.Fatalf("%+v with %d MiB used and budgets of %d MiB", use, d.UsedMiB, budgets(d, holdings))
				}
				if use.IdleForeignMiB > use.ForeignMiB || use.IdleForeignMiB < 0 {
					t.Fatalf("%+v", use)
				}
			}
		}
	})
}

func TestMeterHoldsAnExternalProcessAtItsPeakWhileItLives(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m, owners := NewMeter(0.25), drawOwners(t)
		delete(owners, 8) // the external process under test: always listed, always looked up
		var peakMiB, heldMiB int64
		for range rapid.IntRange(1, 12).Draw(t, "samples") {
			s, holdings := drawSample(t), drawHoldings(t)
			d := &s.Devices[0]
			nowMiB := rapid.Int64Range(0, 8000).Draw(t, "external")
			d.ProcessesKnown = true
			d.Processes = slices.DeleteFunc(d.Processes, func(p Process) bool { return p.PID == 8 })
			d.Processes = append(d.Processes, Process{PID: 8, UsedMiB: nowMiB})
			peakMiB = max(peakMiB, nowMiB)
			use := m.Observe(s, holdings, ownedBy(owners))[0]
			if use.ForeignMiB < buffered(peakMiB, 0.25) || use.IdleForeignMiB < buffered(peakMiB, 0.25) {
				t.Fatalf("%+v holds less than %d MiB", use, buffered(peakMiB, 0.25))
			}
			if held := m.cards[0].processes[8].peakMiB; held < heldMiB {
				t.Fatalf("the peak fell from %d to %d", heldMiB, held)
			} else {
				heldMiB = held
			}
		}
	})
}

func TestMeterDoesNotCareForOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		one, other, owners := NewMeter(0.10), NewMeter(0.10), drawOwners(t)
		for range rapid.IntRange(1, 8).Draw(t, "samples") {
			s, holdings := drawSample(t), drawHoldings(t)
			shuffled := Sample{Devices: rapid.Permutation(s.Devices).Draw(t, "devices")}
			for i := range shuffled.Devices {
				shuffled.Devices[i].Processes = rapid.Permutation(shuffled.Devices[i].Processes).Draw(t, "processes")
			}
			got := one.Observe(s, holdings, ownedBy(owners))
			if diff := cmp.Diff(got, other.Observe(shuffled, rapid.Permutation(holdings).Draw(t, "holdings"), ownedBy(owners))); diff != "" {
				t.Fatal(diff)
			}
			for _, key := range []string{"a", "b"} {
				if !maps.Equal(one.Peak(key), other.Peak(key)) || !maps.Equal(one.Now(key), other.Now(key)) {
					t.Fatalf("%s: %v and %v", key, one.Peak(key), other.Peak(key))
				}
			}
		}
	})
}

func TestMeterPeaksNeverFallAndAreNeverInvented(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m, owners := NewMeter(0.10), drawOwners(t)
		before := map[int]int64{}
		var mostMiB int64
		for range rapid.IntRange(1, 12).Draw(t, "samples") {
			s, holdings := drawSample(t), drawHoldings(t)
			m.Observe(s, holdings, ownedBy(owners))
			if slices.ContainsFunc(holdings, func(h Holding) bool { return h.Key == "a" }) {
				for _, d := range s.Devices {
					mostMiB = max(mostMiB, ownNow(d, []Holding{{Key: "a"}}, owners))
				}
			}
			now := m.Peak("a")
			for card, peakMiB := range now {
				if peakMiB < before[card] || peakMiB > mostMiB {
					t.Fatalf("gpu%d: %d MiB after %d MiB, of at most %d MiB", card, peakMiB, before[card], mostMiB)
				}
			}
			before = now
		}
	})
}

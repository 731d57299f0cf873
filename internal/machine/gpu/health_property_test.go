package gpu

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// The properties run on two cards to which random things happen, some of them
// at once. Few values make collisions.

type ordeal struct {
	now     time.Time
	devices []Device
}

func newOrdeal() *ordeal {
	o := &ordeal{now: healthStart}
	for i, uuid := range []string{"GPU-0", "GPU-1"} {
		d := Unknown(i, uuid, "Fake")
		d.Condition.UncorrectedECC, d.Condition.Recovery = 0, RecoveryNone
		o.devices = append(o.devices, d)
	}
	return o
}

// draw lets something happen and answers the sample that shows it.
func (o *ordeal) draw(t *rapid.T) Sample {
	o.now = o.now.Add(rapid.SampledFrom([]time.Duration{0, time.Second, 5 * time.Second, time.Minute}).Draw(t, "pass"))
	s := Sample{At: o.now}
	for i := range o.devices {
		d := &o.devices[i]
		c := &d.Condition
		c.RowsPending = rapid.IntRange(0, 5).Draw(t, "pending") == 0
		c.RowsFailed = rapid.IntRange(0, 5).Draw(t, "failed") == 0
		c.UncorrectedECC += rapid.SampledFrom([]int64{0, 0, 0, 1}).Draw(t, "ecc")
		c.Recovery = rapid.SampledFrom([]string{"", RecoveryNone, RecoveryNone, RecoveryDrain, RecoveryReset}).Draw(t, "recovery")
		if code := rapid.SampledFrom([]int{-1, -1, -1, 31, 48, 74, 79, 154}).Draw(t, "xid"); code >= 0 {
			s.Xids = append(s.Xids, Xid{At: o.now, UUID: d.UUID, Code: code})
		}
		switch kind := rapid.SampledFrom([]string{"", "", "", "", "absent", FaultLost, FaultHangs, FaultUnreadable}).Draw(t, "fault"); kind {
		case "":
			s.Devices = append(s.Devices, *d)
		case "absent":
		default:
			s.Faults = append(s.Faults, Fault{Index: d.Index, Kind: kind})
		}
	}
	return s
}

// condemned is true of a card that a sample alone shows to be no good.
func condemned(s Sample, uuid string) bool {
	i := slices.IndexFunc(s.Devices, func(d Device) bool { return d.UUID == uuid })
	if i < 0 {
		return true
	}
	hard := func(x Xid) bool { return x.UUID == uuid && (x.Code == 48 || x.Code == 74 || x.Code == 79) }
	c := s.Devices[i].Condition
	return c.RowsPending || c.RowsFailed || c.Recovery == RecoveryDrain || c.Recovery == RecoveryReset || slices.ContainsFunc(s.Xids, hard)
}

func TestHealthIsNeverOKWhileSomethingIsWrong(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h, o := NewHealth(), newOrdeal()
		for range rapid.IntRange(1, 20).Draw(t, "samples") {
			s := o.draw(t)
			h.Observe(o.now, s, o.devices)
			for _, d := range o.devices {
				if condemned(s, d.UUID) && h.Of(d.UUID).State == HealthOK {
					t.Fatalf("%s is ok in spite of %+v", d.UUID, s)
				}
			}
		}
	})
}

func TestHealthIsOKAgainWhenEverythingIsWell(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h, o := NewHealth(), newOrdeal()
		for range rapid.IntRange(1, 20).Draw(t, "samples") {
			h.Observe(o.now, o.draw(t), o.devices)
		}
		for i := range o.devices {
			c := &o.devices[i].Condition
			c.RowsPending, c.RowsFailed, c.Recovery = false, false, RecoveryNone
		}
		// The longest wait there is, that for uncorrected errors, and a little.
		for end := o.now.Add(eccProbation + xidProbation); o.now.Before(end); o.now = o.now.Add(3 * time.Second) {
			h.Observe(o.now, Sample{At: o.now, Devices: o.devices}, o.devices)
		}
		for _, d := range o.devices {
			if v := h.Of(d.UUID); v.State != HealthOK {
				t.Fatalf("%s is still %+v", d.UUID, v)
			}
		}
		if !h.Settled() {
			t.Fatal("it is not settled")
		}
	})
}

func TestHealthDoesNotCareForOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		one, other, o := NewHealth(), NewHealth(), newOrdeal()
		for range rapid.IntRange(1, 12).Draw(t, "samples") {
			s := o.draw(t)
			shuffled := s
			shuffled.Devices = rapid.Permutation(s.Devices).Draw(t, "devices")
			shuffled.Faults = rapid.Permutation(s.Faults).Draw(t, "faults")
			shuffled.Xids = rapid.Permutation(s.Xids).Draw(t, "xids")
			want := one.Observe(o.now, s, o.devices)
			got := other.Observe(o.now, shuffled, rapid.Permutation(o.devices).Draw(t, "expected"))
			if diff := cmp.Diff(want, got); diff != "" {
				t.Fatal(diff)
			}
		}
	})
}

func TestHealthTellsEveryChangeOnceAndSurvivesARestart(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h, o := NewHealth(), newOrdeal()
		state := map[string]HealthState{}
		for range rapid.IntRange(1, 20).Draw(t, "samples") {
			for _, c := range h.Observe(o.now, o.draw(t), o.devices) {
				if c.Note != "" {
					continue
				}
				if c.From.State != state[c.UUID] || c.To.State == c.From.State {
					t.Fatalf("%s was %s, and is told to go from %s to %s", c.UUID, state[c.UUID], c.From.State, c.To.State)
				}
				state[c.UUID] = c.To.State
			}
			for _, d := range o.devices {
				if got := h.Of(d.UUID).State; got != state[d.UUID] {
					t.Fatalf("%s is %s and was never told to be", d.UUID, got)
				}
			}
			if rapid.IntRange(0, 3).Draw(t, "restart") > 0 {
				continue
			}
			data, err := h.Save("boot")
			if err != nil {
				t.Fatal(err)
			}
			again := NewHealth()
			if err := again.Restore(data, "boot"); err != nil {
				t.Fatal(err)
			}
			for _, d := range o.devices {
				if diff := cmp.Diff(h.Of(d.UUID), again.Of(d.UUID)); diff != "" {
					t.Fatal(diff)
				}
			}
			h = again
		}
	})
}

package gpu

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// listed is a device as the driver tells of it.
func listed(driverIndex int, uuid, busID string) Device {
	d := Unknown(driverIndex, uuid, "Card")
	d.BusID = busID
	return d
}

func partOf(card, ordinal int, uuid, busID string) Device {
	d := Unknown(PartIndex(card, ordinal), uuid, "Part")
	d.BusID, d.Part = busID, &Part{Of: card}
	return d
}

// numbers are what became of a sample: "GPU-a=0".
func numbers(s Sample) string {
	var words []string
	for _, d := range s.Devices {
		words = append(words, fmt.Sprintf("%s=%d", d.UUID, d.Index))
	}
	for _, f := range s.Faults {
		words = append(words, fmt.Sprintf("!%s=%d", f.UUID, f.Index))
	}
	return strings.Join(words, " ")
}

func TestNumbering(t *testing.T) {
	a, b, c := listed(0, "A", "00000000:01:00.0"), listed(1, "B", "00000000:02:00.0"), listed(2, "C", "00000000:03:00.0")
	at := func(d Device, driverIndex int) Device { d.DriverIndex, d.Index = driverIndex, driverIndex; return d }
	type samples []Sample
	of := func(devices ...Device) Sample { return Sample{Devices: devices} }
	faulty := func(s Sample, faults ...Fault) Sample { s.Faults = faults; return s }
	for name, test := range map[string]struct {
		known   []Device
		samples samples
		want    []string
	}{
		"cards have the driver's numbers":              {nil, samples{of(a, b, c)}, []string{"A=0 B=1 C=2"}},
		"a card keeps its number when one is lost":     {nil, samples{of(a, b, c), of(a, at(c, 1))}, []string{"A=0 B=1 C=2", "A=0 C=2"}},
		"and when it is back":                          {nil, samples{of(a, b), of(at(b, 0)), of(at(b, 0), at(a, 1))}, []string{"A=0 B=1", "B=1", "A=0 B=1"}},
		"a new card gets the lowest free number":       {nil, samples{of(a, b), of(at(b, 0), at(c, 1))}, []string{"A=0 B=1", "B=1 C=2"}},
		"numbers go on after a restart of berth":       {[]Device{a, b, c}, samples{of(at(b, 0), at(c, 1))}, []string{"B=1 C=2"}},
		"nonsense that was remembered is forgotten":    {[]Device{{UUID: "A", Index: 500}, {UUID: "B", Index: -1}, {Index: 0}}, samples{of(a, b)}, []string{"A=0 B=1"}},
		"a number that is remembered twice is once":    {[]Device{a, at(b, 0)}, samples{of(a, b)}, []string{"A=0 B=1"}},
		"a UUID listed twice is one card":              {nil, samples{of(a, at(a, 1))}, []string{"A=0"}},
		"a card without a UUID is skipped":             {nil, samples{of(listed(0, "", ""), b)}, []string{"B=1"}},
		"parts have numbers of their own":              {nil, samples{of(partOf(1, 0, "P", "2:0"), partOf(1, 1, "Q", "2:0"))}, []string{"P=200 Q=201"}},
		"a part keeps its number":                      {nil, samples{of(partOf(0, 0, "P", "1:0"), partOf(0, 1, "Q", "1:0")), of(partOf(0, 0, "Q", "1:0"))}, []string{"P=100 Q=101", "Q=101"}},
		"a new part gets a number nobody had":          {nil, samples{of(partOf(0, 0, "P", "1:0")), of(partOf(0, 0, "Q", "1:0"))}, []string{"P=100", "Q=101"}},
		"a part goes by its card's number, not its":    {nil, samples{of(a, b), of(at(b, 0), partOf(1, 0, "P", a.BusID))}, []string{"A=0 B=1", "B=1 P=100"}},
		"a card made whole has its parts' number":      {nil, samples{of(at(b, 0), partOf(1, 0, "P", a.BusID)), of(at(b, 0), at(a, 1))}, []string{"B=0 P=200", "B=0 A=1"}},
		"a fault goes by its UUID":                     {nil, samples{of(a, b), faulty(of(at(b, 0)), Fault{Index: 7, UUID: "A"})}, []string{"A=0 B=1", "B=1 !A=0"}},
		"or by the card that had that number last":     {nil, samples{of(a, b), faulty(of(a), Fault{Index: 1})}, []string{"A=0 B=1", "A=0 !B=1"}},
		"but not where that card is there":             {nil, samples{of(a, b), faulty(of(at(b, 0)), Fault{Index: 1})}, []string{"A=0 B=1", "B=1 !=2"}},
		"a fault of a card never seen harms nobody":    {nil, samples{of(a), faulty(of(at(b, 0)), Fault{Index: 0, UUID: "C"}, Fault{Index: 0})}, []string{"A=0", "B=1 !C=2 !=3"}},
		"a fault of a part is laid to no whole card":   {nil, samples{faulty(of(a, partOf(1, 0, "P", b.BusID)), Fault{Index: 201})}, []string{"A=0 P=200 !=201"}},
		"and goes by its card's number":                {nil, samples{of(a, b, c), faulty(of(a, partOf(1, 0, "P", c.BusID)), Fault{Index: 201})}, []string{"A=0 B=1 C=2", "A=0 P=300 !=301"}},
		"a card that was never read has its own fault": {nil, samples{faulty(of(a), Fault{Index: 1})}, []string{"A=0 !=1"}},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNumbering(test.known)
			for i, s := range test.samples {
				if got := numbers(n.number(s)); got != test.want[i] {
					t.Errorf("sample %d: %s, want %s", i, got, test.want[i])
				}
			}
		})
	}
}

func TestNumberingTranslatesWhatRefersToCards(t *testing.T) {
	n := newNumbering(nil)
	a, b, c := listed(0, "A", "1:0"), listed(1, "B", "2:0"), listed(2, "C", "3:0")
	n.number(Sample{Devices: []Device{a, b, c}})
	b.DriverIndex, c.DriverIndex = 0, 1
	b.Links, b.Near = map[int]int{1: 12, 9: 1}, map[int]int{1: nearSwitch}
	p := partOf(2, 0, "P", "4:0")
	raw := []Device{b, c, p}
	got := n.number(Sample{Devices: raw})
	if d := got.Devices[0]; !cmp.Equal(d.Links, map[int]int{2: 12}) || !cmp.Equal(d.Near, map[int]int{2: nearSwitch}) || d.DriverIndex != 0 {
		t.Errorf("%+v", d)
	}
	if d := got.Devices[2]; d.Part.Of != 3 || d.Index != PartIndex(3, 0) || d.DriverIndex != PartIndex(2, 0) {
		t.Errorf("%+v %+v", d, d.Part)
	}
	if raw[2].Part.Of != 2 || len(raw[0].Links) != 2 || raw[0].Index != 1 {
		t.Errorf("the driver's sample was changed: %+v", raw)
	}
}

func TestNumberingForgetsWhoWasAwayLongest(t *testing.T) {
	n := newNumbering(nil)
	for i := range 250 {
		s := n.number(Sample{Devices: []Device{listed(0, "stays", "1:0"), listed(1, fmt.Sprint("comes ", i), "2:0")}})
		if len(s.Devices) != 2 || s.Devices[0].UUID != "stays" || s.Devices[0].Index != 0 {
			t.Fatalf("round %d: %s %v", i, numbers(s), s.Problems)
		}
	}
	many := make([]Device, numberedCards+1)
	for i := range many {
		many[i] = listed(i, fmt.Sprint("one of many ", i), "")
	}
	if s := newNumbering(nil).number(Sample{Devices: many}); len(s.Devices) != numberedCards || len(s.Problems) != 1 {
		t.Errorf("%d cards, %v", len(s.Devices), s.Problems)
	}
}

// TestNumberingHoldsWhateverComesAndGoes: a UUID has one number for life, no
// two devices share one, and the driver's number is the driver's.
func TestNumberingHoldsWhateverComesAndGoes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := newNumbering(nil)
		had := map[string]int{}
		var last []Device
		for range rapid.IntRange(1, 12).Draw(t, "samples") {
			if rapid.IntRange(0, 9).Draw(t, "restart") == 0 {
				// What is remembered is what was there last.
				n, had = newNumbering(last), map[string]int{}
				for _, d := range last {
					had[d.UUID] = d.Index
				}
			}
			raw := drawBox(t)
			s := n.number(raw)
			checkNumbered(t, raw, s, had)
			last = s.Devices
		}
	})
}

// drawBox is some of six cards in any order, whole or in parts.
func drawBox(t *rapid.T) (s Sample) {
	slots := rapid.Permutation([]int{0, 1, 2, 3, 4, 5}).Draw(t, "slots")
	slots = slots[:rapid.IntRange(0, 6).Draw(t, "cards")]
	for i, slot := range slots {
		busID := fmt.Sprintf("0000:%02x:00.0", slot)
		switch rapid.IntRange(0, 4).Draw(t, "kind") {
		case 0:
			for j, p := range rapid.Permutation([]int{0, 1, 2}).Draw(t, "parts")[:rapid.IntRange(1, 3).Draw(t, "how many")] {
				s.Devices = append(s.Devices, partOf(i, j, fmt.Sprintf("MIG-%d-%d", slot, p), busID))
			}
		case 1:
			f := Fault{Index: i, Kind: FaultLost}
			if rapid.Bool().Draw(t, "named") {
				f.UUID = fmt.Sprint("GPU-", slot)
			}
			s.Faults = append(s.Faults, f)
		default:
			s.Devices = append(s.Devices, listed(i, fmt.Sprint("GPU-", slot), busID))
		}
	}
	return s
}

func checkNumbered(t *rapid.T, raw, s Sample, had map[string]int) {
	if len(s.Devices) != len(raw.Devices) || len(s.Faults) != len(raw.Faults) {
		t.Fatalf("%d devices of %d, %d faults of %d", len(s.Devices), len(raw.Devices), len(s.Faults), len(raw.Faults))
	}
	driver := map[string]int{}
	for _, d := range raw.Devices {
		driver[d.UUID] = d.DriverIndex
	}
	holder := map[int]string{}
	for _, d := range s.Devices {
		if before, known := had[d.UUID]; known && before != d.Index {
			t.Fatalf("%s was %d and is %d", d.UUID, before, d.Index)
		}
		had[d.UUID] = d.Index
		if other := holder[d.Index]; other != "" {
			t.Fatalf("%s and %s are both %d", other, d.UUID, d.Index)
		}
		holder[d.Index] = d.UUID
		if d.DriverIndex != driver[d.UUID] {
			t.Fatalf("%s: the driver's number is %d, not %d", d.UUID, driver[d.UUID], d.DriverIndex)
		}
		if whole := d.Index < numberedCards; whole != (d.Part == nil) || !whole && d.Index/100-1 != d.Part.Of {
			t.Fatalf("%s is %d, %+v", d.UUID, d.Index, d.Part)
		}
	}
	for _, f := range s.Faults {
		if holder[f.Index] != "" {
			t.Fatalf("a fault is laid to %s, which is there", holder[f.Index])
		}
	}
}

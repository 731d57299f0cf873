package gpu

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"berth/internal/text"
)

// numberedCards is how many numbers there are for whole cards, and for the
// parts of each.
const numberedCards = 100

// numbering gives each card a number and keeps it, even if the driver
// renumbers the cards. It is pure apart from its memory.
//
// A card is identified by its UUID. A partitioned card is not a device: only
// its parts and its bus address are known, so until its UUID is seen it is
// identified by its address.
type numbering struct {
	index  map[string]int    // by key, while berth runs
	seen   map[string]int    // the sample that last had it, by key
	owner  map[int]string    // the key that last had a driver index
	places map[string]string // the key of the whole card at a bus address
	round  int
}

// newNumbering continues from earlier numbers.
func newNumbering(known []Device) *numbering {
	n := &numbering{index: map[string]int{}, seen: map[string]int{}, owner: map[int]string{}, places: map[string]string{}}
	for _, d := range known {
		limit := numberedCards
		if d.Part != nil {
			limit *= 1 + numberedCards
		}
		if d.UUID == "" || d.Index < 0 || d.Index >= limit || (d.Part != nil) != (d.Index >= numberedCards) || n.taken(d.Index) {
			continue
		}
		n.index[d.UUID] = d.Index
		n.owner[d.DriverIndex] = d.UUID
		if d.Part == nil {
			n.assign(d.BusID, d.UUID)
		} else if place := placeKey(d.BusID, d.Part.Of); !n.taken(d.Part.Of) {
			n.index[place] = d.Part.Of
			n.assign(d.BusID, place)
		}
	}
	return n
}

func (n *numbering) taken(index int) bool {
	for _, have := range n.index {
		if have == index {
			return true
		}
	}
	return false
}

// Prefixes of keys that are not UUIDs.
const (
	byPlace  = "place "
	byNumber = "number "
)

// placeKey identifies a card by its bus address alone.
func placeKey(busID string, driverIndex int) string {
	if busID = normalBusID(busID); busID != "" {
		return byPlace + busID
	}
	return byNumber + strconv.Itoa(driverIndex)
}

func (n *numbering) assign(busID, key string) {
	if busID = normalBusID(busID); busID != "" {
		n.places[busID] = key
	}
}

// number returns a copy of the driver's sample with berth's indices.
func (n *numbering) number(s Sample) Sample {
	n.round++
	numbered := Sample{At: s.At, Xids: s.Xids, Problems: slices.Clone(s.Problems)}
	of := map[int]int{} // berth's number by the driver's, of the cards in this sample
	devices := slices.Clone(s.Devices)
	slices.SortStableFunc(devices, func(a, b Device) int { return cmp.Compare(a.DriverIndex, b.DriverIndex) })
	// Cards with a number come before new ones.
	for _, d := range devices {
		n.seen[d.UUID] = n.round
		if d.Part != nil {
			n.seen[n.parent(d)] = n.round
		}
	}
	present := map[string]bool{}
	for _, parts := range []bool{false, true} {
		for _, d := range devices {
			if (d.Part != nil) != parts {
				continue
			}
			index, err := n.card(d, of)
			if d.UUID == "" || present[d.UUID] || err != nil {
				numbered.Problems = append(numbered.Problems, n.leftOut(d, present[d.UUID], err))
				continue
			}
			present[d.UUID] = true
			d.Index = index
			numbered.Devices = append(numbered.Devices, d)
		}
	}
	for i := range numbered.Devices {
		n.translate(&numbered.Devices[i], of)
	}
	slices.SortStableFunc(numbered.Devices, func(a, b Device) int { return cmp.Compare(a.Index, b.Index) })
	numbered.Faults = n.faults(s.Faults, present)
	return numbered
}

func (n *numbering) leftOut(d Device, twice bool, err error) string {
	switch {
	case twice:
		return fmt.Sprintf("the driver lists %s twice", text.Said(d.UUID))
	case err != nil:
		return fmt.Sprintf("%s is skipped: %v", text.Said(d.UUID), err)
	}
	return fmt.Sprintf("GPU %d has no UUID and is skipped", d.DriverIndex)
}

// parent is the key of the card that a part belongs to.
func (n *numbering) parent(d Device) string {
	if key, known := n.places[normalBusID(d.BusID)]; known {
		return key
	}
	return placeKey(d.BusID, d.Part.Of)
}

// card is the number of a device; a new one gets a number.
func (n *numbering) card(d Device, of map[int]int) (int, error) {
	if d.UUID == "" {
		return 0, nil
	}
	if d.Part == nil {
		n.inherit(d)
		index, err := n.give(d.UUID, 0, d.DriverIndex)
		if err == nil {
			of[d.DriverIndex] = index
			n.owner[d.DriverIndex] = d.UUID
			n.assign(d.BusID, d.UUID)
		}
		return index, err
	}
	key := n.parent(d)
	parent, err := n.give(key, 0, d.Part.Of)
	if err != nil {
		return 0, err
	}
	of[d.Part.Of] = parent
	n.owner[d.Part.Of] = key
	n.assign(d.BusID, key)
	ordinal := d.DriverIndex - PartIndex(d.Part.Of, 0)
	index, err := n.give(d.UUID, PartIndex(parent, 0), ordinal)
	if err == nil {
		n.owner[d.DriverIndex] = d.UUID
	}
	return index, err
}

// inherit moves the number of a card known only by its address to the UUID
// that is there now.
func (n *numbering) inherit(d Device) {
	place := placeKey(d.BusID, d.DriverIndex)
	index, known := n.index[place]
	if _, numbered := n.index[d.UUID]; known && !numbered {
		n.index[d.UUID] = index
		delete(n.index, place)
		delete(n.seen, place)
	}
}

// give is the number of a key: the one it has, first + wish if that is free,
// or the lowest free one from first on. If none is free, it takes the number
// of the card that was last seen longest ago.
func (n *numbering) give(key string, first, wish int) (int, error) {
	if index, known := n.index[key]; known {
		return index, nil
	}
	holder := make([]string, numberedCards)
	for other, index := range n.index {
		if index >= first && index < first+numberedCards {
			holder[index-first] = other
		}
	}
	slot := wish
	if wish < 0 || wish >= numberedCards || holder[wish] != "" {
		slot = slices.Index(holder, "")
	}
	if slot < 0 {
		slot = 0
		for i, other := range holder {
			if n.seen[other] < n.seen[holder[slot]] {
				slot = i
			}
		}
		if n.seen[holder[slot]] == n.round {
			return 0, fmt.Errorf("more than %d GPUs", numberedCards)
		}
		delete(n.seen, holder[slot])
		delete(n.index, holder[slot])
	}
	n.index[key], n.seen[key] = first+slot, n.round
	return first + slot, nil
}

// translate renumbers a device's references to other cards.
func (n *numbering) translate(d *Device, of map[int]int) {
	index := func(driverIndex int) (int, bool) {
		if index, present := of[driverIndex]; present {
			return index, true
		}
		index, known := n.index[n.owner[driverIndex]]
		return index, known
	}
	renamed := func(by map[int]int) map[int]int {
		if by == nil {
			return nil
		}
		to := make(map[int]int, len(by))
		for driverIndex, value := range by {
			if index, known := index(driverIndex); known {
				to[index] = value
			}
		}
		return to
	}
	d.Links, d.Near = renamed(d.Links), renamed(d.Near)
	if d.Part != nil {
		part := *d.Part
		part.Of = of[part.Of]
		d.Part = &part
	}
}

// faults numbers the cards that could not be read: by UUID, or by the card
// that last had that driver index, unless it is present under another. A card
// that was never seen gets an unused number.
func (n *numbering) faults(faults []Fault, present map[string]bool) []Fault {
	numbered := slices.Clone(faults)
	lent := map[int]bool{}
	for i := range numbered {
		f := &numbered[i]
		key := f.UUID
		if _, known := n.index[key]; !known || key == "" {
			if owner := n.owner[f.Index]; owner != "" && !present[owner] && (key == "" || key == owner) {
				key = owner
			}
		}
		if index, known := n.index[key]; known {
			f.Index = index
			if !strings.HasPrefix(key, byPlace) && !strings.HasPrefix(key, byNumber) {
				f.UUID = key
			}
			continue
		}
		f.Index = n.lend(f.Index, lent)
	}
	return numbered
}

// lend gives a number for one sample; a part gets one of its card's.
func (n *numbering) lend(wish int, lent map[int]bool) int {
	free := func(index int) bool { return !lent[index] && !n.taken(index) }
	first := 0
	if card := wish/numberedCards - 1; card >= 0 && card < numberedCards {
		if known, numbered := n.index[n.owner[card]]; numbered {
			card = known
		}
		first = PartIndex(card, 0)
		wish = first + wish%numberedCards
	}
	index := wish
	if wish < first || wish >= first+numberedCards || !free(wish) {
		for index = first; index < first+numberedCards && !free(index); index++ {
		}
	}
	lent[index] = true
	return index
}

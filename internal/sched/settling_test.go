package sched

import (
	"slices"
	"testing"
)

// kindsOf are so many kinds, of the sizes that are named by their places.
func kindsOf(sizes []*kind, of ...int) []*kind {
	all := make([]*kind, len(of))
	for i, size := range of {
		all[i] = &kind{place: i}
		if sizes != nil {
			all[i].size = sizes[size]
		}
	}
	return all
}

func TestKindsAreSettledAFewAtATime(t *testing.T) {
	s := settling{all: kindsOf(nil, 0, 1, 2, 3, 4, 5, 6, 7, 8)}
	stubborn := 2
	for _, want := range []struct {
		looks []int
		all   bool
	}{
		{[]int{0, 1, 2}, false}, // it stops at one that cannot be settled
		{[]int{3, 4, 5, 6}, false},
		{[]int{7, 8, 2}, false}, // what is settled is not looked at again
		{[]int{2}, true},
		{nil, true},
	} {
		if len(want.looks) == 1 {
			stubborn = -1
		}
		var looks []int
		all := s.look(func(k *kind) bool {
			looks = append(looks, k.place)
			return k.place != stubborn
		})
		if !slices.Equal(looks, want.looks) || all != want.all {
			t.Errorf("looked at %v, all are settled: %v; want %v, %v", looks, all, want.looks, want.all)
		}
	}
	if s.reset(); s.count != 0 || s.has(s.all[0]) {
		t.Error("it is settled for good")
	}
}

func TestAKindIsSettledWithItsSize(t *testing.T) {
	sizes := settling{all: kindsOf(nil, 0, 1)}
	kinds := settling{all: kindsOf(sizes.all, 0, 0, 1, 1), sizes: &sizes}
	sizes.add(sizes.all[1])
	kinds.add(kinds.all[0])
	for place, want := range []bool{true, false, true, true} {
		if kinds.has(kinds.all[place]) != want {
			t.Errorf("kind %d is settled: %v", place, !want)
		}
	}
	looked := 0
	all := kinds.look(func(k *kind) bool { looked++; return k.place == 1 })
	if !all || looked != 1 {
		t.Errorf("looked at %d, all are settled: %v", looked, all)
	}
}

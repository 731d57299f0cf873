package engine

import (
	"slices"
	"strings"
	"testing"
)

func TestAJobIsTriedOnACopy(t *testing.T) {
	r := newRig(t, 2)
	r.submit(spec(vram(20000)))
	tried := r.at().explain.Rehearse("bob", spec(vram(20000)), spec(vram(90000)), spec(gpus(2)), spec(priority(3)))
	r.submit(spec(), spec()) // what comes later is not in the copy
	before := r.at().explain.Next(10)
	first, second, third := tried.Try(0), tried.Try(1), tried.Try(2)
	if !first.Starts || !slices.Equal(first.GPUs, []int{1}) {
		t.Errorf("one that fits on the other card: %+v", first)
	}
	if second.Infeasible == "" || second.Starts {
		t.Errorf("one that is too large for any card: %+v", second)
	}
	if third.Waits == "" || third.Starts || third.Infeasible != "" {
		t.Errorf("one that needs both cards: %+v", third)
	}
	if again := tried.Try(0); !again.Starts {
		t.Errorf("a try changed the copy: %+v", again)
	}
	together := tried.Together([]int{0, 2, 0}, []string{"a", "b", "c"})
	if !together[0].Starts || !strings.Contains(together[1].Waits, "gpu1 runs job a") || together[2].Waits == "" || !tried.Try(0).Starts {
		t.Errorf("three at once: %+v", together)
	}
	if after := r.at().explain.Next(10); !slices.Equal(before, after) {
		t.Errorf("the line was %v, and is %v", before, after)
	}
}

package engine

import (
	"cmp"
	"container/heap"
	"time"
)

// alarms are jobs that wait for a time. The next one is found without a scan, so
// a hundred thousand jobs that begin tomorrow cost nothing per round.
type alarms struct {
	at   map[string]time.Time
	heap alarmHeap // may contain alarms that were moved or removed
}

func newAlarms() alarms { return alarms{at: map[string]time.Time{}} }

func (a *alarms) set(id string, at time.Time) {
	a.at[id] = at
	heap.Push(&a.heap, alarm{at, id})
	a.tidy()
}

func (a *alarms) remove(id string) {
	if _, set := a.at[id]; set {
		delete(a.at, id)
		a.tidy()
	}
}

// tidy drops moved and removed alarms once they are the majority.
func (a *alarms) tidy() {
	if len(a.heap) <= 2*len(a.at)+64 {
		return
	}
	a.heap = make(alarmHeap, 0, len(a.at)+64)
	for id, at := range a.at {
		a.heap = append(a.heap, alarm{at, id})
	}
	heap.Init(&a.heap)
}

// first is the next alarm.
func (a *alarms) first() (next alarm, ok bool) {
	for len(a.heap) > 0 {
		next = a.heap[0]
		if at, set := a.at[next.id]; set && at.Equal(next.at) {
			return next, true
		}
		heap.Pop(&a.heap)
	}
	return alarm{}, false
}

type alarm struct {
	at time.Time
	id string
}

type alarmHeap []alarm

func (h alarmHeap) Len() int { return len(h) }
func (h alarmHeap) Less(i, j int) bool {
	return cmp.Or(h[i].at.Compare(h[j].at), cmp.Compare(h[i].id, h[j].id)) < 0
}
func (h alarmHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *alarmHeap) Push(x any)   { *h = append(*h, x.(alarm)) }
func (h *alarmHeap) Pop() any {
	old := *h
	last := old[len(old)-1]
	*h = old[:len(old)-1]
	return last
}

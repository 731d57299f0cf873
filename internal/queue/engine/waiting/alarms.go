package waiting

import (
	"cmp"
	"container/heap"
	"time"
)

// alarms are jobs that wait for a time. The next one is found without a scan, so
// a hundred thousand jobs that begin tomorrow cost nothing per round.
type alarms struct {
	At   map[string]time.Time
	Heap alarmHeap // may contain alarms that were moved or removed
}

func NewAlarms() alarms { return alarms{At: map[string]time.Time{}} }

func (a *alarms) Set(id string, at time.Time) {
	a.At[id] = at
	heap.Push(&a.Heap, alarm{at, id})
	a.tidy()
}

func (a *alarms) Remove(id string) {
	if _, set := a.At[id]; set {
		delete(a.At, id)
		a.tidy()
	}
}

// tidy drops moved and removed alarms once they are the majority.
func (a *alarms) tidy() {
	if len(a.Heap) <= 2*len(a.At)+64 {
		return
	}
	a.Heap = make(alarmHeap, 0, len(a.At)+64)
	for id, at := range a.At {
		a.Heap = append(a.Heap, alarm{at, id})
	}
	heap.Init(&a.Heap)
}

// First is the next alarm.
func (a *alarms) First() (next alarm, ok bool) {
	for len(a.Heap) > 0 {
		next = a.Heap[0]
		if at, set := a.At[next.Id]; set && at.Equal(next.At) {
			return next, true
		}
		heap.Pop(&a.Heap)
	}
	return alarm{}, false
}

type alarm struct {
	At time.Time
	Id string
}

type alarmHeap []alarm

func (h alarmHeap) Len() int { return len(h) }
func (h alarmHeap) Less(i, j int) bool {
	return cmp.Or(h[i].At.Compare(h[j].At), cmp.Compare(h[i].Id, h[j].Id)) < 0
}
func (h alarmHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *alarmHeap) Push(x any)   { *h = append(*h, x.(alarm)) }
func (h *alarmHeap) Pop() any {
	old := *h
	last := old[len(old)-1]
	*h = old[:len(old)-1]
	return last
}

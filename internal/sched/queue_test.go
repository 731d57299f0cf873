package sched

import (
	"cmp"
	"fmt"
	"slices"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// sortedSlice is the queue as simply as it can be written.
type sortedSlice []Pending

func (m sortedSlice) index(job string) int {
	return slices.IndexFunc(m, func(p Pending) bool { return p.Job == job })
}

func (m *sortedSlice) add(p Pending) {
	if p.ArrayLimit <= 0 {
		p.Array, p.ArrayLimit = "", 0
	}
	if i := m.index(p.Job); i >= 0 {
		*m = slices.Delete(*m, i, i+1)
	}
	*m = append(*m, p)
	slices.SortFunc(*m, func(a, b Pending) int {
		return cmp.Or(cmp.Compare(b.Priority, a.Priority), cmp.Compare(a.Rank, b.Rank),
			cmp.Compare(a.Seq, b.Seq), cmp.Compare(a.Job, b.Job))
	})
}

// TestQueueIsASortedSlice drives both through the same changes. Few users,
// ranks and requests make ties, shared groups and changing heads common.
func TestQueueIsASortedSlice(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		q := NewQueue()
		var model sortedSlice
		pending := rapid.Custom(func(t *rapid.T) Pending {
			return Pending{
				Job:      fmt.Sprint(rapid.IntRange(0, 40).Draw(t, "job")),
				User:     rapid.SampledFrom([]string{"ann", "bob"}).Draw(t, "user"),
				Priority: rapid.IntRange(-1, 1).Draw(t, "priority"),
				Rank:     rapid.Int64Range(0, 3).Draw(t, "rank"),
				Seq:      rapid.Int64Range(0, 3).Draw(t, "seq"),
				Array:    rapid.SampledFrom([]string{"", "17"}).Draw(t, "pool"), ArrayLimit: rapid.IntRange(-1, 2).Draw(t, "at once"),
				Request: Request{GPUs: 1, VRAMMiB: rapid.Int64Range(0, 2).Draw(t, "vram"), Type: rapid.SampledFrom([]string{"", "a"}).Draw(t, "type")},
			}
		})
		t.Repeat(map[string]func(*rapid.T){
			"add": func(t *rapid.T) {
				p := pending.Draw(t, "pending")
				q.Add(p)
				model.add(p)
			},
			"remove": func(t *rapid.T) {
				job := fmt.Sprint(rapid.IntRange(0, 40).Draw(t, "job"))
				i := model.index(job)
				if got := q.Remove(job); got != (i >= 0) {
					t.Fatalf("remove %s says %v", job, got)
				}
				if i >= 0 {
					model = slices.Delete(model, i, i+1)
				}
			},
			"": func(t *rapid.T) { checkQueue(t, q, model) },
		})
	})
}

func checkQueue(t *rapid.T, q *Queue, model sortedSlice) {
	if q.Len() != len(model) {
		t.Fatalf("length is %d, want %d", q.Len(), len(model))
	}
	n := rapid.IntRange(0, len(model)+1).Draw(t, "n")
	if diff := gocmp.Diff([]Pending(model[:min(n, len(model))]), q.First(n), equateEmpty); diff != "" {
		t.Fatalf("first %d (-want +got):\n%s", n, diff)
	}
	for i, p := range model {
		if got := q.Position(p.Job); got != i+1 {
			t.Fatalf("position of %s is %d, want %d", p.Job, got, i+1)
		}
		if got, found := q.Get(p.Job); !found || got != p {
			t.Fatalf("get %s: %v, %v", p.Job, got, found)
		}
	}
	if q.Position("absent") != 0 {
		t.Fatal("an absent job has a position")
	}
	if _, found := q.Get("absent"); found {
		t.Fatal("an absent job was found")
	}
	checkKinds(t, q)
	checkLines(t, q)
	if len(model) == 0 && len(q.classes)+len(q.families.of)+len(q.byUser) != 0 {
		t.Fatal("an empty queue still keeps groups")
	}
}

// checkLines holds what is kept of all users together against their lines.
func checkLines(t *rapid.T, q *Queue) {
	heads := 0
	for user, l := range q.byUser {
		heads += l.heads.length
		if _, listed := q.waits.find(wait{l.since, l}); !listed || q.users[l.place] != l || slices.Contains(q.aged, l) != l.aged {
			t.Fatalf("the line of %s is not listed", user)
		}
	}
	if len(q.users) != len(q.byUser) || q.waits.length != len(q.byUser) || q.heads.length != heads {
		t.Fatalf("%d lines with %d groups, and %d, %d and %d of all", len(q.byUser), heads, len(q.users), q.waits.length, q.heads.length)
	}
}

// checkKinds counts anew what the groups ask for.
func checkKinds(t *rapid.T, q *Queue) {
	classes, sizes, families := newTally[shape](), newTally[shape](), newTally[family]()
	for _, g := range q.classes {
		class := g.shape.value
		if want := (shape{class.family, g.request.amounts()}); class.size() != want || class.term != g.term || class.family.value != familyOf(g.request, g.fixed) {
			t.Fatalf("a group that asks for %+v is said to be of %+v", g.request, class)
		}
		classes.count(class)
		sizes.count(class.size())
		families.count(class.family.value)
	}
	checkTally(t, &q.shapes, &classes)
	checkTally(t, &q.sizes, &sizes)
	checkTally(t, &q.families, &families)
}

func checkTally[V comparable](t *rapid.T, got, want *tally[V]) {
	if len(got.list) != len(got.of)+len(got.free) || len(got.of) != len(want.of) {
		t.Fatalf("%d values are counted, %d are gone and %d are there, not %d", len(got.list), len(got.free), len(got.of), len(want.of))
	}
	for number, c := range got.list {
		if c == nil {
			continue
		}
		if c.number != number || got.of[c.value] != c || want.of[c.value] == nil || c.count != want.of[c.value].count {
			t.Fatalf("%+v is counted as %+v", want.of[c.value], c)
		}
	}
}

var equateEmpty = gocmp.Transformer("nil", func(p []Pending) []Pending {
	if len(p) == 0 {
		return nil
	}
	return p
})

// TestListAcrossChunks is the same for a list long enough to be cut.
func TestListAcrossChunks(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := list[int]{compare: cmp.Compare[int]}
		for i := range 3 * chunkLength {
			l.insert(2 * i)
		}
		present := map[int]bool{}
		for i := range 3 * chunkLength {
			present[2*i] = true
		}
		for _, v := range rapid.SliceOfN(rapid.IntRange(0, 6*chunkLength), 0, 4*chunkLength).Draw(t, "values") {
			if present[v] {
				l.remove(v)
				delete(present, v)
			} else {
				l.insert(v)
				present[v] = true
			}
		}
		count, last := 0, -1
		for p := (listPos{}); ; p = l.after(p) {
			v, ok := l.at(p)
			if !ok {
				break
			}
			if v <= last || !present[v] {
				t.Fatalf("%d comes after %d, present: %v", v, last, present[v])
			}
			if got := l.before(v); got != count {
				t.Fatalf("%d elements before %d, counted %d", got, v, count)
			}
			count, last = count+1, v
		}
		if count != len(present) || count != l.length {
			t.Fatalf("%d elements of %d, length says %d", count, len(present), l.length)
		}
		for _, chunk := range l.chunks {
			if len(chunk) == 0 || len(chunk) > chunkLength {
				t.Fatalf("a chunk of %d", len(chunk))
			}
		}
	})
}

// TestATickLooksAtThoseWhoChanged since the last one, however often they did, and
// not at those who did before.
func TestATickLooksAtThoseWhoChanged(t *testing.T) {
	q := NewQueue()
	for i := range 3 {
		q.Add(Pending{Job: fmt.Sprint(i), Seq: int64(i), User: "ann", Since: sundayNoon})
		if len(q.aged) != 1 {
			t.Fatalf("%d users to look at", len(q.aged))
		}
	}
	if q.Tick(sundayNoon); len(q.aged) != 0 {
		t.Errorf("%d users are to be looked at again", len(q.aged))
	}
}

// TestWhoComesAfterTheOldestWaitsAnew: the bound is on how long a user's oldest job
// is passed, and the next of them is that only once the first is gone.
func TestWhoComesAfterTheOldestWaitsAnew(t *testing.T) {
	q := NewQueue()
	for i := range 2 {
		q.Add(Pending{Job: fmt.Sprint(i), Seq: int64(i), User: "ann", Since: sundayNoon})
	}
	q.Tick(sundayNoon)
	later := sundayNoon.Add(time.Hour)
	q.Remove("0")
	q.Tick(later)
	if got, want := q.overtaken(later, 2*time.Hour), later.Add(2*time.Hour); !got.Equal(want) {
		t.Errorf("it is passed for too long at %v, not at %v", got, want)
	}
}

package gpuscheduler

import (
	"slices"
	"strings"
	"time"

	"berth/internal/job"
)

// A job of the file carries its key in its name, so that the daemon alone
// knows what was queued: "train.py-3f2a9c1b5d6e7f80".

func nameOf(script, key string) string {
	base := script[strings.LastIndexByte(script, '/')+1:]
	return base + "-" + key
}

func keyOf(v job.View) string { return v.Name[strings.LastIndexByte(v.Name, '-')+1:] }

// jobID is how people know a job: in its log's name, its screen session and
// what is said of it.
func jobID(v job.View) string { return short(keyOf(v)) }

func short(key string) string { return key[:min(8, len(key))] }

// index is what the daemon said last of each job.
type index struct {
	views map[string]job.View
	byKey map[string][]string // ids, the oldest first
}

func newIndex() *index {
	return &index{views: map[string]job.View{}, byKey: map[string][]string{}}
}

// put takes in how a job stands, and returns how it stood before.
func (x *index) put(v job.View) (before job.View, known bool) {
	before, known = x.views[v.ID]
	x.views[v.ID] = v
	if !known {
		x.byKey[keyOf(v)] = append(x.byKey[keyOf(v)], v.ID)
	}
	return before, known
}

// of are the jobs of a key that count: since the state was last reset, and
// whatever still lives.
func (x *index) of(key string, since time.Time) []job.View {
	var list []job.View
	for _, id := range x.byKey[key] {
		if v := x.views[id]; !forgotten(v, since) {
			list = append(list, v)
		}
	}
	return list
}

// all are the jobs in the order they were submitted.
func (x *index) all() []job.View {
	list := make([]job.View, 0, len(x.views))
	for _, v := range x.views {
		list = append(list, v)
	}
	slices.SortFunc(list, func(a, b job.View) int {
		if a.SubmittedAt != nil && b.SubmittedAt != nil && !a.SubmittedAt.Equal(*b.SubmittedAt) {
			return a.SubmittedAt.Compare(*b.SubmittedAt)
		}
		if len(a.ID) != len(b.ID) {
			return len(a.ID) - len(b.ID)
		}
		return strings.Compare(a.ID, b.ID)
	})
	return list
}

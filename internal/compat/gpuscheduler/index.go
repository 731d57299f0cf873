package gpuscheduler

import (
	"slices"
	"strings"
	"time"

	"berth/internal/job"
)

// A job's name contains its key, so that nothing but the daemon has to remember
// which lines were queued: "train.py-3f2a9c1b5d6e7f80".

func nameOf(script, key string) string {
	base := script[strings.LastIndexByte(script, '/')+1:]
	return base + "-" + key
}

func keyOf(v job.View) string { return v.Name[strings.LastIndexByte(v.Name, '-')+1:] }

// jobID is the id that users see: in log names, screen sessions and messages.
func jobID(v job.View) string { return short(keyOf(v)) }

func short(key string) string { return key[:min(8, len(key))] }

// index is the last known state of each job.
type index struct {
	views map[string]job.View
	byKey map[string][]string // ids, the oldest first
}

func newIndex() *index {
	return &index{views: map[string]job.View{}, byKey: map[string][]string{}}
}

// put records a job and returns its previous state.
func (x *index) put(v job.View) (before job.View, known bool) {
	before, known = x.views[v.ID]
	x.views[v.ID] = v
	if !known {
		x.byKey[keyOf(v)] = append(x.byKey[keyOf(v)], v.ID)
	}
	return before, known
}

// of are the jobs with this key, without those that ended before the state was
// last reset.
func (x *index) of(key string, since time.Time) []job.View {
	var list []job.View
	for _, id := range x.byKey[key] {
		if v := x.views[id]; !forgotten(v, since) {
			list = append(list, v)
		}
	}
	return list
}

// all are the jobs in the order of submission.
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

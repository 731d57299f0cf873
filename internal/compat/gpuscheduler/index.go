package gpuscheduler

import (
	"slices"
	"strings"
	"time"

	"berth/internal/api"
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

// index is the last known state of each job, and of the GPUs.
type index struct {
	views   map[string]job.View
	byKey   map[string][]string  // ids, the oldest first
	since   time.Time            // jobs that ended before this are forgotten
	retries map[string]time.Time // jobs that could not be started, and when to try again
	cards   []api.GPU
	changed bool // since the state file was written
}

func newIndex() *index {
	return &index{views: map[string]job.View{}, byKey: map[string][]string{}, retries: map[string]time.Time{}}
}

// put records a job.
func (x *index) put(v job.View) {
	if _, known := x.views[v.ID]; !known {
		x.byKey[keyOf(v)] = append(x.byKey[keyOf(v)], v.ID)
	}
	x.views[v.ID] = v
	x.changed = true
}

// of are the jobs with this key, without the forgotten ones.
func (x *index) of(key string) []job.View {
	var list []job.View
	for _, id := range x.byKey[key] {
		if v := x.views[id]; !forgotten(v, x.since) {
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

// paused are the GPUs that take no new jobs.
func (x *index) paused() (list []int) {
	for _, card := range x.cards {
		if card.Paused {
			list = append(list, card.Index)
		}
	}
	return list
}

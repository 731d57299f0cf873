package compat

import (
	"slices"
	"strings"
	"time"

	"berth/internal/job"
)

// A job of the file carries its key in its name, so that the daemon alone
// knows what was queued: "train.py-3f2a9c1b5d6e7f80".

func gsName(script, key string) string {
	base := script[strings.LastIndexByte(script, '/')+1:]
	return base + "-" + key
}

func gsKey(v job.View) string { return v.Name[strings.LastIndexByte(v.Name, '-')+1:] }

// gsJobID is how people know a job: in its log's name, its screen session and
// what is said of it.
func gsJobID(v job.View) string { return gsShort(gsKey(v)) }

func gsShort(key string) string { return key[:min(8, len(key))] }

// gsIndex is what the daemon said last of each job.
type gsIndex struct {
	views map[string]job.View
	byKey map[string][]string // ids, the oldest first
}

func newGSIndex() *gsIndex {
	return &gsIndex{views: map[string]job.View{}, byKey: map[string][]string{}}
}

// put takes in how a job stands, and returns how it stood before.
func (x *gsIndex) put(v job.View) (before job.View, known bool) {
	before, known = x.views[v.ID]
	x.views[v.ID] = v
	if !known {
		x.byKey[gsKey(v)] = append(x.byKey[gsKey(v)], v.ID)
	}
	return before, known
}

// of are the jobs of a key that count: since the state was last reset, and
// whatever still lives.
func (x *gsIndex) of(key string, since time.Time) []job.View {
	var list []job.View
	for _, id := range x.byKey[key] {
		if v := x.views[id]; !forgotten(v, since) {
			list = append(list, v)
		}
	}
	return list
}

// all are the jobs in the order they were submitted.
func (x *gsIndex) all() []job.View {
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

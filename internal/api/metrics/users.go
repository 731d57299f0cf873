package metrics

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"sync"
)

// others is the label of all users beyond the limit.
const others = "other"

// users are those with series of their own. A user who has one keeps it until the
// daemon ends: series that come and go would say nothing over time.
type users struct {
	mu    sync.Mutex
	known map[string]bool
}

// shown sums up the users under the names that they are shown as, and keeps a
// known user who has no jobs now at zero.
func (u *users) shown(all map[string]User, most int) map[string]User {
	u.mu.Lock()
	defer u.mu.Unlock()
	if most == 0 {
		return nil
	}
	all = readable(all)
	// Of new ones, those with the most jobs first.
	names := slices.SortedFunc(maps.Keys(all), func(a, b string) int {
		return cmp.Or(all[b].Jobs-all[a].Jobs, cmp.Compare(a, b))
	})
	for _, name := range names {
		if len(u.known) < most {
			u.known[name] = true
		}
	}
	sums := make(map[string]User, len(u.known)+1)
	for name := range u.known {
		sums[name] = all[name]
	}
	for name, user := range all {
		if !u.known[name] {
			sums[others] = sums[others].plus(user)
		}
	}
	return sums
}

func (u User) plus(more User) User {
	return User{u.Jobs + more.Jobs, u.Running + more.Running, u.GPUs + more.GPUs}
}

// readable sums up users whose names are equal as text. Two equal series would
// spoil the whole scrape.
func readable(all map[string]User) map[string]User {
	clean := make(map[string]User, len(all))
	for name, user := range all {
		name = valid(name)
		clean[name] = clean[name].plus(user)
	}
	return clean
}

// valid is a text as a label may have it.
func valid(text string) string { return strings.ToValidUTF8(text, "\uFFFD") }

package store

import (
	"cmp"
	"maps"
	"slices"
)

// shares says how many things each user keeps if there is room for total of
// them: an equal share each, and room that others do not need. It is as if the
// user with the most lost one at a time until the rest fits; among equals, the
// first by name.
func shares(have map[string]int, total int) map[string]int {
	users := slices.SortedFunc(maps.Keys(have), func(a, b string) int {
		return cmp.Or(cmp.Compare(have[a], have[b]), cmp.Compare(a, b))
	})
	keep := make(map[string]int, len(users))
	room := max(total, 0)
	for i, user := range users {
		others := users[i:]
		if have[user]*len(others) > room {
			// Everybody from here on has more than an equal share of the rest.
			slices.Sort(others)
			share, spare := room/len(others), room%len(others)
			for n, user := range others {
				keep[user] = share
				if n >= len(others)-spare {
					keep[user]++
				}
			}
			break
		}
		keep[user] = have[user]
		room -= have[user]
	}
	return keep
}

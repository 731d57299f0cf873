package series

import (
	"slices"
	"time"
)

// Read returns the tracks that match, with their points from one time to
// another. Files that cannot be read are skipped, and so is the rest of a damaged
// one.
func (b *Book) Read(from, to time.Time, match func(Track) bool) map[Track][]Point {
	// Memory first: what is written meanwhile is found twice, and not missed.
	found := content{}
	within := func(t Track, points []Point) {
		for _, p := range points {
			if !p.At.Before(from) && !p.At.After(to) {
				found[t] = append(found[t], p)
			}
		}
	}
	b.mu.Lock()
	for _, waiting := range [][]Reading{b.writing, b.pending} {
		for _, r := range waiting {
			if match(r.Track) {
				within(r.Track, []Point{r.Point})
			}
		}
	}
	for t, l := range b.open {
		if !l.since.At.IsZero() && match(t) {
			within(t, []Point{l.since.Point})
		}
	}
	b.mu.Unlock()
	all, _ := segments(b.dir)
	for _, s := range all {
		if s.hour.After(to) || !s.hour.Add(time.Hour).After(from) {
			continue
		}
		_, _ = s.read(func(block block) {
			if match(block.track) {
				within(block.track, block.appendPoints(nil, s.hour))
			}
		})
	}
	for t, points := range found {
		for i := range points {
			points[i].At = points[i].At.Round(0).Truncate(time.Millisecond).UTC()
		}
		sortPoints(points)
		found[t] = slices.CompactFunc(points, func(a, b Point) bool { return a.At.Equal(b.At) })
	}
	return found
}

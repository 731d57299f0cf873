package series

import (
	"cmp"
	"errors"
	"io/fs"
	"os"
	"slices"
	"time"
)

// ages says from which age on an hour has at most how many points of a track.
// Younger hours have all of them.
var ages = []struct {
	from time.Duration
	most int
}{
	{0, int(time.Hour / Step)},
	{3 * time.Hour, 120}, // 30 s
	{48 * time.Hour, 12}, // 5 min
}

const (
	tidyEvery = time.Hour
	// clockJump is how far the clock may be set before ages are not believed.
	clockJump = 10 * time.Minute
)

// tidy deletes and thins what is old, once an hour.
func (b *Book) tidy(now time.Time, running time.Duration) {
	b.disk.Lock()
	defer b.disk.Unlock()
	last, ran := b.tidied, b.ran
	if !last.IsZero() && running-ran < tidyEvery {
		return
	}
	b.tidied, b.ran = now, running
	if !last.IsZero() && (now.Sub(last)-(running-ran)).Abs() > clockJump {
		return // right after the clock was set, everything may look old
	}
	b.mu.Lock()
	keep := b.keep
	b.mu.Unlock()
	all, err := leveled(segments(b.dir))
	if err != nil {
		b.report(err)
		return
	}
	b.bytes = 0
	var errs []error
	for _, s := range all {
		age := now.Sub(s.hour.Add(time.Hour))
		if age > keep {
			errs = append(errs, os.Remove(s.path))
			continue
		}
		level := 0
		for i, a := range ages {
			if age > a.from {
				level = i
			}
		}
		if s.level < level {
			c := s.load()
			for track, points := range c {
				c[track] = Thin(points, ages[level].most)
			}
			s, err = s.write(c, level)
			errs = append(errs, err)
		}
		b.bytes += onDisk(s.size)
	}
	if err := errors.Join(errs...); err != nil {
		b.report(err)
	}
}

// Forget removes the tracks of jobs that are gone.
func (b *Book) Forget(gone func(owner, id string) bool) error {
	b.disk.Lock()
	defer b.disk.Unlock()
	type job struct{ owner, id string }
	known := map[job]bool{}
	isGone := func(t Track) bool {
		if t.Kind == GPU {
			return false
		}
		j := job{t.Owner, t.ID}
		answer, asked := known[j]
		if !asked {
			answer = gone(t.Owner, t.ID)
			known[j] = answer
		}
		return answer
	}
	all, err := leveled(segments(b.dir))
	errs := []error{err}
	for _, s := range all {
		found := false
		_, _ = s.read(func(block block) { found = found || isGone(block.track) })
		if !found {
			continue
		}
		c := s.load()
		for track := range c {
			if isGone(track) {
				delete(c, track)
			}
		}
		_, err := s.write(c, s.level)
		errs = append(errs, err)
	}
	b.bytes = -1
	return errors.Join(errs...)
}

// makeRoom keeps all files together below the bound, with room for more. The
// fullest of the hours that are thinned most gives first, and in it the user with
// the most: nobody's past makes place for another's flood.
func (b *Book) makeRoom(more int64) {
	if b.bytes >= 0 && b.bytes+more <= b.maxBytes {
		return
	}
	all, err := leveled(segments(b.dir))
	if err != nil {
		return // the write will fail too
	}
	b.bytes = 0
	for _, s := range all {
		b.bytes += onDisk(s.size)
	}
	if b.bytes+more <= b.maxBytes {
		return
	}
	for b.bytes+more > b.maxBytes/100*95 && len(all) > 0 {
		at := fullest(all)
		before := onDisk(all[at].size)
		smaller, err := all[at].squeeze()
		if err != nil {
			return
		}
		b.bytes -= before - onDisk(smaller.size)
		if all[at] = smaller; smaller.size == 0 {
			all = slices.Delete(all, at, at+1)
		}
	}
}

// squeeze makes a file take less on disk, or removes it.
func (s segment) squeeze() (segment, error) {
	var c content
	if onDisk(s.size) > diskBlock {
		c = s.load()
	}
	for len(c) > 0 && onDisk(int64(headerBytes+len(c.encode(nil, s.hour)))) >= onDisk(s.size) {
		c = c.halved()
	}
	smaller, err := s.write(c, s.level)
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		return smaller, nil
	}
	// A full disk keeps it from being rewritten, but not from being removed.
	return segment{}, os.Remove(s.path)
}

func fullest(all []segment) int {
	best := 0
	for i, s := range all {
		if cmp.Or(cmp.Compare(s.level, all[best].level), cmp.Compare(onDisk(s.size), onDisk(all[best].size))) > 0 {
			best = i
		}
	}
	return best
}

// halved halves the points of the user with the most, or their tracks if each has
// a single point.
func (c content) halved() content {
	sums := map[string]int{}
	for track, points := range c {
		sums[track.Owner] += frameBytes + len(track.Owner) + len(track.ID) + pointBytes*len(points)
	}
	owner, most := "", 0
	for o, sum := range sums {
		if sum > most || sum == most && o > owner {
			owner, most = o, sum
		}
	}
	thinned, drop := false, false
	for track, points := range c {
		if track.Owner == owner && len(points) > 1 {
			c[track] = Thin(points, (len(points)+1)/2)
			thinned = true
		}
	}
	if thinned {
		return c
	}
	for _, track := range slices.SortedFunc(tracksOf(c), compareTracks) {
		if track.Owner == owner {
			if drop = !drop; drop {
				delete(c, track)
			}
		}
	}
	return c
}

package predict

import "strings"

// anyGPUs is the shelf of runs on whatever number of cards.
const anyGPUs = -1

// shelfKey is what runs have in common. The command is normalised; it is empty
// on the shelves of a user's jobs of all kinds.
type shelfKey struct {
	user    string
	command string
	gpus    int
}

// run is how long one took, as the natural logarithm of seconds: a factor of two
// is the same distance for a minute and for a day.
type run struct {
	log  float64
	gpus int
}

// peak is what one was measured at.
type peak struct {
	exact uint64 // checksum of the command as it was given
	mib   int64
}

// shelf is the last runs of one kind, the newest last.
type shelf struct {
	key          shelfKey
	well         bool // the runs ended well; else all that is known are others
	runs         []run
	peaks        []peak
	newer, older *shelf // by the last Add
}

// note puts a run on the shelf. Once one ended well only such count: how long
// another lasted until it failed says little.
func (s *shelf) note(r run, well bool, most int) {
	switch {
	case s.well && !well:
		return
	case well && !s.well:
		s.well, s.runs = true, s.runs[:0]
	}
	s.runs = push(s.runs, r, most)
}

// push appends and forgets the first where there are too many.
func push[T any](list []T, item T, most int) []T {
	if len(list) < most {
		return append(list, item)
	}
	copy(list, list[1:])
	list[len(list)-1] = item
	return list
}

// table holds a bounded number of shelves, and forgets the one to which nothing
// was added for longest. Looking something up changes nothing: what a book says
// depends on what was added alone.
type table struct {
	most           int
	shelves        map[shelfKey]*shelf
	newest, oldest *shelf
}

func newTable(most int) table {
	return table{most: most, shelves: make(map[shelfKey]*shelf)}
}

// open is the shelf of that key, as the newest, made where it is missing.
func (t *table) open(key shelfKey) *shelf {
	s := t.shelves[key]
	if s == nil {
		key.user, key.command = strings.Clone(key.user), strings.Clone(key.command)
		s = &shelf{key: key}
		t.shelves[key] = s
	} else {
		t.unlink(s)
	}
	s.older, s.newer = t.newest, nil
	if t.newest != nil {
		t.newest.newer = s
	}
	t.newest = s
	if t.oldest == nil {
		t.oldest = s
	}
	if len(t.shelves) > t.most {
		delete(t.shelves, t.oldest.key)
		t.unlink(t.oldest)
	}
	return s
}

func (t *table) unlink(s *shelf) {
	if s.newer != nil {
		s.newer.older = s.older
	} else {
		t.newest = s.older
	}
	if s.older != nil {
		s.older.newer = s.newer
	} else {
		t.oldest = s.newer
	}
}

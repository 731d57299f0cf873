package predict

import "strings"

// anyGPUs is the shelf of runs on any number of cards.
const anyGPUs = -1

// shelfKey is what the runs on a shelf have in common. The command is normalised;
// it is empty on the shelves for all jobs of a user.
type shelfKey struct {
	user    string
	command string
	gpus    int
}

// run is the duration of one run, as the natural logarithm of seconds: a factor
// of two is the same distance for a minute and for a day.
type run struct {
	log   float64
	gpus  int
	exact uint64 // checksum of the command as written
}

// peak is the measured peak of one run.
type peak struct {
	exact uint64 // checksum of the command as written
	mib   int64
}

// shelf are the last runs of one kind, the newest last.
type shelf struct {
	key          shelfKey
	runs         []run
	peaks        []peak
	newer, older *shelf // in the order of the last Add
}

// push appends, and drops the first if there are too many.
func push[T any](list []T, item T, most int) []T {
	if len(list) < most {
		return append(list, item)
	}
	copy(list, list[1:])
	list[len(list)-1] = item
	return list
}

// table holds a bounded number of shelves, and drops the one without additions
// for longest. Lookups do not count, so that estimates depend only on what was
// added.
type table struct {
	most           int
	shelves        map[shelfKey]*shelf
	newest, oldest *shelf
}

func newTable(most int) table {
	return table{most: most, shelves: make(map[shelfKey]*shelf)}
}

// open returns the shelf of a key, made if missing, and marks it as the newest.
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

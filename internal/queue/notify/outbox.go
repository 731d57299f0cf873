package notify

import (
	"cmp"
	"slices"
	"strconv"
	"time"

	"berth/internal/text"
)

// Stage is how far an entry of the outbox has come.
type Stage string

// The stages. An entry goes from gathering to sealed; then it is sent, which
// removes it, or given up.
const (
	Gathering Stage = "gathering" // more facts may join it
	Sealed    Stage = "sealed"    // its message is fixed, and sent until that succeeds
	GivenUp   Stage = "given_up"  // listed for a week, so that its user can see it
)

// Entry is one message of the outbox and where it goes. It is stored as JSON
// (the store's format number covers its fields).
type Entry struct {
	ID     int64  `json:"id"`
	UID    int    `json:"uid"` // sent with this user's rights
	User   string `json:"user"`
	Target string `json:"target"`
	Stage  Stage  `json:"stage"`
	Batch  Batch  `json:"batch"`
	// Whole is the array or the file whose ends are told together, and Open means
	// that some of its jobs have not ended: it gathers until Close.
	Whole
	Open   bool      `json:"open,omitempty"`
	Since  time.Time `json:"since"` // the first fact; once given up: when that was
	Next   time.Time `json:"next"`  // seal or send it then; once given up: forget it then
	Tries  int       `json:"tries"` // that failed
	Sealed time.Time `json:"sealed,omitzero"`
	Error  string    `json:"error,omitempty"` // of the last try
}

const (
	// giveUpAfter is how long after its sealing a message is tried.
	giveUpAfter = 24 * time.Hour
	// A clock that jumps ends it neither at once nor never.
	leastTries = 10
	mostTries  = 20
	// keepGivenUp is how long a message that was not delivered is listed.
	keepGivenUp = 7 * 24 * time.Hour
	// maxEntries bounds the messages of one user that wait or are listed.
	maxEntries = 200
	// maxError bounds what is kept of an error.
	maxError = 200
)

// waits are the times between tries; the last one repeats.
var waits = []time.Duration{
	15 * time.Second, time.Minute, 2 * time.Minute, 5 * time.Minute, 10 * time.Minute,
	20 * time.Minute, 40 * time.Minute, time.Hour, 2 * time.Hour, 3 * time.Hour,
}

// The windows in which facts for one target become one message. The first is
// short, so that a single job's end is told at once; a target that was told
// often lately is told less often.
const (
	firstWindow = 3 * time.Second
	arrayWindow = time.Minute // for a task or a line: others end soon
	paceOver    = time.Hour   // what counts as lately
	maxPaced    = 1000        // targets after which old ones are forgotten
)

// window is how long facts are gathered for a target that got that many messages
// within the last hour.
func window(recent int, task bool) time.Duration {
	switch {
	case recent < 5 && !task:
		return firstWindow
	case recent < 10:
		return arrayWindow
	case recent < 20:
		return 5 * time.Minute
	}
	return 15 * time.Minute
}

// Outbox is all messages that wait, and the few that were given up. Its methods
// return the entries that changed, for the caller to make durable first: a
// message is sent only once it is stored, and removed only once it was sent. So
// a crash loses none, and at most repeats the one that was being sent.
type Outbox struct {
	entries []*Entry // in order of their numbers
	last    int64
	sent    map[pair][]time.Time // lately; a crash forgets it, which only makes windows short
}

// pair is one user's target.
type pair struct {
	uid    int
	target string
}

func (e *Entry) pair() pair { return pair{e.UID, e.Target} }

// Change is a change of the store: put an entry, or delete it.
type Change struct {
	Entry  Entry
	Delete bool
}

// Restore is the outbox as it was stored. The last number is stored apart, so
// that a number is never used for two messages.
func Restore(stored []Entry, last int64) *Outbox {
	o := &Outbox{last: last, sent: map[pair][]time.Time{}}
	for _, e := range stored {
		o.entries = append(o.entries, &e)
		o.last = max(o.last, e.ID)
	}
	slices.SortFunc(o.entries, func(a, b *Entry) int { return cmp.Compare(a.ID, b.ID) })
	return o
}

// Last is the highest number given to an entry.
func (o *Outbox) Last() int64 { return o.last }

// Add takes a fact for one target. Facts for the same target of the same user
// become one message while it gathers. The ends of an array's tasks gather apart,
// until the array is over, and so do those of a file's lines.
func (o *Outbox) Add(uid int, user, target string, f Fact, now time.Time) []Change {
	var whole Whole
	if f.On == OnEnd {
		whole = f.Whole
	}
	for _, e := range o.entries {
		if e.Stage == Gathering && e.pair() == (pair{uid, target}) && e.Whole == whole {
			e.Batch.Add(f)
			return []Change{{Entry: e.copied()}}
		}
	}
	changes := o.makeRoom(uid)
	o.last++
	e := &Entry{ID: o.last, UID: uid, User: user, Target: target, Stage: Gathering, Since: now, Whole: whole, Open: whole != Whole{},
		Next: now.Add(window(o.recent(pair{uid, target}, now), f.Whole != Whole{}))}
	e.Batch.Add(f)
	o.entries = append(o.entries, e)
	return append(changes, Change{Entry: e.copied()})
}

// Awaited is the end of an array or of a file's lines that a message to a target
// waits for.
type Awaited struct {
	UID          int
	User, Target string
	Whole
}

// Open lists what messages wait for.
func (o *Outbox) Open() (list []Awaited) {
	for _, e := range o.entries {
		if e.Open {
			list = append(list, Awaited{e.UID, e.User, e.Target, e.Whole})
		}
	}
	return list
}

// Close tells about jobs that have all ended. Failures among them that were not told
// yet are part of that.
func (o *Outbox) Close(a Awaited, now time.Time) (changes []Change) {
	for _, e := range slices.Clone(o.entries) {
		if e.Open && e.Whole == a.Whole && e.pair() == (pair{a.UID, a.Target}) {
			e.Open, e.Next = false, now.Add(firstWindow)
			changes = append(changes, Change{Entry: e.copied()})
			changes = append(changes, o.dropFailures(e.pair(), a.Whole)...)
		}
	}
	return changes
}

// dropFailures removes the failures of a whole's jobs from the message to a target
// that still gathers.
func (o *Outbox) dropFailures(to pair, whole Whole) []Change {
	at := slices.IndexFunc(o.entries, func(e *Entry) bool { return e.Stage == Gathering && e.Whole == Whole{} && e.pair() == to })
	if at < 0 || !o.entries[at].Batch.dropFailures(whole) {
		return nil
	}
	e := o.entries[at]
	if e.Batch.Count() == 0 {
		return []Change{o.remove(e)}
	}
	return []Change{{Entry: e.copied()}}
}

// Hurry ends all gathering, because nothing more will happen; with again, it also
// plans another try of what failed.
func (o *Outbox) Hurry(again bool, now time.Time) (changes []Change) {
	for _, e := range o.entries {
		if e.Stage == Gathering && e.Next.After(now) || e.Open || again && e.Stage == Sealed {
			e.Open, e.Next = false, now
			changes = append(changes, Change{Entry: e.copied()})
		}
	}
	return changes
}

// Pending reports whether a message is due. One behind another that has to wait is
// not.
func (o *Outbox) Pending(now time.Time) bool {
	return slices.ContainsFunc(o.entries, func(e *Entry) bool {
		return e.Stage != GivenUp && !e.Next.After(now) && !(e.Stage == Gathering && o.blocked(e))
	})
}

// copied shares nothing with the entry that later facts change.
func (e *Entry) copied() Entry {
	c := *e
	c.Batch.Facts, c.Batch.Tally = slices.Clone(e.Batch.Facts), slices.Clone(e.Batch.Tally)
	return c
}

// makeRoom removes a user's oldest entry if there are too many: one that was
// given up, or else one that waits.
func (o *Outbox) makeRoom(uid int) []Change {
	var oldest *Entry
	count := 0
	for _, e := range o.entries {
		if e.UID != uid {
			continue
		}
		count++
		if oldest == nil || e.Stage == GivenUp && oldest.Stage != GivenUp {
			oldest = e
		}
	}
	if count < maxEntries {
		return nil
	}
	return []Change{o.remove(oldest)}
}

func (o *Outbox) remove(e *Entry) Change {
	o.entries = slices.DeleteFunc(o.entries, func(other *Entry) bool { return other == e })
	return Change{Entry: e.copied(), Delete: true}
}

// recent counts the messages sent to a target within the last hour.
func (o *Outbox) recent(p pair, now time.Time) int {
	kept := slices.DeleteFunc(o.sent[p], func(at time.Time) bool { return now.Sub(at) > paceOver || at.After(now) })
	if len(kept) == 0 {
		delete(o.sent, p)
		return 0
	}
	o.sent[p] = kept
	return len(kept)
}

// Tick does what is due: it seals what has gathered long enough, unless an earlier
// message to the same target still waits, and forgets old failures.
func (o *Outbox) Tick(now time.Time) (changes []Change) {
	sealed := map[pair]bool{}
	for _, e := range o.entries {
		if e.Stage == Sealed {
			sealed[e.pair()] = true
		}
	}
	for _, e := range slices.Clone(o.entries) {
		switch {
		case e.Open:
		case e.Next.After(now):
			// A clock that was set back must not hold a message for longer than
			// its longest wait.
			if e.Stage != GivenUp && e.Next.Sub(now) > waits[len(waits)-1] {
				e.Next = now
				changes = append(changes, Change{Entry: e.copied()})
			}
		case e.Stage == GivenUp:
			changes = append(changes, o.remove(e))
		case e.Stage == Gathering && !sealed[e.pair()]:
			e.Stage, e.Sealed = Sealed, now
			sealed[e.pair()] = true
			changes = append(changes, Change{Entry: e.copied()})
		}
	}
	return changes
}

// Ready lists the sealed messages to send now, in order, of every user one before
// any user's second; sending are those on their way, since when. Of them at most
// most are quick ones: a slow receiver keeps its own user's next messages waiting,
// and after slowAfter nobody else's.
func (o *Outbox) Ready(now time.Time, sending map[int64]time.Time, most, perUser int) []Entry {
	busy := map[int]int{}
	room := slowShare*most - len(sending)
	for _, e := range o.entries {
		since, under := sending[e.ID]
		if under {
			busy[e.UID]++
		}
		if under && now.Sub(since) < slowAfter {
			most--
		}
	}
	most = min(most, room)
	var ready []Entry
	for turn := 0; turn < perUser; turn++ {
		for _, e := range o.entries {
			_, under := sending[e.ID]
			due := e.Stage == Sealed && !e.Next.After(now) && !under
			chosen := slices.ContainsFunc(ready, func(r Entry) bool { return r.ID == e.ID })
			if len(ready) < most && due && !chosen && busy[e.UID] == turn {
				ready = append(ready, e.copied())
				busy[e.UID]++
			}
		}
	}
	return ready
}

// A message that has been on its way for slowAfter no longer counts among those
// sent at a time, of which there may be slowShare times as many with the slow ones.
const (
	slowAfter = 5 * time.Second
	slowShare = 4
)

// Delivered removes a message that was sent.
func (o *Outbox) Delivered(id int64, now time.Time) []Change {
	e := o.find(id)
	if e == nil {
		return nil
	}
	o.sent[e.pair()] = append(o.sent[e.pair()], now)
	if len(o.sent) > maxPaced {
		for p := range o.sent {
			o.recent(p, now) // forgets those of long ago
		}
	}
	return []Change{o.remove(e)}
}

// Failed plans the next try of a message, or gives up. A final error is one that
// no later try can cure. The other side may have asked for a longer pause.
func (o *Outbox) Failed(id int64, why string, final bool, pause time.Duration, now time.Time) (changes []Change, gaveUp bool) {
	e := o.find(id)
	if e == nil || e.Stage != Sealed {
		return nil, false
	}
	e.Tries++
	e.Error = text.Clip(text.Words(why), maxError)
	e.Next = now.Add(max(waits[min(max(e.Tries-1, 0), len(waits)-1)], min(pause, waits[len(waits)-1])))
	late := e.Next.Sub(e.Sealed) > giveUpAfter && e.Tries >= leastTries
	if gaveUp = final || late || e.Tries >= mostTries; gaveUp {
		e.Stage, e.Since, e.Next = GivenUp, now, now.Add(keepGivenUp)
	}
	return []Change{{Entry: e.copied()}}, gaveUp
}

func (o *Outbox) find(id int64) *Entry {
	for _, e := range o.entries {
		if e.ID == id {
			return e
		}
	}
	return nil
}

// All lists the entries in order.
func (o *Outbox) All() (list []Entry) {
	for _, e := range o.entries {
		list = append(list, e.copied())
	}
	return list
}

// Due is when Tick or Ready next has something to do; false: never.
func (o *Outbox) Due(sending map[int64]time.Time) (at time.Time, any bool) {
	for _, e := range o.entries {
		if _, under := sending[e.ID]; !under && !e.Open && (!any || e.Next.Before(at)) && !(e.Stage == Gathering && o.blocked(e)) {
			at, any = e.Next, true
		}
	}
	return at, any
}

// blocked reports whether an earlier message to the same target waits.
func (o *Outbox) blocked(e *Entry) bool {
	return slices.ContainsFunc(o.entries, func(other *Entry) bool { return other.Stage == Sealed && other.pair() == e.pair() })
}

// Message is the entry in words. Its ID is the same at every try.
func (e Entry) Message(origin, host string) Message {
	return Compose(origin+"-"+strconv.FormatInt(e.ID, 10), host, e.Sealed, e.Batch)
}

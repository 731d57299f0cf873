package series

import (
	"cmp"
	"iter"
	"log/slog"
	"maps"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// Step is the least time between two points of a track.
	Step = 5 * time.Second
	// Heartbeat is the most, while it is measured and does not change.
	Heartbeat = time.Minute
	// Keep is how long points are kept unless the configuration says otherwise.
	Keep = 30 * 24 * time.Hour
	// MaxBytes bounds all files together.
	MaxBytes = 50_000_000

	flushEvery = 10 * time.Second
	// maxPending bounds the points that wait to be written; the oldest go first.
	maxPending = 100_000
	// minFree is what a nearly full disk keeps for what matters more.
	minFree = 64 << 20
)

// Book is the past of one queue. Record may be called at any time; the rest is
// done in the background.
type Book struct {
	dir      string
	log      *slog.Logger
	maxBytes int64
	free     func(dir string) int64 // bytes; negative: not known

	mu      sync.Mutex // only ever held for work in memory
	open    map[Track]*line
	pending []Reading // emitted and not on disk
	writing []Reading // being written
	keep    time.Duration

	disk    sync.Mutex    // held while files change
	bytes   int64         // that they take; negative: not counted yet
	tidied  time.Time     // when they were last thinned
	ran     time.Duration // how long the book had been open then
	trouble string        // that was logged last

	stop chan struct{}
	done sync.WaitGroup
}

// line is a track that is being measured.
type line struct {
	last  Point  // emitted; its At is zero before the first
	since merged // measured after that; its At is zero for none
}

// New makes a Book for a directory, which is created when there is something to
// write. Points older than keep are deleted; 0 keeps none.
func New(dir string, keep time.Duration, log *slog.Logger) *Book {
	return &Book{dir: dir, log: log, maxBytes: MaxBytes, free: freeBytes, open: map[Track]*line{}, keep: keep, bytes: -1, stop: make(chan struct{})}
}

// Open is New with the work in the background, which Close ends.
func Open(dir string, keep time.Duration, log *slog.Logger) *Book {
	b := New(dir, keep, log)
	began := time.Now()
	b.done.Go(func() {
		ticker := time.NewTicker(flushEvery)
		defer ticker.Stop()
		for {
			select {
			case <-b.stop:
				return
			case <-ticker.C:
				now := time.Now()
				b.Work(now.Round(0), now.Sub(began))
			}
		}
	})
	return b
}

// Close writes what is pending.
func (b *Book) Close() error {
	close(b.stop)
	b.done.Wait()
	b.Record(nil)
	b.flush()
	return nil
}

// SetKeep changes how long points are kept.
func (b *Book) SetKeep(keep time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.keep = keep
}

// Record takes everything that one sample measured. A track that is missing from
// it has ended.
func (b *Book) Record(all []Reading) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.keep <= 0 {
		all = nil
	}
	for _, r := range all {
		l := b.open[r.Track]
		if l == nil {
			l = &line{}
			b.open[r.Track] = l
		}
		if p, due := l.add(r.Point); due {
			b.emit(r.Track, p)
		}
	}
	if len(b.open) == len(all) {
		return
	}
	measured := make(map[Track]bool, len(all))
	for _, r := range all {
		measured[r.Track] = true
	}
	for track, l := range b.open {
		if !measured[track] {
			if !l.since.At.IsZero() {
				b.emit(track, l.since.Point)
			}
			delete(b.open, track)
		}
	}
}

func (b *Book) emit(t Track, p Point) {
	if len(b.pending) >= maxPending {
		b.pending = append(b.pending[:0], b.pending[maxPending/2:]...)
	}
	b.pending = append(b.pending, Reading{t, p})
}

// add adds a measurement and returns a point if one is due: the first, one that
// differs from the last, or a sign of life.
func (l *line) add(p Point) (Point, bool) {
	p.Begins = l.last.At.IsZero()
	l.since.add(p)
	age := p.At.Sub(l.last.At)
	if !p.Begins && age >= 0 && age < Step {
		return p, false
	}
	now := l.since.Point
	if !p.Begins && age >= 0 && age < Heartbeat && !differs(now, l.last) {
		return p, false
	}
	l.last, l.since = now, merged{}
	return now, true
}

// differs reports whether a change is worth a point of its own.
func differs(a, b Point) bool {
	far := func(a, b, least float64) bool { return a-b > least || b-a > least || (a < 0) != (b < 0) }
	return far(float64(a.MiB), float64(b.MiB), float64(max(a.MiB, b.MiB))/100) ||
		far(a.UtilPct, b.UtilPct, 5) || far(a.PowerW, b.PowerW, 10) || far(a.TempC, b.TempC, 2)
}

// Work is one round in the background: by the clock, and by how long the book has
// been open, which no clock changes.
func (b *Book) Work(now time.Time, running time.Duration) {
	b.flush()
	b.tidy(now, running)
}

// flush writes pending points. Those that cannot be written are dropped: nothing
// waits for a disk here.
func (b *Book) flush() {
	b.disk.Lock()
	defer b.disk.Unlock()
	b.mu.Lock()
	b.writing, b.pending = b.pending, nil
	writing := b.writing
	b.mu.Unlock()
	if len(writing) == 0 {
		return
	}
	err := b.write(writing)
	// Until here a reader finds them in memory, for a moment also on disk.
	b.mu.Lock()
	b.writing = nil
	b.mu.Unlock()
	b.report(err)
}

func (b *Book) write(pending []Reading) error {
	if free := b.free(b.dir); free >= 0 && free < minFree {
		return unix.ENOSPC
	}
	if err := os.MkdirAll(b.dir, 0o700); err != nil {
		return err
	}
	hours := map[time.Time]content{}
	for _, r := range pending {
		hour := r.Point.At.UTC().Truncate(time.Hour)
		if hours[hour] == nil {
			hours[hour] = content{}
		}
		hours[hour][r.Track] = append(hours[hour][r.Track], r.Point)
	}
	for hour, c := range hours {
		blocks := c.encode(nil, hour)
		b.makeRoom(int64(len(blocks)) + diskBlock)
		if err := segmentAt(b.dir, hour).append(blocks); err != nil {
			return err
		}
		b.bytes += int64(len(blocks)) + diskBlock
	}
	return nil
}

// report logs a failure once, and when it is over.
func (b *Book) report(err error) {
	said := ""
	if err != nil {
		said = err.Error()
	}
	if said == b.trouble {
		return
	}
	b.trouble = said
	if err != nil {
		b.log.Warn("samples of the past are not kept for now", "err", err)
		return
	}
	b.log.Info("samples are kept again")
}

func freeBytes(dir string) int64 {
	var stat unix.Statfs_t
	if unix.Statfs(dir, &stat) != nil {
		return -1
	}
	return int64(stat.Bavail) * stat.Bsize
}

func tracksOf(c content) iter.Seq[Track] { return maps.Keys(c) }

func compareTracks(a, b Track) int {
	return cmp.Or(cmp.Compare(a.Kind, b.Kind), strings.Compare(a.Owner, b.Owner), strings.Compare(a.ID, b.ID),
		cmp.Compare(a.Attempt, b.Attempt), cmp.Compare(a.GPU, b.GPU))
}

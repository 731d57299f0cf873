package series

import (
	"bytes"
	"fmt"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func newBook(t *testing.T) (*Book, *bytes.Buffer) {
	t.Helper()
	var log bytes.Buffer
	b := New(filepath.Join(t.TempDir(), "samples"), Keep, slog.New(slog.NewTextHandler(&log, nil)))
	b.free = func(string) int64 { return -1 }
	return b, &log
}

func ofJob(owner, id string) Track { return Track{Kind: Job, Owner: owner, ID: id, Attempt: 1} }

func reading(t Track, at time.Time, mib int64) Reading {
	return Reading{t, Point{At: at, MiB: mib, UtilPct: 50, PowerW: 200, TempC: 60}}
}

// points reads all points of a track.
func points(b *Book, t Track) []Point {
	return b.Read(time.Time{}, noon.AddDate(1, 0, 0), func(other Track) bool { return other == t })[t]
}

func sizes(b *Book) (bytes int64, files int) {
	_ = filepath.WalkDir(b.dir, func(_ string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() {
			info, _ := entry.Info()
			bytes += onDisk(info.Size())
			files++
		}
		return nil
	})
	return bytes, files
}

func TestAPointIsKeptWhenSomethingChangesAndAtEachHeartbeat(t *testing.T) {
	b, _ := newBook(t)
	track := ofJob("ann", "1")
	at := noon
	step := func(seconds int, mib int64) {
		at = at.Add(time.Duration(seconds) * time.Second)
		b.Record([]Reading{reading(track, at, mib)})
	}
	step(0, 1000) // the first
	step(1, 5000) // a peak within the step is kept with the next point
	step(1, 1000)
	step(3, 1000)
	for range 65 {
		step(1, 1001) // nothing changes, but there is a sign of life
	}
	step(25, 1000) // its last measurement
	b.Record(nil)
	b.flush()
	var got []string
	for _, p := range points(b, track) {
		got = append(got, fmt.Sprintf("%g:%d:%v", p.At.Sub(noon).Seconds(), p.MiB, p.Begins))
	}
	if want := "0:1000:true 5:5000:false 10:1001:false 70:1001:false 95:1000:false"; strings.Join(got, " ") != want {
		t.Errorf("kept %v, want %s", got, want)
	}
}

func TestWhatIsNotOnDiskYetIsReadToo(t *testing.T) {
	b, _ := newBook(t)
	track := ofJob("ann", "1")
	b.Record([]Reading{reading(track, noon, 1000)})
	b.Record([]Reading{reading(track, noon.Add(time.Second), 3000)})
	if got := points(b, track); len(got) != 2 || got[1].MiB != 3000 {
		t.Fatalf("read %+v", got)
	}
	b.flush()
	if got := points(b, track); len(got) != 2 || got[0].MiB != 1000 {
		t.Errorf("after it was written: %+v", got)
	}
	for name, mode := range map[string]fs.FileMode{b.dir: 0o700, segmentAt(b.dir, noon).path: 0o600} {
		if info, err := os.Stat(name); err != nil || info.Mode().Perm() != mode {
			t.Errorf("%s: %v, %v, want %v", name, info.Mode(), err, mode)
		}
	}
}

// TestTheBoundHoldsForAnyInput floods a book with a small bound for 60 days.
// Thousands of one user's jobs leave the quiet user's peak in place.
func TestTheBoundHoldsForAnyInput(t *testing.T) {
	for seed := range uint64(2) {
		b, _ := newBook(t)
		const most = 1_200_000
		b.maxBytes = most
		random := rand.New(rand.NewPCG(seed, 1))
		quiet := ofJob("quiet", "1")
		calm := int64(0)
		now := noon
		for hour := 0; hour < 60*24; hour += 3 {
			var all []Reading
			for i := range random.IntN(60) {
				track := Track{Kind: Job, Owner: "loud", ID: fmt.Sprint(hour, "_", i), Attempt: random.IntN(9), GPU: random.IntN(8)}
				for minute := range random.IntN(30) {
					all = append(all, reading(track, now.Add(time.Duration(minute)*time.Minute), random.Int64N(80_000)))
				}
			}
			b.mu.Lock()
			for _, r := range all {
				b.emit(r.Track, r.Point)
			}
			peak := int64(1000)
			if hour == 58*24 {
				peak = 77_777
			}
			calm = max(calm, peak)
			b.emit(quiet, reading(quiet, now.Add(30*time.Minute), peak).Point)
			b.mu.Unlock()
			now = now.Add(3 * time.Hour)
			b.Work(now, now.Sub(noon))
			if size, _ := sizes(b); size > most {
				t.Fatalf("seed %d, hour %d: %d bytes, want at most %d", seed, hour, size, most)
			}
		}
		left := points(b, quiet)
		if first := left[0].At; first.Before(now.Add(-Keep-2*time.Hour)) || first.After(now.Add(-Keep+2*time.Hour)) {
			t.Errorf("seed %d: the quiet user's past begins at %s, now is %s", seed, first, now)
		}
		if mib, _ := highest(left); mib != calm || len(left) < 230 {
			t.Errorf("seed %d: the quiet user has %d points with at most %d MiB, want %d", seed, len(left), mib, calm)
		}
	}
}

// TestThirtyBusyDaysFit: a quarter of 8 GPUs and 40 jobs, all of which change all
// the time, takes in every third hour less than a third of its part.
func TestThirtyBusyDaysFit(t *testing.T) {
	b, _ := newBook(t)
	random := rand.New(rand.NewPCG(7, 7))
	now, highestOf := noon, map[Track]int64{}
	for range 31 * 8 {
		b.mu.Lock()
		for i := range 12 {
			track := Track{Kind: GPU, ID: fmt.Sprint("GPU-", i)}
			if i >= 2 {
				track = ofJob("ann", fmt.Sprint(i))
			}
			for s := 0; s < 3600; s += 30 { // the finest that is kept for long
				mib := random.Int64N(80_000)
				if !now.Before(noon.Add(21 * time.Hour)) {
					highestOf[track] = max(highestOf[track], mib)
				}
				b.emit(track, Point{At: now.Add(time.Duration(s) * time.Second), MiB: mib, UtilPct: 50, PowerW: 300, TempC: 70})
			}
		}
		b.mu.Unlock()
		now = now.Add(3 * time.Hour)
		b.Work(now, now.Sub(noon))
	}
	if size, files := sizes(b); size > MaxBytes/3/12 || files < 30*8 {
		t.Errorf("%d bytes in %d files", size, files)
	}
	for track, want := range highestOf {
		if got, _ := highest(points(b, track)); got != want {
			t.Errorf("the highest of %+v is %d, want %d", track, got, want)
		}
	}
}

func TestADamagedFileIsReadAsFarAsItGoes(t *testing.T) {
	for name, damage := range map[string]func(data []byte) []byte{
		"torn":               func(data []byte) []byte { return data[:len(data)-3] },
		"garbage at its end": func(data []byte) []byte { return append(data, "garbage of any length"...) },
		"a flipped bit":      func(data []byte) []byte { data[len(data)-2] ^= 4; return data },
	} {
		t.Run(name, func(t *testing.T) {
			b, _ := newBook(t)
			first, second, third := ofJob("ann", "1"), ofJob("ann", "2"), ofJob("ann", "3")
			for i, track := range []Track{first, second} {
				b.Record([]Reading{reading(track, noon.Add(time.Duration(i)*time.Minute), 1000)})
				b.flush()
			}
			path := segmentAt(b.dir, noon).path
			data, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, damage(data), 0o600); err != nil {
				t.Fatal(err)
			}
			if len(points(b, first)) != 1 {
				t.Error("what is whole before the damage is lost")
			}
			b.Record([]Reading{reading(third, noon.Add(time.Hour/2), 1000)})
			b.flush()
			if len(points(b, third)) != 1 || len(points(b, first)) != 1 {
				t.Error("what is written after the damage cannot be read")
			}
			b.Work(noon.Add(100*time.Hour), 0) // thinned, which reads and rewrites it
			if len(points(b, third)) != 1 || len(points(b, first)) != 1 {
				t.Error("thinning a damaged file lost more")
			}
		})
	}
	b, _ := newBook(t)
	if err := os.MkdirAll(b.dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{"2026-03-01T12.samples": "nothing like it", "2026-03-01T13.samples": "", "notes.txt": "mine"} {
		if err := os.WriteFile(filepath.Join(b.dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	track := ofJob("ann", "1")
	b.Record([]Reading{reading(track, noon, 1000)})
	b.Work(noon, 0)
	if len(points(b, track)) != 1 {
		t.Error("a file that is nothing like one keeps its hour from being written")
	}
	b.Work(noon.Add(Keep+3*time.Hour), Keep+3*time.Hour)
	if _, files := sizes(b); files != 1 {
		t.Errorf("%d files are left, want the one that is not ours", files)
	}
}

func TestAFullDiskOnlyDropsPoints(t *testing.T) {
	b, log := newBook(t)
	free := int64(minFree - 1)
	b.free = func(string) int64 { return free }
	track := ofJob("ann", "1")
	for i := range 3 * maxPending / 2 {
		b.emit(track, reading(track, noon.Add(time.Duration(i)*time.Millisecond), 1).Point)
	}
	if len(b.pending) > maxPending {
		t.Fatalf("%d points wait", len(b.pending))
	}
	b.flush()
	b.Record([]Reading{reading(track, noon.Add(time.Minute), 1)})
	b.flush()
	if said := strings.Count(log.String(), unix.ENOSPC.Error()); said != 1 || len(b.pending) != 0 {
		t.Errorf("said %d times, %d points wait: %s", said, len(b.pending), log)
	}
	if _, files := sizes(b); files != 0 {
		t.Errorf("%d files were written on a full disk", files)
	}
	free = minFree
	b.Record([]Reading{reading(track, noon.Add(time.Hour), 1)})
	b.flush()
	if len(points(b, track)) == 0 || !strings.Contains(log.String(), "kept again") {
		t.Errorf("with room again: %s", log)
	}
}

func TestForgottenJobsLeaveNothing(t *testing.T) {
	b, _ := newBook(t)
	mine, theirs, card := ofJob("ann", "1"), ofJob("bob", "1"), Track{Kind: GPU, ID: "GPU-1"}
	b.Record([]Reading{reading(mine, noon, 1), reading(theirs, noon, 2), reading(card, noon, 3)})
	b.flush()
	if err := b.Forget(func(owner, id string) bool { return owner == "ann" && id == "1" }); err != nil {
		t.Fatal(err)
	}
	b.mu.Lock()
	clear(b.open)
	b.mu.Unlock()
	if len(points(b, mine)) != 0 || len(points(b, theirs)) != 1 || len(points(b, card)) != 1 {
		t.Errorf("left: %v, %v, %v", points(b, mine), points(b, theirs), points(b, card))
	}
	if err := b.Forget(func(string, string) bool { return true }); err != nil {
		t.Fatal(err)
	}
	if data, _ := os.ReadFile(segmentAt(b.dir, noon).path); bytes.Contains(data, []byte("bob")) {
		t.Error("the file still names bob")
	}
}

func TestAClockThatJumpsDeletesNothing(t *testing.T) {
	for name, test := range map[string]struct {
		running time.Duration
		files   int
	}{"the clock was set": {2 * time.Hour, 1}, "time passed": {2 * Keep, 0}} {
		b, _ := newBook(t)
		b.Record([]Reading{reading(ofJob("ann", "1"), noon, 1)})
		b.Work(noon, 0)
		b.Work(noon.Add(2*Keep), test.running)
		if _, files := sizes(b); files != test.files {
			t.Errorf("%s: %d files are left, want %d", name, files, test.files)
		}
	}
}

func TestManyReadersWhileItIsWritten(t *testing.T) {
	b, _ := newBook(t)
	track := ofJob("ann", "1")
	done := make(chan struct{})
	var readers sync.WaitGroup
	for range 2 {
		readers.Go(func() {
			most := 0
			for {
				got := points(New(b.dir, Keep, b.log), track) // of another process
				own := points(b, track)
				if len(own) < most {
					t.Errorf("%d points after %d", len(own), most)
					return
				}
				most = len(own)
				for i := 1; i < len(got); i++ {
					if !got[i].At.After(got[i-1].At) {
						t.Errorf("points out of order")
						return
					}
				}
				select {
				case <-done:
					return
				default:
				}
			}
		})
	}
	for i := range 100 {
		b.Record([]Reading{reading(track, noon.Add(time.Duration(i)*10*time.Second), int64(1000*(i%7+1)))})
		b.flush()
	}
	close(done)
	readers.Wait()
	if got := points(b, track); len(got) != 100 {
		t.Errorf("%d points", len(got))
	}
}

package daemon

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"berth/internal/job"
	"berth/internal/queue/config"
	"berth/internal/queue/store"
)

var quietLog = slog.New(slog.NewTextHandler(io.Discard, nil))

// archive is a store and the directory of its jobs.
type archive struct {
	t     *testing.T
	store *store.Store
	jobs  string
}

func newArchive(t *testing.T) *archive {
	t.Helper()
	dir := t.TempDir()
	opened, err := store.Open(filepath.Join(dir, "store"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { opened.Close() })
	a := &archive{t: t, store: opened, jobs: filepath.Join(dir, "jobs")}
	if err := os.Mkdir(a.jobs, 0o711); err != nil {
		t.Fatal(err)
	}
	return a
}

// put adds ann's jobs that ran and ended so long ago; live ones have not.
func (a *archive) put(first, last int, ago time.Duration, environ string) {
	a.t.Helper()
	a.putOf("ann", 1, first, last, ago, environ)
}

// putOf adds a user's jobs; without an attempt they never ran.
func (a *archive) putOf(user string, attempt, first, last int, ago time.Duration, environ string) {
	a.t.Helper()
	var tx store.Tx
	for n := first; n <= last; n++ {
		j := &job.Job{
			ID: strconv.Itoa(n), Seq: int64(n), User: user, State: job.Finished, Outcome: job.OK,
			Spec: job.Spec{Shell: "true"}, SubmittedAt: noon.Add(-ago), Attempt: job.Attempt{Number: attempt, EndedAt: noon.Add(-ago)},
		}
		if ago == 0 {
			j.State, j.Outcome, j.EndedAt = job.Queued, "", time.Time{}
		}
		if environ != "" {
			j.Environ = store.BlobName([]byte(environ))
			tx.Blobs = map[string][]byte{j.Environ: []byte(environ)}
		}
		tx.Put = append(tx.Put, j)
	}
	if err := a.store.Commit(tx); err != nil {
		a.t.Fatal(err)
	}
}

func (a *archive) logs(names ...string) {
	a.t.Helper()
	for _, name := range names {
		if err := os.Mkdir(filepath.Join(a.jobs, name), 0o700); err != nil {
			a.t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(a.jobs, name, "1.log"), []byte("output\n"), 0o600); err != nil {
			a.t.Fatal(err)
		}
	}
}

func (a *archive) retain(cfg config.Config) int {
	a.t.Helper()
	forgotten, err := retain(noon, cfg, a.store, a.jobs, quietLog)
	if err != nil {
		a.t.Fatal(err)
	}
	return forgotten
}

func (a *archive) remembered() []string {
	a.t.Helper()
	var ids []string
	if err := a.store.Each(func(j *job.Job) error { ids = append(ids, j.ID); return nil }); err != nil {
		a.t.Fatal(err)
	}
	return ids
}

// directories are those of jobs.
func (a *archive) directories() []string {
	a.t.Helper()
	entries, err := os.ReadDir(a.jobs)
	if err != nil {
		a.t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		if e.Name() != binName {
			names = append(names, e.Name())
		}
	}
	return names
}

// inBin is what waits to be removed.
func (a *archive) inBin() []string {
	a.t.Helper()
	entries, err := os.ReadDir(filepath.Join(a.jobs, binName))
	if err != nil {
		a.t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func TestRetainForgetsWhatIsOld(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	a.put(1, 2, 100*day, "A=old")
	a.put(3, 3, 40*day, "A=kept")
	a.put(4, 4, 10*day, "")
	a.put(5, 5, 0, "")
	a.logs("1", "2", "3", "4", "5")
	if n := a.retain(config.Default(true)); n != 2 {
		t.Errorf("%d forgotten", n)
	}
	if diff := cmp.Diff([]string{"3", "4", "5"}, a.remembered()); diff != "" {
		t.Error(diff)
	}
	// The logs of job 3 are too old, the job itself is not.
	if diff := cmp.Diff([]string{"4", "5"}, a.directories()); diff != "" {
		t.Error(diff)
	}
	if left := a.inBin(); len(left) > 0 {
		t.Errorf("left in the bin: %v", left)
	}
	if _, err := a.store.Blob(store.BlobName([]byte("A=old"))); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("an environment nobody has any more: %v", err)
	}
	if _, err := a.store.Blob(store.BlobName([]byte("A=kept"))); err != nil {
		t.Error(err)
	}
}

func TestRetainKeepsNoMoreJobsThanItMay(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	a.put(1, 1300, time.Hour, "")
	a.put(1301, 1301, 0, "")
	cfg := config.Default(true)
	cfg.HistoryJobs = 7
	if n := a.retain(cfg); n != 1293 {
		t.Errorf("%d forgotten", n)
	}
	want := []string{"1294", "1295", "1296", "1297", "1298", "1299", "1300", "1301"}
	if diff := cmp.Diff(want, a.remembered()); diff != "" {
		t.Error(diff)
	}
}

func TestRetainWithoutAnAge(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	a.put(1, 3, 3000*day, "")
	a.logs("1", "2", "3")
	cfg := config.Default(true)
	cfg.History, cfg.Logs = 0, 0
	if n := a.retain(cfg); n != 0 || len(a.directories()) != 3 {
		t.Errorf("%d forgotten, logs of %v", n, a.directories())
	}
}

func TestRetainTouchesOnlyDirectoriesOfJobs(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	a.put(1, 30, 100*day, "")
	a.put(31, 31, 0, "")
	others := []string{"0", "01", "+1", "1 ", "1_", "1_01", "1_-1", "1_2_3", "17x", "backup", "99999999999999999999", "32", "32_0"}
	a.logs(others...)
	a.logs("7", "17_0", "17_3", "31")
	a.retain(config.Default(true))
	slices.Sort(others)
	want := append(others, "31")
	slices.Sort(want)
	if diff := cmp.Diff(want, a.directories()); diff != "" {
		t.Error(diff)
	}
}

func TestRetainGoesOnWhereACrashLeftOff(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	a.put(1, 2, 100*day, "")
	a.logs("1", "2")
	if _, err := a.store.Forget(store.Keep{Since: noon}); err != nil { // and the daemon died
		t.Fatal(err)
	}
	bin := filepath.Join(a.jobs, binName)
	for _, name := range []string{"1.1", "2.1"} { // names that would be given again
		if err := os.MkdirAll(filepath.Join(bin, name, "deep", "er"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"1.2", "2.2"} {
		if err := os.WriteFile(filepath.Join(bin, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	a.retain(config.Default(true))
	if left := append(a.directories(), a.inBin()...); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

func TestRetainWithoutADirectoryOfJobs(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	if err := os.Remove(a.jobs); err != nil {
		t.Fatal(err)
	}
	a.put(1, 1, 100*day, "")
	if n := a.retain(config.Default(false)); n != 1 {
		t.Errorf("%d forgotten", n)
	}
}

// fullStore is a store on a full disk.
type fullStore struct{ *store.Store }

func (fullStore) Forget(store.Keep) (int, error) { return 0, store.ErrFull }

func TestRetainMakesRoomOnAFullDisk(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	a.put(1, 1, 40*day, "")
	a.logs("1")
	if _, err := retain(noon, config.Default(true), fullStore{a.store}, a.jobs, quietLog); !errors.Is(err, store.ErrFull) {
		t.Errorf("got %v", err)
	}
	if left := a.directories(); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

// TestRetainTakesNothingForAnothersFlood: a user who fills the history loses only
// their own jobs, those that never ran first, and nobody else's logs or events.
func TestRetainTakesNothingForAnothersFlood(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	a.putOf("ann", 1, 1, 3, 2*day, "")         // logs kept
	a.putOf("ann", 1, 4, 4, 40*day, "")        // log too old, the job within ann's share
	a.putOf("bob", 1, 5, 30, day, "")          // more than a share, but their logs are kept
	a.putOf("cat", 1, 31, 32, 40*day, "")      // ran
	a.putOf("cat", 0, 33, 1300, time.Hour, "") // never did
	a.logs("1", "3", "4", "5", "30", "31")
	cfg := config.Default(true)
	cfg.HistoryJobs, cfg.Events = 30, 9
	var tx store.Tx
	for i := range 60 {
		ev := &job.Event{Kind: job.EventHeld, At: noon, Job: &job.Job{ID: "1300", User: "cat"}}
		if i < 2 {
			ev.Job = &job.Job{ID: "1", User: "ann"}
		} else if i < 4 {
			ev.Kind, ev.Job = job.EventCard, nil
		}
		tx.Events = append(tx.Events, ev)
	}
	if err := a.store.Commit(tx); err != nil {
		t.Fatal(err)
	}
	a.retain(cfg)
	// 30 in all: ann keeps 4, and bob and cat 13 each; but bob's have logs.
	want := []string{"1", "2", "3", "4"}
	for n := 5; n <= 32; n++ {
		want = append(want, strconv.Itoa(n))
	}
	for n := 1290; n <= 1300; n++ {
		want = append(want, strconv.Itoa(n))
	}
	if diff := cmp.Diff(want, a.remembered()); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"1", "3", "30", "5"}, a.directories()); diff != "" {
		t.Error(diff)
	}
	var kept []int64
	events, err := a.store.EventsAfter(0, 100)
	for _, ev := range events {
		kept = append(kept, ev.Seq)
	}
	if diff := cmp.Diff([]int64{1, 2, 3, 4, 56, 57, 58, 59, 60}, kept); err != nil || diff != "" {
		t.Errorf("%v: %s", err, diff)
	}
}

func TestRetainBetweenTimesIsForAFlood(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	a.putOf("ann", 1, 1, 2, 100*day, "")
	a.putOf("cat", 0, 3, 9, 100*day, "")
	a.logs("1")
	cfg := config.Default(true)
	cfg.HistoryJobs, cfg.Events = 4, 100
	if _, ok := retainNow(cfg, false, 25); ok {
		t.Error("a quarter of the events is a flood")
	}
	rules, ok := retainNow(cfg, false, 26)
	if !ok {
		t.Fatal("more than a quarter is no flood")
	}
	a.retain(rules)
	if diff := cmp.Diff([]string{"1", "2", "8", "9"}, a.remembered()); diff != "" || len(a.directories()) != 1 {
		t.Errorf("logs of %v; %s", a.directories(), diff)
	}
	if rules, ok = retainNow(cfg, true, 0); !ok {
		t.Error("nothing is deleted when it is due")
	}
	if a.retain(rules); len(a.remembered()) > 0 {
		t.Errorf("ages do not count: %v", a.remembered())
	}
}

func TestRetainTellsWhatItCannotRemove(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	a.put(1, 2, 100*day, "")
	a.logs("1", "2")
	// A file where the bin belongs.
	if err := os.WriteFile(filepath.Join(a.jobs, binName), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	forgotten, err := retain(noon, config.Default(true), a.store, a.jobs, quietLog)
	if err == nil || !strings.Contains(err.Error(), binName) || forgotten != 2 {
		t.Errorf("%d forgotten, %v", forgotten, err)
	}
}

func FuzzJobNumber(f *testing.F) {
	for _, name := range []string{"17", "17_3", "", "0", "..", "1/2", "18446744073709551616"} {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		number, ok := jobNumber(name)
		if !ok {
			return
		}
		base, index, isTask := strings.Cut(name, "_")
		again := fmt.Sprint(number)
		if isTask {
			again += "_" + index
		}
		if number < 1 || again != name || base == "" || strings.ContainsAny(name, "./") {
			t.Errorf("%q is job %d", name, number)
		}
	})
}

const day = 24 * time.Hour

// noon is what the clock shows.
var noon = time.Date(2026, 3, 10, 12, 0, 0, 0, time.UTC)

package store

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"berth/internal/job"
	"berth/internal/text"
)

var begun = time.Unix(1_700_000_000, 0)

// drawJobs makes a history with everything that can collide: arrays beside
// jobs whose numbers begin alike, equal times, names that look like defaults.
func drawJobs(t *rapid.T) []*job.Job {
	var jobs []*job.Job
	states := []job.State{job.Queued, job.Running, job.Finished, job.Failed, job.Cancelled}
	for seq := int64(1); len(jobs) < 40; {
		tasks := 1
		if rapid.IntRange(0, 3).Draw(t, "array") == 0 {
			tasks = rapid.IntRange(1, 12).Draw(t, "tasks")
		}
		base := seq
		for k := range tasks {
			j := queued(seq)
			if tasks > 1 {
				j.ID = fmt.Sprintf("%d_%d", base, 2*k)
			}
			j.User = rapid.SampledFrom([]string{"ann", "bob"}).Draw(t, "user")
			j.UID = len(j.User) + int(j.User[0])
			j.Spec.Name = rapid.SampledFrom([]string{"", "train", "job1", "[a-z]"}).Draw(t, "name")
			j.State = rapid.SampledFrom(states).Draw(t, "state")
			if j.State.Terminal() {
				j.EndedAt = begun.Add(time.Duration(rapid.IntRange(0, 9).Draw(t, "ended")) * time.Second)
			}
			jobs = append(jobs, j)
			seq++
		}
	}
	return jobs
}

func drawFilter(t *rapid.T, jobs []*job.Job) Filter {
	f := Filter{
		User:   rapid.SampledFrom([]string{"", "", "ann", "bob", "eve"}).Draw(t, "of"),
		Name:   rapid.SampledFrom([]string{"", "", "", "train", "job1", "job3", "job*", "*[a-z]*", "t?a*n", "?"}).Draw(t, "named"),
		Newest: rapid.Bool().Draw(t, "newest"),
		Limit:  rapid.IntRange(1, 50).Draw(t, "limit"),
	}
	number := rapid.Int64Range(1, int64(len(jobs)+3))
	for range rapid.IntRange(0, 3).Draw(t, "ids") {
		j := jobs[rapid.IntRange(0, len(jobs)-1).Draw(t, "one")]
		f.IDs = append(f.IDs, rapid.SampledFrom([]string{j.ID, strconv.FormatInt(number.Draw(t, "id"), 10), cmp.Or(j.Array(), "1")}).Draw(t, "which"))
	}
	if rapid.IntRange(0, 3).Draw(t, "many") == 0 {
		for i := range fewIDs + 1 {
			f.IDs = append(f.IDs, strconv.Itoa(3*i))
		}
	}
	for range rapid.IntRange(0, 2).Draw(t, "ranges") {
		from := number.Draw(t, "from")
		r := Range{From: from, To: from + rapid.Int64Range(0, 5).Draw(t, "span")}
		if rapid.Bool().Draw(t, "of an array") {
			r.Array = cmp.Or(jobs[rapid.IntRange(0, len(jobs)-1).Draw(t, "array")].Array(), "2")
			r.From, r.To = r.From%10, r.To%10
		}
		f.Ranges = append(f.Ranges, r)
	}
	if rapid.Bool().Draw(t, "states") {
		f.States = []job.State{job.Failed, rapid.SampledFrom([]job.State{job.Finished, job.Cancelled}).Draw(t, "state")}
	}
	if rapid.IntRange(0, 2).Draw(t, "since") == 0 {
		f.EndedSince = begun.Add(4 * time.Second)
	}
	if rapid.IntRange(0, 2).Draw(t, "until") == 0 {
		f.EndedUntil = begun.Add(7 * time.Second)
	}
	return f
}

// wants is the filter in plain words.
func (f *Filter) wants(j *job.Job) bool {
	base, task, isTask := strings.Cut(j.ID, "_")
	number, _ := strconv.ParseInt(base, 10, 64)
	index, _ := strconv.ParseInt(task, 10, 64)
	named := len(f.IDs)+len(f.Ranges) == 0 || slices.Contains(f.IDs, j.ID) || isTask && slices.Contains(f.IDs, base)
	for _, r := range f.Ranges {
		if r.Array == "" {
			named = named || r.From <= number && number <= r.To
		} else {
			named = named || isTask && r.Array == base && r.From <= index && index <= r.To
		}
	}
	return named && j.State.Terminal() &&
		(f.User == "" || j.User == f.User) &&
		(f.Name == "" || text.Glob(f.Name, j.Name())) &&
		(len(f.States) == 0 || slices.Contains(f.States, j.State)) &&
		(f.EndedSince.IsZero() || !j.EndedAt.Before(f.EndedSince)) &&
		(f.EndedUntil.IsZero() || j.EndedAt.Before(f.EndedUntil))
}

// TestFindIsAFilterOverTheJobs: pages of any filter, put together, are exactly
// the jobs that match, each once and in order; counting and walking agree.
func TestFindIsAFilterOverTheJobs(t *testing.T) {
	t.Parallel()
	s := openIn(t, t.TempDir())
	rapid.Check(t, func(rt *rapid.T) {
		if err := s.Wipe(); err != nil {
			rt.Fatal(err)
		}
		jobs := drawJobs(rt)
		if err := s.Commit(Tx{Put: jobs}); err != nil {
			rt.Fatal(err)
		}
		for range 3 {
			f := drawFilter(rt, jobs)
			s.steps = steps{scan: rapid.IntRange(1, 9).Draw(rt, "scan"), rows: rapid.IntRange(1, 9).Draw(rt, "rows")}
			f.Pause = func(int) error { // what waits may need every reader
				if n := s.reader.Stats().InUse; n > 0 {
					rt.Fatalf("%d readers are in use in a pause", n)
				}
				return nil
			}
			var want []string
			sorted := slices.Clone(jobs)
			if f.Newest {
				slices.SortFunc(sorted, func(a, b *job.Job) int {
					return cmp.Or(b.EndedAt.Compare(a.EndedAt), cmp.Compare(b.Seq, a.Seq))
				})
			}
			for _, j := range sorted {
				if f.wants(j) {
					want = append(want, j.ID)
				}
			}
			checkPages(rt, s, f, want)
			checkCounts(rt, s, f, want)
		}
	})
}

func checkPages(t *rapid.T, s *Store, f Filter, want []string) {
	var got []string
	for {
		page, err := s.Find(f)
		if err != nil {
			t.Fatalf("%+v: %v", f, err)
		}
		if len(page) > f.Limit {
			t.Fatalf("a page of %d, at most %d were asked for", len(page), f.Limit)
		}
		for _, j := range page {
			got = append(got, j.ID)
		}
		if len(page) < f.Limit {
			break
		}
		f.After = CursorOf(page[len(page)-1])
	}
	if !slices.Equal(got, want) {
		t.Fatalf("%+v\nfound %v\nwant  %v", f, got, want)
	}
}

func checkCounts(t *rapid.T, s *Store, f Filter, want []string) {
	counts, err := s.CountOver(f)
	if err != nil {
		t.Fatal(err)
	}
	total := 0
	for _, n := range counts {
		total += n
	}
	walked := 0
	if err := s.EachOver(f, func(*job.Job) error { walked++; return nil }); err != nil {
		t.Fatal(err)
	}
	if total != len(want) || walked != len(want) {
		t.Fatalf("%+v: counted %d, walked %d, want %d", f, total, walked, len(want))
	}
}

func TestFindTakesAsManyIDsAsAPersonCanName(t *testing.T) {
	t.Parallel()
	s := openIn(t, t.TempDir())
	fill(t, s, 1, 200, job.Finished)
	var f Filter
	f.Limit = 1000
	for i := range 20_000 {
		f.IDs = append(f.IDs, strconv.Itoa(i+101))
	}
	for i := range 400 {
		f.Ranges = append(f.Ranges, Range{From: int64(5000 + 3*i), To: int64(5001 + 3*i)})
	}
	found, err := s.Find(f)
	if err != nil || len(found) != 100 {
		t.Errorf("found %d, %v", len(found), err)
	}
}

func TestAJobIsFoundByItsIDWithoutLookingAtTheOthers(t *testing.T) {
	t.Parallel()
	s := openIn(t, t.TempDir())
	where, args := (&Filter{IDs: []string{"7", "17_3"}}).where()
	rows, err := s.reader.Query("EXPLAIN QUERY PLAN SELECT seq FROM jobs WHERE "+where, args...)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var id, parent, unused int
		var detail string
		if err := rows.Scan(&id, &parent, &unused, &detail); err != nil {
			t.Fatal(err)
		}
		if strings.HasPrefix(detail, "SCAN") {
			t.Errorf("plan: %s", detail)
		}
	}
}

func TestLastOf(t *testing.T) {
	t.Parallel()
	s := openIn(t, t.TempDir())
	var jobs []*job.Job
	for seq, id := range []string{"1", "2", "3_0", "3_1", "5", "6"} {
		j := queued(int64(seq + 1))
		j.ID, j.UID = id, 1000
		jobs = append(jobs, j)
	}
	jobs[4].User, jobs[4].UID = "bob", 1001
	jobs[5].UID = 1002 // of another who had the name before
	jobs[1].State = job.Finished
	commit(t, s, Tx{Put: jobs})
	for skip, want := range []string{"3", "2", "1", ""} {
		id, ok, err := s.LastOf(1000, "ann", skip)
		if err != nil || id != want || ok != (want != "") {
			t.Errorf("@~%d is %q (%v), want %q; %v", skip, id, ok, want, err)
		}
	}
}

func TestSnapshotsThatJobsOfAUserReferTo(t *testing.T) {
	t.Parallel()
	s := openIn(t, t.TempDir())
	jobs := []*job.Job{queued(1), queued(2), queued(3), queued(4), queued(5)}
	for i, j := range jobs {
		j.User, j.UID = "ann", 7
		j.Spec.Snapshot = job.Snapshot{ID: []string{"b", "a", "b", "", "c"}[i], Path: "/\xff"}
	}
	jobs[1].State, jobs[1].Outcome = job.Finished, job.OK
	jobs[4].UID = 8 // another one of that name
	commit(t, s, Tx{Put: jobs})
	if ids, err := s.Snapshots(7, "ann"); err != nil || !slices.Equal(ids, []string{"a", "b"}) {
		t.Errorf("%v %v", ids, err)
	}
}

// TestSweepBlobsKeepsWhatAJobNames: of any mix of jobs and environments.
func TestSweepBlobsKeepsWhatAJobNames(t *testing.T) {
	t.Parallel()
	s := openIn(t, t.TempDir())
	rapid.Check(t, func(rt *rapid.T) {
		if err := s.Wipe(); err != nil {
			rt.Fatal(err)
		}
		names := rapid.SliceOfN(rapid.IntRange(0, 5), 1, 12).Draw(rt, "environments")
		blobs := map[string][]byte{}
		var jobs []*job.Job
		for i := range 6 {
			blobs[BlobName([]byte{byte(i)})] = []byte{byte(i)}
		}
		for i, env := range names {
			j := queued(int64(i + 1))
			j.Environ = BlobName([]byte{byte(env)})
			j.State = rapid.SampledFrom([]job.State{job.Queued, job.Running, job.Finished}).Draw(rt, "state")
			if rapid.Bool().Draw(rt, "bytes") {
				j.Spec.Shell = "echo \xff"
			}
			jobs = append(jobs, j)
		}
		if err := s.Commit(Tx{Put: jobs, Blobs: blobs}); err != nil {
			rt.Fatal(err)
		}
		if _, err := s.Forget(Keep{Since: begun, Logs: time.Now(), Jobs: rapid.IntRange(0, 3).Draw(rt, "keep")}); err != nil {
			rt.Fatal(err)
		}
		if _, err := s.SweepBlobs(); err != nil {
			rt.Fatal(err)
		}
		left := map[string]bool{}
		if err := s.Each(func(j *job.Job) error { left[j.Environ] = true; return nil }); err != nil {
			rt.Fatal(err)
		}
		for name := range blobs {
			if _, err := s.Blob(name); (err == nil) != left[name] {
				rt.Fatalf("environment %s is named by a job: %v; reading it: %v", name, left[name], err)
			}
		}
	})
}

// TestASweepKeepsWhatAJobNamesMeanwhile: a known job may get another environment.
func TestASweepKeepsWhatAJobNamesMeanwhile(t *testing.T) {
	t.Parallel()
	s, j := openIn(t, t.TempDir()), queued(1)
	blob := map[string][]byte{BlobName([]byte("A=1")): []byte("A=1")}
	commit(t, s, Tx{Put: []*job.Job{j}, Blobs: blob})
	unused, through, err := s.unusedBlobs()
	if err != nil || len(unused) != 1 {
		t.Fatal(unused, err)
	}
	j.Environ = BlobName([]byte("A=1"))
	commit(t, s, Tx{Put: []*job.Job{j}, Blobs: blob})
	if n, err := s.change(func(ctx context.Context) (int64, error) { return s.sweepSome(ctx, unused, through) }); n != 0 || err != nil {
		t.Errorf("%d were deleted, %v", n, err)
	}
}

func TestBackupAndRestore(t *testing.T) {
	t.Parallel()
	dir, copied := t.TempDir(), filepath.Join(t.TempDir(), "copy")
	s, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	j := queued(1)
	j.Environ = BlobName([]byte("A=1"))
	commit(t, s, Tx{Put: []*job.Job{j}, Blobs: map[string][]byte{j.Environ: []byte("A=1")}, Meta: map[string]string{"paused": "{}"}})
	// Commits go on while it is copied, and none of them is half in it.
	stop, stopped := make(chan struct{}), make(chan int64)
	go func() {
		seq := int64(1)
		for {
			select {
			case <-stop:
				stopped <- seq
				return
			default:
			}
			one, two := queued(seq+1), queued(seq+2)
			if err := s.Commit(Tx{Put: []*job.Job{one, two}}); err != nil {
				t.Error(err)
			}
			seq += 2
		}
	}()
	for range 5 {
		if err := s.Backup(copied); err != nil {
			t.Error(err)
		}
	}
	close(stop)
	last := <-stopped
	if _, err := Restore(dir, copied, func(*Store, *Store) error { return nil }); err == nil {
		t.Error("restored under a running daemon")
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	kept, err := Restore(dir, copied, func(*Store, *Store) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	s = openIn(t, dir)
	restored, err := s.LastSeq()
	if err != nil || restored%2 != 1 || restored > last {
		t.Errorf("the copy has jobs up to %d of %d, %v", restored, last, err)
	}
	if data, err := s.Blob(j.Environ); err != nil || string(data) != "A=1" {
		t.Errorf("environment %q, %v", data, err)
	}
	if value, err := s.Meta("paused"); value != "{}" {
		t.Errorf("settings %q, %v", value, err)
	}
	if _, err := os.Stat(kept); err != nil {
		t.Errorf("what was there: %v", err)
	}
}

func TestABadBackupChangesNothing(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	fill(t, s, 1, 3, job.Queued)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	bad := filepath.Join(t.TempDir(), "bad")
	if err := os.WriteFile(bad, []byte(strings.Repeat("no database", 1000)), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, backup := range []string{bad, bad + ".missing"} {
		if kept, err := Restore(dir, backup, func(*Store, *Store) error { return nil }); err == nil || kept != "" {
			t.Errorf("%s was restored, the old is at %q", backup, kept)
		}
	}
	if found := ids(t, openIn(t, dir)); len(found) != 3 {
		t.Errorf("the store has %v", found)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "restore-*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

// TestLookupsDoNotWaitForLongReads: whoever lists everything, several at a
// time, keeps nobody from asking for one job.
func TestLookupsDoNotWaitForLongReads(t *testing.T) {
	t.Parallel()
	s := openIn(t, t.TempDir())
	fill(t, s, 1, 3, job.Queued)
	asked := make(chan error, 1)
	var nest func(depth int) error
	nest = func(depth int) error {
		return s.Each(func(*job.Job) error {
			if depth < maxReaders {
				return nest(depth + 1)
			}
			go func() { _, err := s.Job("2"); asked <- err }()
			select {
			case err := <-asked:
				return err
			case <-time.After(time.Minute):
				return fmt.Errorf("it waits for %d readers", maxReaders)
			}
		})
	}
	if err := nest(1); err != nil {
		t.Error(err)
	}
}

// TestEventsOfOneJob: those of others are passed over, also where an id begins
// as another does, and of many the last are told.
func TestEventsOfOneJob(t *testing.T) {
	t.Parallel()
	s := openIn(t, t.TempDir())
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	put := func(second int, kind job.EventKind, j *job.Job) {
		err := s.Commit(Tx{Events: []*job.Event{{At: at.Add(time.Duration(second) * time.Second), Kind: kind, Job: j, Text: string(kind)}}})
		if err != nil {
			t.Fatal(err)
		}
	}
	one, eleven := &job.Job{ID: "1", Seq: 1}, &job.Job{ID: "11", Seq: 11}
	put(0, job.EventStarted, one)
	put(1, job.EventStarted, eleven)
	put(2, job.EventNotice, nil)
	put(3, job.EventRetry, one)
	put(4, job.EventEnded, one)
	kinds := func(since, limit int) string {
		events, err := s.EventsOf("1", at.Add(time.Duration(since)*time.Second), limit)
		if err != nil {
			t.Fatal(err)
		}
		var words []string
		for _, ev := range events {
			words = append(words, string(ev.Kind))
		}
		return strings.Join(words, " ")
	}
	for _, row := range []struct {
		since, limit int
		want         string
	}{{0, 10, "started retry ended"}, {-60, 10, "started retry ended"}, {1, 10, "retry ended"}, {0, 2, "retry ended"}, {5, 10, ""}} {
		if got := kinds(row.since, row.limit); got != row.want {
			t.Errorf("since %d, %d at most: %q, want %q", row.since, row.limit, got, row.want)
		}
	}
}

// TestEventsOfCards: the newest first, of the card that is asked for, and not
// once more for each job that it concerns. Those of a store that had no more than
// their text are found as well.
func TestEventsOfCards(t *testing.T) {
	t.Parallel()
	for name, old := range map[string]bool{"told by this berth": false, "told by one before": true} {
		t.Run(name, func(t *testing.T) { testEventsOfCards(t, old) })
	}
}

func testEventsOfCards(t *testing.T, old bool) {
	dir := t.TempDir()
	s := openIn(t, dir)
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	one, two, ten := 1, 2, 10
	cards := []*int{&one, nil, &ten, nil, &one, &one}
	for second, text := range []string{"gpu1 a", "", "gpu10 b", "all cards c", "gpu1 d", "gpu1 d; job 1 goes on"} {
		ev := &job.Event{At: at.Add(time.Duration(second) * time.Second), Kind: job.EventCard, Text: text}
		switch {
		case text == "":
			ev.Kind, ev.Job = job.EventStarted, &job.Job{ID: "1", Seq: 1}
		case strings.Contains(text, "; job 1 "):
			ev.Job = &job.Job{ID: "1", Seq: 1}
		}
		if ev.Kind == job.EventCard {
			ev.Card = &job.CardChange{GPU: cards[second], By: "ann"}
		}
		if err := s.Commit(Tx{Events: []*job.Event{ev}}); err != nil {
			t.Fatal(err)
		}
	}
	if old {
		s = ofFormat3(t, s, dir)
	}
	for _, row := range []struct {
		name         string
		since, limit int
		gpu          *int
		want         string
	}{
		{"all of them", -60, 10, nil, "gpu1 d,all cards c,gpu10 b,gpu1 a"},
		{"since a time", 2, 10, nil, "gpu1 d,all cards c,gpu10 b"},
		{"no more than asked for", 0, 2, nil, "gpu1 d,all cards c"},
		{"one card is not another that begins as it does", 0, 10, &one, "gpu1 d,all cards c,gpu1 a"},
		{"one card and what was about all", 0, 2, &one, "gpu1 d,all cards c"},
		{"a card that nothing happened to", 0, 10, &two, "all cards c"},
	} {
		events, err := s.CardEvents(at.Add(time.Duration(row.since)*time.Second), row.limit, row.gpu)
		if err != nil {
			t.Fatal(err)
		}
		var texts []string
		for _, ev := range events {
			texts = append(texts, ev.Text)
			if ev.Seq == 0 || ev.At.Before(at) || ev.Kind != job.EventCard || ev.Card == nil || !old && ev.Card.By != "ann" {
				t.Errorf("%s: %+v", row.name, ev)
			}
		}
		if got := strings.Join(texts, ","); got != row.want {
			t.Errorf("%s: %q, want %q", row.name, got, row.want)
		}
	}
}

// CursorOf is where a reader stands who has seen j last.
func CursorOf(j *job.Job) Cursor { return Cursor{Seq: j.Seq, Ended: nanos(j.EndedAt)} }

// ofFormat3 opens the store anew as one that a berth of format 3 wrote.
func ofFormat3(t *testing.T, s *Store, dir string) *Store {
	t.Helper()
	if _, err := s.conn.ExecContext(t.Context(), "DROP TABLE outbox; DROP INDEX jobs_text; DROP INDEX jobs_batch; ALTER TABLE jobs DROP COLUMN text; ALTER TABLE events DROP COLUMN card; PRAGMA user_version = 3"); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return openIn(t, dir)
}

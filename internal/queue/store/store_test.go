package store

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"berth/internal/job"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(crashDir); dir != "" {
		commitUntilKilled(dir)
		return
	}
	goleak.VerifyTestMain(m)
}

func commit(t testing.TB, s *Store, tx Tx) {
	t.Helper()
	if err := s.Commit(tx); err != nil {
		t.Fatal(err)
	}
}

func ids(t testing.TB, s *Store) []string {
	t.Helper()
	var found []string
	if err := s.Each(func(j *job.Job) error { found = append(found, j.ID); return nil }); err != nil {
		t.Fatal(err)
	}
	return found
}

func TestSQLiteIsNewEnough(t *testing.T) {
	t.Parallel()
	// Before 3.51.3 two connections that wrote and checkpointed at once could
	// damage a file in WAL mode.
	s := openIn(t, t.TempDir())
	var version string
	if err := s.reader.QueryRow("SELECT sqlite_version()").Scan(&version); err != nil {
		t.Fatal(err)
	}
	var major, minor, patch int
	if _, err := fmt.Sscanf(version, "%d.%d.%d", &major, &minor, &patch); err != nil {
		t.Fatal(err)
	}
	if slices.Compare([]int{major, minor, patch}, []int{3, 51, 3}) < 0 {
		t.Errorf("SQLite is %s", version)
	}
}

func TestTheConnectionsAreSetUpToLoseNothing(t *testing.T) {
	t.Parallel()
	s := openIn(t, t.TempDir())
	for _, row := range []struct{ pragma, want string }{
		{"journal_mode", "wal"}, {"synchronous", "2"}, {"foreign_keys", "1"}, {"busy_timeout", "5000"}, {"wal_autocheckpoint", "0"},
		{"journal_size_limit", fmt.Sprint(walLimitBytes)}, {"cache_size", fmt.Sprint(-writerCacheKiB)}, {"mmap_size", "0"},
	} {
		var got string
		if err := s.conn.QueryRowContext(context.Background(), "PRAGMA "+row.pragma).Scan(&got); err != nil {
			t.Fatal(row.pragma, err)
		}
		if got != row.want {
			t.Errorf("%s is %s, want %s", row.pragma, got, row.want)
		}
	}
}

func TestACommitIsThereAfterReopening(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "not yet", "a b?c=d&%20#e")
	s, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	commit(t, s, Tx{Put: []*job.Job{queued(1), queued(2)}, Meta: map[string]string{"boot": "x"}, Events: []*job.Event{{Kind: job.EventWarning, Text: "hi"}}})
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Error("closing twice:", err)
	}
	if err := s.Commit(Tx{}); err == nil {
		t.Error("a closed store took a commit")
	}
	if _, err := os.Stat(filepath.Join(dir, "berth.db")); err != nil {
		t.Fatal(err)
	}
	s = openIn(t, dir)
	if got := ids(t, s); !slices.Equal(got, []string{"1", "2"}) {
		t.Errorf("jobs %v", got)
	}
	if value, err := s.Meta("boot"); value != "x" || err != nil {
		t.Errorf("meta %q, %v", value, err)
	}
	if value, err := s.Meta("none"); value != "" || err != nil {
		t.Errorf("meta %q, %v", value, err)
	}
	if events, err := s.EventsAfter(0, 10); len(events) != 1 || events[0].Text != "hi" || err != nil {
		t.Errorf("events %v, %v", events, err)
	}
}

func TestAFailingCommitLeavesNothing(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		sentence string
		bad      func() *job.Job
	}{
		{"an id that another job has", func() *job.Job { j := queued(9); j.ID = "1"; return j }},
		{"a number that another job has", func() *job.Job { j := queued(1); j.ID = "other"; return j }},
		{"a value that JSON cannot hold", func() *job.Job { j := queued(9); j.Spec.Share = nan; return j }},
	} {
		for _, size := range []int64{1, 400} {
			t.Run(fmt.Sprintf("%s, among %d", row.sentence, size), func(t *testing.T) {
				s := openIn(t, t.TempDir())
				commit(t, s, Tx{Put: []*job.Job{queued(1), queued(2)}})
				tx := Tx{Delete: []string{"2"}, Meta: map[string]string{"k": "v"}}
				for seq := int64(10); seq < 10+size; seq++ {
					tx.Put = append(tx.Put, queued(seq))
					tx.Events = append(tx.Events, &job.Event{Kind: job.EventQueued, Job: queued(seq)})
				}
				tx.Put = append(tx.Put, row.bad())
				if err := s.Commit(tx); err == nil || errors.Is(err, errBroken) || errors.Is(err, ErrFull) {
					t.Fatalf("commit: %v", err)
				}
				if got := ids(t, s); !slices.Equal(got, []string{"1", "2"}) {
					t.Errorf("jobs %v", got)
				}
				events, err := s.EventsAfter(0, 10)
				value, _ := s.Meta("k")
				if len(events) != 0 || err != nil || value != "" || tx.Events[0].Seq != 0 {
					t.Errorf("events %v, meta %q, first event %d", events, value, tx.Events[0].Seq)
				}
				tx.Put = tx.Put[:len(tx.Put)-1]
				commit(t, s, tx)
				if got := len(ids(t, s)); got != int(size)+1 || tx.Events[size-1].Seq != size {
					t.Errorf("then %d jobs, last event %d", got, tx.Events[size-1].Seq)
				}
			})
		}
	}
}

func TestEventsAreNumberedInTheOrderOfCommits(t *testing.T) {
	t.Parallel()
	s := openIn(t, t.TempDir())
	var all []*job.Event
	for round := range 20 {
		var events []*job.Event
		for i := range round * 10 {
			events = append(events, &job.Event{At: time.Unix(int64(round), 1), Kind: job.EventWarning, Text: fmt.Sprint(round, i)})
		}
		commit(t, s, Tx{Events: events})
		all = append(all, events...)
	}
	for i, event := range all {
		if event.Seq != int64(i+1) {
			t.Fatalf("event %d has number %d", i, event.Seq)
		}
	}
	var got []job.Event
	for {
		var after int64
		if len(got) > 0 {
			after = got[len(got)-1].Seq
		}
		page, err := s.EventsAfter(after, 77)
		if err != nil || len(page) > 77 {
			t.Fatal(len(page), err)
		}
		if len(page) == 0 {
			break
		}
		got = append(got, page...)
	}
	if len(got) != len(all) {
		t.Fatalf("%d events of %d", len(got), len(all))
	}
	for i := range got {
		if diff := cmp.Diff(*all[i], got[i], same...); diff != "" {
			t.Fatal(diff)
		}
	}
}

func TestNumbersAreNeverGivenOutTwice(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	check := func(sentence string, s *Store, wantSeq, wantEvent int64) {
		t.Helper()
		seq, err := s.LastSeq()
		event, err2 := s.LastEvent()
		if seq != wantSeq || event != wantEvent || err != nil || err2 != nil {
			t.Errorf("%s: last job %d, last event %d, %v %v", sentence, seq, event, err, err2)
		}
	}
	warnings := func(n int) (events []*job.Event) {
		for range n {
			events = append(events, &job.Event{Kind: job.EventWarning})
		}
		return events
	}
	reopen := func(s *Store) *Store {
		t.Helper()
		if s != nil {
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
		}
		s, err := Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	s := reopen(nil)
	check("a new store starts at nothing", s, 0, 0)
	commit(t, s, Tx{Put: []*job.Job{queued(7), queued(3)}, Events: warnings(4)})
	s = reopen(s)
	check("the highest counts, not the last", s, 7, 4)
	commit(t, s, Tx{Delete: []string{"7"}, Events: warnings(trimStep + 10)})
	if err := s.TrimEvents(1 << 40); err != nil {
		t.Fatal(err)
	}
	if events, err := s.EventsAfter(0, 10); len(events) != 0 || err != nil {
		t.Errorf("%d events after trimming all, %v", len(events), err)
	}
	s = reopen(s)
	check("deleting and trimming forgets no number", s, 7, trimStep+14)
	commit(t, s, Tx{Put: []*job.Job{queued(8)}, Events: warnings(3), Meta: map[string]string{"k": "v"}})
	if err := s.TrimEvents(trimStep + 15); err != nil {
		t.Fatal(err)
	}
	if events, err := s.EventsAfter(0, 10); len(events) != 2 || err != nil {
		t.Errorf("%d events are left, %v", len(events), err)
	}
	if err := s.Wipe(); err != nil {
		t.Fatal(err)
	}
	if got := ids(t, s); len(got) != 0 {
		t.Errorf("jobs after a wipe: %v", got)
	}
	s = reopen(s)
	check("a wipe starts the jobs over, not the events", s, 0, trimStep+17)
	if value, _ := s.Meta("k"); value != "v" {
		t.Errorf("a wipe took what is no job: %q", value)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestTheLastOfOneJobInACommitCounts(t *testing.T) {
	t.Parallel()
	s := openIn(t, t.TempDir())
	first, second := queued(1), queued(1)
	second.State, second.Detail = job.Running, "later"
	commit(t, s, Tx{Put: []*job.Job{first, queued(2), second}})
	if j, err := s.Job("1"); err != nil || j.Detail != "later" || j.State != job.Running {
		t.Errorf("%+v, %v", j, err)
	}
	commit(t, s, Tx{Delete: []string{"1", "nobody"}, Put: []*job.Job{first}})
	if j, err := s.Job("1"); err != nil || j.State != job.Queued {
		t.Errorf("deleted and put: %+v, %v", j, err)
	}
	commit(t, s, Tx{Delete: []string{"1"}})
	if _, err := s.Job("1"); !errors.Is(err, ErrNotFound) {
		t.Errorf("deleted: %v", err)
	}
}

func TestPeaksOfTheSameCommand(t *testing.T) {
	t.Parallel()
	s := openIn(t, t.TempDir())
	measured := func(seq int64, command string, outcome job.Outcome, peaks map[int]int64) *job.Job {
		j := queued(seq)
		j.Spec.Shell, j.State, j.Outcome, j.PeakMiB = command, outcome.State(), outcome, peaks
		return j
	}
	words := measured(6, "", job.OK, map[int]int64{0: 42})
	words.Spec.Argv = []string{"echo", "a b"}
	commit(t, s, Tx{Put: []*job.Job{
		measured(1, "train", job.OK, map[int]int64{0: 100, 1: 300}),
		measured(2, "train", job.OOM, map[int]int64{0: 500}),
		measured(3, "train", job.Exited(1), map[int]int64{0: 900}),
		measured(4, "train", job.OK, nil),
		measured(5, "other", job.OK, map[int]int64{0: 700}),
		words,
	}})
	for _, row := range []struct {
		sentence, user, command string
		want                    int64
		runs                    int
	}{
		{"the highest of runs that say something", words.User, "train", 500, 2},
		{"another command has its own", words.User, "other", 700, 1},
		{"words count as they are shown", words.User, "echo 'a b'", 42, 1},
		{"a command never measured has none", words.User, "new", 0, 0},
		{"another user's command is another program", "mallory", "train", 0, 0},
	} {
		if got, runs, err := s.PeakFor(row.user, row.command); got != row.want || runs != row.runs || err != nil {
			t.Errorf("%s: %d %d %v", row.sentence, got, runs, err)
		}
	}
}

func TestReadsGoOnBesideCommits(t *testing.T) {
	t.Parallel()
	s := openIn(t, t.TempDir())
	fill(t, s, 1, 1000, job.Queued)
	seen := 0
	err := s.Each(func(j *job.Job) error {
		seen++
		if seen%100 == 0 { // a commit from inside a read neither waits nor shows
			j.State = job.Finished
			return s.Commit(Tx{Put: []*job.Job{j, queued(1000 + int64(seen))}})
		}
		return nil
	})
	if err != nil || seen != 1000 {
		t.Errorf("%d jobs, %v", seen, err)
	}
	stop := errors.New("enough")
	if err := s.Each(func(*job.Job) error { return stop }); !errors.Is(err, stop) {
		t.Errorf("an error of the reader: %v", err)
	}
	var group sync.WaitGroup
	for worker := range 4 {
		group.Go(func() {
			for i := range 50 {
				j := queued(int64(10_000 + worker*100 + i))
				if err := s.Commit(Tx{Put: []*job.Job{j}, Events: []*job.Event{{Kind: job.EventQueued, Job: j}}}); err != nil {
					t.Error(err)
				}
				if _, err := s.Job(j.ID); err != nil {
					t.Error(err)
				}
			}
		})
	}
	group.Wait()
	if events, err := s.EventsAfter(0, 1000); len(events) != 200 || err != nil {
		t.Errorf("%d events, %v", len(events), err)
	}
}

func TestQueriesUseTheirIndexes(t *testing.T) {
	t.Parallel()
	s := openIn(t, t.TempDir())
	batch, args := (&Filter{Batch: "/jobs.txt", User: "ann"}).in(span{through: 1000})
	few := Filter{IDs: []string{"1", "2"}}
	named, ids := few.page(span{through: 1000})
	for _, row := range []struct {
		query, index string
		args         []any
	}{
		{named, "sqlite_autoindex_jobs_1", append(ids, 10)},
		{"SELECT * FROM jobs WHERE id = ?", "sqlite_autoindex_jobs_1", []any{"1"}},
		{peakSQL, "jobs_peak", []any{1, "ann"}},
		{"SELECT state, count(*) FROM jobs WHERE " + batch, "jobs_batch", args},
	} {
		found, err := s.reader.Query("EXPLAIN QUERY PLAN "+row.query, row.args...)
		if err != nil {
			t.Fatal(err)
		}
		plan := ""
		for found.Next() {
			var a, b, c int
			var detail string
			if err := found.Scan(&a, &b, &c, &detail); err != nil {
				t.Fatal(err)
			}
			plan += detail + "\n"
		}
		found.Close()
		if !strings.Contains(plan, row.index) {
			t.Errorf("%s: %s", row.query, plan)
		}
	}
}

func TestTheLogIsFoldedInBeforeItGrowsLarge(t *testing.T) {
	t.Parallel()
	s := openIn(t, t.TempDir())
	logBytes := func() int64 {
		t.Helper()
		info, err := os.Stat(s.path + "-wal")
		if err != nil {
			t.Fatal(err)
		}
		return info.Size()
	}
	const commits = 3 * flushEvery / 6 // each counts as six rows
	for seq := int64(1); seq <= commits; seq++ {
		commit(t, s, Tx{Put: []*job.Job{queued(seq)}, Events: []*job.Event{{Kind: job.EventQueued, Job: queued(seq)}}})
		if logBytes() > walLimitBytes {
			t.Fatalf("the log is %d bytes after %d small commits", logBytes(), seq)
		}
	}
	fill(t, s, commits+1, commits+50_000, job.Queued)
	large := logBytes()
	commit(t, s, Tx{Put: []*job.Job{queued(commits + 50_001)}})
	if large <= walLimitBytes || logBytes() > walLimitBytes {
		t.Errorf("the log was %d bytes after a large commit and is %d after the next", large, logBytes())
	}
}

func TestMakeDirMakesParentsAndRefusesAFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "a", "b")
	for range 2 { // the second time it is there
		if err := MakeDir(path, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("%v %v", info, err)
	}
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, bad := range []string{file, filepath.Join(file, "below")} {
		if err := MakeDir(bad, 0o700); err == nil {
			t.Errorf("%s: a file is taken for a directory", bad)
		}
	}
}

func TestMetasAreFoundByTheirBeginning(t *testing.T) {
	t.Parallel()
	s := openIn(t, t.TempDir())
	commit(t, s, Tx{Meta: map[string]string{"groups/ann": "1", "groups/bob": "2", "groups": "3", "Groups/cay": "4", "other%": "5"}})
	for prefix, want := range map[string]map[string]string{
		"groups/": {"groups/ann": "1", "groups/bob": "2"}, "other%": {"other%": "5"}, "%": {}, "none": {},
	} {
		if got, err := s.Metas(prefix); err != nil || !maps.Equal(got, want) {
			t.Errorf("%s: %v, %v", prefix, got, err)
		}
	}
}

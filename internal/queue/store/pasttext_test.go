package store

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"berth/internal/job"
)

// TestDropTextTakesFromJobsThatNeverRanFirst, then from the oldest, and only from
// users who have too much.
func TestDropTextTakesFromJobsThatNeverRanFirst(t *testing.T) {
	t.Parallel()
	s := openIn(t, t.TempDir())
	environ := []byte(strings.Repeat("E", 200_000))
	var tx Tx
	add := func(user string, ran int, text string, environ []byte) *job.Job {
		j := queued(int64(len(tx.Put) + 1))
		j.User, j.Attempt.Number, j.Spec.Shell = user, ran, text
		j.State, j.Outcome, j.EndedAt = job.Finished, job.OK, time.Unix(1_700_000_000, j.Seq)
		if environ != nil {
			j.Environ = BlobName(environ)
			tx.Blobs = map[string][]byte{j.Environ: environ}
		}
		tx.Put = append(tx.Put, j)
		return j
	}
	long := func(n int) string { return fmt.Sprintf("echo %d ", n) + strings.Repeat("x", 100_000) }
	oldRan, newRan := add("ann", 1, long(1), nil), add("ann", 1, long(2), nil)
	never, plain := add("ann", 0, long(3), nil), add("ann", 0, "true", nil)
	shares, lives := add("ann", 0, "true", environ), add("ann", 1, "true", environ)
	lives.State, lives.Outcome, lives.EndedAt = job.Queued, "", time.Time{}
	bob := add("bob", 0, long(4), nil)
	inline := add("bob", 0, strings.Repeat("y", 5000), nil)
	commit(t, s, tx)
	dropped, err := s.DropText(210_000)
	if err != nil || dropped != 1 { // of ann's three, one goes
		t.Fatalf("%d lost their text, %v", dropped, err)
	}
	if _, err := s.SweepBlobs(); err != nil {
		t.Fatal(err)
	}
	for _, j := range []*job.Job{oldRan, newRan, plain, shares, lives, bob, inline} {
		mustRead(t, s, j)
	}
	got, err := s.Job(never.ID)
	if err != nil || !got.TextGone || !strings.HasPrefix(got.Spec.Shell, "echo 3 x") || len(got.Spec.Shell) > 2*snapshotCut || got.User != "ann" {
		t.Fatalf("%+v, %v", got, err)
	}
	if dropped, err := s.DropText(102_000); err != nil || dropped != 2 { // the older of ann's two, and the long one of bob's
		t.Fatalf("%d lost their text, %v", dropped, err)
	}
	if got, err := s.Job(oldRan.ID); err != nil || !got.TextGone {
		t.Errorf("the oldest that ran: %v", err)
	}
	mustRead(t, s, newRan)
	if dropped, err := s.DropText(0); err != nil || dropped != 2 {
		t.Fatalf("%d lost their text, %v", dropped, err)
	}
	mustRead(t, s, shares) // a queued job has the same environment
	if n, err := s.SweepBlobs(); err != nil || n != 3 {
		t.Errorf("%d blobs were swept, %v", n, err)
	}
}

// TestDropTextLeavesJobsThatChangedMeanwhile: a job that was queued again keeps
// its text.
func TestDropTextLeavesJobsThatChangedMeanwhile(t *testing.T) {
	t.Parallel()
	s := openIn(t, t.TempDir())
	j := fat(1)
	j.State, j.Outcome, j.EndedAt = job.Failed, job.WasCancelled, time.Unix(1_700_000_000, 0)
	commit(t, s, Tx{Put: []*job.Job{j}})
	found, err := s.tooMuchText(0)
	if err != nil || len(found) != 1 {
		t.Fatal(found, err)
	}
	j.State, j.Outcome, j.EndedAt = job.Queued, "", time.Time{}
	commit(t, s, Tx{Put: []*job.Job{j}})
	if n, err := s.dropSome(found); err != nil || n != 0 {
		t.Errorf("%d, %v", n, err)
	}
	if _, err := s.SweepBlobs(); err != nil {
		t.Fatal(err)
	}
	mustRead(t, s, j)
}

// TestExcessKeepsWithinTheBound: what stays fits, and nothing is dropped that
// would have fitted beside what comes after it.
func TestExcessKeepsWithinTheBound(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		names := []string{"", "a", "b", "c", "d", "live"}
		sizes := map[string]int64{}
		for _, name := range names[1:5] {
			sizes[name] = rapid.Int64Range(1, 5).Draw(t, name)
		}
		var jobs []textOwner
		for i := range rapid.IntRange(0, 8).Draw(t, "jobs") {
			jobs = append(jobs, textOwner{
				over:   over{id: fmt.Sprint(i)},
				blobs:  [2]string{rapid.SampledFrom(names).Draw(t, "text"), rapid.SampledFrom(names).Draw(t, "environment")},
				inline: rapid.Int64Range(0, 3).Draw(t, "inline"),
			})
		}
		bytes := func(lost []over) (sum int64) {
			seen := map[string]bool{}
			for _, j := range jobs {
				if slices.Contains(lost, j.over) {
					continue
				}
				sum += j.inline
				for _, blob := range j.blobs {
					if !seen[blob] {
						seen[blob] = true
						sum += sizes[blob]
					}
				}
			}
			return sum
		}
		most := rapid.Int64Range(0, 20).Draw(t, "most")
		lost := excess(jobs, sizes, most)
		if bytes(lost) > most {
			t.Fatalf("%d bytes stay of %d", bytes(lost), most)
		}
		if bytes(nil) <= most && len(lost) > 0 {
			t.Fatalf("%v lost their text needlessly", lost)
		}
		for _, one := range lost { // each of them has something to lose
			at := slices.IndexFunc(jobs, func(j textOwner) bool { return j.over == one })
			if j := jobs[at]; j.inline+sizes[j.blobs[0]]+sizes[j.blobs[1]] == 0 {
				t.Fatalf("job %s lost nothing", one.id)
			}
		}
	})
}

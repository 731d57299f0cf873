package store

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"berth/internal/job"
)

// slowShares takes one thing after another from the user with the most.
func slowShares(have map[string]int, total int) map[string]int {
	keep := maps.Clone(have)
	for {
		users := slices.Sorted(maps.Keys(keep))
		sum := 0
		for _, n := range keep {
			sum += n
		}
		if sum <= max(total, 0) {
			return keep
		}
		most := users[0]
		for _, user := range users {
			if keep[user] > keep[most] {
				most = user
			}
		}
		keep[most]--
	}
}

func TestSharesTakeFromTheUserWithTheMost(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		have := rapid.MapOfN(rapid.StringMatching("[a-h]"), rapid.IntRange(0, 12), 0, 8).Draw(rt, "have")
		total := rapid.IntRange(-1, 60).Draw(rt, "total")
		keep := shares(have, total)
		if diff := gocmp.Diff(slowShares(have, total), keep); diff != "" {
			rt.Fatal(diff)
		}
		for user, n := range have {
			if equal := max(total, 0) / len(have); keep[user] < min(n, equal) {
				rt.Fatalf("%s keeps %d of %d; an equal share is %d", user, keep[user], n, equal)
			}
		}
	})
}

// slowForget applies the rule of Forget word by word: it returns the ids of the
// jobs that go.
func slowForget(jobs []*job.Job, keep Keep) map[string]bool {
	gone, needed := map[string]bool{}, map[string]bool{}
	left := map[string][]*job.Job{} // by user, in the order in which they go
	for _, j := range jobs {
		switch {
		case !j.State.Terminal():
			for _, dependency := range j.Spec.After {
				needed[dependency.Job] = true
			}
		case j.EndedAt.Before(keep.Since):
			gone[j.ID] = true
		default:
			left[j.User] = append(left[j.User], j)
		}
	}
	have := map[string]int{}
	for user, theirs := range left {
		slices.SortFunc(theirs, func(a, b *job.Job) int {
			return cmp.Or(cmp.Compare(min(a.Attempt.Number, 1), min(b.Attempt.Number, 1)), a.EndedAt.Compare(b.EndedAt), cmp.Compare(a.Seq, b.Seq))
		})
		have[user] = len(theirs)
	}
	for user, share := range slowShares(have, keep.Jobs) {
		for i, j := range left[user] {
			logKept := j.Attempt.Number > 0 && !j.EndedAt.Before(keep.Logs)
			switch rest := have[user] - i; {
			case rest > keep.Jobs:
				gone[j.ID] = true
			case rest > share && !logKept:
				gone[j.ID] = true
			}
		}
	}
	for id := range needed {
		delete(gone, id)
	}
	return gone
}

// TestForgetFollowsItsRule: whatever is asked for, jobs that are not over and
// those they wait for stay, nobody loses to others what they have within an equal
// share, and a log that is kept does not go for another user's jobs.
func TestForgetFollowsItsRule(t *testing.T) {
	t.Parallel()
	s := openIn(t, t.TempDir())
	rapid.Check(t, func(rt *rapid.T) {
		if err := s.Wipe(); err != nil {
			rt.Fatal(err)
		}
		jobs := drawJobs(rt)
		// One user has most of them, so that others have less than a share.
		for _, j := range jobs {
			j.User = rapid.SampledFrom([]string{"ann", "bob", "cat", "cat", "cat", "cat"}).Draw(rt, "user")
			j.Attempt.Number = rapid.IntRange(0, 2).Draw(rt, "attempt")
			if rapid.IntRange(0, 4).Draw(rt, "waits") == 0 {
				j.Spec.After = []job.Dependency{{Job: jobs[rapid.IntRange(0, len(jobs)-1).Draw(rt, "for")].ID, On: job.AfterAny}}
			}
		}
		if err := s.Commit(Tx{Put: jobs}); err != nil {
			rt.Fatal(err)
		}
		moment := rapid.Custom(func(rt *rapid.T) time.Time {
			return begun.Add(time.Duration(rapid.IntRange(-1, 11).Draw(rt, "second")) * time.Second)
		})
		keep := Keep{Since: moment.Draw(rt, "since"), Logs: moment.Draw(rt, "logs"), Jobs: rapid.IntRange(0, 30).Draw(rt, "keep")}
		want := slowForget(jobs, keep)
		n, err := s.Forget(keep)
		if err != nil || n != len(want) {
			rt.Fatalf("forgot %d of %d: %v", n, len(want), err)
		}
		for _, j := range jobs {
			if _, err := s.Job(j.ID); (err == nil) == want[j.ID] {
				rt.Fatalf("job %s of %s (%s, attempt %d, ended %s): %v; should it go: %v", j.ID, j.User, j.State, j.Attempt.Number, j.EndedAt, err, want[j.ID])
			}
		}
	})
}

// everything is a Keep under which every ended job goes.
var everything = Keep{Since: time.Unix(2_000_000_000, 0)}

func TestForgottenNumbersAreNotGivenOutAgain(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	fill(t, s, 1, 2*forgetStep+9, job.Finished)
	if n, err := s.Forget(everything); err != nil || n != 2*forgetStep+9 {
		t.Fatalf("forgot %d, %v", n, err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if last, _ := openIn(t, dir).LastSeq(); last != 2*forgetStep+9 {
		t.Errorf("the next job would be %d", last+1)
	}
}

// TestWhatHappensMeanwhileIsNotForgotten: between the list and a step of it, a
// job comes that depends on an old one, another is requeued, and a third has been
// requeued and is over again.
func TestWhatHappensMeanwhileIsNotForgotten(t *testing.T) {
	t.Parallel()
	s := openIn(t, t.TempDir())
	jobs := fill(t, s, 1, 9, job.Finished)
	list, through, err := s.forgettable(everything)
	if err != nil || len(list) != 9 {
		t.Fatalf("%v, %v", list, err)
	}
	late := queued(10)
	late.Spec.After = []job.Dependency{{Job: "5", On: job.AfterOK}}
	jobs[5].State, jobs[6].EndedAt = job.Queued, begun
	commit(t, s, Tx{Put: []*job.Job{late, jobs[5], jobs[6]}})
	n, err := s.change(func(ctx context.Context) (int64, error) { return s.forgetSome(ctx, list, through) })
	if diff := gocmp.Diff([]string{"5", "6", "7", "10"}, ids(t, s)); err != nil || n != 6 || diff != "" {
		t.Errorf("forgot %d, %v: %s", n, err, diff)
	}
}

// TestKeepEventsTakesFromTheUserWithTheMost compares which events are left with
// the rule done slowly.
func TestKeepEventsTakesFromTheUserWithTheMost(t *testing.T) {
	t.Parallel()
	s := openIn(t, t.TempDir())
	rapid.Check(t, func(rt *rapid.T) {
		if err := s.Wipe(); err != nil {
			rt.Fatal(err)
		}
		users := rapid.SliceOfN(rapid.SampledFrom([]string{"", "ann", "bob", "cat", "cat", "cat"}), 0, 60).Draw(rt, "users")
		total := rapid.IntRange(0, 70).Draw(rt, "total")
		var events []*job.Event
		have := map[string]int{}
		for i, user := range users {
			ev := &job.Event{Kind: job.EventCard, At: begun.Add(time.Duration(i))}
			if user != "" {
				ev.Kind, ev.Job = job.EventHeld, &job.Job{ID: fmt.Sprint(i + 1), User: user}
			}
			events = append(events, ev)
			have[user]++
		}
		if err := s.Commit(Tx{Events: events}); err != nil {
			rt.Fatal(err)
		}
		if err := s.KeepEvents(total); err != nil {
			rt.Fatal(err)
		}
		var want, got []int64
		left := slowShares(have, total)
		for i, user := range slices.Backward(users) {
			if left[user] > 0 {
				left[user]--
				want = append(want, events[i].Seq)
			}
		}
		slices.Reverse(want)
		stored, err := s.EventsAfter(0, 100)
		for _, ev := range stored {
			got = append(got, ev.Seq)
		}
		if diff := gocmp.Diff(want, got); err != nil || diff != "" {
			rt.Fatalf("%v: %s", err, diff)
		}
	})
}

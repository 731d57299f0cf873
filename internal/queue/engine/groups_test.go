package engine

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"berth/internal/job"
	"berth/internal/machine/keep"
	"berth/internal/queue/engine/waiting"
)

func inGroup(name string) func(*job.Spec) { return func(s *job.Spec) { s.Group = name } }

// limitGroup and pauseGroup act as ann, and let the loop come round.
func (r *rig) limitGroup(name string, limit int) {
	r.t.Helper()
	if err := r.at().groups.Limit("ann", name, limit); err != nil {
		r.t.Fatal(err)
	}
	r.pass(time.Second)
}

func (r *rig) pauseGroup(name string, paused bool) {
	r.t.Helper()
	if err := r.at().groups.Pause("ann", name, paused, "anna"); err != nil {
		r.t.Fatal(err)
	}
	r.pass(time.Second)
}

func TestAGroupRunsNoMoreJobsThanItsLimit(t *testing.T) {
	r := newRig(t, 4)
	r.limitGroup("io", 2)
	io := inGroup("io")
	r.submit(spec(io), spec(io), spec(io), spec(cpu, io), spec())
	for id, state := range map[string]job.State{"1": job.Running, "2": job.Running, "3": job.Queued, "4": job.Queued, "5": job.Running} {
		r.wantRow(id, state, "")
	}
	if why := r.at().explain.Why("3"); why != "2 of group io's 2 jobs are running (1, 2)" {
		t.Errorf("it waits because %q", why)
	}
	r.end("1", keep.Record{}, false)
	r.wantRow("3", job.Running, "")
	r.wantRow("4", job.Queued, "")
	r.limitGroup("io", 3)
	r.wantRow("4", job.Running, "")
	got := r.at().groups.List("ann")
	if len(got) != 1 || got[0].Limit != 3 || strings.Join(got[0].Running, " ") != "2 3 4" || got[0].Queued != 0 {
		t.Errorf("%+v", got)
	}
}

func TestAPausedGroupStartsNothing(t *testing.T) {
	r := newRig(t, 4)
	io := inGroup("io")
	r.submit(spec(io))
	r.pauseGroup("io", true)
	r.submit(spec(io), spec(inGroup("other")))
	r.wantRow("1", job.Running, "") // it goes on
	r.wantRow("2", job.Queued, "")
	r.wantRow("3", job.Running, "")
	if why := r.at().explain.Why("2"); why != "group io is paused by anna" {
		t.Errorf("it waits because %q", why)
	}
	if err := r.at().groups.Pause("ann", "io", true, "root"); err != nil || r.at().groups.List("ann")[0].PausedBy != "anna" {
		t.Errorf("paused again: %v, %+v", err, r.at().groups.List("ann"))
	}
	r.pass(time.Hour)
	r.pauseGroup("io", false)
	r.wantRow("2", job.Running, "")
	if got := r.at().groups.List("ann"); len(got) != 2 || got[0].PausedBy != "" {
		t.Errorf("%+v", got)
	}
}

// A job that waited in a paused group did not wait for room: it must not go before
// others because of that.
func TestWaitingInAPausedGroupDoesNotCount(t *testing.T) {
	r := newRig(t, 1)
	r.pauseGroup("io", true)
	r.submit(spec(), spec(inGroup("io")), spec(inGroup("gone")))
	submitted := r.row("2").SubmittedAt
	r.pass(50 * time.Hour)
	r.pauseGroup("io", false)
	if since := r.pendingOf("2").Since; since.Sub(submitted) < 50*time.Hour {
		t.Errorf("after 50 hours of pause it is said to have waited since %s", since)
	}
	if since := r.row("2").WaitsSince; since.Sub(submitted) < 50*time.Hour {
		t.Errorf("the store says it has waited since %s", since)
	}
	if since := r.pendingOf("3").Since; !since.Equal(submitted) {
		t.Errorf("a job of another group is said to have waited since %s", since)
	}
	r.pauseGroup("gone", true)
	r.pass(time.Hour)
	r.at().groups.Remove("ann", "gone")
	if since := r.pendingOf("3").Since; since.Sub(submitted) < 51*time.Hour {
		t.Errorf("its group was removed while paused, and it is said to have waited since %s", since)
	}
}

func TestGroupsAreOfTheirUser(t *testing.T) {
	r := newRig(t, 4)
	r.pauseGroup("io", true)
	bobs := spec(inGroup("io"))
	j := &job.Job{User: "bob", Spec: bobs}
	r.at().queue.Number([]*job.Job{j})
	r.at().queue.Submit([]*job.Job{j})
	r.pass(time.Second)
	r.wantRow(j.ID, job.Running, "")
	if got := r.at().groups.List("bob"); len(got) != 1 || got[0].PausedBy != "" || len(got[0].Running) != 1 {
		t.Errorf("bob's: %+v", got)
	}
	if got := r.at().groups.List(""); len(got) != 2 {
		t.Errorf("everybody's: %+v", got)
	}
}

func TestGroupsAreBoundedAndSurvive(t *testing.T) {
	r := newRig(t, 1)
	for i := range waiting.MaxGroups {
		r.limitGroup(fmt.Sprint("g", i), 1)
	}
	if err := r.at().groups.Limit("ann", "more", 1); !errors.Is(err, waiting.ErrTooManyGroups) {
		t.Errorf("one more: %v", err)
	}
	if err := r.at().groups.Pause("ann", "more", true, "ann"); !errors.Is(err, waiting.ErrTooManyGroups) {
		t.Errorf("one more, paused: %v", err)
	}
	if err := r.at().groups.Limit("bob", "more", 1); err != nil {
		t.Errorf("another user's: %v", err)
	}
	r.at().groups.Remove("ann", "g0")
	r.limitGroup("g1", 0) // no limit and no pause: only a name
	r.pauseGroup("g2", true)
	r.limitGroup("new", 7)
	saved := r.meta
	again := newRig(t, 1)
	err := again.at().groups.Restore(func(prefix string) (map[string]string, error) {
		found := map[string]string{}
		for key, value := range saved {
			if strings.HasPrefix(key, prefix) {
				found[key] = value
			}
		}
		return found, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := fmt.Sprint(again.at().groups.List("")), fmt.Sprint(r.at().groups.List("")); got != want || len(again.at().groups.List("ann")) != waiting.MaxGroups-1 {
		t.Errorf("after a restart:\n%s\nwant\n%s", got, want)
	}
	bad := func(string) (map[string]string, error) { return map[string]string{"groups/ann": "{"}, nil }
	if err := again.at().groups.Restore(bad); err == nil || !strings.Contains(err.Error(), "the groups of ann") {
		t.Errorf("damaged: %v", err)
	}
}

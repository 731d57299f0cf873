package engine

import (
	"strings"
	"testing"
	"time"

	"berth/internal/job"
	"berth/internal/sched"
)

// TestWhatIsBorrowedGivesWay: a user who is alone has more than their share, until
// somebody else comes.
func TestWhatIsBorrowedGivesWay(t *testing.T) {
	r := newRig(t, 2, fairShare, func(c *Config) {
		c.Limits.Default.Share, c.Rules.BorrowTime = 1, 4*time.Hour
	})
	r.accept("ann", spec(), spec(), spec(gives), spec(gives), spec(limit(time.Hour)))
	r.step()
	r.step()
	for id, want := range map[string]job.State{"1": job.Running, "2": job.Queued, "3": job.Running, "4": job.Queued, "5": job.Queued} {
		r.wantRow(id, want, "")
	}
	if why := r.at().explain.Why("2"); !strings.Contains(why, "the share per user is 1 (limits.gpus), beyond which a job has to be preemptible or have a time limit of at most 4h") {
		t.Errorf("why: %q", why)
	}
	borrowed := map[string]string{}
	if r.at().explain.Borrowed(borrowed); len(borrowed) != 1 || borrowed["3"] != "borrowed: beyond ann's share of the GPUs" {
		t.Errorf("borrowed: %q", borrowed)
	}
	r.accept("bob", spec())
	r.step()
	if why := r.at().explain.Why("4"); !strings.Contains(why, "and job 6 of a user below theirs goes first") {
		t.Errorf("why: %q", why)
	}
	if r.row("3").PreemptedFor != "" {
		t.Error("it gives way before its minimum run")
	}
	r.pass(sched.DefaultRules().MinRun)
	if got := r.row("3").PreemptedFor; got != "6" {
		t.Errorf("gives way for %q", got)
	}
	if r.row("1").PreemptedFor != "" {
		t.Error("what is within the share gives way")
	}
}

// TestMoreThanTheShareIsRefusedOrNot: at submission it is known whether a job gives way.
func TestMoreThanTheShareIsRefusedOrNot(t *testing.T) {
	r := newRig(t, 2, func(c *Config) { c.Limits.Default.Share, c.Rules.BorrowTime = 1, 4*time.Hour })
	two := func(s *job.Spec) { s.GPUs = 2 }
	r.pass(time.Second)
	refused := map[int]bool{}
	for i, why := range r.at().explain.Infeasible("ann", spec(two), spec(two, gives), spec(two, limit(4*time.Hour)), spec(two, limit(5*time.Hour))) {
		if refused[i] = true; !why.NeverBorrows || !why.LimitIsShare {
			t.Errorf("%d: %s", i, why)
		}
	}
	if len(refused) != 2 || !refused[0] || !refused[3] {
		t.Errorf("refused: %v", refused)
	}
}

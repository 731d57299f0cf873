package daemon

import (
	"math"
	"strings"
	"testing"
	"time"

	"berth/internal/api"
	"berth/internal/queue/config"
)

func TestTheLongestGracePeriod(t *testing.T) {
	t.Parallel()
	l := newLab(t, with(func(c *config.Config) { c.Grace = 5 * time.Second }))
	if got := l.job(l.one(sh("true", "hold", "yes"))).Settings["grace"]; got != "5s" {
		t.Errorf("a job that asks for nothing gets %q", got)
	}
	id := l.one(sh("true", "hold", "yes", "grace", "4s"))
	refused := func(what string, err error, words string) {
		t.Helper()
		if err == nil || !strings.Contains(err.Error(), words) {
			t.Errorf("%s: %v", what, err)
		}
	}
	_, err := api.Call(l.ctx, l.Client, api.Submit, api.SubmitRequest{Jobs: []api.Spec{sh("true", "grace", "3650d")}})
	refused("submit", err, "grace: expected at most 5s, found 3650d")
	_, err = api.Call(l.ctx, l.Client, api.EditJob, api.EditRequest{JobID: api.JobID{ID: id}, Set: api.Spec{Grace: "6s"}})
	refused("edit", err, "grace: expected at most 5s, found 6s")
	if _, err := api.Call(l.ctx, l.Client, api.EditJob, api.EditRequest{JobID: api.JobID{ID: id}, Set: api.Spec{Grace: "5s"}}); err != nil {
		t.Errorf("the maximum itself: %v", err)
	}
	for grace, words := range map[float64]string{6: "expected at most 5s", math.MaxFloat64: "expected at most 3650d"} {
		_, err = api.Call(l.ctx, l.Client, api.Act, api.ActRequest{Action: api.ActCancel, Select: api.Select{Words: []string{id}}, GraceS: &grace})
		refused("cancel", err, words)
	}
}

// TestAJobOfOldMayBeEdited: a maximum that was lowered since does not keep its
// user from changing something else.
func TestAJobOfOldMayBeEdited(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	id := l.one(sh("true", "hold", "yes", "grace", "1h"))
	with(func(c *config.Config) { c.Grace = time.Minute })(&l.opt)
	l.restart()
	if _, err := api.Call(l.ctx, l.Client, api.EditJob, api.EditRequest{JobID: api.JobID{ID: id}, Set: api.Spec{Priority: "-1"}}); err != nil {
		t.Error(err)
	}
}

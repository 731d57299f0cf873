package daemon

import (
	"testing"

	"berth/internal/api"
	"berth/internal/job"
	"berth/internal/queue/config"
	"berth/internal/text/problem"
)

// TestNobodyChangesAnothersGroups: a paused group keeps its user's jobs from
// starting, so only its user and administrators may pause it.
func TestNobodyChangesAnothersGroups(t *testing.T) {
	t.Parallel()
	l := newSharedLab(t, with(func(c *config.Config) { c.Limits = config.Limits{} }))
	ann, bob, root := l.as("daemon"), l.as("nobody"), l.as("root")
	yes, no := true, false
	for name, r := range map[string]api.GroupRequest{
		"pause": {User: ann.Name, Paused: &yes}, "resume": {User: ann.Name, Paused: &no}, "limit": {User: ann.Name, Limit: "1"},
	} {
		r.Name = "io"
		_, err := bob.d.groups.SetGroup(l.ctx, bob.Caller, r)
		if problem.KindOf(err) != problem.Forbidden {
			t.Errorf("%s of another's group: %v", name, err)
		}
	}
	io := api.GroupName{Name: "io"}
	if _, err := bob.d.groups.RemoveGroup(l.ctx, bob.Caller, api.GroupRemoval{GroupName: io, User: ann.Name}); problem.KindOf(err) != problem.Forbidden {
		t.Errorf("removing another's group: %v", err)
	}
	// A group of the same name is another one.
	if _, err := bob.d.groups.SetGroup(l.ctx, bob.Caller, api.GroupRequest{GroupName: io, Paused: &yes}); err != nil {
		t.Fatal(err)
	}
	id := ann.submit(sh("true", "group", "io"))[0]
	l.untilState(id, job.Finished)
	// An administrator may.
	g, err := root.d.groups.SetGroup(l.ctx, root.Caller, api.GroupRequest{GroupName: io, User: ann.Name, Paused: &yes})
	if err != nil || g.User != ann.Name || g.PausedBy != "root" {
		t.Errorf("an administrator: %+v, %v", g, err)
	}
	groups, err := ann.d.groups.Groups(l.ctx, ann.Caller, api.GroupQuery{})
	if err != nil || len(groups) != 1 || !groups[0].Paused || groups[0].User != ann.Name {
		t.Errorf("ann's groups: %+v, %v", groups, err)
	}
}

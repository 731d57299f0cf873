package waiting

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"berth/internal/job"
	"berth/internal/queue/engine/journal"
	"berth/internal/sched"
	"berth/internal/text"
)

// MaxGroups bounds the groups of one user that are limited or paused. Groups that
// are only a name of jobs are bounded by the jobs.
const MaxGroups = 100

// ErrTooManyGroups means that a user has MaxGroups already.
var ErrTooManyGroups = errors.New("too many groups")

// groupsKey begins the store's keys for groups; the name of the user follows.
const groupsKey = "groups/"

// setting is what a user set for a group: how many of its jobs may run at a time,
// and whether any may start. A group without either is only a name of jobs.
type setting struct {
	Limit    int    `json:"limit,omitempty"` // 0: none
	PausedBy string `json:"paused_by,omitempty"`
}

// Group is a group and its unfinished jobs.
type Group struct {
	User, Name string
	Limit      int    // 0: none
	PausedBy   string // empty: it is not paused
	Running    []string
	Queued     int
}

// Groups is the settings of all groups, by user and name.
type Groups struct {
	Settings map[sched.GroupName]setting
	line     *Line
	changes  *journal.Journal
}

func NewGroups(l *Line, c *journal.Journal) *Groups {
	return &Groups{Settings: map[sched.GroupName]setting{}, line: l, changes: c}
}

func GroupOf(j *job.Job) sched.GroupName {
	return sched.GroupName{User: j.User, Name: j.Spec.Group}
}

// Limit sets how many jobs of a group may run at a time; 0: all.
func (g *Groups) Limit(user, name string, limit int) error {
	of := g.Settings[sched.GroupName{User: user, Name: name}]
	of.Limit = limit
	return g.set(sched.GroupName{User: user, Name: name}, of)
}

// Pause keeps jobs of a group from starting, or lets them start again;
// running jobs are not touched.
func (g *Groups) Pause(user, name string, paused bool, by string) error {
	of := g.Settings[sched.GroupName{User: user, Name: name}]
	switch {
	case !paused:
		of.PausedBy = ""
	case of.PausedBy == "":
		of.PausedBy = by
	}
	return g.set(sched.GroupName{User: user, Name: name}, of)
}

// Remove lifts the limit and the pause of a group. Its jobs keep the name.
func (g *Groups) Remove(user, name string) {
	_ = g.set(sched.GroupName{User: user, Name: name}, setting{}) // removing makes none too many
}

func (g *Groups) set(name sched.GroupName, of setting) error {
	was, known := g.Settings[name]
	switch {
	case was == of:
		return nil
	case of == setting{}:
		delete(g.Settings, name)
	case !known && g.count(name.User) >= MaxGroups:
		return ErrTooManyGroups
	default:
		g.Settings[name] = of
	}
	g.save(name.User)
	g.line.Moved = true
	if was.PausedBy != "" && of.PausedBy == "" {
		g.line.resumed(g.changes.Now, name)
	}
	return nil
}

// resumed lets the jobs of a group wait anew. What they waited while it was paused
// does not count, as with held jobs: nobody gains a place by pausing.
func (l *Line) resumed(now time.Time, name sched.GroupName) {
	var waiting []string
	l.Roster.Each(-1, func(j *job.Job) bool {
		if _, in := l.InLine[j.ID]; in && GroupOf(j) == name {
			waiting = append(waiting, j.ID)
		}
		return true
	})
	for _, id := range waiting {
		j := l.Roster.Get(id)
		j.WaitsSince = now
		l.Changes.Fact(j)
		l.enter(now, j, time.Time{})
	}
}

func (g *Groups) count(user string) (n int) {
	for name := range g.Settings {
		if name.User == user {
			n++
		}
	}
	return n
}

// save adds a user's groups to the next commit.
func (g *Groups) save(user string) {
	own := map[string]setting{}
	for name, of := range g.Settings {
		if name.User == user {
			own[name.Name] = of
		}
	}
	g.changes.Meta[groupsKey+user] = string(text.MustJSON(own))
}

// Restore takes over the groups from an earlier berth.
func (g *Groups) Restore(metas func(prefix string) (map[string]string, error)) error {
	values, err := metas(groupsKey)
	if err != nil {
		return err
	}
	for key, value := range values {
		own, user := map[string]setting{}, strings.TrimPrefix(key, groupsKey)
		if err := json.Unmarshal([]byte(value), &own); err != nil {
			return fmt.Errorf("read the groups of %s: %w", user, err)
		}
		for name, of := range own {
			g.Settings[sched.GroupName{User: user, Name: name}] = of
		}
	}
	g.line.Moved = true
	return nil
}

// List lists the groups of a user that are set or have unfinished jobs, by
// name; those of all users without one.
func (g *Groups) List(user string) []Group {
	all := map[sched.GroupName]*Group{}
	find := func(name sched.GroupName) *Group {
		if all[name] == nil {
			all[name] = &Group{User: name.User, Name: name.Name}
		}
		return all[name]
	}
	for name, of := range g.Settings {
		if user == "" || name.User == user {
			g := find(name)
			g.Limit, g.PausedBy = of.Limit, of.PausedBy
		}
	}
	g.line.Roster.Each(-1, func(j *job.Job) bool {
		if j.Spec.Group == "" || user != "" && j.User != user {
			return true
		}
		if g := find(GroupOf(j)); j.State == job.Queued {
			g.Queued++
		} else {
			g.Running = append(g.Running, j.ID)
		}
		return true
	})
	list := make([]Group, 0, len(all))
	for _, g := range all {
		list = append(list, *g)
	}
	slices.SortFunc(list, func(a, b Group) int { return cmp.Or(strings.Compare(a.User, b.User), strings.Compare(a.Name, b.Name)) })
	return list
}

package sim

import (
	"fmt"
	"strings"
	"time"

	"berth/internal/sched"
)

// Policy is a way to set up a daemon, by a name that users type.
type Policy struct {
	Name  string
	About string

	Rules    sched.Rules
	HalfLife time.Duration // of what users had, under Rules.Fair
}

// halfLife is what a shared daemon counts users' shares with.
const halfLife = 7 * 24 * time.Hour

// Default is the policy of a shared daemon that nobody configured.
const Default = "default"

// Policies are all that can be replayed. To add one, add a row.
func Policies() []Policy {
	return []Policy{
		{Name: Default, About: "what a shared daemon does: priority, fair share, submission; with backfill", Rules: rules(sched.Backfill, true), HalfLife: halfLife},
		{Name: "fifo", About: "priority and submission; nothing passes a job that waits", Rules: rules(sched.FIFO, false)},
		{Name: "backfill", About: "priority and submission; what fits may pass what does not", Rules: rules(sched.Backfill, false)},
		{Name: "fair", About: "of equal priority, the user who had least; what fits may pass what does not", Rules: rules(sched.Backfill, true), HalfLife: halfLife},
	}
}

func rules(policy sched.Policy, fair bool) sched.Rules {
	r := sched.DefaultRules()
	r.Policy, r.Fair = policy, fair
	return r
}

// PolicyNames are the names of all policies, in their order.
func PolicyNames() []string {
	var names []string
	for _, p := range Policies() {
		names = append(names, p.Name)
	}
	return names
}

// ParsePolicy finds a policy by its name.
func ParsePolicy(name string) (Policy, error) {
	for _, p := range Policies() {
		if p.Name == name {
			return p, nil
		}
	}
	return Policy{}, fmt.Errorf("unknown policy %q: known are %s", name, strings.Join(PolicyNames(), ", "))
}

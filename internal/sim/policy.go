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
		{Name: Default, About: "what a shared daemon does: priority, fair share, submission; with backfill, and turns where jobs can be parked", Rules: rules(sched.Backfill, true, true), HalfLife: halfLife},
		{Name: "fifo", About: "priority and submission; nothing passes a job that waits", Rules: rules(sched.FIFO, false, false)},
		{Name: "backfill", About: "priority and submission; what does not delay the first that waits may pass it", Rules: rules(sched.Backfill, false, false)},
		{Name: "conservative", About: "priority and submission; what delays nobody may pass", Rules: rules(sched.Conservative, false, false)},
		{Name: "fair", About: "of equal priority, the user who had least; with backfill", Rules: rules(sched.Backfill, true, false), HalfLife: halfLife},
		{Name: "shortest", About: "of equal priority, what is expected to need the cards least; with backfill", Rules: rules(sched.Shortest, false, false)},
		{Name: "las", About: "of equal priority, what had the cards least; it sets aside what had them more where jobs can be parked", Rules: rules(sched.LAS, false, true)},
	}
}

// rules are the default ones but for the order, and for whether jobs that can
// be parked are.
func rules(policy sched.Policy, fair, slice bool) sched.Rules {
	r := sched.DefaultRules()
	r.Policy, r.Fair, r.Slice = policy, fair, slice
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

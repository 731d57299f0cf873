package sim

import (
	"fmt"
	"strings"
	"time"

	"berth/internal/sched"
)

// Policy is a configuration of the scheduler, by a name that users type.
type Policy struct {
	Name  string
	About string

	Rules    sched.Rules
	HalfLife time.Duration // of usage, under Rules.Fair
}

// halfLife is that of usage in a shared daemon.
const halfLife = 7 * 24 * time.Hour

// Default is the policy of a shared daemon without a configuration.
const Default = "default"

// Policies are all policies that can be replayed. To add one, add a row.
func Policies() []Policy {
	return []Policy{
		{Name: Default, About: "as a shared daemon: by priority, fair share, then submission; with backfill, and time slices if jobs can be parked", Rules: rules(sched.Backfill, true, true), HalfLife: halfLife},
		{Name: "fifo", About: "by priority, then submission; no job overtakes a waiting one", Rules: rules(sched.FIFO, false, false)},
		{Name: "backfill", About: "by priority, then submission; a job may overtake if it does not delay the first waiting one", Rules: rules(sched.Backfill, false, false)},
		{Name: "conservative", About: "by priority, then submission; a job may overtake if it delays none of the first eight", Rules: rules(sched.Conservative, false, false)},
		{Name: "fair", About: "by priority, then least usage of the user; with backfill", Rules: rules(sched.Backfill, true, false), HalfLife: halfLife},
		{Name: "shortest", About: "by priority, then shortest estimated GPU time; any job that fits may overtake", Rules: rules(sched.Shortest, false, false)},
		{Name: "las", About: "by priority, then least GPU time received; preempts jobs that received more if they can be parked", Rules: rules(sched.LAS, false, true)},
	}
}

// rules are the default rules with another order; slice: preempt jobs that can
// be parked.
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
	return Policy{}, fmt.Errorf("unknown policy %q; the policies are %s", name, strings.Join(PolicyNames(), ", "))
}

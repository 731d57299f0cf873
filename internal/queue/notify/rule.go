package notify

import (
	"fmt"
	"slices"
	"strings"

	"berth/internal/text"
)

// On is an event that a user can be told about.
type On string

// The events of a job.
const (
	OnStart On = "start"
	OnEnd   On = "end"
	OnFail  On = "fail" // it ended, and not well
	OnOOM   On = "oom"  // an attempt ran out of GPU memory
	OnIdle  On = "idle" // it holds GPUs or CPUs and does not use them
)

var events = []On{OnStart, OnEnd, OnFail, OnOOM, OnIdle}

// MaxRules bounds what one job, or one user's defaults, may ask for.
const MaxRules = 8

// Rule says who is told about which events.
type Rule struct {
	On     []On // in the order of the constants, each once
	Target Target
}

// String is the rule as ParseRule reads it.
func (r Rule) String() string { return joined(r.On) + ":" + r.Target.String() }

// Shown is the rule without the secrets of its target.
func (r Rule) Shown() string { return joined(r.On) + ":" + r.Target.Shown() }

func joined(list []On) string {
	words := make([]string, len(list))
	for i, on := range list {
		words[i] = string(on)
	}
	return strings.Join(words, ",")
}

// parseRule reads EVENTS:TARGET, or a target alone, which is told about the end.
func parseRule(s string) (Rule, error) {
	head, rest, found := strings.Cut(s, ":")
	if !found {
		return Rule{}, fmt.Errorf("expected events and a target, such as end:mailto:ann@example.org; found %s", text.Found(text.Clip(s, 20)))
	}
	if known(Scheme(strings.ToLower(head))) {
		target, err := ParseTarget(s)
		return Rule{On: []On{OnEnd}, Target: target}, err
	}
	on, err := parseEvents(head)
	if err != nil {
		return Rule{}, err
	}
	target, err := ParseTarget(rest)
	return Rule{On: on, Target: target}, err
}

func parseEvents(s string) ([]On, error) {
	var asked []On
	for word := range strings.SplitSeq(s, ",") {
		on := On(strings.ToLower(strings.TrimSpace(word)))
		if !slices.Contains(events, on) {
			return nil, fmt.Errorf("expected %s before the target, found %s", text.Or(events), text.Found(text.Clip(word, 20)))
		}
		asked = append(asked, on)
	}
	var list []On
	for _, on := range events {
		if slices.Contains(asked, on) {
			list = append(list, on)
		}
	}
	return list, nil
}

// ParseRules reads the rules of a job: those with the same target become one.
func ParseRules(list []string) ([]Rule, error) {
	var rules []Rule
	for _, s := range list {
		r, err := parseRule(s)
		if err != nil {
			return nil, err
		}
		at := slices.IndexFunc(rules, func(other Rule) bool { return other.Target == r.Target })
		if at < 0 {
			rules = append(rules, r)
			continue
		}
		both := append(slices.Clone(rules[at].On), r.On...)
		if rules[at].On, err = parseEvents(joined(both)); err != nil {
			return nil, err
		}
	}
	if len(rules) > MaxRules {
		return nil, fmt.Errorf("expected at most %d targets, found %d", MaxRules, len(rules))
	}
	return rules, nil
}

// Wants reports whether the rule asks for one of these events.
func (r Rule) Wants(happened ...On) bool {
	return slices.ContainsFunc(happened, func(on On) bool { return slices.Contains(r.On, on) })
}

package jobfile

import (
	"fmt"
	"strings"
	"time"

	"berth/internal/job"
)

const (
	maxID           = 1023
	maxDependencies = 1024

	// defaultWarnBefore is how long before its end a job is told when the
	// signal came without a number.
	defaultWarnBefore = 60 * time.Second
)

const (
	allowedIDs    = "GPU ids from 0 to 1023 and ranges, each id once: 0-3,5"
	allowedAfter  = "names, each with :ok, :any or :fail where wanted: prep,eval:any"
	allowedSignal = "a signal and how long before the end it is sent: USR1@60, TERM@2m"
)

// ParseIDs reads a list of card ids such as "0-3,5". The order is kept: it is
// the order in which a job sees the cards.
func ParseIDs(s string) ([]int, error) {
	var ids []int
	var seen [maxID + 1]bool
	for part := range strings.SplitSeq(s, ",") {
		low, high, isRange := strings.Cut(strings.TrimSpace(part), "-")
		from, ok := digits(strings.TrimSpace(low), 4)
		to := from
		if ok && isRange {
			to, ok = digits(strings.TrimSpace(high), 4)
		}
		if !ok || from > to || to > maxID {
			return nil, mismatch(s, allowedIDs)
		}
		for id := from; id <= to; id++ {
			if seen[id] {
				return nil, fmt.Errorf("found id %d twice in %s, allowed %s", id, show(s), allowedIDs)
			}
			seen[id] = true
			ids = append(ids, id)
		}
	}
	return ids, nil
}

// ParseAfter reads what a job waits for. The part after the last colon is the
// condition, so that a name with colons can be written with one.
func ParseAfter(s string) ([]job.Dependency, error) {
	var list []job.Dependency
	seen := map[string]bool{}
	for part := range strings.SplitSeq(s, ",") {
		part = strings.TrimSpace(part)
		dependency := job.Dependency{Name: part, On: job.AfterOK}
		if colon := strings.LastIndexByte(part, ':'); colon >= 0 {
			condition := job.Condition(strings.ToLower(part[colon+1:]))
			switch condition {
			case job.AfterOK, job.AfterAny, job.AfterFail:
			default:
				return nil, fmt.Errorf("found condition %s, allowed ok, any or fail", show(part[colon+1:]))
			}
			dependency = job.Dependency{Name: part[:colon], On: condition}
		}
		if dependency.Name == "" {
			return nil, mismatch(s, allowedAfter)
		}
		if seen[dependency.Name] {
			return nil, fmt.Errorf("found %s twice, allowed each name once", show(dependency.Name))
		}
		if len(list) == maxDependencies {
			return nil, fmt.Errorf("found more than %d names, allowed %d", maxDependencies, maxDependencies)
		}
		seen[dependency.Name] = true
		list = append(list, dependency)
	}
	return list, nil
}

// warnSignals are those a program can catch and would use to save itself.
const warnSignals = " HUP INT QUIT USR1 USR2 ALRM TERM CONT URG WINCH "

// ParseSignal reads a warning such as "USR1@60". The name comes back in upper
// case without SIG.
func ParseSignal(s string) (name string, before time.Duration, err error) {
	name, when, timed := strings.Cut(strings.TrimSpace(s), "@")
	name = strings.TrimPrefix(strings.ToUpper(strings.TrimSpace(name)), "SIG")
	if name == "" || strings.Contains(name, " ") || !strings.Contains(warnSignals, " "+name+" ") {
		return "", 0, fmt.Errorf("found %s, allowed %s; the signals are%s", show(s), allowedSignal, strings.TrimRight(warnSignals, " "))
	}
	if !timed {
		return name, defaultWarnBefore, nil
	}
	before, err = ParseDuration(when)
	return name, before, err
}

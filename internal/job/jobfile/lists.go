package jobfile

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"berth/internal/job"
	"berth/internal/text"
)

const (
	maxID           = 1023
	maxDependencies = 1024

	// defaultWarnBefore is how long before its time limit a job gets its
	// signal, unless the user says otherwise.
	defaultWarnBefore = 60 * time.Second
)

const (
	allowedIDs       = "GPU ids from 0 to 1023 such as 0-3,5"
	allowedAfter     = "names or numbers of other lines, such as prep,eval:any,3 (:ok is the default, :any and :fail are the others)"
	allowedAfterJobs = "job ids such as 12,13:any,17_3 (:ok is the default, :any, :fail, :start and :start+5m are the others), 17_%a for the same task of array 17, @ for your last job, @~1 for the one before, @name for your jobs of this name, or the name of one of your jobs or of an earlier job in the same file; 12|13 if one is enough"
	allowedSignal    = "a signal and how long before the time limit to send it, such as USR1@60 or TERM@2m"
)

// ParseIDs reads a list of GPU ids such as "0-3,5". It keeps their order, in
// which the job sees the GPUs.
func ParseIDs(s string) ([]int, error) {
	var ids []int
	var seen [maxID + 1]bool
	for part := range strings.SplitSeq(s, ",") {
		low, high, isRange := strings.Cut(strings.TrimSpace(part), "-")
		from, ok := text.Digits(strings.TrimSpace(low), 4)
		to := from
		if ok && isRange {
			to, ok = text.Digits(strings.TrimSpace(high), 4)
		}
		if !ok || from > to || to > maxID {
			return nil, text.Mismatch(s, allowedIDs)
		}
		for id := from; id <= to; id++ {
			if seen[id] {
				return nil, fmt.Errorf("expected each id once, found %d twice in %s", id, text.Found(s))
			}
			seen[id] = true
			ids = append(ids, id)
		}
	}
	return ids, nil
}

func formatIDs(ids []int) string { return job.Grant{GPUs: ids}.List() }

// parseAfter reads the dependencies of a line of a jobs file: names of other
// lines.
func parseAfter(s string) ([]job.Dependency, error) {
	return parseDependencies(s, allowedAfter, "ok, any or fail", func(word string) (job.Dependency, bool) {
		return job.Dependency{Name: word}, word != ""
	})
}

// Words of `after` that only the daemon can replace by ids.
const (
	// Namesakes are the caller's unfinished jobs of the same name.
	Namesakes = "@name"
	// SameTask follows the id of an array: its task with the index of the waiting one.
	SameTask = "_%a"
)

// parseAfterJobs reads the dependencies of a submitted job: ids of other jobs, in
// alternatives. It keeps "@" and "@~1" as they are, because only the daemon knows
// which job a caller submitted last.
func parseAfterJobs(s string) (list []job.Dependency, err error) {
	alt := 0
	for part := range strings.SplitSeq(s, "|") {
		more, err := parseDependencies(part, allowedAfterJobs, "ok, any, fail or start", func(word string) (job.Dependency, bool) {
			array, each := strings.CutSuffix(word, SameTask)
			if id, ok := parseJobID(array); ok && (!each || !strings.Contains(id, "_")) {
				return job.Dependency{Job: id + word[len(array):]}, true
			}
			if back, ok := parseLast(word); ok {
				return job.Dependency{Job: lastWord(back)}, true
			}
			if word == Namesakes {
				return job.Dependency{Job: word}, true
			}
			_, err := parseName(word)
			return job.Dependency{Name: word}, err == nil && word[0] > '9' && word[0] != '@'
		})
		if err != nil {
			return nil, err
		}
		for i := range more {
			more[i].Alt = alt
		}
		list, alt = append(list, more...), alt+1
	}
	if len(list) > maxDependencies {
		return nil, errManyDependencies
	}
	return list, nil
}

var errManyDependencies = fmt.Errorf("expected at most %d jobs, found more", maxDependencies)

// parseDependencies reads a list of jobs with their conditions. The condition
// follows the last colon, so that a name may have colons too.
func parseDependencies(s, allowed, conditions string, read func(word string) (job.Dependency, bool)) ([]job.Dependency, error) {
	var list []job.Dependency
	seen := map[job.Dependency]bool{}
	for part := range strings.SplitSeq(s, ",") {
		word, condition, delay := strings.TrimSpace(part), job.AfterOK, time.Duration(0)
		if colon := strings.LastIndexByte(word, ':'); colon >= 0 {
			written, after, delayed := strings.Cut(strings.ToLower(word[colon+1:]), "+")
			condition = job.Condition(written)
			if written == "or" || !slices.Contains(strings.Fields(strings.ReplaceAll(conditions, ",", "")), written) || delayed && condition != job.AfterStart {
				return nil, fmt.Errorf("expected the condition %s, found %s", conditions, text.Found(word[colon+1:]))
			}
			var err error
			if delayed {
				if delay, err = text.ParseDuration(after); err != nil {
					return nil, err
				}
			}
			word = word[:colon]
		}
		dependency, ok := read(word)
		if !ok {
			return nil, text.Mismatch(s, allowed)
		}
		if seen[dependency] {
			return nil, fmt.Errorf("expected each job once, found %s twice", text.Found(word))
		}
		if len(list) == maxDependencies {
			return nil, errManyDependencies
		}
		seen[dependency] = true
		dependency.On, dependency.DelayS = condition, int64(delay/time.Second)
		list = append(list, dependency)
	}
	return list, nil
}

// warnSignals are those that a program can catch, to save its work.
const warnSignals = " HUP INT QUIT USR1 USR2 ALRM TERM CONT URG WINCH "

// parseSignal reads a warning such as "USR1@60". The name comes back in upper
// case without SIG.
func parseSignal(s string) (name string, before time.Duration, err error) {
	name, when, timed := strings.Cut(strings.TrimSpace(s), "@")
	name = strings.TrimPrefix(strings.ToUpper(strings.TrimSpace(name)), "SIG")
	if name == "" || strings.Contains(name, " ") || !strings.Contains(warnSignals, " "+name+" ") {
		return "", 0, fmt.Errorf("expected %s, found %s; the signals are%s", allowedSignal, text.Found(s), strings.TrimRight(warnSignals, " "))
	}
	if !timed {
		return name, defaultWarnBefore, nil
	}
	before, err = text.ParseDuration(when)
	return name, before, err
}

package store

import (
	"strings"
	"testing"
	"unicode/utf8"

	"berth/internal/job"
)

func TestAnEventCarriesNoMoreThanItHasTo(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("ä", 400_000)
	for name, spec := range map[string]job.Spec{
		"a command": {Shell: long}, "words": {Argv: []string{"x", long}}, "a variable": {Env: []job.EnvVar{{Key: "A", Value: long}}},
		"a set-up": {Setup: long}, "a log": {Output: long}, "dependencies": {After: make([]job.Dependency, 50_000)},
	} {
		s := openIn(t, t.TempDir())
		j := &job.Job{ID: "1", Seq: 1, User: "ann", UID: 7, State: job.Queued, Spec: spec, Attempt: job.Attempt{Log: spec.Output}, Detail: "why"}
		j.Spec.Name = "name"
		commit(t, s, Tx{Put: []*job.Job{j}, Events: []*job.Event{{Kind: job.EventHeld, Job: j}}})
		data, err := encodeSnapshot(j)
		if err != nil || len(data) > 4*maxSnapshot {
			t.Errorf("%s: an event takes %d bytes: %v", name, len(data), err)
		}
		events, err := s.EventsAfter(0, 10)
		if err != nil || len(events) != 1 {
			t.Fatalf("%s: %v, %v", name, events, err)
		}
		told := events[0].Job
		if told.Name() != "name" || told.User != "ann" || told.UID != 7 || told.Detail != "why" || !utf8.ValidString(told.Spec.Command()) {
			t.Errorf("%s: an event tells of %+v", name, told)
		}
		whole, err := s.Job("1")
		if err != nil || whole.Spec.Shell != spec.Shell || len(whole.Spec.After) != len(spec.After) || whole.Spec.Setup != spec.Setup {
			t.Errorf("%s: the job itself is not whole: %v", name, err)
		}
	}
	short := &job.Job{Spec: job.Spec{Shell: "short", Setup: "all of it"}}
	if brief(short) != short {
		t.Error("a short job is not told whole")
	}
}

package engine

import (
	"runtime"
	"strconv"
	"strings"
	"testing"

	"berth/internal/job"
	"berth/internal/machine/keep"
	"berth/internal/tests/testkit"
)

// An end and the start that follows it are one commit, whatever waits behind them.
func TestWhatAShortJobCostsTheQueue(t *testing.T) {
	const first, jobs, waiting = 5, 40, 500
	r := newRig(t, 1)
	var specs []job.Spec
	for range first + jobs + waiting {
		specs = append(specs, spec(vram(20000)))
	}
	r.submit(specs...)
	next := 0
	end := func() {
		next++
		r.end(strconv.Itoa(next), keep.Record{}, false)
	}
	for range first {
		end()
	}
	r.did = nil
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range jobs {
		end()
	}
	runtime.ReadMemStats(&after)
	did := map[string]int{}
	for _, what := range r.did {
		word, _, _ := strings.Cut(what, " ")
		did[word]++
	}
	if did["go"] != jobs || did["ack"] != jobs || did["commit"] > jobs {
		t.Errorf("expected one commit for each job, found %v for %d jobs", did, jobs)
	}
	most := uint64(44 << 10)
	if testkit.Race { // it allocates for itself
		most += most / 4
	}
	if bytes := (after.TotalAlloc - before.TotalAlloc) / jobs; bytes > most {
		t.Errorf("expected at most %d bytes for each job, found %d", most, bytes)
	} else {
		t.Logf("%d bytes for each job", bytes)
	}
}

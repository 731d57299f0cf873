package api

import (
	"encoding/json"
	"fmt"
	"reflect"
	"testing"
	"time"

	"pgregory.net/rapid"

	"berth/internal/job"
	"berth/internal/tests/testkit"
)

// TestAJobIsWrittenAsJSONDoes, whatever it is: a field that is new is missing here.
func TestAJobIsWrittenAsJSONDoes(t *testing.T) {
	t.Parallel()
	texts := rapid.OneOf(rapid.String(), rapid.SampledFrom([]string{"", "<a href=\"x\">&\\", "\x00\x1f\x7f\n", "\u2028ü\xff", "python train.py --seed 3"}))
	text := func(t *rapid.T) *string { return rapid.Ptr(texts, true).Draw(t, "text") }
	float := func(t *rapid.T) *float64 {
		return rapid.Ptr(rapid.OneOf(rapid.Float64Range(-1e30, 1e30), rapid.Float64Range(-1e-5, 1e-5), rapid.Float64Range(0, 100)), true).Draw(t, "float")
	}
	at := func(t *rapid.T) *time.Time {
		when := rapid.Map(rapid.Int64Range(0, 1<<61), func(n int64) time.Time { return time.Unix(0, n).In(time.FixedZone("x", 3600)) })
		return rapid.Ptr(when, true).Draw(t, "time")
	}
	whole := func(t *rapid.T) *int64 { return rapid.Ptr(rapid.Int64(), true).Draw(t, "whole") }
	ints := func(t *rapid.T) []int {
		return *rapid.Ptr(rapid.SliceOfN(rapid.Int(), 0, 3), false).Draw(t, "ints")
	}
	rapid.Check(t, func(t *rapid.T) {
		v := job.View{
			ID: *rapid.Ptr(texts, false).Draw(t, "id"), Name: texts.Draw(t, "name"), User: texts.Draw(t, "user"), State: job.State(texts.Draw(t, "state")),
			Outcome: (*job.Outcome)(text(t)), Reason: text(t), Priority: rapid.Int().Draw(t, "priority"), Command: text(t), GPUs: 2, Share: float(t), VRAMMiB: whole(t),
			GPUIDs: ints(t), Attempt: 3, SubmittedAt: at(t), StartedAt: at(t), EndedAt: at(t), ExitCode: rapid.Ptr(rapid.Int(), true).Draw(t, "exit"), Signal: text(t),
			PeakVRAMMiB: rapid.MapOfN(texts, rapid.Int64(), 0, 3).Draw(t, "peaks"), AvgUtil: float(t), ChargedGPUs: float(t), Log: text(t), IdleSince: at(t),
			Preemptions: 4, Held: rapid.Bool().Draw(t, "held"), Group: text(t), Batch: text(t), Parkings: 5, ParkedSince: at(t), HostMiB: whole(t),
			Parking: (*job.ParkPhase)(text(t)), ParkRefused: text(t), Sweep: text(t),
		}
		if f := float(t); f != nil {
			v.ParkedS, v.AskedIDs = *f, ints(t)
			v.Checkpoints = &job.CheckpointsView{EveryS: float(t), RanS: *f, LostS: 1e-9, GraceS: 10, StoppingS: 0.25, SavedAt: at(t)}
			v.Slurm = &job.SlurmView{ID: text(t), Node: text(t), GPUIDs: ints(t)}
		} else {
			v.PeakVRAMMiB, v.Params = nil, map[string]string{texts.Draw(t, "key"): texts.Draw(t, "value")}
		}
		want, err := json.Marshal(&v)
		if err != nil {
			t.Fatal(err)
		}
		if got := appendView(nil, &v); string(got) != string(want) {
			t.Fatalf("%s\nand encoding/json writes\n%s", got, want)
		}
		e := Event{Time: time.Unix(rapid.Int64Range(0, 1<<31).Draw(t, "second"), 5).UTC(), Kind: job.EventKind(texts.Draw(t, "kind")), Job: &v}
		if rapid.Bool().Draw(t, "other") {
			e = Event{Seq: rapid.Int64().Draw(t, "seq"), Time: e.Time, Text: texts.Draw(t, "text"), GPU: rapid.Ptr(rapid.Int(), true).Draw(t, "gpu"), By: texts.Draw(t, "by"), Bad: true, GPUs: make([]GPU, rapid.IntRange(0, 2).Draw(t, "gpus"))}
		}
		if want, err = json.Marshal(&e); err != nil {
			t.Fatal(err)
		}
		if got := appendEvent(nil, &e); string(got) != string(want) {
			t.Fatalf("%s\nand encoding/json writes\n%s", got, want)
		}
		readsBack(t, want, &e, decodeEvent)
		readsBack(t, want[:rapid.IntRange(0, len(want)).Draw(t, "cut")], &e, decodeEvent)
		page := JobPage{Jobs: []job.View{v, v}[:rapid.IntRange(0, 2).Draw(t, "jobs")], Next: texts.Draw(t, "next"), Total: 2, Counts: map[string]int{"queued": 2}}
		if want, err = json.Marshal(&page); err != nil {
			t.Fatal(err)
		}
		readsBack(t, want, &page, decodePage)
	})
}

// readsBack compares a decoder with encoding/json.
func readsBack[T any](t *rapid.T, data []byte, _ *T, decode func([]byte, *T) error) {
	var got, want T
	err, wrong := decode(data, &got), json.Unmarshal(data, &want)
	if fmt.Sprint(err) != fmt.Sprint(wrong) || !reflect.DeepEqual(got, want) {
		t.Fatalf("%s\nis read as\n%+v, %v\nand by encoding/json as\n%+v, %v", data, got, err, want, wrong)
	}
}

// TestAJobIsReadWithoutReflection: what the server writes is not left to encoding/json.
func TestAJobIsReadWithoutReflection(t *testing.T) {
	text, at := "python \"train\".py", time.Unix(1e9, 0).UTC()
	e := Event{Seq: 1, Time: at, Kind: job.EventStarted, Text: text, Job: &job.View{ID: "1", Name: "ü", Command: &text, SubmittedAt: &at, GPUIDs: []int{1}, PeakVRAMMiB: map[string]int64{"1": 5}}}
	r := reader{rest: appendView(nil, e.Job)}
	if v := r.view(); r.odd || len(r.rest) > 0 || !reflect.DeepEqual(&v, e.Job) {
		t.Errorf("expected %+v, found %+v; left: %s", e.Job, v, r.rest)
	}
	var back Event
	data := appendEvent(nil, &e)
	if n := testing.AllocsPerRun(100, func() { testkit.Must(t, decodeEvent(data, &back)) }); n > mostPerEvent {
		t.Errorf("%v allocations for an event, at most %d are needed", n, mostPerEvent)
	}
}

// mostPerJob is how often a job of a list is allocated for while it is written.
const mostPerJob = 0

// mostPerEvent is how often one event is allocated for while it is read.
const mostPerEvent = 19

func TestAListIsWrittenInPlace(t *testing.T) {
	text, at := "python train.py", time.Unix(1e9, 0)
	v := job.View{ID: "1", Name: "x", Command: &text, Reason: &text, SubmittedAt: &at, GPUIDs: []int{1}}
	b := make([]byte, 0, 4096)
	if n := testing.AllocsPerRun(100, func() { b = appendView(b[:0], &v) }); n > mostPerJob {
		t.Errorf("%v allocations for a job, at most %d are needed", n, mostPerJob)
	}
	testkit.Must(t, json.Unmarshal(b, &v))
}

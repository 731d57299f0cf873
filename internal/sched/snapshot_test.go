package sched

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// TestASnapshotDecidesAsItsOriginal: what is written and read again gives an
// equal plan, and equal reasons.
func TestASnapshotDecidesAsItsOriginal(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawAged(t)
		again := reread(t, s)
		if got, want := asText(t, Decide(again)), asText(t, Decide(s)); got != want {
			t.Errorf("decides\n%s\nthe original\n%s", got, want)
		}
		for _, p := range s.Queue.First(s.Queue.Len()) {
			if got, want := Explain(again, p.Job).String(), Explain(s, p.Job).String(); got != want {
				t.Errorf("%s waits because %s; the original because %s", p.Job, got, want)
			}
		}
		if got, want := again.Queue.First(100), s.Queue.First(100); !reflect.DeepEqual(got, want) {
			t.Errorf("queue\n%+v\nwas\n%+v", got, want)
		}
	})
}

// drawAged draws a snapshot whose jobs have run and waited for a while.
func drawAged(t *rapid.T) State {
	s := drawState(t)
	s.Now = time.Unix(1_800_000_000, 123_456_789).UTC()
	ago := rapid.SampledFrom([]time.Duration{0, time.Minute, time.Hour, 25 * time.Hour, 100 * time.Hour})
	span := rapid.SampledFrom([]Estimate{{}, {Low: time.Minute, Mid: time.Hour, High: 2 * time.Hour}, {Mid: 3, High: 1<<62 + 1, Guess: true}})
	q := NewQueue()
	q.SetRules(s.Rules)
	// What was the oldest of each user and is gone: others have been it since.
	gone := rapid.SampledFrom([]time.Duration{0, time.Hour, 30 * time.Hour}).Draw(t, "gone")
	for _, user := range users {
		q.Add(Pending{Job: "gone" + user, User: user, Seq: -1, Since: s.Now.Add(-200 * time.Hour)})
	}
	for _, p := range s.Queue.First(s.Queue.Len()) {
		p.Since, p.Run = s.Now.Add(-ago.Draw(t, "since")), span.Draw(t, "run")
		p.RanBefore, p.Limit = ago.Draw(t, "served"), ago.Draw(t, "limit")
		p.Submitted = p.Since.Add(-p.RanBefore - ago.Draw(t, "waited before"))
		q.Add(p)
	}
	q.Tick(s.Now.Add(-100 * time.Hour))
	for _, user := range users {
		q.Remove("gone" + user)
	}
	q.Tick(s.Now.Add(-gone))
	q.Tick(s.Now)
	s.Queue = q
	for i := range s.Allocations {
		h := &s.Allocations[i]
		h.User, h.Priority, h.Seq = rapid.SampledFrom(users).Draw(t, "holder"), rapid.IntRange(-1, 1).Draw(t, "held priority"), int64(i)
		h.Started, h.Run, h.Limit = s.Now.Add(-ago.Draw(t, "started")), span.Draw(t, "held run"), ago.Draw(t, "held limit")
		if rapid.Bool().Draw(t, "gives way") && !h.Other {
			h.Preempt = Preempt{Mode: rapid.SampledFrom([]PreemptMode{Park, Requeue}).Draw(t, "how"), StopTime: time.Second, ResumeTime: time.Second}
		}
	}
	return s
}

func reread(t interface{ Fatal(...any) }, s State) State {
	data, err := MarshalState(s)
	if err != nil {
		t.Fatal(err)
	}
	again, err := UnmarshalState(data)
	if err != nil {
		t.Fatal(err)
	}
	return again
}

func asText(t *rapid.T, plan Plan) string {
	text, err := json.Marshal(plan)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestASnapshotKeepsEveryField fills every field with something of its own.
func TestASnapshotKeepsEveryField(t *testing.T) {
	var s State
	next := 0
	fill(reflect.ValueOf(&s).Elem(), &next)
	s.Rules.Policy, s.Rules.Placement = LAS, Spread
	s.Allocations[0].Other, s.Cards[0].Health = false, HealthSuspect
	s.Queue = NewQueue()
	again := reread(t, s)
	again.Queue, s.Queue = nil, nil
	if !reflect.DeepEqual(again, s) {
		t.Errorf("read\n%+v\nwas\n%+v", again, s)
	}
	var p Pending
	fill(reflect.ValueOf(&p).Elem(), &next)
	p.Request.IDs, p.Request.Allow, p.Request.GPUs, p.Request.Share = "3,1", "1,3", 2, 0.5
	data, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	var read Pending
	if err := json.Unmarshal(data, &read); err != nil || read != p {
		t.Errorf("read\n%+v (%v)\nwas\n%+v", read, err, p)
	}
}

// fill gives every field under v a value that no other has.
func fill(v reflect.Value, next *int) {
	*next++
	if v.Type() == reflect.TypeFor[time.Time]() {
		v.Set(reflect.ValueOf(time.Unix(int64(*next), 7).UTC()))
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			fill(v.Field(i), next)
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0), next)
	case reflect.Map:
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		fill(key, next)
		fill(value, next)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(key, value)
	case reflect.String:
		v.SetString(fmt.Sprint("word", *next))
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Float64:
		v.SetFloat(float64(*next) + 0.5)
	case reflect.Int, reflect.Int64:
		v.SetInt(int64(*next))
	}
}

func TestWhatIsNoSnapshotIsRefused(t *testing.T) {
	good, err := MarshalState(State{Queue: queueOf(DefaultRules(), asks(idle(1), ids(0, 1))), Cards: cardsOf(1000, 1000), Allocations: []Allocation{{Job: "9", Cards: []int{0}}}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := UnmarshalState(good); err != nil {
		t.Fatal(err)
	}
	for name, row := range map[string]struct{ data, says string }{
		"nothing at all":                         {"", ErrNoSnapshot.Error()},
		"a trace":                                {"submit_s,duration_s\n1,2\n", ErrNoSnapshot.Error()},
		"another program's JSON":                 {`{"format": "other"}`, ErrNoSnapshot.Error()},
		"an array":                               {`[1, 2]`, ErrNoSnapshot.Error()},
		"one that was cut off":                   {string(good[:len(good)/2]), "damaged"},
		"one of a later berth":                   {strings.Replace(string(good), `"version": 1`, `"version": 99`, 1), "version 99"},
		"a card that is there twice":             {strings.Replace(string(good), `"index": 1`, `"index": 0`, 1), "GPU 0"},
		"a job that runs and is queued":          {strings.Replace(string(good), `"job": "9"`, `"job": "1"`, 1), `queued job "1"`},
		"a job that names cards in another way":  {strings.Replace(string(good), `"ids": "1"`, `"ids": "x"`, 1), "expected lists of GPU ids"},
		"a job that names more than it asks for": {strings.Replace(string(good), `"ids": "1"`, `"ids": "1,0"`, 1), "expected lists of GPU ids"},
		"a policy nobody knows":                  {strings.Replace(string(good), `"policy": ""`, `"policy": "luck"`, 1), "luck"},
		"a number where there is none":           {strings.Replace(string(good), `"gpus": 1`, `"gpus": "one"`, 1), "damaged"},
		"a negative number":                      {strings.Replace(string(good), `"gpus": 1`, `"gpus": -1`, 1), "at least 0"},
	} {
		_, err := UnmarshalState([]byte(row.data))
		if err == nil || !strings.Contains(err.Error(), row.says) {
			t.Errorf("%s: %v", name, err)
		}
		if (row.says == ErrNoSnapshot.Error()) != errors.Is(err, ErrNoSnapshot) {
			t.Errorf("%s: %v is taken for something else", name, err)
		}
	}
}

// BenchmarkSnapshot is how long the engine waits for a copy of 10,000 queued
// jobs.
func BenchmarkSnapshot(b *testing.B) {
	s := State{Now: time.Unix(1_800_000_000, 0).UTC(), Rules: DefaultRules(), Queue: NewQueue(), Cards: cardsOf(81920, 81920)}
	for i := range 10_000 {
		s.Queue.Add(Pending{Job: fmt.Sprint(i), User: users[i%3], Seq: int64(i), Request: Request{GPUs: 1 + i%2, VRAMMiB: int64(i % 100)}})
	}
	for b.Loop() {
		NewSnapshot(s)
	}
}

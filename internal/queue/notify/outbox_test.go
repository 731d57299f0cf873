package notify

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"
)

// disk is what a store keeps of an outbox: JSON, by number.
type disk struct {
	rows map[int64][]byte
	last int64
}

func (d *disk) apply(o *Outbox, changes []Change) {
	for _, c := range changes {
		if c.Delete {
			delete(d.rows, c.Entry.ID)
			continue
		}
		data, err := json.Marshal(c.Entry)
		if err != nil {
			panic(err)
		}
		d.rows[c.Entry.ID] = data
	}
	d.last = o.Last()
}

func (d *disk) restore() *Outbox {
	var list []Entry
	for _, id := range slices.Sorted(maps.Keys(d.rows)) {
		var e Entry
		if err := json.Unmarshal(d.rows[id], &e); err != nil {
			panic(err)
		}
		list = append(list, e)
	}
	return Restore(list, d.last)
}

func of(o *Outbox, uid int) []Entry {
	return slices.DeleteFunc(o.All(), func(e Entry) bool { return e.UID != uid })
}

func TestAMessageGathersIsSentAndGone(t *testing.T) {
	o := Restore(nil, 7)
	o.Add(1000, "ann", "exec:a", ended("1", "", "ok"), noon)
	o.Add(1000, "ann", "exec:a", ended("2", "", "ok"), noon.Add(time.Second))
	if o.Tick(noon.Add(firstWindow - 1)); len(o.Ready(noon.Add(firstWindow-1), nil, 8, 2)) != 0 {
		t.Error("it was sent before its window was over")
	}
	at, any := o.Due(nil)
	if !any || !at.Equal(noon.Add(firstWindow)) {
		t.Errorf("due %v at %v", any, at)
	}
	o.Tick(at)
	ready := o.Ready(at, nil, 8, 2)
	if len(ready) != 1 || ready[0].ID != 8 || ready[0].Batch.Count() != 2 || ready[0].Message("s", "box").ID != "s-8" {
		t.Fatalf("%+v", ready)
	}
	o.Add(1000, "ann", "exec:a", ended("3", "", "ok"), at)
	if got := o.Ready(at, map[int64]time.Time{8: at}, 8, 2); len(got) != 0 {
		t.Errorf("it was sent twice at once: %+v", got)
	}
	if changes := o.Delivered(8, at); len(changes) != 1 || !changes[0].Delete {
		t.Errorf("%+v", changes)
	}
	if left := of(o, 1000); len(left) != 1 || left[0].ID != 9 || left[0].Batch.Count() != 1 {
		t.Errorf("%+v", left)
	}
}

// TestRetriesGrowAndEndAfterADay: many tries at first, few later, and berth says
// when it gave up.
func TestRetriesGrowAndEndAfterADay(t *testing.T) {
	o := Restore(nil, 0)
	o.Add(1000, "ann", "exec:a", ended("1", "", "ok"), noon)
	now := noon.Add(firstWindow)
	o.Tick(now)
	last := time.Duration(0)
	for tries := 1; ; tries++ {
		changes, gaveUp := o.Failed(1, "refused\nby \x1b[1mthe server", false, 0, now)
		e := changes[0].Entry
		if strings.ContainsAny(e.Error, "\n\x1b") || !strings.HasPrefix(e.Error, "refused by ") {
			t.Errorf("error shown as %q", e.Error)
		}
		if gaveUp {
			if since := now.Sub(noon); since < 20*time.Hour || since > giveUpAfter || e.Stage != GivenUp || e.Tries != tries {
				t.Errorf("gave up after %s and %d tries: %+v", since, tries, e)
			}
			break
		}
		if pause := e.Next.Sub(now); pause < last || len(o.Ready(e.Next.Add(-1), nil, 8, 2)) != 0 || len(o.Ready(e.Next, nil, 8, 2)) != 1 {
			t.Fatalf("after %d tries it waits %s", tries, e.Next.Sub(now))
		}
		last, now = e.Next.Sub(now), e.Next
	}
	if list := of(o, 1000); len(list) != 1 {
		t.Errorf("what was given up is not listed: %+v", list)
	}
	if changes := o.Tick(now.Add(keepGivenUp)); len(changes) != 1 || !changes[0].Delete || len(of(o, 1000)) != 0 {
		t.Errorf("it is listed for ever: %+v", changes)
	}
}

func TestTheOtherSideMayAskForALongerPause(t *testing.T) {
	o := Restore(nil, 0)
	o.Add(1000, "ann", "exec:a", ended("1", "", "ok"), noon)
	o.Tick(noon.Add(time.Minute))
	for _, step := range []struct{ asked, want time.Duration }{{10 * time.Minute, 10 * time.Minute}, {time.Second, time.Minute}, {1000 * time.Hour, 3 * time.Hour}, {-time.Hour, 5 * time.Minute}} {
		changes, _ := o.Failed(1, "429", false, step.asked, noon)
		if got := changes[0].Entry.Next.Sub(noon); got != step.want {
			t.Errorf("asked for %s: waits %s, expected %s", step.asked, got, step.want)
		}
	}
}

func TestAFinalErrorIsNotRetried(t *testing.T) {
	o := Restore(nil, 0)
	o.Add(1000, "ann", "exec:a", ended("1", "", "ok"), noon)
	o.Tick(noon.Add(time.Minute))
	if _, gaveUp := o.Failed(1, "404", true, 0, noon); !gaveUp {
		t.Error("it is tried again")
	}
	if _, gaveUp := o.Failed(1, "404", true, 0, noon); gaveUp {
		t.Error("it was given up twice")
	}
}

// TestAClockThatJumps: forward it ends no message at once, and back it holds none
// for longer than the longest wait.
func TestAClockThatJumps(t *testing.T) {
	o := Restore(nil, 0)
	o.Add(1000, "ann", "exec:a", ended("1", "", "ok"), noon)
	o.Tick(noon.Add(time.Minute))
	year := noon.AddDate(1, 0, 0)
	if _, gaveUp := o.Failed(1, "no network yet", false, 0, year); gaveUp {
		t.Error("one failure after a jump ended it")
	}
	o.Tick(noon)
	if len(o.Ready(noon, nil, 8, 2)) != 1 {
		t.Error("it waits for a year")
	}
	now := noon
	for range mostTries {
		if _, gaveUp := o.Failed(1, "still none", false, 0, now); gaveUp {
			return
		}
		now = now.Add(-time.Hour)
	}
	t.Error("it is tried for ever")
}

func TestATargetThatIsToldOftenIsToldLessOften(t *testing.T) {
	o := Restore(nil, 0)
	now, messages := noon, 0
	for i := range 10 * 60 { // a job a minute for ten hours
		o.Add(1000, "ann", "exec:a", ended(fmt.Sprint(i), "", "ok"), now)
		now = now.Add(time.Minute)
		o.Tick(now)
		for _, e := range o.Ready(now, nil, 8, 2) {
			o.Delivered(e.ID, now)
			messages++
		}
	}
	if messages < 20 || messages > 150 {
		t.Errorf("%d messages", messages)
	}
}

func TestTheTasksOfAnArrayAreToldTogether(t *testing.T) {
	o := Restore(nil, 0)
	now := noon
	var told []string
	step := func() {
		o.Tick(now)
		for _, e := range o.Ready(now, nil, 8, 2) {
			told = append(told, e.Message("", "").Title)
			o.Delivered(e.ID, now)
		}
	}
	for i := range 1000 { // for eight hours
		f := ended(fmt.Sprintf("17_%d", i), "", "ok")
		f.Array = "17"
		o.Add(1000, "ann", "exec:a", f, now)
		if now = now.Add(30 * time.Second); i == 500 {
			o.Add(1000, "ann", "exec:a", ended("18", "train", "ok"), now)
		}
		step()
	}
	if _, any := o.Due(nil); any {
		t.Error("something is due while the array runs")
	}
	awaited := Awaited{1000, "ann", "exec:a", Whole{Array: "17"}}
	if open := o.Open(); !slices.Equal(open, []Awaited{awaited}) {
		t.Errorf("open: %+v", open)
	}
	o.Close(awaited, now)
	now = now.Add(firstWindow)
	step()
	if diff := cmp.Diff([]string{"train (18) finished", "array 17: 1,000 finished"}, told); diff != "" || len(o.Open()) != 0 {
		t.Errorf("another job's end was told at once, and the array's together (-want +got):\n%s", diff)
	}
}

// TestAFailureInAShortArrayIsToldOnce: the message about the array has it. Other
// jobs' failures, and a target that asked only for failures, are told as ever.
func TestAFailureInAShortArrayIsToldOnce(t *testing.T) {
	o, told := Restore(nil, 0), []string{}
	add := func(target, id string, on On) {
		f := ended(id, "", "exit:1")
		f.On, f.Array = on, strings.TrimSuffix(id, "_0")
		o.Add(1000, "ann", target, f, noon)
	}
	for _, target := range []string{"exec:both", "exec:more", "exec:fail"} {
		add(target, "17_0", OnFail)
	}
	add("exec:both", "17_0", OnEnd)
	add("exec:more", "17_0", OnEnd)
	add("exec:more", "18_0", OnFail)
	for _, awaited := range o.Open() {
		o.Close(awaited, noon)
	}
	for now := noon; now.Before(noon.Add(10 * time.Minute)); now = now.Add(time.Second) {
		o.Tick(now)
		for _, e := range o.Ready(now, nil, 8, 8) {
			told = append(told, e.Target+": "+e.Message("", "").Title)
			o.Delivered(e.ID, now)
		}
	}
	slices.Sort(told)
	want := []string{"exec:both: job 17_0 failed with exit code 1", "exec:fail: job 17_0 failed with exit code 1", "exec:more: job 17_0 failed with exit code 1", "exec:more: job 18_0 failed with exit code 1"}
	if diff := cmp.Diff(want, told); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestFilesAreToldApart: each to those who asked for it, once its lines have ended,
// and again when lines that were added have.
func TestFilesAreToldApart(t *testing.T) {
	o, now := Restore(nil, 0), noon
	add := func(target, file, id, outcome string, on On) {
		f := ended(id, "", outcome)
		f.On, f.File = on, file
		o.Add(1000, "ann", target, f, now)
	}
	told := func() (told []string) {
		for range 120 {
			now = now.Add(time.Second)
			o.Tick(now)
			for _, e := range o.Ready(now, nil, 8, 8) {
				told = append(told, e.Target+": "+e.Message("", "").Title)
				o.Delivered(e.ID, now)
			}
		}
		slices.Sort(told)
		return told
	}
	add("exec:a", "/a/jobs.txt", "1", "ok", OnEnd)
	add("exec:a", "/b/jobs.txt", "2", "exit:1", OnFail)
	add("exec:a", "/b/jobs.txt", "2", "exit:1", OnEnd)
	add("exec:a", "/a/jobs.txt", "3", "exit:2", OnEnd)
	add("exec:b", "/a/jobs.txt", "3", "exit:2", OnEnd)
	o.Close(Awaited{1000, "ann", "exec:a", Whole{File: "/a/jobs.txt"}}, now)
	if diff := cmp.Diff([]string{"exec:a: job 2 failed with exit code 1", "exec:a: jobs.txt: 1 finished, 1 failed (3)"}, told()); diff != "" {
		t.Errorf("one file has ended (-want +got):\n%s", diff)
	}
	add("exec:a", "/a/jobs.txt", "4", "ok", OnEnd)
	add("exec:a", "/a/jobs.txt", "5", "ok", OnEnd)
	for _, awaited := range o.Open() {
		o.Close(awaited, now)
	}
	if diff := cmp.Diff([]string{"exec:a: job 2 failed with exit code 1", "exec:a: jobs.txt: 2 finished", "exec:b: job 3 failed with exit code 2"}, told()); diff != "" {
		t.Errorf("all have ended (-want +got):\n%s", diff)
	}
}

// TestFailuresInAnArrayAreToldSoon: a thousand tasks that all fail are a few
// messages, the first within a minute.
func TestFailuresInAnArrayAreToldSoon(t *testing.T) {
	o, messages, first := Restore(nil, 0), 0, time.Time{}
	now := noon
	for i := range 1000 {
		f := ended(fmt.Sprintf("17_%d", i), "", "exit:1")
		f.Array, f.On = "17", OnFail
		o.Add(1000, "ann", "exec:a", f, now)
		now = now.Add(10 * time.Second)
		o.Tick(now)
		for _, e := range o.Ready(now, nil, 8, 2) {
			if messages++; messages == 1 {
				first = now
			}
			o.Delivered(e.ID, now)
		}
	}
	if first.Sub(noon) > 2*arrayWindow || messages > 50 {
		t.Errorf("the first of %d messages after %s", messages, first.Sub(noon))
	}
}

func TestUsersTakeTurns(t *testing.T) {
	o := Restore(nil, 0)
	for i := range 20 {
		o.Add(1000, "ann", fmt.Sprintf("exec:%d", i), ended("1", "", "ok"), noon)
	}
	o.Add(1001, "bob", "exec:a", ended("2", "", "ok"), noon)
	now := noon.Add(time.Minute)
	o.Tick(now)
	var users []string
	for _, e := range o.Ready(now, map[int64]time.Time{1: now}, 4, 3) {
		users = append(users, e.User)
	}
	if diff := cmp.Diff([]string{"bob", "ann", "ann"}, users); diff != "" {
		t.Errorf("beside one of ann's that is on its way:\n%s", diff)
	}
}

func TestOneUserCannotFillTheOutbox(t *testing.T) {
	o, d := Restore(nil, 0), disk{rows: map[int64][]byte{}}
	d.apply(o, o.Add(1001, "bob", "exec:b", ended("1", "", "ok"), noon))
	for i := range 3 * maxEntries {
		d.apply(o, o.Add(1000, "ann", fmt.Sprintf("exec:%d", i), ended("1", "", "ok"), noon))
	}
	if ann, bob := len(of(o, 1000)), len(of(o, 1001)); ann != maxEntries || bob != 1 || len(d.rows) != ann+bob {
		t.Errorf("%d of ann's, %d of bob's, %d stored", ann, bob, len(d.rows))
	}
}

// TestNoMessageIsLost: whatever fails and whenever berth is killed, each fact is
// delivered or given up, messages to one target arrive in order, and one is
// repeated only if a kill came between its delivery and the record of that.
func TestNoMessageIsLost(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o, d := Restore(nil, 0), &disk{rows: map[int64][]byte{}}
		now, added, kills := noon, 0, 0
		arrived := map[int64]int{} // how often a message arrived
		counted := map[int64]int{} // and how many facts it had
		lastOf := map[pair]int64{}
		gaveUp := 0
		send := func(healthy bool) {
			d.apply(o, o.Tick(now))
			for _, e := range o.Ready(now, nil, 4, 2) {
				fails := !healthy && rapid.Bool().Draw(t, "fails")
				if !fails {
					if e.ID < lastOf[e.pair()] {
						t.Fatalf("message %d to %s came after %d", e.ID, e.Target, lastOf[e.pair()])
					}
					if n, again := counted[e.ID]; again && n != e.Batch.Count() {
						t.Fatalf("message %d had %d facts, and %d when it was repeated", e.ID, n, e.Batch.Count())
					}
					lastOf[e.pair()] = e.ID
					arrived[e.ID]++
					counted[e.ID] = e.Batch.Count()
				}
				if !healthy && rapid.IntRange(0, 9).Draw(t, "killed") == 0 {
					o = d.restore()
					kills++
					return
				}
				if fails {
					changes, gone := o.Failed(e.ID, "refused", rapid.IntRange(0, 20).Draw(t, "final") == 0, 0, now)
					if gone {
						gaveUp += e.Batch.Count()
					}
					d.apply(o, changes)
				} else {
					d.apply(o, o.Delivered(e.ID, now))
				}
			}
		}
		for range rapid.IntRange(1, 80).Draw(t, "steps") {
			switch rapid.IntRange(0, 3).Draw(t, "step") {
			case 0, 1:
				target := rapid.SampledFrom([]string{"exec:a", "exec:b"}).Draw(t, "target")
				d.apply(o, o.Add(rapid.IntRange(1, 2).Draw(t, "uid"), "ann", target, ended(fmt.Sprint(added), "", "ok"), now))
				added++
			case 2:
				now = now.Add(time.Duration(rapid.Int64Range(0, int64(3*time.Hour)).Draw(t, "passes")))
			case 3:
				send(false)
			}
			if diff := cmp.Diff(d.restore().All(), o.All(), cmpopts.EquateEmpty()); diff != "" {
				t.Fatalf("what is stored is not what is (-stored +now):\n%s", diff)
			}
		}
		for range 200 {
			now = now.Add(time.Hour)
			send(true)
		}
		told, repeats := 0, 0
		for id, n := range counted {
			told += n
			repeats += arrived[id] - 1
		}
		if left := o.All(); told+gaveUp < added || slices.ContainsFunc(left, func(e Entry) bool { return e.Stage != GivenUp }) {
			t.Fatalf("of %d facts %d were told and %d given up; left %+v", added, told, gaveUp, left)
		}
		if repeats > kills {
			t.Fatalf("%d repeats and %d kills", repeats, kills)
		}
	})
}

// TestAnEndThatHurries: what gathers is sent at once, what failed is tried once
// more, and what waits behind a failure does not hold up the end.
func TestAnEndThatHurries(t *testing.T) {
	o := Restore(nil, 0)
	o.Add(1000, "ann", "exec:a", ended("1", "", "ok"), noon)
	now := noon.Add(time.Minute)
	o.Tick(now)
	o.Failed(1, "refused", false, 0, now)
	o.Add(1000, "ann", "exec:a", ended("2", "", "ok"), now)
	f := ended("17_0", "", "ok")
	f.Array = "17"
	o.Add(1000, "ann", "exec:b", f, now)
	if o.Pending(now) {
		t.Error("something is pending before the hurry")
	}
	o.Hurry(true, now)
	o.Tick(now)
	if ready := o.Ready(now, nil, 8, 8); len(ready) != 2 || !o.Pending(now) {
		t.Errorf("%+v", ready)
	}
	o.Failed(1, "refused", false, 0, now)
	o.Delivered(3, now)
	o.Hurry(false, now)
	o.Tick(now)
	if o.Pending(now) || len(o.Ready(now, nil, 8, 8)) != 0 {
		t.Errorf("still pending: %+v", o.All())
	}
}

// TestSlowReceiversDelayOnlyTheirOwnUsers: four users take every place with receivers
// that do not answer, and a fifth is told all the same.
func TestSlowReceiversDelayOnlyTheirOwnUsers(t *testing.T) {
	o, sending, now := Restore(nil, 0), map[int64]time.Time{}, noon
	add := func(uid int, target string) {
		o.Add(uid, "user", target, ended("1", "", "ok"), now)
	}
	for uid := range 4 {
		for i := range 20 {
			add(1000+uid, fmt.Sprintf("exec:sleep %d", i))
		}
	}
	take := func() (fifth bool) {
		o.Tick(now)
		for _, e := range o.Ready(now, sending, 8, 2) {
			sending[e.ID] = now
			fifth = fifth || e.UID == 2000
		}
		return fifth
	}
	now = now.Add(firstWindow)
	take()
	if len(sending) != 8 {
		t.Fatalf("%d are sent at a time", len(sending))
	}
	add(2000, "exec:true")
	now = now.Add(firstWindow)
	if take() || len(sending) != 8 {
		t.Errorf("%d are sent at a time", len(sending))
	}
	now = now.Add(slowAfter)
	if !take() || len(sending) != 9 {
		t.Errorf("the fifth user waits behind slow receivers; %d are sent", len(sending))
	}
	// However many users there are, what is sent at a time is bounded.
	for uid := range 100 {
		add(3000+uid, "exec:sleep 1")
	}
	for range 20 {
		now = now.Add(slowAfter)
		take()
	}
	if len(sending) != 8*slowShare {
		t.Errorf("%d are sent at a time", len(sending))
	}
}

package access

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// inShort is the entries of an audit in the words that tests compare.
func inShort(entries []Entry) []string {
	var lines []string
	for _, e := range entries {
		line := fmt.Sprintf("%s %s %s: %s", e.User, e.Action, strings.Join(e.Jobs, " "), e.Result)
		if e.Requests > 0 {
			line += fmt.Sprintf(" ×%d", e.Requests)
		}
		if e.Detail != "" {
			line += " (" + e.Detail + ")"
		}
		lines = append(lines, line)
	}
	return lines
}

func TestAuditTellsARepeatedRefusalOnce(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		a := openAuditIn(t, dir)
		refused := func(uid int, user, job string) {
			a.Record(Entry{UID: uid, User: user, PID: int(time.Now().Unix()), Via: "socket", Action: "cancel", Jobs: []string{job}, Result: "not the caller's"})
		}
		var want []string
		now := func(lines ...string) {
			t.Helper()
			want = append(want, lines...)
			if diff := cmp.Diff(want, inShort(entriesOf(t, a.path))); diff != "" {
				t.Fatal(diff)
			}
		}
		refused(1, "eve", "17")
		now("eve cancel 17: not the caller's")
		for range 36 {
			refused(1, "eve", "17")
			<-time.After(time.Second)
		}
		now()
		refused(1, "eve", "18")
		now("eve cancel 18: not the caller's") // another attempt has a line of its own
		refused(2, "bob", "17")
		now("bob cancel 17: not the caller's") // and so does another user
		for range 3 {
			a.Record(Entry{UID: 1, User: "eve", Via: "socket", Action: "hold", Jobs: []string{"19"}, Result: OK})
		}
		now("eve hold 19: ok", "eve hold 19: ok", "eve hold 19: ok") // what was done is told each time
		<-time.After(accountWindow)
		synctest.Wait()
		now("eve cancel 17: not the caller's ×36")
		refused(1, "eve", "17")
		now("eve cancel 17: not the caller's") // in the next window
		refused(1, "eve", "17")
		refused(1, "eve", "17")
		now()
		a.Close()
		now("eve cancel 17: not the caller's ×2")
	})
}

// TestAuditOfOneUserIsBounded: for two days one user does what is allowed and
// what is not, as fast as can be. Others lose nothing, every request is counted,
// and the user writes no more than allowed.
func TestAuditOfOneUserIsBounded(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		a := openAuditIn(t, dir)
		const days, perMinute = 2, 30
		requests := 0
		for minute := range days * 24 * 60 {
			for i := range perMinute {
				e := Entry{UID: 1, User: "eve", Via: "socket", Action: []string{"hold", "release"}[i%2], Detail: strings.Repeat("x", 1500), Result: OK}
				if i%3 == 0 {
					e.Action, e.Result = "cancel", fmt.Sprintf("there is no job %d", requests)
				}
				a.Record(e)
				requests++
			}
			if minute%60 == 0 {
				a.Record(Entry{UID: 2, User: "ann", Via: "socket", Action: "submit", Jobs: []string{fmt.Sprint(minute)}, Result: OK})
			}
			<-time.After(time.Minute)
		}
		a.Close()
		told, ann, bytes := 0, 0, 0
		for _, path := range mustGlob(t, a.path+"*") {
			for _, e := range entriesOf(t, path) {
				if e.UID == 2 {
					ann++
					continue
				}
				told += max(e.Requests, 1)
				bytes += len(e.line())
				if e.Result == "summarised" && (e.Requests == 0 || e.Detail == "") {
					t.Fatalf("%+v", e)
				}
			}
		}
		if told != requests || ann != days*24 {
			t.Errorf("%d requests of %d are told, and %d of ann's", told, requests, ann)
		}
		summaries := days * 24 * 60 * 250
		if most := accountBytes*(1+days) + summaries; bytes > most || bytes < accountBytes*days {
			t.Errorf("eve wrote %d bytes; allowed are %d", bytes, most)
		}
		if info, err := os.Stat(a.path + ".2"); err == nil {
			t.Errorf("the log was rolled over twice: %v", info)
		}
	})
}

// TestAuditRecognisesSoManyRefusals: what is remembered of a window is bounded.
func TestAuditRecognisesSoManyRefusals(t *testing.T) {
	t.Parallel()
	a := openAuditIn(t, t.TempDir())
	for i := range 3 * maxRepeats {
		a.Record(Entry{UID: 1, Action: "cancel", Result: fmt.Sprintf("there is no job %d", i)})
	}
	if n := len(a.accounts[1].refused); n != maxRepeats {
		t.Errorf("%d are remembered", n)
	}
	if n := len(entriesOf(t, a.path)); n != 3*maxRepeats {
		t.Errorf("%d lines", n)
	}
}

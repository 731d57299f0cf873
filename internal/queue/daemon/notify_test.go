package daemon

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"berth/internal/api"
	"berth/internal/queue"
	"berth/internal/queue/config"
	"berth/internal/queue/people"
	"berth/internal/queue/store"
	"berth/internal/text/problem"
)

// read is a file's text so far.
func read(path string) string {
	data, _ := os.ReadFile(path)
	return string(data)
}

// TestAJobIsTold from its submission to the command that is run, by its own rules
// and by those of its user.
func TestAJobIsTold(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	told := filepath.Join(t.TempDir(), "told")
	own, ours := `exec:echo "own $BERTH_NOTIFY_BODY" >>`+told, `exec:echo "ours $BERTH_NOTIFY_BODY" >>`+told
	if _, err := api.Call(l.ctx, l.Client, api.SetNotify, api.NotifyRequest{Rules: &[]string{"fail:" + ours}}); err != nil {
		t.Fatal(err)
	}
	l.end(l.one(sh("exit 3", "gpus", "0", "name", "first")))
	l.end(l.one(sh("exit 4", "gpus", "0", "name", "second", "notify", "start,end:"+own)))
	l.end(l.one(sh("exit 5", "gpus", "0", "name", "third", "notify", "none")))
	l.restart()
	want := []string{"ours first (1) failed with exit code 3", "second (2) started", "second (2) failed with exit code 4"}
	l.until("all was told", func() bool {
		for _, part := range want {
			if !strings.Contains(read(told), part) {
				return false
			}
		}
		return true
	})
	if text := read(told); strings.Contains(text, "third") || strings.Contains(text, "ours second") {
		t.Errorf("%s", text)
	}
}

// TestRulesAreForWhatHappensNext: events are read some time after they happened.
func TestRulesAreForWhatHappensNext(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	for range 5 {
		l.end(l.one(sh("exit 3", "gpus", "0")))
		if _, err := api.Call(l.ctx, l.Client, api.SetNotify, api.NotifyRequest{Rules: &[]string{"fail:exec:true"}}); err != nil {
			t.Fatal(err)
		}
		n, err := api.Call(l.ctx, l.Client, api.GetNotify, api.NotifyQuery{})
		if err != nil || len(n.Messages) != 0 {
			t.Fatalf("rules were applied to a job that ended before: %+v, %v", n, err)
		}
		if _, err := api.Call(l.ctx, l.Client, api.SetNotify, api.NotifyRequest{Rules: &[]string{}}); err != nil {
			t.Fatal(err)
		}
	}
}

func TestRulesAreSetAndListed(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	bad := func(words string, rules ...string) {
		t.Helper()
		_, err := api.Call(l.ctx, l.Client, api.SetNotify, api.NotifyRequest{Rules: &rules})
		wantProblem(t, err, problem.Invalid, words)
	}
	bad("expected start, end, fail, oom or idle", "done:exec:x")
	bad("expected a target", "end:smtp:x")
	set, err := api.Call(l.ctx, l.Client, api.SetNotify, api.NotifyRequest{Rules: &[]string{"fail,end:slack:https://hooks.slack.com/services/S3CRET"}})
	if want := "end,fail:slack:https://hooks.slack.com/…"; err != nil || len(set.Rules) != 1 || set.Rules[0] != want || set.Signed || set.Key != "" {
		t.Errorf("%+v, %v", set, err)
	}
	if set, err = api.Call(l.ctx, l.Client, api.SetNotify, api.NotifyRequest{NewKey: true}); err != nil || !strings.HasPrefix(set.Key, "whsec_") || len(set.Rules) != 1 {
		t.Errorf("%+v, %v", set, err)
	}
	l.restart()
	hidden, err := api.Call(l.ctx, l.Client, api.GetNotify, api.NotifyQuery{Secrets: false})
	if err != nil || hidden.Key != "" || !hidden.Signed || strings.Contains(fmt.Sprint(hidden), "S3CRET") {
		t.Errorf("%+v, %v", hidden, err)
	}
	shown, err := api.Call(l.ctx, l.Client, api.GetNotify, api.NotifyQuery{Secrets: true})
	if err != nil || shown.Key != set.Key || shown.Rules[0] != "end,fail:slack:https://hooks.slack.com/services/S3CRET" {
		t.Errorf("%+v, %v", shown, err)
	}
	if set, err = api.Call(l.ctx, l.Client, api.SetNotify, api.NotifyRequest{Rules: &[]string{}}); err != nil || len(set.Rules) != 0 || !set.Signed {
		t.Errorf("%+v, %v", set, err)
	}
	_, err = api.Call(l.ctx, l.Client, api.SendNotify, api.NotifyTest{})
	wantProblem(t, err, problem.Refused, "no targets")
	if audit := read(filepath.Join(l.opt.Places.StateDir, "audit.jsonl")); strings.Contains(audit, "S3CRET") || !strings.Contains(audit, "notify set") {
		t.Errorf("%s", audit)
	}
}

// TestATestSaysWhatCameOfIt, and a wait that is over is told.
func TestATestSaysWhatCameOfIt(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	var mu sync.Mutex
	var heard []string
	status := http.StatusNoContent
	hook := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		body, _ := io.ReadAll(r.Body)
		heard = append(heard, r.Header.Get("Webhook-Signature")+" "+string(body))
		w.WriteHeader(status)
		_, _ = w.Write([]byte("channel_is_archived"))
	}))
	t.Cleanup(hook.Close)
	answer := func(code int) { mu.Lock(); status = code; mu.Unlock() }
	all := func() string { mu.Lock(); defer mu.Unlock(); return strings.Join(heard, "\n") }
	target := "webhook:" + hook.URL + "/s3cret"
	if _, err := api.Call(l.ctx, l.Client, api.SetNotify, api.NotifyRequest{Rules: &[]string{"fail:" + target}, NewKey: true}); err != nil {
		t.Fatal(err)
	}
	results, err := api.Call(l.ctx, l.Client, api.SendNotify, api.NotifyTest{})
	if err != nil || len(results) != 1 || results[0].Error != "" || strings.Contains(results[0].Target, "s3cret") || !strings.HasPrefix(all(), "v1,") || !strings.Contains(all(), "a test message") {
		t.Errorf("%+v, %v: %s", results, err, all())
	}
	answer(http.StatusGone)
	results, err = api.Call(l.ctx, l.Client, api.SendNotify, api.NotifyTest{Target: target})
	if err != nil || len(results) != 1 || !strings.Contains(results[0].Error, "410 channel_is_archived") {
		t.Errorf("%+v, %v", results, err)
	}
	answer(http.StatusOK)
	id := l.one(sh("exit 7", "gpus", "0", "notify", "none"))
	l.end(id)
	running := l.one(sh("sleep 1000", "gpus", "0"))
	_, err = api.Call(l.ctx, l.Client, api.SendNotify, api.NotifyTest{Target: target, Jobs: []string{id, running}})
	wantProblem(t, err, problem.Refused, "has not ended")
	_, err = api.Call(l.ctx, l.Client, api.SendNotify, api.NotifyTest{Target: target, Jobs: []string{"99"}})
	wantProblem(t, err, problem.NotFound, "99")
	if _, err = api.Call(l.ctx, l.Client, api.SendNotify, api.NotifyTest{Target: target, Jobs: []string{id}}); err != nil {
		t.Fatal(err)
	}
	l.until("the end was told", func() bool { return strings.Contains(all(), "failed with exit code 7") })
}

// TestWhatWasGivenUpIsListed, and is an event of the job that does not say where
// the message went.
func TestWhatWasGivenUpIsListed(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	hook := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(hook.Close)
	id := l.one(sh("true", "gpus", "0", "notify", "end:webhook:"+hook.URL+"/s3cret"))
	l.end(id)
	l.until("it was given up", func() bool {
		for _, ev := range l.job(id).Events {
			if strings.Contains(ev.Text, "was given up") {
				return !strings.Contains(ev.Text, "webhook") && !strings.Contains(ev.Text, hook.URL)
			}
		}
		return false
	})
	l.restart()
	n, err := api.Call(l.ctx, l.Client, api.GetNotify, api.NotifyQuery{Secrets: false})
	if err != nil || len(n.Messages) != 1 || n.Messages[0].Stage != "given_up" || !strings.Contains(n.Messages[0].Error, "404") || strings.Contains(fmt.Sprint(n), "s3cret") {
		t.Errorf("%+v, %v", n, err)
	}
}

// TestUsersHaveTheirOwnRules, which nobody else sees or inherits; no message is
// sent as root.
func TestUsersHaveTheirOwnRules(t *testing.T) {
	t.Parallel()
	l := newSharedLab(t)
	ann, bob, root := l.as("daemon"), l.as("nobody"), l.as("root")
	set := func(p person, rule string) {
		t.Helper()
		if _, err := l.d.messages.SetNotify(l.ctx, p.Caller, api.NotifyRequest{Rules: &[]string{rule}, NewKey: true}); err != nil {
			t.Fatal(err)
		}
	}
	set(ann, "end:exec:ann's")
	set(bob, "end:exec:bob's")
	seen := map[string]bool{}
	for _, p := range []person{ann, bob, root} {
		n, err := l.d.messages.Notify(l.ctx, p.Caller, api.NotifyQuery{Secrets: true})
		if err != nil {
			t.Fatal(err)
		}
		seen[p.Name+fmt.Sprint(n.Rules)] = true
		if seen[n.Key] && n.Key != "" {
			t.Error("two users have one key")
		}
		seen[n.Key] = true
	}
	for _, want := range []string{ann.Name + "[end:exec:ann's]", bob.Name + "[end:exec:bob's]", "root[]"} {
		if !seen[want] {
			t.Errorf("%s is not in %v", want, seen)
		}
	}
	heir := api.Caller{UID: ann.UID, Name: "a later user of this number"}
	if got, err := l.d.messages.Notify(l.ctx, heir, api.NotifyQuery{Secrets: true}); len(got.Rules) != 0 || got.Signed || err != nil {
		t.Errorf("another user inherits %+v, %v", got, err)
	}
	for _, p := range []person{ann, bob, root} {
		sender, err := l.d.people.Sender(l.ctx, p.UID, p.Name)
		if want := map[bool]int{true: people.Nobody.UID, false: p.UID}[p.UID == 0]; err != nil || sender.UID != want || sender.UID == 0 {
			t.Errorf("%s's messages are sent as %+v, %v", p.Name, sender, err)
		}
	}
	if _, err := l.d.people.Sender(l.ctx, ann.UID, "a former user of this number"); err == nil {
		t.Error("a message is sent as the next user of a number")
	}
}

// TestADaemonTellsOfACrash with the real process that sends.
func TestADaemonTellsOfACrash(t *testing.T) {
	t.Parallel()
	told := filepath.Join(t.TempDir(), "told")
	l := newLab(t, with(func(c *config.Config) { c.NotifyAdmin = []string{"exec:echo \"$BERTH_NOTIFY_BODY\" >> " + told} }))
	l.stop()
	s, err := store.Open(queue.StoreDir(l.opt.Places.StateDir))
	if err != nil {
		t.Fatal(err)
	}
	if value, err := s.Meta("notify.running"); value != "no" || err != nil {
		t.Errorf("after a stop: %q, %v", value, err)
	}
	// What a kill leaves behind.
	if err := errors.Join(s.Commit(store.Tx{Meta: map[string]string{"notify.running": "yes"}}), s.Close()); err != nil {
		t.Fatal(err)
	}
	l.start()
	l.until("it was told", func() bool {
		text, _ := os.ReadFile(told)
		return strings.Contains(string(text), "ended without being stopped")
	})
	l.stop()
	if text, _ := os.ReadFile(told); strings.Count(string(text), "\n") != 1 {
		t.Errorf("%s", text)
	}
}

func TestMessagesOfASharedDaemonAreSentAsNobody(t *testing.T) {
	dir, err := os.MkdirTemp("", "nobody")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	l := newSharedLab(t)
	tell := func(target string) string {
		results, err := l.d.messages.SendNotify(t.Context(), l.as("root").Caller, api.NotifyTest{Target: target})
		if err != nil || len(results) != 1 {
			t.Fatalf("%+v, %v", results, err)
		}
		return results[0].Error
	}
	failed := tell("exec:echo $(id -u) $(id -g) $(id -G) $(grep CapEff /proc/self/status) > " + dir + "/who")
	who, err := os.ReadFile(filepath.Join(dir, "who"))
	if want := "65534 65534 65534 CapEff: 0000000000000000\n"; failed != "" || err != nil || string(who) != want {
		t.Errorf("%q, %s, %v; expected %q", who, failed, err, want)
	}
	if failed := tell("exec:cat /etc/shadow"); !strings.Contains(failed, "denied") {
		t.Errorf("%q", failed)
	}
}

package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"berth/internal/job"
	"berth/internal/tests/testkit"
	"berth/internal/text/problem"
)

func TestWhatIsSubmittedArrivesAsItWas(t *testing.T) {
	f := newFake()
	s := serve(t, f, Limits{})
	umask := 0o027
	request := SubmitRequest{
		Jobs: []Spec{
			{Command: Command{Argv: []string{"echo", "a b", "ü", "<&>"}}, Name: "one", GPUs: "0.5", Env: map[string]string{"A": "1\n2"}},
			{Command: Command{Shell: "make && true"}, Array: "0-9%2", Hold: "true"},
		},
		Dir: "/home/ann", Environ: []string{"A=b", "E="}, Umask: &umask, DryRun: true, Interactive: true, Term: "xterm",
	}
	reply, err := Call(background(t), s.client, Submit, request)
	if err != nil {
		t.Fatal(err)
	}
	if len(reply.Jobs) != 2 || reply.Jobs[1].ID != "101" {
		t.Errorf("the reply is %+v", reply)
	}
	if diff := cmp.Diff(request, f.requests[0]); diff != "" {
		t.Error(diff)
	}
}

func TestTextThatIsNotUTF8IsNeverChangedInSilence(t *testing.T) {
	f := newFake()
	s := serve(t, f, Limits{})
	_, err := Call(background(t), s.client, Submit, SubmitRequest{Jobs: []Spec{{Command: Command{Argv: []string{"cat", "caf\xe9"}}}}})
	wantProblem(t, err, problem.Invalid, "command of a job is not UTF-8")
	_, err = Call(background(t), s.client, Submit, SubmitRequest{Jobs: []Spec{{Command: Command{Shell: "x"}, Dir: "caf\xe9"}}})
	wantProblem(t, err, problem.Invalid, "dir of a job is not UTF-8")
	if _, err := Call(background(t), s.client, Submit, SubmitRequest{Jobs: []Spec{{Command: Command{Shell: "x\xe9"}}}, Environ: []string{"A=1", "B=\xe9", "C=3"}}); err != nil {
		t.Fatal(err)
	}
	want := SubmitRequest{Jobs: []Spec{{Bytes: []byte("x\xe9")}}, Environ: []string{"A=1", "C=3"}, EnvironBytes: [][]byte{[]byte("B=\xe9")}}
	if diff := cmp.Diff(want, f.requests[0]); diff != "" {
		t.Error(diff)
	}
}

func TestAQueryArrivesAsItWas(t *testing.T) {
	f := newFake()
	s := serve(t, f, Limits{})
	since := time.Date(2026, 3, 1, 4, 5, 6, 7000, time.UTC)
	for _, q := range []Query{
		{},
		{Select: Select{Words: []string{"1-3", "@~1"}, All: true, Name: "a&b=c", User: "ann", States: []string{"queued", "held"}},
			Over: true, Newest: true, Since: &since, Limit: 17, After: "3", Reasons: true, Order: true, Idle: true, Queue: true, Arrays: true},
	} {
		if _, err := Call(background(t), s.client, ListJobs, q); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(q, f.queries[len(f.queries)-1]); diff != "" {
			t.Error(diff)
		}
	}
}

func TestEveryOperationGoesThereAndBack(t *testing.T) {
	f := newFake()
	f.log = []byte("one\ntwo\nthree\n")
	s := serve(t, f, Limits{})
	ctx, c := background(t), s.client

	status, err := Call(ctx, c, GetStatus, None{})
	testkit.Must(t, err)
	if status.You.UID != os.Getuid() || status.You.PID != os.Getpid() || status.You.Name != "ann" {
		t.Errorf("the kernel said %+v", status.You)
	}
	detail, err := Call(ctx, c, GetJob, JobID{ID: "17"})
	testkit.Must(t, err)
	if diff := cmp.Diff(exampleView, detail.View); diff != "" {
		t.Error(diff)
	}
	why, err := Call(ctx, c, GetWhy, JobID{ID: "3"})
	testkit.Must(t, err)
	if why.ID != "3" || why.Text != exampleWhy.Text {
		t.Errorf("why: %+v", why)
	}
	acted, err := Call(ctx, c, Act, ActRequest{Action: ActHold, Select: Select{Words: []string{"1", "2"}}})
	testkit.Must(t, err)
	if len(acted.Jobs) != 2 || acted.Jobs[1] != (Acted{ID: "2", Done: true, What: "hold"}) {
		t.Errorf("acted: %+v", acted)
	}
	detail, err = Call(ctx, c, EditJob, EditRequest{JobID: JobID{ID: "2"}, Set: Spec{Priority: "7"}})
	testkit.Must(t, err)
	if diff := cmp.Diff(map[string]string{"priority": "7"}, detail.Settings); diff != "" {
		t.Error(diff)
	}
	waited, err := Call(ctx, c, WaitForJobs, WaitRequest{Select: Select{All: true}, Any: true, TimeoutS: 1e6})
	testkit.Must(t, err)
	if _, err := Call(ctx, c, WaitForJobs, WaitRequest{Select: Select{All: true}, For: "luck"}); problem.KindOf(err) != problem.Invalid {
		t.Errorf("waiting for luck: %v", err)
	}
	if !waited.Done || f.waited[0].TimeoutS != 60 || !f.waited[0].Any {
		t.Errorf("waited: %+v for %+v", waited, f.waited)
	}
	cards, err := Call(ctx, c, ListGPUs, None{})
	testkit.Must(t, err)
	if diff := cmp.Diff([]GPU{exampleGPU}, cards); diff != "" {
		t.Error(diff)
	}
	card, err := Call(ctx, c, PauseGPU, GPUIndex{Index: 3})
	testkit.Must(t, err)
	if !card.Paused || card.Index != 3 || !f.paused[3] {
		t.Errorf("paused: %+v", card)
	}
	if drained, err := Call(ctx, c, DrainGPU, DrainRequest{GPUIndex: GPUIndex{Index: 3}, Park: true}); err != nil || !drained.GPU.Paused || !drained.Jobs[0].Done {
		t.Errorf("drained %+v: %v", drained, err)
	}
	if card, err = Call(ctx, c, ResumeGPU, GPUIndex{Index: 3}); err != nil || card.Paused || f.paused[3] {
		t.Errorf("resumed: %+v, %v", card, err)
	}
	card, err = Call(ctx, c, SetHealth, HealthRequest{GPUIndex: GPUIndex{Index: 3}, Health: HealthQuarantined, Reason: "it smells"})
	testkit.Must(t, err)
	if card.Index != 3 || card.Health != HealthQuarantined || card.HealthReason != "it smells" {
		t.Errorf("quarantined: %+v", card)
	}
	history, err := Call(ctx, c, ListCardEvents, CardQuery{GPU: pointer(0), Since: &exampleTime, Limit: 7})
	testkit.Must(t, err)
	if diff := cmp.Diff([]CardEvent{{At: exampleTime, GPU: pointer(0), Text: "7"}}, history); diff != "" {
		t.Error(diff)
	}
	if history, err = Call(ctx, c, ListCardEvents, CardQuery{}); err != nil || len(history) != 1 || history[0].GPU != nil || history[0].Text != "50" {
		t.Errorf("history: %+v, %v", history, err)
	}
	released, err := Call(ctx, c, ReleaseGPUs, ReleaseRequest{})
	testkit.Must(t, err)
	if released.Until == nil || !released.Until.Equal(exampleTime.Add(10*time.Minute)) {
		t.Errorf("released: %+v", released)
	}
	if released, err = Call(ctx, c, ReleaseGPUs, ReleaseRequest{End: true}); err != nil || released.Until != nil {
		t.Errorf("taken hold of again: %+v, %v", released, err)
	}
	stats, err := Call(ctx, c, GetStats, StatsQuery{Since: &exampleTime, User: "ann"})
	testkit.Must(t, err)
	if !stats.Since.Equal(exampleTime) {
		t.Errorf("stats since %s", stats.Since)
	}
	replay, err := Call(ctx, c, GetReplay, ReplayQuery{Since: &exampleTime, Policies: []string{"fair", "las"}})
	testkit.Must(t, err)
	if !replay.Since.Equal(exampleTime) || !slices.Equal(replay.Notes, []string{"fair", "las"}) || len(replay.Figures) != 1 {
		t.Errorf("replay: %+v", replay)
	}
	if reply, err := Call(ctx, c, Reload, ReloadRequest{DryRun: true, Text: pointer("[limits]")}); err != nil || reply.Config != "[limits]" || len(reply.Changed) != 1 {
		t.Errorf("reload: %+v, %v", reply, err)
	}
	var copied bytes.Buffer
	testkit.Must(t, c.Backup(ctx, &copied))
	if copied.String() != string(f.log) {
		t.Errorf("the backup is %q", copied.String())
	}
	snapshot, err := Call(ctx, c, GetSnapshot, None{})
	testkit.Must(t, err)
	if string(snapshot) != string(exampleSnapshot) {
		t.Errorf("the snapshot is %s", snapshot)
	}
	if used, err := Call(ctx, c, ListSnapshots, None{}); err != nil || !slices.Equal(used.IDs, exampleSnapshotIDs.IDs) {
		t.Errorf("the snapshots in use: %v, %v", used, err)
	}
	long := "/" + strings.Repeat("d/", 1000) + "jobs.txt"
	if sums, err := Call(ctx, c, ListBatches, BatchQuery{File: long, User: "bob"}); err != nil || len(sums) != 1 || sums[0].File != long || sums[0].User != "bob" || sums[0].DoneAt == nil {
		t.Errorf("a jobs file: %+v, %v", sums, err)
	}
	if sums, err := Call(ctx, c, ListBatches, BatchQuery{}); err != nil || len(sums) != 0 {
		t.Errorf("all jobs files: %+v, %v", sums, err)
	}
	yes := true
	group, err := Call(ctx, c, SetGroup, GroupRequest{GroupName: GroupName{Name: "io"}, User: "ann", Limit: "2", Paused: &yes})
	if err != nil || group.Name != "io" || group.User != "ann" || !group.Paused || group.Limit == nil || *group.Limit != 2 {
		t.Errorf("a group: %+v, %v", group, err)
	}
	if groups, err := Call(ctx, c, ListGroups, GroupQuery{User: "*"}); err != nil || len(groups) != 1 || groups[0].Name != "io" {
		t.Errorf("groups: %+v, %v", groups, err)
	}
	if groups, err := Call(ctx, c, ListGroups, GroupQuery{User: "nobody"}); err != nil || len(groups) != 0 {
		t.Errorf("nobody's groups: %+v, %v", groups, err)
	}
	set, err := Call(ctx, c, SetNotify, NotifyRequest{Rules: &[]string{"end:exec:x"}, NewKey: true})
	if err != nil || len(set.Rules) != 1 || set.Rules[0] != "end:exec:x" || set.Key == "" {
		t.Errorf("rules: %+v, %v", set, err)
	}
	for _, secrets := range []bool{true, false} {
		if n, err := Call(ctx, c, GetNotify, NotifyQuery{Secrets: secrets}); err != nil || len(n.Messages) != 1 || (n.Key != "") != secrets {
			t.Errorf("secrets %v: %+v, %v", secrets, n, err)
		}
	}
	if sent, err := Call(ctx, c, SendNotify, NotifyTest{Target: "exec:x", Jobs: []string{"1", "2"}}); err != nil || len(sent) != 1 || sent[0] != (NotifyResult{"exec:x", "1,2"}) {
		t.Errorf("sent: %+v, %v", sent, err)
	}
	testkit.Must(t, Do(ctx, c, RemoveGroup, GroupRemoval{GroupName: GroupName{Name: "io"}, User: "ann"}))
	wantProblem(t, Do(ctx, c, RemoveGroup, GroupRemoval{GroupName: GroupName{Name: "io"}, User: "ann"}), problem.NotFound, "ann has no group io")
	token, err := Call(ctx, c, NewToken, TokenRequest{Name: "laptop"})
	testkit.Must(t, err)
	if token.Secret != "berth_new" {
		t.Errorf("token: %+v", token)
	}
	tokens, err := Call(ctx, c, ListTokens, None{})
	testkit.Must(t, err)
	if len(tokens) != 2 || tokens[0].Secret != "" || tokens[1].Secret != "" {
		t.Errorf("tokens: %+v", tokens)
	}
	testkit.Must(t, Do(ctx, c, RevokeToken, TokenID{ID: "k8"}))
	wantProblem(t, Do(ctx, c, RevokeToken, TokenID{ID: "k8"}), problem.NotFound, "there is no token k8")
}

func TestAllPagesAreOneList(t *testing.T) {
	f := newFake()
	f.jobs = nil
	const pageJobs = 10
	for i := range 2*pageJobs + 7 {
		f.jobs = append(f.jobs, Detail{View: job.View{ID: fmt.Sprint(i), Name: "<" + fmt.Sprint(i)}})
	}
	s := serve(t, f, Limits{})
	s.client.pageJobs = pageJobs
	for _, limit := range []int{0, 1, pageJobs, pageJobs + 1} {
		want := limit
		if limit == 0 {
			want = len(f.jobs)
		}
		n := 0
		last, err := s.client.JobsAll(background(t), Query{Limit: limit}, func(v job.View) error {
			if v.ID != fmt.Sprint(n) {
				t.Fatalf("job %d is %s", n, v.ID)
			}
			n++
			return nil
		})
		if err != nil || n != want || last.Total != len(f.jobs) || last.Jobs != nil {
			t.Errorf("limit %d: %d jobs of %d, %v", limit, n, last.Total, err)
		}
		var text bytes.Buffer
		testkit.Must(t, s.client.JobsRaw(background(t), Query{Limit: limit}, &text))
		var views []job.View
		testkit.Must(t, json.Unmarshal(text.Bytes(), &views))
		if len(views) != want || views[want-1].ID != fmt.Sprint(want-1) {
			t.Errorf("limit %d: %d raw jobs", limit, len(views))
		}
	}
	f.jobs = nil
	var text bytes.Buffer
	testkit.Must(t, s.client.JobsRaw(background(t), Query{}, &text))
	if text.String() != "[]\n" {
		t.Errorf("no jobs are %q", text.String())
	}
	page, err := Call(background(t), s.client, ListJobs, Query{})
	if err != nil || page.Jobs == nil {
		t.Errorf("no jobs are null: %+v, %v", page, err)
	}
}

func TestErrorsComeAsProblems(t *testing.T) {
	f := newFake()
	s := serve(t, f, Limits{})
	submit := func(name string) error {
		_, err := Call(background(t), s.client, Submit, SubmitRequest{Jobs: []Spec{{Command: Command{Shell: "true"}, Name: Text(name)}}})
		return err
	}
	wantProblem(t, submit("refused"), problem.Refused, `job asks for 12 GPUs; this machine has 8 \x1b[31m`)
	wantProblem(t, submit("broken"), problem.Unable, "the daemon failed to carry out the request")
	if !strings.Contains(s.logged.String(), "/root/x") {
		t.Error("what went wrong is not in the log")
	}
	wantProblem(t, submit("full"), problem.Unable, "the daemon could not save it: its disk is full")
	wantProblem(t, submit("panic"), problem.Unable, "internal error; the request may not have been carried out")
	if log := s.logged.String(); !strings.Contains(log, "the backend has a bug") || !strings.Contains(log, "fake_test.go") {
		t.Errorf("the bug is not in the log: %s", log)
	}
	if _, err := Call(background(t), s.client, GetStatus, None{}); err != nil {
		t.Errorf("the daemon did not live: %v", err)
	}
	_, err := Call(background(t), s.client, GetJob, JobID{ID: "99"})
	wantProblem(t, err, problem.NotFound, "there is no job 99")
	_, err = Call(background(t), s.client, GetJob, JobID{ID: "../status"})
	wantProblem(t, err, problem.NotFound, `there is nothing at "/v1/jobs/../status"`)
	_, err = Call(background(t), s.client, Act, ActRequest{Action: ActCancel})
	wantProblem(t, err, problem.Invalid, "no job is selected")
	_, err = Call(background(t), s.client, Act, ActRequest{Action: "kill", Select: Select{All: true}})
	wantProblem(t, err, problem.Invalid, `action: expected cancel, hold, release, requeue, park, unpark or saved, found "kill"`)
}

func TestABackupThatBreaksOffIsAnError(t *testing.T) {
	f := newFake()
	f.log, f.logFails = bytes.Repeat([]byte("x"), 100_000), true
	s := serve(t, f, Limits{})
	var copied bytes.Buffer
	if err := s.client.Backup(background(t), &copied); err == nil {
		t.Error("half a backup looks whole")
	}
}

func TestNobodyListens(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "none.sock")
	_, err := Call(background(t), Dial(socket), GetStatus, None{})
	var nobody *Unreachable
	if !errors.As(err, &nobody) || nobody.Socket != socket || !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v", err)
	}
	dead, err := Listen(socket, 0o600)
	testkit.Must(t, err)
	dead.(*listener).inode = 0 // so that the socket stays, as after kill -9
	dead.Close()
	_, err = Call(background(t), Dial(socket), GetStatus, None{})
	if !errors.As(err, &nobody) || nobody.Socket != socket {
		t.Errorf("got %v", err)
	}
	if _, err := Dial(socket).Log(background(t), LogQuery{ID: "1"}); !errors.As(err, &nobody) {
		t.Errorf("a log: %v", err)
	}
	if err := Dial(socket).Events(background(t), EventQuery{}, nil); !errors.As(err, &nobody) {
		t.Errorf("events: %v", err)
	}
}

func TestAClientBearsWhatItDoesNotKnow(t *testing.T) {
	answer := ""
	status := 200
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		io.WriteString(w, answer)
	}))
	defer server.Close()
	c, err := DialRemote(server.URL, "secret", server.Client().Transport.(*http.Transport).TLSClientConfig)
	testkit.Must(t, err)
	defer c.Close()
	answer = `{"id":"3","state":"queued","text":"x","new_key":{"a":[1]}}`
	if why, err := Call(background(t), c, GetWhy, JobID{ID: "3"}); err != nil || why.ID != "3" {
		t.Errorf("%+v, %v", why, err)
	}
	answer, status = "<html>bad gateway", http.StatusBadGateway
	_, err = Call(background(t), c, GetWhy, JobID{ID: "3"})
	wantProblem(t, err, problem.Unable, "unexpected answer: HTTP 502 Bad Gateway")
	answer, status = "hello", 200
	if _, err = Call(background(t), c, GetWhy, JobID{ID: "3"}); err == nil {
		t.Error("nonsense was understood")
	}
	status = http.StatusFound
	_, err = Call(background(t), c, GetWhy, JobID{ID: "3"})
	wantProblem(t, err, problem.Unable, "unexpected answer: HTTP 302 Found")
}

func TestPathsAndMethods(t *testing.T) {
	s := serve(t, newFake(), Limits{})
	client := unixHTTP(t, s.socket)
	for _, test := range []struct {
		name, method, path, body string
		status                   int
		says                     string
	}{
		{"there is nothing at the root", "GET", "/", "", 404, `there is nothing at \"/\"`},
		{"an unknown path is a problem", "GET", "/v2/jobs", "", 404, `there is nothing at`},
		{"an unclean path is not redirected", "GET", "/v1//jobs", "", 404, `there is nothing at`},
		{"a wrong method says which is right", "DELETE", "/v1/jobs", "", 405, "allowed methods: GET, POST"},
		{"PUT is no method here", "PUT", "/v1/jobs", "", 405, `there is no method \"PUT\"`},
		{"a misspelt filter does not select everything", "GET", "/v1/jobs?usr=ann", "", 400, "did you mean user?"},
		{"a query where none is taken is refused", "GET", "/v1/gpus?x=1", "", 400, `there is no parameter \"x\"`},
		{"a limit beyond the most is refused", "GET", "/v1/jobs?limit=10001", "", 400, "from 0 to 10000"},
		{"a bad time is refused", "GET", "/v1/jobs?since=yesterday", "", 400, "a time like"},
		{"a body where none is taken is refused", "POST", "/v1/gpus/0/pause", "{}", 400, "must not have a body"},
		{"a body on a GET is refused", "GET", "/v1/jobs", "{}", 400, "must not have a body"},
		{"control bytes in an id are not echoed", "GET", "/v1/jobs/%1b%5b31m", "", 404, `expected an id or a name, found \"\\x1b[31m\"`},
		{"a long id is not echoed whole", "GET", "/v1/jobs/" + strings.Repeat("7", 500), "", 404, `7\"…`},
		{"an index is a number", "POST", "/v1/gpus/x/pause", "", 404, "the number of a GPU"},
		{"a person quarantines or clears, and nothing else", "POST", "/v1/gpus/0/health", `{"health":"suspect"}`, 400, "expected ok or quarantined"},
		{"a reason is short", "POST", "/v1/gpus/0/health", `{"health":"ok","reason":"` + strings.Repeat("x", 201) + `"}`, 400, "at most 200 bytes"},
		{"a release is no longer than a day", "POST", "/v1/gpus/release", `{"for_s":86401}`, 400, "1 to 86400"},
		{"a release either begins or ends", "POST", "/v1/gpus/release", `{"for_s":5,"end":true}`, 400, "without end"},
		{"a history is bounded", "GET", "/v1/gpus/history?limit=1001", "", 400, "from 1 to 1000"},
		{"a misspelt filter of a history is refused", "GET", "/v1/gpus/history?gpus=1", "", 400, "there is no parameter"},
		{"an unknown card is the backend's to refuse", "POST", "/v1/gpus/9/pause", "", 404, "there is no gpu9"},
		{"lines and offset exclude one another", "GET", "/v1/jobs/1/log?lines=3&offset=3", "", 400, "expected lines or offset"},
		{"an attach needs an upgrade", "POST", "/v1/jobs/1/attach", "", 400, "Upgrade: berth-attach"},
		{"until before since is refused", "GET", "/v1/stats?since=2026-03-01T00:00:00Z&until=2025-03-01T00:00:00Z", "", 400, "is before"},
		{"a bad Last-Event-ID is refused", "GET", "/v1/events?since=x", "", 400, "whole number"},
	} {
		t.Run(test.name, func(t *testing.T) {
			r, err := http.NewRequestWithContext(background(t), test.method, "http://berth"+test.path, strings.NewReader(test.body))
			testkit.Must(t, err)
			reply, err := client.Do(r)
			testkit.Must(t, err)
			defer reply.Body.Close()
			text, _ := io.ReadAll(reply.Body)
			if reply.StatusCode != test.status || !strings.Contains(string(text), test.says) {
				t.Errorf("%d %s, want %d %s", reply.StatusCode, text, test.status, test.says)
			}
			if kind := reply.Header.Get("Content-Type"); kind != problemType {
				t.Errorf("it comes as %s", kind)
			}
			if reply.Header.Get("X-Content-Type-Options") != "nosniff" || reply.Header.Get("Access-Control-Allow-Origin") != "" {
				t.Errorf("headers: %v", reply.Header)
			}
		})
	}
}

func wantProblem(t testing.TB, err error, kind problem.Kind, what string) {
	t.Helper()
	p, ok := errors.AsType[*problem.Problem](err)
	if !ok || p.Kind != kind || p.What != what {
		t.Errorf("got %v, want %s: %s", err, kind, what)
	}
}

package cli_test

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"berth/internal/api"
	"berth/internal/cli"
	"berth/internal/job"
)

// everyVerb that talks to a daemon, in a form that is good usage.
var everyVerb = []string{
	"submit -- true", "list", "list --json", "top --once", "show 1", "why 1", "logs 1", "logs -f 1", "attach 1", "wait 1", "cancel 1", "hold 1", "release 1",
	"requeue 1", "edit 1 priority=1", "history", "stats", "gpus", "gpu pause 0", "gpu drain 0", "gpu resume all", "gpu quarantine 0", "gpu clear all", "gpu history", "gpu release", "config reload", "backup -", "debug snapshot",
	"token create", "token list", "token revoke 1",
}

func TestWithoutADaemonEveryVerbSaysHowToGetOne(t *testing.T) {
	t.Setenv("BERTH_SOCKET", filepath.Join(t.TempDir(), "none.sock"))
	for _, args := range everyVerb {
		said := berth(strings.Fields(args)...)
		said.wants(t, 1, "", "berth: no daemon answers at ")
		if !strings.Contains(said.err, "\nhint: --socket or BERTH_SOCKET names that socket") || said.out != "" {
			t.Errorf("%s says %q", args, said.err)
		}
	}
}

func TestEveryHelpEndsWithAnExampleAndTheExitStatuses(t *testing.T) {
	for _, args := range append(everyVerb, "start", "stop", "restart", "status", "doctor", "config", "config check", "gpu", "token", "debug") {
		words := strings.Fields(args)
		if words[0] != "gpu" && words[0] != "token" && words[0] != "debug" {
			words = words[:1]
		}
		said := berth(append(words[:min(2, len(words))], "--help")...)
		said.wants(t, 0, "Examples:\n  berth ", "")
		if !strings.Contains(said.out, "Exit status: ") || !strings.Contains(said.out, "interrupted") {
			t.Errorf("%s: %s", args, said.out)
		}
	}
}

func TestWhichJobsAVerbMeans(t *testing.T) {
	f := startFake(t)
	f.add(api.Detail{View: job.View{Name: "train", State: job.Running}})
	f.add(api.Detail{View: job.View{Name: "sweep"}})
	f.add(api.Detail{View: job.View{Name: "sweep", User: "bob"}})
	last := func() api.Select { return f.acts[len(f.acts)-1].Select }
	for _, test := range []struct {
		args string
		want api.Select
		code int
		out  string
		err  string
	}{
		{"cancel 1", api.Select{Words: []string{"1"}}, 0, "job 1: cancel done\n", ""},
		{"hold 1-2,7 @", api.Select{Words: []string{"1-2,7", "@"}}, 1, "job 2: hold done\n", "berth: job 3: it belongs to bob\n"},
		{"release --name sweep --user ann", api.Select{All: true, Name: "sweep", User: "ann"}, 0, "job 2: release done\n", ""},
		{"requeue --state failed,queued", api.Select{All: true, States: []string{"failed", "queued"}}, 1, "job 2: requeue done\n", "berth: job 3: it belongs to bob\n"},
		{"requeue --state failed", api.Select{All: true, States: []string{"failed"}}, 0, "", "berth: no jobs to requeue\n"},
		{"cancel all --all-users", api.Select{All: true, User: "*"}, 1, "job 1: cancel done\njob 2: cancel done\n", "bob"},
		{"cancel all", api.Select{All: true}, 1, "", ""},
	} {
		berth(strings.Fields(test.args)...).wants(t, test.code, test.out, test.err)
		if diff := cmp.Diff(test.want, last()); diff != "" {
			t.Errorf("%s:\n%s", test.args, diff)
		}
	}
	berth("cancel", "--grace", "0", "1").wants(t, 0, "", "")
	if grace := f.acts[len(f.acts)-1].GraceS; grace == nil || *grace != 0 {
		t.Errorf("no grace became %v", grace)
	}
	berth("cancel", "99").wants(t, 1, "", "berth: no job 99\nhint: berth list shows the jobs\n")
	before := len(f.acts)
	for _, verb := range []string{"cancel", "hold", "release", "requeue", "wait"} {
		berth(verb).wants(t, 2, "", "berth: "+verb+": expected at least one job, found none\nhint: berth "+verb+" 17, ")
	}
	berth("cancel", "5-").wants(t, 2, "", `found "5-"`)
	berth("cancel", "--state", "runnning").wants(t, 2, "", "hint: did you mean running?\n")
	berth("cancel", "--grace", "soon", "1").wants(t, 2, "", "--grace: ")
	if len(f.acts) != before {
		t.Error("bad usage reached the daemon")
	}
}

func TestManyJobsAreToldInOneLine(t *testing.T) {
	f := startFake(t)
	for range 30 {
		f.add(api.Detail{})
	}
	said := berth("hold", "1-30")
	said.wants(t, 0, "job 20: hold done\nand 10 jobs more\n", "")
	if n := strings.Count(said.out, "\n"); n != 21 {
		t.Errorf("%d lines", n)
	}
	var acted []api.Acted
	if err := json.Unmarshal([]byte(berth("hold", "1-30", "--json").out), &acted); err != nil || len(acted) != 30 {
		t.Errorf("%d jobs: %v", len(acted), err)
	}
}

func TestWaitReturnsTheLargestStatus(t *testing.T) {
	f := startFake(t)
	for range 5 {
		f.add(api.Detail{View: job.View{State: job.Running}})
	}
	f.end("1", job.OK)
	f.end("2", job.Exited(7))
	f.end("4", job.Exited(2))
	f.end("5", job.OK)
	berth("wait", "1", "2", "4", "5").wants(t, 7, "job 4 failed: exit:2\n", "")
	berth("wait", "1").wants(t, 0, "job 1 finished\n", "")
	berth("wait", "1-2").wants(t, 7, "job 2 failed: exit:7\n", "")
	berth("wait", "-q", "1-2").wants(t, 7, "", "")
	berth("wait", "--any", "2", "3").wants(t, 7, "job 2", "")
	berth("wait", "--timeout", "0.05", "3").wants(t, 1, "", "berth: 1 job has not ended after 0s\n")
	berth("wait", "99").wants(t, 1, "", "no job 99")
	berth("wait", "--name", "none").wants(t, 1, "", "berth: no job has the name none\nhint: ")
	berth("wait", "--name", "none", "--state", "running").wants(t, 0, "", "no jobs to wait for")
	done := make(chan said)
	go func() { done <- berth("wait", "all") }()
	f.end("3", job.Timeout)
	(<-done).wants(t, 124, "job 3 failed: timeout\n", "")
	var jobs []job.View
	said := berth("wait", "--json", "1-3")
	if err := json.Unmarshal([]byte(said.out), &jobs); err != nil || len(jobs) != 3 || said.code != 124 {
		t.Errorf("status %d, %q: %v", said.code, said.out, err)
	}
}

// onWrite does something at whatever is printed.
type onWrite func(text string)

func (do onWrite) Write(p []byte) (int, error) {
	do(string(p))
	return len(p), nil
}

// Of a job that is over already it is said before another one is waited for: this
// one ends when it hears of it.
func TestAWaitSaysAtOnceWhatIsOver(t *testing.T) {
	f := startFake(t)
	f.add(api.Detail{View: job.View{State: job.Running}})
	f.add(api.Detail{View: job.View{State: job.Running}})
	f.end("1", job.OK)
	var said []string
	code := cli.Main([]string{"wait", "1", "2"}, onWrite(func(text string) {
		said = append(said, text)
		f.end("2", job.OK)
	}), io.Discard)
	if want := []string{"job 1 finished\n", "job 2 finished\n"}; code != 0 || !slices.Equal(said, want) {
		t.Errorf("exit status %d, said %q", code, said)
	}
	if asked := f.waits.Load(); asked != 2 {
		t.Errorf("asked %d times: what is over was said when an answer came that had nothing new", asked)
	}
}

func TestAWaitOutlivesTheDaemon(t *testing.T) {
	f := newFakeDaemon()
	socket := filepath.Join(t.TempDir(), "s")
	t.Setenv("BERTH_SOCKET", socket)
	stop := f.serve(t, socket)
	f.add(api.Detail{View: job.View{State: job.Running}})
	done := make(chan said)
	go func() { done <- berth("wait", "1") }()
	waits := func() bool { return f.waits.Load() >= 2 } // one to settle, one that lasts
	if err := f.until(t.Context(), waits); err != nil {
		t.Fatal(err)
	}
	stop()
	f.end("1", job.Exited(5))
	f.serve(t, socket)
	(<-done).wants(t, 5, "job 1 failed: exit:5\n", "")
}

func TestListAsksForWhatIsWanted(t *testing.T) {
	f := startFake(t)
	berth("list").wants(t, 0, "no jobs\n", "")
	f.add(api.Detail{View: job.View{Name: "train", State: job.Running, GPUs: 1}})
	f.add(api.Detail{View: job.View{Name: "a\x1b[2Jb", State: job.Queued, GPUs: 1}})
	f.add(api.Detail{View: job.View{State: job.Finished}})
	said := berth("list")
	said.wants(t, 0, "1 running, 1 queued\n", "")
	said.wants(t, 0, "2   a\ufffd[2Jb  ann   queued   ×1", "")
	for _, test := range []struct {
		args string
		want api.Query
	}{
		{"list", api.Query{Reasons: true, Order: true, Arrays: true, Batches: true}},
		{"list --limit 7", api.Query{Reasons: true, Queue: true, Arrays: true, Batches: true, Limit: 7}},
		{"list --limit 7 --sort -started", api.Query{Reasons: true, Order: true, Arrays: true, Batches: true}},
		{"list --limit 7 --reverse", api.Query{Reasons: true, Order: true, Arrays: true, Batches: true}},
		{"list --batch /jobs.txt", api.Query{Select: api.Select{Batch: "/jobs.txt"}, Reasons: true, Order: true, Arrays: true}},
		{"list --tasks", api.Query{Reasons: true, Order: true}},
		{"list --json", api.Query{Reasons: true}},
		{"list --format csv", api.Query{Reasons: true, Order: true}},
		{"list --all", api.Query{Over: true, Reasons: true, Order: true, Arrays: true, Batches: true}},
		{"list --state failed", api.Query{Select: api.Select{States: []string{"failed"}}, Over: true, Reasons: true, Order: true, Arrays: true, Batches: true}},
		{"list 1-3 -u bob --name x", api.Query{Select: api.Select{Words: []string{"1-3"}, User: "bob", Name: "x"}, Reasons: true, Order: true, Arrays: true}},
		{"list 1_0-3", api.Query{Select: api.Select{Words: []string{"1_0-3"}}, Reasons: true, Order: true}},
		{"history", api.Query{Select: api.Select{States: []string{"finished", "failed", "cancelled"}}, Over: true, Queue: true, Arrays: true, Batches: true, Limit: 50}},
		{"history --tasks", api.Query{Select: api.Select{States: []string{"finished", "failed", "cancelled"}}, Over: true, Queue: true, Limit: 50}},
		{"history --state failed --limit 0", api.Query{Select: api.Select{States: []string{"failed"}}, Over: true, Order: true, Arrays: true, Batches: true}},
	} {
		berth(strings.Fields(test.args)...).wants(t, 0, "", "")
		got := f.queries[len(f.queries)-1]
		if test.want.Limit == 0 {
			got.Limit = 0 // the client's own page
		}
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%s:\n%s", test.args, diff)
		}
	}
	berth("list", "--watch").wants(t, 2, "", "needs a terminal")
	berth("history", "--since", "soon").wants(t, 2, "", "--since: expected")
}

func TestALongListIsCutOnlyForPeople(t *testing.T) {
	f := startFake(t)
	for i := range 120 {
		f.add(api.Detail{View: job.View{Name: fmt.Sprintf("n%d", i), GPUs: 1}})
	}
	if n := strings.Count(berth("list").out, "\n"); n != 122 {
		t.Errorf("a pipe gets %d lines", n)
	}
	berth("list", "--limit", "3").wants(t, 0, "… and 117 more queued (berth list --limit 0 shows all)\n120 queued\n", "")
	for args, want := range map[string]int{"list --json": 120, "list --json --limit 7": 7, "list --json 99999": 0} {
		var jobs []job.View
		said := berth(strings.Fields(args)...)
		if err := json.Unmarshal([]byte(said.out), &jobs); (err != nil || len(jobs) != want || jobs == nil) && want > 0 {
			t.Errorf("%s: %d jobs: %v", args, len(jobs), err)
		}
	}
}

func TestShowAndWhy(t *testing.T) {
	f := startFake(t)
	f.add(api.Detail{View: job.View{Name: "train", GPUs: 2, Held: true}})
	berth("show", "@").wants(t, 0, "job 1 (train)  queued, held\n", "")
	var detail api.Detail
	if err := json.Unmarshal([]byte(berth("show", "1", "--json").out), &detail); err != nil || detail.Name != "train" || !detail.Held {
		t.Errorf("%+v: %v", detail, err)
	}
	berth("show", "7").wants(t, 1, "", "no job 7")
	berth("show").wants(t, 2, "", "berth: expected one job, found 0\nhint: berth show 17")
	berth("why", "1").wants(t, 0, "job 1: needs 2 GPUs; \ufffd[31mnone\ngpu0 is paused\n", "")
	berth("why", "-v", "1").wants(t, 0, "job 1  position 3 of 1,200 in the queue\nreason  needs 2 GPUs; \ufffd[31mnone\nnote    gpu0 is paused\n", "")
	berth("why", "1", "1").wants(t, 0, "job 1: needs 2 GPUs; \ufffd[31mnone\ngpu0 is paused\njob 1: ", "")
	berth("why", "1-1").wants(t, 0, "job 1: needs 2 GPUs", "")
	berth("why", "1-3").wants(t, 1, "", "no job 2")
	berth("why", "1", "7").wants(t, 1, "", "no job 7")
	berth("why").wants(t, 2, "", "berth: expected one job, found 0\nhint: berth why 17")
	var why api.Why
	if err := json.Unmarshal([]byte(berth("why", "1", "--json").out), &why); err != nil || why.Position != 3 {
		t.Errorf("%+v: %v", why, err)
	}
	var both []api.Why
	if err := json.Unmarshal([]byte(berth("why", "1", "@", "--json").out), &both); err != nil || len(both) != 2 || both[1].ID != "1" {
		t.Errorf("%+v: %v", both, err)
	}
}

func TestEditSendsWhatIsToChange(t *testing.T) {
	f := startFake(t)
	f.add(api.Detail{})
	f.add(api.Detail{View: job.View{State: job.Running}})
	dir := t.TempDir()
	t.Chdir(dir)
	for args, want := range map[string]api.Spec{
		"edit 1 --priority 5 --time 2h":     {Priority: "5", Timeout: "2h"},
		"edit 1 vram=24G gpu-ids=1,2 A=1":   {},
		"edit 1 env.A=1 time=90 num_gpus=2": {Env: map[string]string{"A": "1"}, Timeout: "90", GPUs: "2"},
		"edit @~1 -- python x.py":           {Command: api.Command{Argv: []string{"python", "x.py"}}},
		"edit 1 -C sub venv=~/v":            {Dir: api.Text(filepath.Join(dir, "sub")), Venv: "~/v"},
		"edit 1 command=true -p 1":          {Command: api.Command{Shell: "true"}, Priority: "1"},
	} {
		said := berth(strings.Fields(args)...)
		if strings.HasSuffix(args, "A=1") {
			said.wants(t, 2, "", "unknown key")
			continue
		}
		said.wants(t, 0, "job 1: changed ", "")
		if diff := cmp.Diff(want, f.edits[len(f.edits)-1].Set); diff != "" {
			t.Errorf("%s:\n%s", args, diff)
		}
	}
	berth("edit", "2", "priority=1").wants(t, 1, "", "berth: job 2 is running\n")
	berth("edit", "1", "--gpus", "x").wants(t, 2, "", "hint: see berth edit --help\n")
	berth("list", "--limit", "-1").wants(t, 2, "", "berth: --limit: expected 0 or more, found -1\n")
	berth("history", "--limit", "-1").wants(t, 2, "", "berth: --limit: expected 0 or more, found -1\n")
	berth("edit").wants(t, 2, "", "expected a job, found nothing")
	berth("edit", "1").wants(t, 2, "", "expected a change, found none")
	berth("edit", "1", "priority").wants(t, 2, "", "expected KEY=VALUE")
}

func TestTheMachinesVerbs(t *testing.T) {
	f := startFake(t)
	berth("gpus").wants(t, 0, "no GPUs\n", "")
	f.gpus = []api.GPU{{Index: 0, Name: "A100", TotalMiB: 1024, Health: "ok", Jobs: []api.GPUJob{}}, {Index: 1, Name: "A100", TotalMiB: 1024, Health: "ok", Jobs: []api.GPUJob{}}}
	berth("gpu", "pause", "0-1").wants(t, 0, "gpu0: paused\ngpu1: paused\n", "")
	berth("gpus").wants(t, 0, "ok, paused", "")
	berth("gpu", "resume", "all").wants(t, 0, "gpu0: resumed\ngpu1: resumed\n", "")
	berth("gpu", "pause", "7").wants(t, 1, "", "there is no gpu7")
	berth("gpu", "pause").wants(t, 2, "", "expected GPUs to pause, found none")
	berth("gpu", "pause", "first").wants(t, 2, "", `found "first"`)
	berth("gpu", "puase", "1").wants(t, 2, "", `hint: did you mean berth gpu pause?`)
	var gpus []map[string]any
	if err := json.Unmarshal([]byte(berth("gpus", "--json").out), &gpus); err != nil || len(gpus) != 2 {
		t.Fatalf("%v: %v", gpus, err)
	}
	for _, key := range strings.Fields("index uuid name total_mib used_mib free_mib foreign_mib util health paused stale jobs") {
		if _, there := gpus[0][key]; !there {
			t.Errorf("a card has no %s", key)
		}
	}
	berth("gpus", "-v").wants(t, 0, "the driver does not list the processes on gpu 0,1\nno processes\n", "")
	f.gpus[1].Processes = []api.GPUProcess{{PID: 7, User: "ann", Command: "Xorg", Graphics: true}}
	berth("gpus", "-v").wants(t, 0, "  1    7  ann   Xorg          -  graphics  -\n", "")
	berth("gpu", "quarantine", "1", "--reason", "fan is loud").wants(t, 0, "gpu1: quarantined\n", "")
	berth("gpus").wants(t, 0, "quarantined: fan is loud", "")
	berth("gpu", "clear", "0-1").wants(t, 0, "gpu0: cleared\ngpu1: cleared\n", "")
	berth("gpu", "quarantine", "7").wants(t, 1, "", "there is no gpu7")
	berth("gpu", "clear").wants(t, 2, "", "expected GPUs to clear, found none")
	berth("gpu", "history", "1").wants(t, 0, "gpu1 quarantined by ", "")
	berth("gpu", "history", "gpu1", "-n", "1").wants(t, 0, "gpu1 ok by ", "")
	berth("gpu", "history", "--since", "tomorrow").wants(t, 2, "", "--since: expected")
	berth("gpu", "history", "--limit", "1001").wants(t, 2, "", "expected 1 to 1000")
	berth("gpu", "release", "--for", "90s", "--force").wants(t, 0, "driver released until ", "")
	berth("gpu", "release", "--end").wants(t, 0, "the driver is in use again\n", "")
	if f.releases[0] != (api.ReleaseRequest{ForS: 90, Force: true}) || f.releases[1] != (api.ReleaseRequest{End: true}) {
		t.Errorf("%+v", f.releases)
	}
	berth("gpu", "release", "--for", "25h").wants(t, 2, "", "expected 1s to 24h")
	f.holdsNothing = true
	berth("gpu", "release").wants(t, 0, "there is nothing to let go of\n", "")
	berth("stats", "--since", "30d", "--until", "1d", "-u", "ann").wants(t, 0, "GPU-hours  12.5\n", "")
	q := f.stats[0]
	if q.User != "ann" || q.Until == nil || q.Since == nil || q.Until.Sub(*q.Since).Round(time.Hour) != 29*24*time.Hour {
		t.Errorf("%+v", q)
	}
	berth("stats", "--since", "1d", "--until", "2d").wants(t, 2, "", "expected --since before --until")
	berth("stats", "now").wants(t, 2, "", `found "now"`)
}

func TestTokens(t *testing.T) {
	f := startFake(t)
	berth("token", "list").wants(t, 0, "no tokens\n", "")
	said := berth("token", "create", "--name", "laptop", "--ttl", "7d")
	said.wants(t, 0, "s3cret\n", "berth: token 1, valid until ")
	if said.out != "s3cret\n" {
		t.Errorf("stdout is not the secret alone: %q", said.out)
	}
	if left := time.Until(f.tokens[0].Expires).Round(time.Hour); left != 7*24*time.Hour {
		t.Errorf("it is good for %s", left)
	}
	said = berth("token", "list")
	said.wants(t, 0, "laptop", "")
	if strings.Contains(said.out, "s3cret") {
		t.Error("the list shows a secret")
	}
	berth("token", "revoke", "1").wants(t, 0, "revoked token 1\n", "")
	berth("token", "revoke", "1").wants(t, 1, "", "there is no token 1")
	berth("token", "revoke").wants(t, 2, "", "expected the id of a token")

	used := time.Now().Add(-time.Hour)
	own := api.Token{ID: "5", User: "ann", Expires: time.Now().Add(time.Hour), Used: &used, UsedFrom: "10.1.2.3"}
	f.tokens = []api.Token{own, {ID: "6", User: "bob", Expires: own.Expires}}
	berth("token", "list").wants(t, 0, "10.1.2.3", "")
	berth("token", "list", "--json").wants(t, 0, `"used_from":"10.1.2.3"`, "")
	berth("token", "revoke", "--all", "6").wants(t, 2, "", "expected ids or --all, found both")
	berth("token", "revoke", "--user", "bob").wants(t, 2, "", "expected --all beside it")
	berth("token", "revoke", "--user", "bob", "6").wants(t, 2, "", "expected --all beside it")
	berth("token", "revoke", "--all").wants(t, 0, "revoked token 5\n", "")
	berth("token", "revoke", "--all").wants(t, 0, "no tokens\n", "")
	berth("token", "revoke", "--all", "--user", "bob").wants(t, 0, "revoked token 6\n", "")
}

func TestABackupIsWholeOrNotThere(t *testing.T) {
	startFake(t)
	dir := t.TempDir()
	file := filepath.Join(dir, "b")
	berth("backup", file).wants(t, 0, "wrote "+file, "")
	content, err := os.ReadFile(file)
	info, statErr := os.Stat(file)
	if err != nil || statErr != nil || string(content) != "every job there is" || info.Mode().Perm() != 0o600 {
		t.Fatalf("%q, %v, %v", content, info.Mode(), err)
	}
	if err := os.WriteFile(file, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	berth("backup", file).wants(t, 1, "", "already exists\nhint: choose another file, or replace it with --force\n")
	if content, _ := os.ReadFile(file); string(content) != "mine" {
		t.Errorf("it was overwritten: %q", content)
	}
	berth("backup", "--force", file).wants(t, 0, "wrote", "")
	berth("backup", "-").wants(t, 0, "every job there is", "")
	berth("backup").wants(t, 2, "", "expected one file")
	berth("backup", filepath.Join(dir, "none", "b")).wants(t, 1, "", "no such file")
	if left, _ := os.ReadDir(dir); len(left) != 1 {
		t.Errorf("it left %v behind", left)
	}
}

func TestLogs(t *testing.T) {
	f := startFake(t)
	f.add(api.Detail{View: job.View{State: job.Running, Attempt: 1}})
	f.add(api.Detail{View: job.View{Reason: func() *string { s := "needs 2 GPUs"; return &s }()}})
	f.write("1", "one\ntwo\x1b[2J\nthree\n", false)
	berth("logs", "1").wants(t, 0, "one\ntwo\x1b[2J\nthree\n", "")
	if said := berth("logs", "-n", "1", "1"); said.out != "three\n" {
		t.Errorf("the last line is %q", said.out)
	}
	berth("logs", "2").wants(t, 1, "", "job 2 has not started and has no log yet\nhint: berth why 2 explains why; berth logs -f 2 waits for its output\n")
	done := berthUntil(t, "berth: job 2 has not started (needs 2 GPUs); waiting for its output\n", "logs", "-f", "2")
	f.write("2", "late\n", true)
	f.change("2", func(d *api.Detail) { d.Attempt = 1 })
	f.end("2", job.OK)
	(<-done).wants(t, 0, "late\n", "")
}

func TestALogIsFollowedThroughItsAttempts(t *testing.T) {
	f := startFake(t)
	f.add(api.Detail{View: job.View{State: job.Running, Attempt: 1}})
	f.write("1", "first\n", true)
	f.write("1/2", "second\n", true)
	f.change("1", func(d *api.Detail) { d.View.State = job.Queued })
	done := berthUntil(t, "berth: job 1 is queued; waiting for attempt 2\n", "logs", "-f", "1")
	f.change("1", func(d *api.Detail) { d.Attempt, d.View.State = 2, job.Running })
	f.end("1", job.OK)
	(<-done).wants(t, 0, "first\nsecond\n", "")
}

func TestALogIsFollowedThroughARestartOfTheDaemon(t *testing.T) {
	f := newFakeDaemon()
	socket := filepath.Join(t.TempDir(), "s")
	t.Setenv("BERTH_SOCKET", socket)
	stop := f.serve(t, socket)
	f.add(api.Detail{View: job.View{State: job.Running, Attempt: 1}})
	f.write("1", "before\n", false)
	done := make(chan said)
	go func() { done <- berth("logs", "-f", "1") }()
	if err := f.until(t.Context(), func() bool { return f.read > 0 }); err != nil {
		t.Fatal(err)
	}
	stop()
	f.write("1", "after\n", true)
	f.end("1", job.OK)
	f.serve(t, socket)
	if said := <-done; said.code != 0 || said.out != "before\nafter\n" {
		t.Errorf("status %d, it showed %q, and said %q", said.code, said.out, said.err)
	}
}

func TestSubmitInteractiveShowsTheOutputAndReturnsTheStatus(t *testing.T) {
	f := startFake(t)
	done := make(chan said)
	go func() { done <- berth("submit", "-i", "--", "true") }()
	if err := f.until(t.Context(), func() bool { return len(f.jobs) == 1 }); err != nil {
		t.Fatal(err)
	}
	f.write("1", "hello\n", true)
	f.change("1", func(d *api.Detail) { d.Attempt = 1 })
	f.end("1", job.Exited(4))
	said := <-done
	said.wants(t, 4, "hello\n", "submitted job 1\n")
	said.wants(t, 4, "", "berth: job 1 failed: exit:4\n")
	if said.out != "hello\n" || !f.lastSubmission(t).Interactive {
		t.Errorf("stdout is %q", said.out)
	}
}

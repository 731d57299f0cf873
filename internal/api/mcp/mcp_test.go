package mcp

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/creack/pty"

	"berth/internal/tests/testkit"
)

// programs is where berth was built.
var programs string

func TestMain(m *testing.M) {
	os.Exit(testkit.RunWith(m, func(dir string) { programs = dir }, "cmd/berth", "cmd/berth-keep"))
}

// site is a daemon with two simulated GPUs, and agents that talk to it.
type site struct {
	t   *testing.T
	dir string
	env []string
}

func newSite(t *testing.T) *site {
	t.Helper()
	dir, err := os.MkdirTemp("", "mcp") // the path of a socket is short
	testkit.Must(t, err)
	s := &site{t: t, dir: dir, env: []string{
		"PATH=" + programs + ":" + os.Getenv("PATH"), "HOME=" + dir, "BERTH_SOCKET=" + filepath.Join(dir, "sock"), "BERTH_LEDGER_DIR=" + filepath.Join(dir, "ledger"),
	}}
	daemon := s.berth("serve", "--private", "--sim", "2", "--state-dir", filepath.Join(dir, "state"), "--socket", filepath.Join(dir, "sock"))
	testkit.Must(t, daemon.Start())
	t.Cleanup(func() {
		_, _ = s.berth("cancel", "all", "--grace", "0").CombinedOutput() // nothing may be left to cancel
		testkit.Must(t, daemon.Process.Signal(syscall.SIGTERM))
		_ = daemon.Wait() // it was told to stop
		testkit.Must(t, os.RemoveAll(dir))
	})
	testkit.Eventually(t, "the daemon answers", func() bool { return s.berth("status").Run() == nil })
	return s
}

func (s *site) berth(args ...string) *exec.Cmd {
	cmd := exec.Command(filepath.Join(programs, "berth"), args...)
	cmd.Env, cmd.Dir = s.env, s.dir
	return cmd
}

// agent is at the other end of a real berth mcp.
type agent struct {
	t      *testing.T
	to     io.Writer
	from   *bufio.Scanner
	lastID int
}

func (s *site) agent(flags ...string) *agent {
	s.t.Helper()
	cmd := s.berth(append([]string{"mcp"}, flags...)...)
	to, err := cmd.StdinPipe()
	testkit.Must(s.t, err)
	from, err := cmd.StdoutPipe()
	testkit.Must(s.t, err)
	testkit.Must(s.t, cmd.Start())
	a := &agent{t: s.t, to: to, from: bufio.NewScanner(from)}
	a.from.Buffer(nil, maxMessage)
	s.t.Cleanup(func() {
		testkit.Must(s.t, to.Close())
		testkit.Must(s.t, cmd.Wait())
	})
	a.request("initialize", map[string]any{"protocolVersion": "2025-06-18"}, nil)
	_, err = io.WriteString(to, `{"jsonrpc":"2.0","method":"notifications/initialized"}`+"\n")
	testkit.Must(s.t, err)
	return a
}

// request sends a request and reads its answer.
func (a *agent) request(method string, params map[string]any, result any) *refusal {
	a.t.Helper()
	a.lastID++
	data, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": a.lastID, "method": method, "params": params})
	testkit.Must(a.t, err)
	_, err = a.to.Write(append(data, '\n'))
	testkit.Must(a.t, err)
	if !a.from.Scan() {
		a.t.Fatalf("%s: no answer: %v", data, a.from.Err())
	}
	answer := struct {
		ID     int
		Result any
		Error  *refusal
	}{Result: result}
	if err := json.Unmarshal(a.from.Bytes(), &answer); err != nil || answer.ID != a.lastID {
		a.t.Fatalf("%s: %v in %s", data, err, a.from.Text())
	}
	return answer.Error
}

// call calls a tool and returns its text.
func call(t *testing.T, agent *agent, tool string, args map[string]any) (text string, failed bool) {
	t.Helper()
	var result struct {
		Content []struct{ Type, Text string }
		IsError bool
	}
	if refused := agent.request("tools/call", map[string]any{"name": tool, "arguments": args}, &result); refused != nil {
		t.Fatalf("%s %v: %v", tool, args, refused)
	}
	var parts []string
	for _, content := range result.Content {
		if content.Type != "text" {
			t.Errorf("%s %v: content of type %q", tool, args, content.Type)
		}
		parts = append(parts, content.Text)
	}
	return strings.Join(parts, "\n"), result.IsError
}

// answered is a call that works, read into a value.
func answered[T any](t *testing.T, agent *agent, tool string, args map[string]any) (value T) {
	t.Helper()
	text, failed := call(t, agent, tool, args)
	if failed {
		t.Fatalf("%s %v: %s", tool, args, text)
	}
	if err := json.Unmarshal([]byte(text), &value); err != nil {
		t.Fatalf("%s %v: %v in %s", tool, args, err, text)
	}
	return value
}

// page is a list of jobs.
type page struct {
	Jobs []struct {
		ID, Name, State, Outcome, Reason, Command string
		Done                                      bool
	}
	LeftOut  int `json:"left_out"`
	Matching any
}

func refused(t *testing.T, agent *agent, tool string, args map[string]any, words ...string) {
	t.Helper()
	text, failed := call(t, agent, tool, args)
	for _, word := range words {
		if !failed || !strings.Contains(text, word) {
			t.Errorf("%s %v: failed %v: %s, want %q", tool, args, failed, text, word)
		}
	}
}

// TestAnAgentOnlyReadsUnlessItMayWrite: the tools that change something are not
// there without --write. What each tool says is in testdata.
func TestAnAgentOnlyReadsUnlessItMayWrite(t *testing.T) {
	s := newSite(t)
	reader := s.agent()
	for file, agent := range map[string]*agent{"reading.json": reader, "writing.json": s.agent("--write")} {
		var list struct{ Tools json.RawMessage }
		if refused := agent.request("tools/list", nil, &list); refused != nil {
			t.Fatal(refused)
		}
		var shown bytes.Buffer
		testkit.Must(t, json.Indent(&shown, list.Tools, "", "  "))
		testkit.Golden(t, filepath.Join("testdata", file), append(shown.Bytes(), '\n'))
	}
	if refused := reader.request("tools/call", map[string]any{"name": "cancel", "arguments": map[string]any{"jobs": []string{"1"}}}, nil); refused == nil || refused.Code != badParameters {
		t.Errorf("cancel without --write: %v", refused)
	}
}

// TestAnAgentWorksWithJobs: from the submission to the end, as a person would.
func TestAnAgentWorksWithJobs(t *testing.T) {
	s := newSite(t)
	agent := s.agent("--write")
	dry := answered[page](t, agent, "submit", map[string]any{"command": "true", "gpus": 99, "dry_run": true})
	if len(dry.Jobs) != 1 || dry.Jobs[0].State != "infeasible" || dry.Jobs[0].ID != "" {
		t.Errorf("a dry run: %+v", dry)
	}
	first := answered[page](t, agent, "submit", map[string]any{"command": "echo $GREETING from $PWD", "name": "hello", "gpus": 0.5, "vram": "2G", "time": "1h", "env": map[string]string{"GREETING": "salut"}, "dir": "/usr", "options": map[string]string{"retries": "1"}})
	id := first.Jobs[0].ID
	testkit.Eventually(t, "the job has ended", func() bool {
		jobs := answered[page](t, agent, "list", map[string]any{"jobs": []string{id}}).Jobs
		return len(jobs) == 1 && jobs[0].State == "finished"
	})
	if text, _ := call(t, agent, "logs", map[string]any{"job": "hello"}); !strings.Contains(text, "\nsalut from /usr") {
		t.Errorf("its log is %q", text)
	}
	detail := answered[struct {
		Name, Outcome string
		Settings      map[string]string
	}](t, agent, "show", map[string]any{"job": id})
	if detail.Name != "hello" || detail.Outcome != "ok" || detail.Settings["retries"] != "1" {
		t.Errorf("shown as %+v", detail)
	}
	if past := answered[page](t, agent, "history", map[string]any{"since": "1h"}); len(past.Jobs) != 1 || past.Jobs[0].Outcome != "ok" {
		t.Errorf("its history is %+v", past)
	}
	if sums := answered[struct{ All struct{ Jobs int } }](t, agent, "stats", nil); sums.All.Jobs != 1 {
		t.Errorf("summed up as %+v", sums)
	}
	if cards := answered[struct{ GPUs []struct{ Health string } }](t, agent, "gpus", nil); len(cards.GPUs) != 2 || cards.GPUs[0].Health != "ok" {
		t.Errorf("the GPUs are %+v", cards)
	}
	// A job that waits, is held, released, cancelled and requeued.
	running := answered[page](t, agent, "submit", map[string]any{"command": "sleep 600", "gpus": 2}).Jobs[0].ID
	waiting := answered[page](t, agent, "submit", map[string]any{"command": "true"}).Jobs[0].ID
	testkit.Eventually(t, "the other one waits for it", func() bool {
		text, _ := call(t, agent, "why", map[string]any{"job": waiting})
		return strings.Contains(text, running) && strings.Contains(text, `"state":"queued"`)
	})
	for _, step := range []struct{ tool, state string }{{"hold", "queued"}, {"release", "queued"}, {"cancel", "cancelled"}, {"requeue", "queued"}} {
		if acted := answered[page](t, agent, step.tool, map[string]any{"jobs": []string{waiting}}); len(acted.Jobs) != 1 || !acted.Jobs[0].Done {
			t.Errorf("%s: %+v", step.tool, acted)
		}
		testkit.Eventually(t, step.tool+" has its effect", func() bool {
			jobs := answered[page](t, agent, "list", map[string]any{"jobs": []string{waiting}}).Jobs
			return len(jobs) == 1 && jobs[0].State == step.state
		})
	}
}

// TestRefusalsAreInBerthsWords: as errors of the tool, with the next step.
func TestRefusalsAreInBerthsWords(t *testing.T) {
	agent := newSite(t).agent("--write")
	for _, c := range []struct {
		tool  string
		args  map[string]any
		words []string
	}{
		{"show", map[string]any{"job": "99"}, []string{"there is no job 99", "hint: "}},
		{"why", map[string]any{"job": "nobody"}, []string{"nobody"}},
		{"logs", map[string]any{"job": "99"}, []string{"there is no job 99"}},
		{"logs", map[string]any{"job": "1", "lines": 5, "offset": 3}, []string{"expected lines or offset, found both"}},
		{"logs", map[string]any{"job": "1", "lines": 100000}, []string{"lines: expected 1 to 2000"}},
		{"logs", map[string]any{"job": "1", "bytes": 1 << 20}, []string{"bytes: expected 1 to 65536"}},
		{"list", map[string]any{"limit": 1000}, []string{"limit: expected 1 to 200"}},
		{"list", map[string]any{"states": []string{"asleep"}}, []string{"asleep"}},
		{"history", map[string]any{"since": "yore"}, []string{"since: expected a time back from now"}},
		{"submit", map[string]any{"command": " "}, []string{"command: expected a shell line"}},
		{"submit", map[string]any{"command": "true", "dir": "here"}, []string{"dir: expected an absolute path"}},
		{"submit", map[string]any{"command": "true", "dir": "/nonexistent"}, []string{"/nonexistent"}},
		{"submit", map[string]any{"command": "true", "gpus": 99}, []string{"99 GPUs"}},
		{"submit", map[string]any{"command": "true", "options": map[string]string{"gpuz": "1"}}, []string{`there is no key "gpuz"`, "berth help jobspec"}},
		{"submit", map[string]any{"command": "true", "name": "a", "options": map[string]string{"name": "b"}}, []string{"name is given twice"}},
		{"cancel", map[string]any{"jobs": []string{}}, []string{"jobs: expected 1 to 100"}},
		{"cancel", map[string]any{"jobs": []string{"all"}}, []string{"expected ids or names", "hint: list shows the jobs"}},
		{"cancel", map[string]any{"jobs": []string{"sweep-*"}}, []string{"expected ids or names"}},
		{"cancel", map[string]any{"jobs": []string{"1-1000"}}, []string{"at most 100 jobs"}},
		{"cancel", map[string]any{"jobs": []string{"99"}}, []string{"there is no such job"}},
		{"gpus", map[string]any{"verbose": true}, []string{"verbose"}},
	} {
		refused(t, agent, c.tool, c.args, c.words...)
	}
}

// TestHostileTextIsCleaned: what a job prints and is called controls no terminal
// of whoever reads the agent's words.
func TestHostileTextIsCleaned(t *testing.T) {
	s := newSite(t)
	agent := s.agent("--write")
	script := `printf '\033[31mred\033[0m \033]0;title\007 \033[2Jgone\n10%%\r20%%\r100%%\r\n\342\200\256back\377\n'`
	id := answered[page](t, agent, "submit", map[string]any{"command": script + " # \x1b[31m", "gpus": 0}).Jobs[0].ID
	var log string
	testkit.Eventually(t, "the job has printed", func() bool {
		log, _ = call(t, agent, "logs", map[string]any{"job": id})
		return strings.Contains(log, "back")
	})
	for _, want := range []string{"red ␛]0;title␇ ␛[2Jgone\n", "\n100%\n", "\uFFFDback\uFFFD"} {
		if !strings.Contains(log, want) {
			t.Errorf("the log is %q, want %q", log, want)
		}
	}
	shown, _ := call(t, agent, "show", map[string]any{"job": id})
	listed, _ := call(t, agent, "list", map[string]any{"ended": true})
	for _, text := range []string{log, shown, listed} {
		if strings.ContainsAny(text, "\x1b\x07\r") || strings.Contains(text, `\u001b`) {
			t.Errorf("a control character is left in %q", text)
		}
	}
}

// TestALongLogIsReadInParts: each part is bounded, and together they are the log.
func TestALongLogIsReadInParts(t *testing.T) {
	s := newSite(t)
	agent := s.agent("--write")
	id := answered[page](t, agent, "submit", map[string]any{"command": "seq 1 20000; touch " + s.dir + "/done", "gpus": 0}).Jobs[0].ID
	testkit.Eventually(t, "the job has ended", func() bool {
		return answered[struct{ State string }](t, agent, "show", map[string]any{"job": id}).State == "finished"
	})
	last, _ := call(t, agent, "logs", map[string]any{"job": id, "lines": 3})
	if !strings.HasSuffix(last, "\n19998\n19999\n20000") || !strings.Contains(last, "its end so far") {
		t.Errorf("the last lines are %q", last)
	}
	// 2000 lines are 12000 bytes; of those, the last 1000.
	cut, _ := call(t, agent, "logs", map[string]any{"job": id, "lines": 2000, "bytes": 1000})
	if !strings.HasSuffix(cut, "\n20000") || len(cut) > 1100 {
		t.Errorf("%d bytes: %q", len(cut), cut)
	}
	var all strings.Builder
	for offset, parts := int64(0), 0; ; parts++ {
		text, failed := call(t, agent, "logs", map[string]any{"job": id, "offset": offset, "bytes": 30000})
		if failed || parts > 10 {
			t.Fatalf("part %d: %s", parts, text)
		}
		heading, part, _ := strings.Cut(text, "\n")
		all.WriteString(part)
		var attempt int
		var from, next int64
		if _, err := fmt.Sscanf(heading, "job "+id+", attempt %d, bytes %d to %d of", &attempt, &from, &next); err != nil || from != offset {
			t.Fatalf("the heading is %q (%v)", heading, err)
		}
		if !strings.Contains(heading, "there is more") {
			break
		}
		offset = next
	}
	// A part that ends with a line loses that line's end.
	joined := strings.ReplaceAll(all.String(), "\n", "")
	var want strings.Builder
	for n := 1; n <= 20000; n++ {
		fmt.Fprint(&want, n)
	}
	if joined != want.String() {
		t.Errorf("the parts are %d characters, want %d", len(joined), want.Len())
	}
}

// TestAnAgentWithoutADaemonIsToldSo: and can go on when there is one.
func TestAnAgentWithoutADaemonIsToldSo(t *testing.T) {
	s := newSite(t)
	s.env = append(s.env, "BERTH_SOCKET="+filepath.Join(s.dir, "nowhere"))
	refused(t, s.agent(), "list", nil, "no daemon answers", "hint: ")
	s.env = s.env[:len(s.env)-1]
}

// TestOthersThanAgentsAreToldSo: a person at a terminal, and a program that speaks
// another language. One that says nothing and leaves is fine.
func TestOthersThanAgentsAreToldSo(t *testing.T) {
	s := newSite(t)
	for _, c := range []struct {
		input  string
		status int
		words  string
	}{
		{"", 0, ""},
		{"hello\n", 0, ""}, // it is told so, below
		{strings.Repeat("x", maxMessage+1) + "\n", 1, "berth: expected messages of the Model Context Protocol: "},
		{"{\"jsonrpc\": \"2.0\", \"id\": 1, \"method\": \"tools/list\"}\n", 0, ""}, // before it has introduced itself
	} {
		cmd := s.berth("mcp", "--write")
		cmd.Stdin = strings.NewReader(c.input)
		var errOut strings.Builder
		cmd.Stderr = &errOut
		_ = cmd.Run() // its status is looked at
		if cmd.ProcessState.ExitCode() != c.status || !strings.Contains(errOut.String(), c.words) {
			t.Errorf("%q ends with %d and %q", c.input, cmd.ProcessState.ExitCode(), errOut.String())
		}
	}
	typed := s.berth("mcp")
	terminal, err := pty.Start(typed)
	testkit.Must(t, err)
	defer terminal.Close()
	said, _ := io.ReadAll(terminal) // a terminal ends with an error
	_ = typed.Wait()
	if typed.ProcessState.ExitCode() != 2 || !strings.Contains(string(said), "berth mcp is started by an agent, not on a terminal") {
		t.Errorf("on a terminal it ends with %d and says %q", typed.ProcessState.ExitCode(), said)
	}
}

// TestABadLineIsAnsweredAndTheRestToo: one line that is not JSON does not end the
// server, and what was asked before the input ended is answered.
func TestABadLineIsAnsweredAndTheRestToo(t *testing.T) {
	s := newSite(t)
	cmd := s.berth("mcp")
	cmd.Stdin = strings.NewReader(strings.Join([]string{
		`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`,
		`{"jsonrpc":"2.0","method":"notifications/initialized"}`, `hello`, ``,
		`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"list","arguments":{}}}`,
		`{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"gpus","arguments":{}}}`,
	}, "\n"))
	out, err := cmd.Output()
	testkit.Must(t, err)
	for _, want := range []string{`"id":1,`, `"id":null,"error":{"code":-32700,`, `"id":2,"result"`, `"id":3,"result"`} {
		if !strings.Contains(string(out), want) {
			t.Errorf("%s is not in the answers\n%s", want, out)
		}
	}
}

// TestNumbersAreWords: agents write ids and options as numbers.
func TestNumbersAreWords(t *testing.T) {
	s := newSite(t)
	agent := s.agent("--write")
	id := answered[page](t, agent, "submit", map[string]any{"command": "true", "options": map[string]any{"retries": 1, "hold": true, "gpus": 0}}).Jobs[0].ID
	number, err := strconv.Atoi(id)
	testkit.Must(t, err)
	if why, failed := call(t, agent, "why", map[string]any{"job": number}); failed || !strings.Contains(why, "held") {
		t.Errorf("why %d: %s", number, why)
	}
	if jobs := answered[page](t, agent, "cancel", map[string]any{"jobs": []any{number}}).Jobs; len(jobs) != 1 || !jobs[0].Done {
		t.Errorf("cancel %d: %+v", number, jobs)
	}
	refused(t, agent, "why", map[string]any{"id": 1, "job": 1}, `expected the arguments job, found "id"`)
	refused(t, agent, "gpus", map[string]any{"id": 1}, `expected no arguments, found "id"`)
}

func TestAnswersAreBounded(t *testing.T) {
	long := strings.Repeat("x", 10000)
	fit, left, err := rows(slices.Repeat([]map[string]string{{"name": long, "gone": ""}}, 500))
	testkit.Must(t, err)
	if len(fit)+left != 500 || left == 0 || len(fit) < 100 {
		t.Errorf("%d rows fit, %d are left", len(fit), left)
	}
	if _, err := answer(slices.Repeat([]string{long}, 100)); err == nil || !strings.Contains(err.Error(), "at most 65536 are sent") {
		t.Errorf("an answer that is too long: %v", err)
	}
	clean, err := cleaned(map[string]any{"a": nil, "b": long, "c": []any{"\x1b[2J", 1.5}, "d\x07": true}, 10)
	testkit.Must(t, err)
	data, err := json.Marshal(clean)
	testkit.Must(t, err)
	if string(data) != `{"b":"xxxxxxxxxx…","c":["`+"\uFFFD"+`[2J",1.5],"d`+"\uFFFD"+`":true}` {
		t.Errorf("cleaned: %s", data)
	}
}

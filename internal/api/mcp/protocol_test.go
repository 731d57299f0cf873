package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"berth/internal/api"
	"berth/internal/tests/testkit"
)

const hello = `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"%s","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`

// said is what a server without a daemon answers to lines.
func said(t *testing.T, lines ...string) []string {
	t.Helper()
	var out testkit.Buffer
	in := io.NopCloser(strings.NewReader(strings.Join(lines, "\n")))
	testkit.Must(t, Serve(t.Context(), in, &out, options(nil)))
	return strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
}

func options(submit func(context.Context, api.Spec, bool) (api.SubmitReply, error)) Options {
	return Options{Version: "7", Write: true, Submit: submit, Explain: func(err error) error { return err }}
}

// TestMessagesAreThoseOfJSONRPC: each line has the answer that JSON-RPC 2.0 and the
// Model Context Protocol say, and the conversation goes on.
func TestMessagesAreThoseOfJSONRPC(t *testing.T) {
	introduced := fmt.Sprintf(hello, "2025-06-18")
	for _, c := range []struct{ line, answer string }{
		{`{"jsonrpc":"2.0","id":"a","method":"ping"}`, `{"jsonrpc":"2.0","id":"a","result":{}}`},
		{`{"jsonrpc":"2.0","id":9007199254740993,"method":"ping","params":null}` + "\r", `{"jsonrpc":"2.0","id":9007199254740993,"result":{}}`},
		{`{"jsonrpc":"2.0","method":"notifications/initialized"}`, ``},
		{`{"jsonrpc":"2.0","method":"tools/list"}`, ``}, // without an id
		{`{"jsonrpc":"2.0","method":"no/such","params":5}`, ``},
		{`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":99}}`, ``},
		{`{"jsonrpc":"2.0","id":1,"result":{}}`, ``},
		{`nonsense`, `"id":null,"error":{"code":-32700,`},
		{`17`, `"id":null,"error":{"code":-32600,`},
		{`{}`, `"id":null,"error":{"code":-32600,`},
		{`[]`, `"id":null,"error":{"code":-32600,`},
		{`[{"jsonrpc":"2.0","id":1,"method":"ping"}]`, `"id":null,"error":{"code":-32600,`},
		{`{"jsonrpc":"1.0","id":1,"method":"ping"}`, `"id":1,"error":{"code":-32600,`},
		{`{"id":1,"method":"ping"}`, `"id":1,"error":{"code":-32600,`},
		{`{"jsonrpc":"2.0","id":1,"method":5}`, `"id":1,"error":{"code":-32600,`},
		{`{"jsonrpc":"2.0","id":1}`, `"id":1,"error":{"code":-32600,`},
		{`{"jsonrpc":"2.0","id":null,"method":"ping"}`, `"id":null,"error":{"code":-32600,`},
		{`{"jsonrpc":"2.0","id":{},"method":"ping"}`, `"id":null,"error":{"code":-32600,`},
		{introduced, `"id":0,"error":{"code":-32600,`}, // again
		{`{"jsonrpc":"2.0","id":1,"method":"no/such"}`, `"id":1,"error":{"code":-32601,"message":"method not found: \"no/such\""}`},
		{`{"jsonrpc":"2.0","id":1,"method":"server/discover"}`, `"id":1,"error":{"code":-32601,`},
		{`{"jsonrpc":"2.0","id":1,"method":"tools/list","params":[1]}`, `"id":1,"error":{"code":-32602,`},
		{`{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"cursor":"x"}}`, `"id":1,"error":{"code":-32602,`},
		{`{"jsonrpc":"2.0","id":1,"method":"tools/call"}`, `"id":1,"error":{"code":-32602,"message":"unknown tool \"\""}`},
		{`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":5}}`, `"id":1,"error":{"code":-32602,`},
		{`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"fly"}}`, `"id":1,"error":{"code":-32602,"message":"unknown tool \"fly\""}`},
	} {
		// The ping after it is answered too.
		answers := said(t, introduced, c.line, `{"jsonrpc":"2.0","id":"end","method":"ping"}`)
		got := strings.Join(answers[1:len(answers)-1], "\n")
		if !strings.Contains(got, c.answer) || (got == "") != (c.answer == "") || answers[len(answers)-1] != `{"jsonrpc":"2.0","id":"end","result":{}}` {
			t.Errorf("%s is answered with %q, want %q", c.line, answers[1:], c.answer)
		}
	}
}

// TestTheVersionIsNegotiated: an agent gets the version it asks for, or the newest
// that can be asked for; before that it gets no tools.
func TestTheVersionIsNegotiated(t *testing.T) {
	for asked, want := range map[string]string{"2024-11-05": "2024-11-05", "2025-06-18": "2025-06-18", modern: "2025-11-25", "1999-01-01": "2025-11-25", "": "2025-11-25"} {
		if got := said(t, fmt.Sprintf(hello, asked))[0]; !strings.Contains(got, `"protocolVersion":"`+want+`"`) || !strings.Contains(got, `"serverInfo":{"name":"berth",`) || !strings.Contains(got, `"capabilities":{"tools":{}}`) || !strings.Contains(got, `"instructions":"berth is`) {
			t.Errorf("%q is answered with %s, want %s", asked, got, want)
		}
	}
	if got := said(t, `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`)[0]; !strings.Contains(got, `"error":{"code":-32600,`) {
		t.Errorf("the tools, before anything was agreed on: %s", got)
	}
}

// TestTheModernProtocolNeedsNoIntroduction: each request says its version.
func TestTheModernProtocolNeedsNoIntroduction(t *testing.T) {
	ask := func(method, version, more string) string {
		return said(t, fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":%q,"params":{"_meta":{"io.modelcontextprotocol/protocolVersion":%q}%s}}`, method, version, more))[0]
	}
	for _, c := range []struct{ answer, want string }{
		{ask("server/discover", modern, ""), `"supportedVersions":["2026-07-28","2025-11-25",`},
		{ask("tools/list", modern, ""), `"resultType":"complete"`},
		{ask("tools/call", modern, `,"name":"submit","arguments":{"command":""}`), `"io.modelcontextprotocol/serverInfo":{"name":"berth"`},
		{ask("ping", modern, ""), `"code":-32601`},
		{ask("initialize", modern, ""), `"code":-32601`},
		{ask("tools/list", "2030-01-01", ""), `"error":{"code":-32022,"message":"unsupported protocol version","data":{"requested":"2030-01-01","supported":["2026-07-28",`},
	} {
		if !strings.Contains(c.answer, c.want) {
			t.Errorf("%s, want %s", c.answer, c.want)
		}
	}
}

// TestABatchIsAnsweredWithOne: in the versions that have batches.
func TestABatchIsAnsweredWithOne(t *testing.T) {
	got := said(t, fmt.Sprintf(hello, "2025-03-26"), `[{"jsonrpc":"2.0","id":1,"method":"ping"},{"jsonrpc":"2.0","method":"notifications/initialized"},5,{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"submit","arguments":{"command":" "}}}]`,
		`[{"jsonrpc":"2.0","method":"notifications/initialized"}]`)
	var replies []reply
	if len(got) != 2 || json.Unmarshal([]byte(got[1]), &replies) != nil || len(replies) != 3 || string(replies[2].ID) != "2" || replies[1].Error == nil {
		t.Errorf("a batch is answered with %q", got)
	}
}

// TestArgumentsAreThoseOfTheSchema: others are refused before anything is done.
func TestArgumentsAreThoseOfTheSchema(t *testing.T) {
	for _, c := range []struct{ tool, arguments, words string }{
		{"list", `5`, `arguments: expected an object, found 5`},
		{"list", `{"Limit":5}`, `expected the arguments ended, group, jobs, limit, states or user, found \"Limit\"`},
		{"list", `{"limit":"x"}`, `limit: expected an integer, found \"x\"`},
		{"list", `{"limit":5.5}`, `limit: expected an integer, found 5.5`},
		{"list", `{"limit":1e30}`, `limit: expected an integer, found 1e+30`},
		{"list", `{"limit":null}`, `limit: expected an integer, found null`},
		{"list", `{"limit":1e3}`, `limit: expected 1 to 200, found 1000`},
		{"list", `{"jobs":"17"}`, `jobs: expected an array, found \"17\"`},
		{"list", `{"jobs":[17,null]}`, `jobs: expected a string, a number or a boolean, found null`},
		{"list", `{"states":[5]}`, `states: expected a string, found 5`},
		{"list", `{"ended":"yes"}`, `ended: expected a boolean, found \"yes\"`},
		{"show", `{}`, `job: expected a string, a number or a boolean, found nothing`},
		{"submit", `{"command":"true","env":{"A":{}}}`, `env.A: expected a string, a number or a boolean, found {}`},
		{"submit", `{"command":"true","gpus":"2"}`, `gpus: expected a number, found \"2\"`},
		{"submit", `{"command":"","gpus":null,"priority":2.0}`, `command: expected a shell line`},
	} {
		answers := said(t, fmt.Sprintf(hello, "2025-06-18"), fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":%q,"arguments":%s}}`, c.tool, c.arguments))
		if got := answers[len(answers)-1]; !strings.Contains(got, c.words) || !strings.Contains(got, `"isError":true`) {
			t.Errorf("%s %s: %s, want %s", c.tool, c.arguments, got, c.words)
		}
	}
}

// talk is a conversation whose calls of submit wait until they are let go.
func talk(t *testing.T) (send func(lines ...string), out *testkit.Buffer, begun *atomic.Int32, let chan struct{}, end func()) {
	in, to := io.Pipe()
	out, begun, let = &testkit.Buffer{}, &atomic.Int32{}, make(chan struct{})
	ended := make(chan error, 1)
	go func() {
		ended <- Serve(t.Context(), in, out, options(func(ctx context.Context, _ api.Spec, _ bool) (api.SubmitReply, error) {
			begun.Add(1)
			select {
			case <-ctx.Done():
				return api.SubmitReply{}, errors.New("cancelled")
			case <-let:
				return api.SubmitReply{}, nil
			}
		}))
	}()
	send = func(lines ...string) {
		for _, line := range lines {
			_, err := io.WriteString(to, line+"\n")
			testkit.Must(t, err)
		}
	}
	send(fmt.Sprintf(hello, "2025-06-18"))
	return send, out, begun, let, func() {
		testkit.Must(t, to.Close())
		testkit.Must(t, <-ended)
	}
}

func submission(id int) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"submit","arguments":{"command":"true"}}}`, id)
}

const cancellation = `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%d}}`

// TestACancelledCallEnds: the one that runs and one that waits have no answer; others
// go on, and the id may be used again.
func TestACancelledCallEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		send, out, begun, let, end := talk(t)
		send(submission(1), submission(2), submission(3), submission(3), `{"jsonrpc":"2.0","id":4,"method":"ping"}`)
		synctest.Wait()
		if begun.Load() != 1 || !strings.Contains(out.String(), `"id":4,"result":{}`) || strings.Count(out.String(), `"id":3,"error":{"code":-32600,`) != 1 {
			t.Errorf("%d calls run, answers %s", begun.Load(), out)
		}
		send(fmt.Sprintf(cancellation, 2), fmt.Sprintf(cancellation, 1))
		synctest.Wait()
		if begun.Load() != 2 {
			t.Errorf("%d calls have begun, want the first and the third", begun.Load())
		}
		send(submission(1))
		close(let)
		end()
		for id, want := range map[int]int{1: 1, 2: 0, 3: 1} {
			if got := strings.Count(out.String(), fmt.Sprintf(`"id":%d,"result"`, id)); got != want {
				t.Errorf("call %d has %d answers, want %d: %s", id, got, want, out)
			}
		}
	})
}

// TestWaitingCallsAreBounded: what comes after them is read once one has ended, and
// all are answered.
func TestWaitingCallsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		send, out, begun, let, end := talk(t)
		for id := range mostWaiting + 2 { // one runs, and one is in the reader's hand
			send(submission(id + 1))
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			send(`{"jsonrpc":"2.0","id":"late","method":"ping"}`)
		}()
		synctest.Wait()
		if begun.Load() != 1 || strings.Contains(out.String(), "late") {
			t.Errorf("%d calls run, answers %s", begun.Load(), out)
		}
		close(let)
		<-done
		end()
		if got := strings.Count(out.String(), `"result"`); got != mostWaiting+4 {
			t.Errorf("%d answers, want %d", got, mostWaiting+4)
		}
	})
}

// TestACallThatHangsIsGivenUp: after a minute, also when the agent has left.
func TestACallThatHangsIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		send, out, _, _, end := talk(t)
		send(submission(1))
		end()
		if !strings.Contains(out.String(), "the daemon did not answer within 1m0s") {
			t.Errorf("it is answered with %s", out)
		}
	})
}

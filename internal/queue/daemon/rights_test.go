package daemon

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"berth/internal/api"
	"berth/internal/queue/config"
	"berth/internal/tests/testkit"
	"berth/internal/text/problem"
)

// The callers of the table of rights. Job 1 is of the user nobody.
var rightsCallers = []string{"no identity", "scraper", "nobody's token", "other", "nobody", "administrator", "root"}

// rightsRequest is an operation with the example of its description.
type rightsRequest struct {
	method, path, body string
}

// rightsRequests are all operations, in the order of their paths.
func rightsRequests(t *testing.T) []rightsRequest {
	t.Helper()
	var described struct {
		Paths map[string]map[string]struct {
			Parameters []struct {
				Name, In string
				Example  any
			}
			RequestBody struct {
				Content map[string]struct{ Example json.RawMessage }
			}
		}
	}
	testkit.Must(t, json.Unmarshal([]byte(testkit.Read(t, "../../api/openapi.json")), &described))
	bodies := map[string]string{ // where the example does not do
		"/v1/jobs":      `{"jobs":[{"command":"true","gpus":"0"}],"dir":"/"}`,
		"/v1/jobs/act":  `{"action":"hold","select":{"ids":["1"]}}`,
		"/v1/jobs/wait": `{"select":{"ids":["1"]},"timeout_s":0.01}`,
		"/v1/jobs/{id}": `{"set":{"priority":"-5"}}`,
		"/v1/adopt":     `{"pid":1}`,
		"/v1/notify":    `{"rules":[]}`,
		"/v1/reload":    `{"dry_run":true}`,
		"/v1/logins":    `{}`,
		"/v1/session":   `{"secret":"no","key":"no"}`,
		"/v1/tokens":    `{"name":"laptop"}`,
	}
	all := []rightsRequest{{method: "GET", path: "/"}, {method: "GET", path: "/assets/none.js"}, {method: "GET", path: "/openapi.json"}, {method: "GET", path: "/openapi.yaml"}}
	for _, path := range slices.Sorted(maps.Keys(described.Paths)) {
		for _, method := range slices.Sorted(maps.Keys(described.Paths[path])) {
			op := described.Paths[path][method]
			r := rightsRequest{method: strings.ToUpper(method), path: path}
			for _, p := range op.Parameters {
				if p.In == "path" {
					value := fmt.Sprint(p.Example)
					if p.Name == "id" && !strings.HasPrefix(path, "/v1/tokens") {
						value = "1"
					}
					r.path = strings.ReplaceAll(r.path, "{"+p.Name+"}", value)
				}
			}
			if media, has := op.RequestBody.Content["application/json"]; has {
				r.body = string(media.Example)
				if own, has := bodies[path]; has {
					r.body = own
				}
			}
			if r.path == "/v1/groups/io" && method == "delete" {
				r.path += "?user=nobody"
			}
			if r.path == "/v1/tokens" && method == "delete" {
				r.path += "?user=daemon"
			}
			all = append(all, r)
		}
	}
	return all
}

// dialAs connects to a socket as another user: on a thread that only this user has.
func dialAs(ctx context.Context, socket string, uid int) (net.Conn, error) {
	type dialed struct {
		c   net.Conn
		err error
	}
	done := make(chan dialed, 1)
	go func() {
		runtime.LockOSThread() // it ends with this goroutine
		if _, _, e := syscall.RawSyscall(syscall.SYS_SETRESUID, ^uintptr(0), uintptr(uid), ^uintptr(0)); e != 0 {
			done <- dialed{nil, e}
			return
		}
		c, err := (&net.Dialer{}).DialContext(ctx, "unix", socket)
		done <- dialed{c, err}
	}()
	d := <-done
	return d.c, d.err
}

// answer is the status of a reply, and its problem in words.
type answer struct {
	status  int
	problem string
}

// rightsOf sends every request as one caller to a daemon of its own.
func rightsOf(t *testing.T, caller string) []answer {
	l := newSharedLab(t, with(func(c *config.Config) { c.Listen, c.MetricsListen, c.AdminGroup = "127.0.0.1:0", "127.0.0.1:0", "bin" }))
	owner := l.as("nobody")
	owner.submit(sh("true", "hold", "yes", "gpus", "0"))
	status, err := api.Call(l.ctx, l.Client, api.GetStatus, api.None{})
	testkit.Must(t, err)
	secret := ""
	dial := func(uid int) func(context.Context, string, string) (net.Conn, error) {
		return func(ctx context.Context, _, _ string) (net.Conn, error) { return dialAs(ctx, l.opt.Places.Socket, uid) }
	}
	transport := &http.Transport{DisableKeepAlives: true}
	base := "http://" + status.HTTP
	switch caller {
	case "no identity":
	case "scraper":
		base = "http://" + status.Metrics
	case "nobody's token":
		token, err := l.d.door.NewToken(l.ctx, owner.Caller, api.TokenRequest{Name: "test"})
		testkit.Must(t, err)
		secret = token.Secret
	default:
		base = "http://berth"
		transport.DialContext = dial(l.as(map[string]string{"other": "sys", "nobody": "nobody", "administrator": "bin", "root": "root"}[caller]).UID)
	}
	var answers []answer
	for _, request := range rightsRequests(t) {
		ctx, cancel := context.WithTimeout(l.ctx, testkit.Patience)
		r, err := http.NewRequestWithContext(ctx, request.method, base+request.path, strings.NewReader(request.body))
		testkit.Must(t, err)
		if secret != "" {
			r.Header.Set("Authorization", "Bearer "+secret)
		}
		if strings.HasSuffix(request.path, "/attach") {
			r.Header.Set("Connection", "Upgrade")
			r.Header.Set("Upgrade", "berth-attach")
		}
		reply, err := transport.RoundTrip(r)
		testkit.Must(t, err)
		a := answer{status: reply.StatusCode}
		if a.status >= 300 {
			text, _ := io.ReadAll(reply.Body) // what is missing shows
			var p problem.Problem
			_ = json.Unmarshal(text, &p)
			a.problem = fmt.Sprintf("%s: %s | %s", p.Kind, p.What, p.Hint)
		}
		reply.Body.Close()
		cancel()
		answers = append(answers, a)
	}
	return answers
}

// TestEveryRouteHasTheRightsWrittenDown holds what each kind of caller of a shared
// daemon may do to testdata/rights.txt: for each route the status of the reply to every
// caller, and the problems of those who have an identity.
func TestEveryRouteHasTheRightsWrittenDown(t *testing.T) {
	t.Parallel()
	answers := map[string][]answer{}
	for _, caller := range rightsCallers {
		t.Run(caller, func(t *testing.T) { answers[caller] = rightsOf(t, caller) })
	}
	for _, caller := range rightsCallers {
		if answers[caller] == nil {
			return // skipped, or run in part
		}
	}
	var got bytes.Buffer
	fmt.Fprintf(&got, "# Replies to %s.\n", strings.Join(rightsCallers, ", "))
	for i, request := range rightsRequests(t) {
		fmt.Fprintf(&got, "%-6s %-32s", request.method, request.path)
		var problems []string
		for n, caller := range rightsCallers {
			a := answers[caller][i]
			fmt.Fprintf(&got, " %d", a.status)
			if n >= 2 && a.problem != "" && !slices.Contains(problems, a.problem) {
				problems = append(problems, a.problem)
			}
		}
		got.WriteByte('\n')
		for _, p := range problems {
			got.WriteString("\t" + p + "\n")
		}
	}
	golden := filepath.Join("testdata", "rights.txt")
	if *testkit.Update {
		testkit.Must(t, os.WriteFile(golden, got.Bytes(), 0o644))
	}
	want, err := os.ReadFile(golden)
	testkit.Must(t, err)
	if !bytes.Equal(got.Bytes(), want) {
		t.Errorf("the rights of a caller changed; if that is meant, run this test with -update. It is now\n%s", got.String())
	}
}

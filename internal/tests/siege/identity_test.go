package siege

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"berth/internal/api"
	"berth/internal/tests/testkit"
)

// Being somebody else.
var identityAttacks = []attack{
	{"name another user in the message", func(t *testing.T, c *camp) {
		for _, body := range []string{
			`{"jobs":[{"command":"id","gpus":0}],"user":"root"}`, `{"jobs":[{"command":"id","gpus":0}],"uid":0}`,
			`{"jobs":[{"command":"id","gpus":0,"user":"root"}]}`, `{"jobs":[{"command":"id","gpus":0,"uid":0,"gid":0}]}`,
			`{"jobs":[{"command":"id","gpus":0,"UID":"0"}]}`, `{"caller":{"uid":0,"admin":true},"jobs":[{"command":"id","gpus":0}]}`,
			`{"jobs":[{"command":"id","gpus":0,"credential":{"uid":0}}]}`,
		} {
			if r := c.bob.mustAsk(t, "POST", "/v1/jobs", body); r.status != http.StatusBadRequest {
				t.Errorf("%s: status %d: %s", body, r.status, r.body)
			}
		}
	}},
	{"name another user in the headers", func(t *testing.T, c *camp) {
		for _, header := range []string{"X-Remote-User", "Remote-User", "X-Forwarded-User", "X-User", "User", "From", "X-Berth-User", "Authorization", "Cookie", "Sudo-Uid"} {
			for _, value := range []string{"root", "0", "Basic cm9vdDo=", "Bearer root"} {
				r, err := c.bob.askWith("GET", "/v1/status", nil, func(r *http.Request) { r.Header.Set(header, value); r.Host = "root" })
				testkit.Must(t, err)
				c.mustBe(t, header+": "+value, r, c.bob)
			}
		}
	}},
	{"send every key twice", func(t *testing.T, c *camp) {
		if r := c.bob.mustAsk(t, "POST", "/v1/jobs", `{"jobs":[{"command":"true","gpus":0}],"jobs":[{"command":"id","gpus":0}]}`); r.status != http.StatusBadRequest {
			t.Errorf("status %d: %s", r.status, r.body)
		}
		for _, body := range []string{`{"jobs":[{"command":"true","command":"id","gpus":0}]}`, `{"jobs":[{"command":"true","Command":"id","gpus":0}]}`} {
			if r := c.bob.mustAsk(t, "POST", "/v1/jobs", body); r.status != http.StatusBadRequest {
				t.Errorf("%s: status %d: %s", body, r.status, r.body)
			}
		}
		victim := c.annSleeps(t)
		own := c.bob.submit(t, shell("true").with("hold", "yes"))[0]
		body := fmt.Sprintf(`{"action":"cancel","select":{"ids":[%q]},"select":{"ids":[%q]}}`, own, victim)
		if r := c.bob.mustAsk(t, "POST", "/v1/jobs/act", body); r.status != http.StatusBadRequest {
			t.Errorf("status %d: %s", r.status, r.body)
		}
		c.stillRuns(t, victim)
	}},
	{"send numbers that no user has", func(t *testing.T, c *camp) {
		for _, umask := range []string{"-1", "512", "4294967295", "9223372036854775808", "1e400", `"0"`, "0.5"} {
			body := fmt.Sprintf(`{"jobs":[{"command":"true","gpus":0}],"umask":%s}`, umask)
			if r := c.bob.mustAsk(t, "POST", "/v1/jobs", body); r.status != http.StatusBadRequest {
				t.Errorf("umask %s: status %d: %s", umask, r.status, r.body)
			}
		}
	}},
	{"be root in a user namespace of one's own", func(t *testing.T, c *camp) {
		cmd := c.bob.command(filepath.Join(programs, "attacker"), deedWord, "whoami", c.socket)
		cmd.SysProcAttr.Credential = nil
		inside := &syscall.SysProcAttr{
			Cloneflags:  syscall.CLONE_NEWUSER,
			UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: c.bob.uid, Size: 1}},
			GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: c.bob.gid, Size: 1}},
		}
		cmd.SysProcAttr = inside
		inside.Credential = &syscall.Credential{Uid: 0, Gid: 0, NoSetGroups: true}
		out, status := outcome(cmd)
		if status == -1 || strings.Contains(out, "not permitted") {
			t.Skipf("this host has no user namespaces: %s", out)
		}
		c.mustBe(t, "in a namespace", reply{status: http.StatusOK, body: out}, c.bob)
	}},
	{"ask from within a job", func(t *testing.T, c *camp) {
		out := c.bob.does(t, filepath.Join(programs, "attacker")+" "+deedWord+" whoami "+c.socket)
		c.mustBe(t, "a job", reply{status: http.StatusOK, body: out}, c.bob)
	}},
	{"ask on a connection that root's program was handed", func(t *testing.T, c *camp) {
		// The kernel says who connected, not who writes.
		conn, err := c.bob.dial()
		testkit.Must(t, err)
		defer conn.Close()
		c.mustBe(t, "root writes", exchange(t, conn, "GET /v1/status HTTP/1.1\r\nHost: berth\r\n\r\n"), c.bob)
	}},
	{"use a token's parts, a longer one, another's id", func(t *testing.T, c *camp) {
		ann, bob := c.token(t, c.ann, 0), c.token(t, c.bob, 0)
		for _, secret := range []string{
			"", " ", "berth_" + ann.ID, "berth_" + ann.ID + "_", ann.Secret[:len(ann.Secret)-1], ann.Secret + "a", strings.ToUpper(ann.Secret),
			strings.Replace(bob.Secret, bob.ID, ann.ID, 1), ann.ID, "root", strings.Repeat("a", 10_000), "null", "%00" + ann.Secret, ann.Secret + "\t" + bob.Secret,
		} {
			if r := c.remote(t, "GET", "/v1/status", secret, nil); r.status != http.StatusUnauthorized {
				t.Errorf("%.80q: status %d: %s", secret, r.status, r.body)
			}
		}
		c.mustBe(t, "the token itself", c.remote(t, "GET", "/v1/status", bob.Secret, nil), c.bob)
		denied := false
		for _, e := range c.audit(t) {
			denied = denied || e.Action == "token use" && e.Result != "ok"
		}
		if !denied {
			t.Error("the audit does not tell of tokens that nobody made")
		}
	}},
	{"use a token that was revoked", func(t *testing.T, c *camp) {
		token := c.token(t, c.bob, 0)
		client := &http.Client{}
		defer client.CloseIdleConnections()
		c.mustBe(t, "before", c.remoteBy(t, client, "GET", "/v1/status", token.Secret, nil), c.bob)
		if r := c.bob.mustAsk(t, "DELETE", "/v1/tokens/"+token.ID, nil); r.status != http.StatusNoContent {
			t.Fatalf("revoke: status %d: %s", r.status, r.body)
		}
		// On the same connection, at once.
		if r := c.remoteBy(t, client, "GET", "/v1/status", token.Secret, nil); r.status != http.StatusUnauthorized {
			t.Errorf("after: status %d: %s", r.status, r.body)
		}
	}},
	{"use a token that has run out", func(t *testing.T, c *camp) {
		token := c.token(t, c.bob, 1)
		testkit.Eventually(t, "its second is over", func() bool { return time.Now().After(token.Expires) })
		if r := c.remote(t, "GET", "/v1/status", token.Secret, nil); r.status != http.StatusUnauthorized {
			t.Errorf("status %d: %s", r.status, r.body)
		}
	}},
	{"use the token of a user who is gone", func(t *testing.T, c *camp) {
		gone := enlist(t, "gil", filepath.Dir(c.bob.home), c.bob.socket)
		var token api.Token
		gone.mustAsk(t, "POST", "/v1/tokens", spec{"ttl_s": 600}).into(t, &token)
		if r := c.remote(t, "GET", "/v1/status", token.Secret, nil); r.status != http.StatusOK {
			t.Errorf("before: status %d: %s", r.status, r.body)
		}
		testkit.Accounts(t, "userdel", gone.name)
		removed := time.Now()
		testkit.Eventually(t, "the token is refused", func() bool {
			return c.remote(t, "GET", "/v1/status", token.Secret, nil).status == http.StatusUnauthorized
		})
		t.Logf("it was refused after %s", time.Since(removed).Round(time.Millisecond))
	}},
	{"send a token where logs and histories keep it", func(t *testing.T, c *camp) {
		token := c.token(t, c.bob, 0)
		for _, query := range []string{"token=", "access_token=", "authorization=Bearer%20", "secret="} {
			if r := c.remote(t, "GET", "/v1/status?"+query+token.Secret, "", nil); r.status != http.StatusUnauthorized {
				t.Errorf("%s: status %d: %s", query, r.status, r.body)
			}
		}
		log := testkit.Read(t, filepath.Join(c.stateDir, "berth.log")) + testkit.Read(t, filepath.Join(c.stateDir, "audit.jsonl"))
		if strings.Contains(log, token.Secret) {
			t.Error("the secret is in the daemon's log")
		}
	}},
	{"make tokens with a token, and act for others with it", func(t *testing.T, c *camp) {
		token, victim := c.token(t, c.bob, 0), c.annSleeps(t)
		if r := c.remote(t, "POST", "/v1/tokens", token.Secret, strings.NewReader(`{"name":"x"}`)); r.status != http.StatusForbidden {
			t.Errorf("make: status %d: %s", r.status, r.body)
		}
		if r := c.remote(t, "POST", "/v1/gpus/0/pause", token.Secret, nil); r.status != http.StatusForbidden {
			t.Errorf("pause: status %d: %s", r.status, r.body)
		}
		c.remote(t, "POST", "/v1/jobs/act", token.Secret, strings.NewReader(fmt.Sprintf(`{"action":"cancel","select":{"ids":[%q]}}`, victim)))
		c.stillRuns(t, victim)
	}},
	{"have a user's secret from the store", func(t *testing.T, c *camp) {
		token := c.token(t, c.ann, 0)
		for _, name := range []string{"berth.db", "berth.db-wal"} {
			data, err := os.ReadFile(filepath.Join(c.stateDir, "store", name))
			if err == nil && strings.Contains(string(data), token.Secret) {
				t.Errorf("%s holds a secret", name)
			}
		}
	}},
}

func init() {
	deeds["whoami"] = func(args []string) error {
		conn, err := net.Dial("unix", args[0])
		if err != nil {
			return err
		}
		defer conn.Close()
		fmt.Fprint(conn, "GET /v1/status HTTP/1.1\r\nHost: berth\r\nConnection: close\r\n\r\n")
		answer, err := readReply(conn)
		fmt.Println(answer.body)
		return err
	}
}

// mustBe checks whom the daemon takes a caller for.
func (c *camp) mustBe(t *testing.T, what string, r reply, p *person) {
	t.Helper()
	var status api.Status
	if err := json.Unmarshal([]byte(r.body), &status); err != nil || r.status != http.StatusOK {
		t.Errorf("%s: status %d: %v: %.300s", what, r.status, err, r.body)
		return
	}
	if status.You.UID != p.uid || status.You.Name != p.name || status.You.Admin {
		t.Errorf("%s: taken for %+v", what, status.You)
	}
}

// token makes one over the socket.
func (c *camp) token(t *testing.T, p *person, seconds int) api.Token {
	t.Helper()
	var token api.Token
	p.mustAsk(t, "POST", "/v1/tokens", spec{"ttl_s": seconds}).into(t, &token)
	t.Cleanup(func() { p.mustAsk(t, "DELETE", "/v1/tokens/"+token.ID, nil) })
	return token
}

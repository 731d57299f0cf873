package siege

import (
	"context"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"berth/internal/api"
	"berth/internal/job"
	"berth/internal/tests/testkit"
)

func init() { identityAttacks = append(identityAttacks, successorAttacks...) }

// What is left of users who are gone, and of rights that were taken away.
var successorAttacks = []attack{
	{"use an old token after its user's number went to another", func(t *testing.T, c *camp) {
		old := c.enlist("tom")
		var token api.Token
		old.mustAsk(t, "POST", "/v1/tokens", spec{"ttl_s": 600}).into(t, &token)
		c.mustBe(t, "before", c.remote(t, "GET", "/v1/status", token.Secret, nil), old)
		c.succeed(t, old, "uma")
		testkit.Eventually(t, "the token is refused", func() bool {
			r := c.remote(t, "GET", "/v1/status", token.Secret, nil)
			if r.status == http.StatusOK && strings.Contains(r.body, account("uma")) {
				t.Fatalf("it is taken for its successor's: %s", r.body)
			}
			return r.status == http.StatusUnauthorized
		})
	}},
	{"have a waiting job run as the user who got its owner's number", func(t *testing.T, c *camp) {
		old := c.enlist("vic")
		id := old.submitFrom(t, map[string]any{"dir": "/", "jobs": []spec{shell("id -un").with("hold", "yes")}})[0]
		next := c.succeed(t, old, "wyn")
		next.does(t, "true") // the daemon knows who that is now
		c.root.act(t, "release", map[string]any{"ids": []string{id}})
		v := c.root.ended(t, id)
		if v.Outcome == nil || *v.Outcome != job.Launch || !strings.Contains(text(v.Reason), "is now user "+next.name) {
			t.Errorf("it ended %s: %s: %s", text(v.Outcome), text(v.Reason), c.root.log(t, id).body)
		}
	}},
	{"hold up others with the jobs of a user who is gone", func(t *testing.T, c *camp) {
		gone := c.enlist("xia")
		id := gone.submitFrom(t, map[string]any{"dir": "/", "jobs": []spec{shell("true").with("priority", 100).with("hold", "yes")}})[0]
		testkit.Accounts(t, "userdel", gone.name)
		c.root.act(t, "release", map[string]any{"ids": []string{id}})
		c.othersAreServed(t)
		c.root.cancel(t, id)
		c.root.ended(t, id)
	}},
	{"administer with a token after leaving the group", func(t *testing.T, c *camp) {
		past := c.enlist("yan", account(adminGroup))
		var token api.Token
		past.mustAsk(t, "POST", "/v1/tokens", spec{"ttl_s": 600}).into(t, &token)
		if r := c.remote(t, "GET", "/v1/status", token.Secret, nil); !strings.Contains(r.body, `"admin":true`) {
			t.Fatalf("before: %s", r.body)
		}
		testkit.Accounts(t, "gpasswd", "-d", past.name, account(adminGroup))
		testkit.Eventually(t, "the token administers no more", func() bool {
			return strings.Contains(c.remote(t, "GET", "/v1/status", token.Secret, nil).body, `"admin":false`)
		})
		victim := c.annSleeps(t)
		c.remote(t, "POST", "/v1/jobs/act", token.Secret, strings.NewReader(`{"action":"cancel","select":{"ids":["`+victim+`"]}}`))
		c.stillRuns(t, victim)
	}},
	{"come with a number that no user has", func(t *testing.T, c *camp) {
		ghost := *c.bob
		ghost.uid, ghost.gid = 4_000_000_000, 4_000_000_000
		for _, uid := range []int{4_000_000_000, 65_534_000, 1<<32 - 2} {
			ghost.uid = uid
			conn, err := ghost.dial()
			testkit.Must(t, err)
			r := exchange(t, conn, "GET /v1/jobs HTTP/1.1\r\nHost: berth\r\nConnection: close\r\n\r\n")
			conn.Close()
			if r.status != http.StatusForbidden {
				t.Errorf("user %d: status %d: %s", uid, r.status, r.body)
			}
		}
	}},
}

// succeed removes a user and gives the number to another.
func (c *camp) succeed(t *testing.T, old *person, who string) *person {
	t.Helper()
	numbers.Lock()
	defer numbers.Unlock()
	testkit.Accounts(t, "userdel", old.name)
	next := *old
	next.name, next.http = account(who), &http.Client{Transport: &http.Transport{
		DialContext: func(context.Context, string, string) (net.Conn, error) { return old.dial() },
	}}
	t.Cleanup(next.http.CloseIdleConnections)
	testkit.Accounts(t, "useradd", "--no-create-home", "--user-group", "--uid", strconv.Itoa(old.uid), "--home-dir", old.home, "--shell", "/bin/sh", next.name)
	t.Cleanup(func() { testkit.Accounts(t, "userdel", next.name) })
	return &next
}

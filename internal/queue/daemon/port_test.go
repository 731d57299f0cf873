package daemon

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"berth/internal/api"
	"berth/internal/machine/site"
	"berth/internal/queue/access"
	"berth/internal/queue/config"
	"berth/internal/queue/ports"
	"berth/internal/tests/testkit"
)

// TestAStopFreesThePageAndARestartDoesNot: to a browser, the daemon after a stop
// is another server.
func TestAStopFreesThePageAndARestartDoesNot(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	address, err := l.d.ports.OpenPage()
	testkit.Must(t, err)
	before := l.cookies()
	l.restart()
	if s, err := api.Call(l.ctx, l.Client, api.GetStatus, api.None{}); err != nil || s.HTTP != address || !slices.Equal(l.cookies(), before) {
		t.Errorf("after a restart it listens at %q with other sockets, %v", s.HTTP, err)
	}
	l.stop()
	if other, err := net.Listen("tcp", address); err != nil {
		t.Errorf("after a stop: %v", err)
	} else {
		other.Close()
	}
	if _, err := os.Lstat(filepath.Join(l.opt.Places.StateDir, "port.sock")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the holder's socket is there: %v", err)
	}
	l.start()
	if s, err := api.Call(l.ctx, l.Client, api.GetStatus, api.None{}); err != nil || s.HTTP != "" {
		t.Errorf("after a stop it listens at %q, %v", s.HTTP, err)
	}
}

// cookies name the sockets that are held.
func (l *lab) cookies() (list []string) {
	l.t.Helper()
	hold, listeners, err := site.TakePort(l.opt.Places.StateDir)
	testkit.Must(l.t, err)
	if hold == nil {
		l.t.Fatal("nobody holds the port")
	}
	for _, listener := range listeners {
		list = append(list, ports.ID(listener, false))
		listener.Close()
	}
	hold.Close()
	return list
}

func TestADaemonWithoutAPortStartsNoProcess(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	if hold, err := site.KeepPort(l.opt.Places.StateDir); hold != nil || err != nil {
		t.Errorf("%v, %v", hold, err)
	}
}

// TestAPortThatIsNotWantedAnyMoreIsFree, though it was held.
func TestAPortThatIsNotWantedAnyMoreIsFree(t *testing.T) {
	t.Parallel()
	address := "127.0.0.1:0"
	l := newLab(t, with(func(c *config.Config) { c.Listen = address }))
	s, err := api.Call(l.ctx, l.Client, api.GetStatus, api.None{})
	testkit.Must(t, err)
	address = "127.0.0.2:0"
	l.restart()
	l.until("the old port is free", func() bool {
		other, err := net.Listen("tcp", s.HTTP)
		if err == nil {
			other.Close()
		}
		return err == nil
	})
	if s, err := api.Call(l.ctx, l.Client, api.GetStatus, api.None{}); err != nil || !strings.HasPrefix(s.HTTP, "127.0.0.2:") {
		t.Errorf("it listens at %s, %v", s.HTTP, err)
	}
}

// TestATakenPortLogsEveryBrowserOut, and administrators are told whose process
// has it. When it is free, the daemon takes it again.
func TestATakenPortLogsEveryBrowserOut(t *testing.T) {
	t.Parallel()
	told := filepath.Join(t.TempDir(), "told")
	address := "127.0.0.1:0"
	l := newLab(t, with(func(c *config.Config) {
		c.Listen, c.NotifyAdmin = address, []string{"exec:cat >>" + told}
	}), func(o *Options) { o.portRetry = 50 * time.Millisecond })
	s, err := api.Call(l.ctx, l.Client, api.GetStatus, api.None{})
	testkit.Must(t, err)
	address = s.HTTP
	l.openSession()
	if sessions := l.sessions(); sessions != 1 {
		t.Fatalf("%d sessions", sessions)
	}
	l.stop()
	thief, err := net.Listen("tcp", address)
	testkit.Must(t, err)
	defer thief.Close()
	l.start()
	owner := "by a process of user " + l.d.people.Name(os.Getuid())
	s, err = api.Call(l.ctx, l.Client, api.GetStatus, api.None{})
	if err != nil || s.HTTP != "" || len(s.Warnings) != 1 || !strings.Contains(s.Warnings[0], owner) {
		t.Errorf("it says %q, %v", s.Warnings, err)
	}
	if sessions := l.sessions(); sessions != 0 {
		t.Errorf("%d sessions are open", sessions)
	}
	l.until("administrators are told", func() bool {
		text, _ := os.ReadFile(told)
		return strings.Contains(string(text), "berth's address "+address+" is taken "+owner)
	})
	if audit := testkit.Read(t, filepath.Join(l.opt.Places.StateDir, "audit.jsonl")); !strings.Contains(audit, `"action":"port taken","detail":"`+address+`"`) {
		t.Errorf("the audit says %s", audit)
	}
	thief.Close()
	l.until("it has the port again", func() bool {
		s, err := api.Call(l.ctx, l.Client, api.GetStatus, api.None{})
		return err == nil && s.HTTP == address && len(s.Warnings) == 0
	})
}

// sessions counts the logins of browsers.
func (l *lab) sessions() (count int) {
	for _, e := range l.d.door.tokens.Current() {
		if e.Session {
			count++
		}
	}
	return count
}

// openSession logs a browser in.
func (l *lab) openSession() {
	l.t.Helper()
	now := time.Now()
	session := access.TokenEntry{ID: "browser1", Name: "browser", User: l.d.people.Name(l.d.people.UID), UID: l.d.people.UID, Created: now, Expires: now.Add(time.Hour), Session: true}
	testkit.Must(l.t, l.d.door.tokens.Write(append(l.d.door.tokens.Current(), session), now))
}

// TestAPlainPortOfASharedDaemonIsWarnedAbout, because users of the machine could
// take it.
func TestAPlainPortOfASharedDaemonIsWarnedAbout(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		cfg    config.Config
		shared bool
		warns  bool
	}{
		{config.Config{}, true, false},
		{config.Config{Listen: "127.0.0.1:7878"}, true, true},
		{config.Config{Listen: "127.0.0.1:7878"}, false, false},
		{config.Config{Listen: "127.0.0.1:7878", TLSCert: "/a"}, true, false},
		{config.Config{Listen: "unix:/run/berth/http.sock"}, true, false},
	} {
		if got := c.cfg.Warnings(c.shared); len(got) > 0 != c.warns || c.warns && !strings.Contains(got[0], "tls_cert") {
			t.Errorf("%+v, shared %v: %q", c.cfg.Listen, c.shared, got)
		}
	}
}

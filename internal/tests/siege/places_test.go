package siege

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"berth/internal/tests/testkit"
)

// ground is a place for daemons that should not start.
type ground struct {
	dir   string
	enemy *person
}

func newGround(t *testing.T, who string) *ground {
	t.Helper()
	needsRoot(t)
	t.Parallel()
	removeStale(t)
	dir, err := os.MkdirTemp(programs, "ground-")
	testkit.Must(t, err)
	testkit.Must(t, os.Chmod(dir, 0o777|os.ModeSticky)) // as /tmp is
	return &ground{dir: dir, enemy: enlist(t, who, dir, filepath.Join(dir, "run", "sock"))}
}

func (g *ground) path(parts ...string) string {
	return filepath.Join(append([]string{g.dir}, parts...)...)
}

// serve starts a daemon, with places of root's own where the attack says
// nothing else.
func (g *ground) serve(t *testing.T, more ...string) *served {
	t.Helper()
	args := map[string]string{"--state-dir": g.path("roots-state"), "--socket": g.path("roots-run", "sock"), "--sim": "1"}
	for i := 0; i+1 < len(more); i += 2 {
		args[more[i]] = more[i+1]
	}
	var words []string
	for flag, value := range args {
		words = append(words, flag, value)
	}
	return serve(t, []string{"BERTH_LEDGER_DIR=" + g.path("ledger")}, words...)
}

// TestPlaces lays traps where root's daemon is about to go.
func TestPlaces(t *testing.T) {
	g := newGround(t, "eve")
	eve := g.enemy
	mine := func(what string, make func() error) {
		t.Helper()
		if err := eve.as(make); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
	}
	mine("lay traps", func() error {
		return errors.Join(
			os.Mkdir(g.path("eves"), 0o777), os.Mkdir(g.path("eves-state"), 0o777), os.Symlink("/etc", g.path("link-state")),
			os.WriteFile(g.path("eves", "config.toml"), []byte("[access]\nadmin_group = \"eve\"\n"), 0o644),
			os.Symlink(g.path("eves", "config.toml"), g.path("link-config")),
		)
	})
	testkit.Must(t, os.Mkdir(g.path("open"), 0o777))
	testkit.Must(t, os.Chmod(g.path("open"), 0o777))
	testkit.Write(t, g.path("writable.toml"), "", 0o666)
	testkit.Write(t, g.path("open", "config.toml"), "", 0o644)
	testkit.Must(t, syscall.Mkfifo(g.path("pipe.toml"), 0o600))
	t.Run("places of root's own, which will do", func(t *testing.T) {
		testkit.Write(t, g.path("good.toml"), "", 0o644)
		s := g.serve(t, "--config", g.path("good.toml"))
		answers(t, s, func() (int, error) {
			conn, err := net.Dial("unix", g.path("roots-run", "sock"))
			if err == nil {
				conn.Close()
			}
			return 0, err
		})
		s.stop()
	})
	for _, trap := range []struct{ name, flag, value string }{
		{"state in a directory of a user's", "--state-dir", g.path("eves-state")},
		{"state below a directory of a user's", "--state-dir", g.path("eves", "state")},
		{"state through a link of a user's", "--state-dir", g.path("link-state")},
		{"state below a directory that all can write to", "--state-dir", g.path("open", "state")},
		{"a socket in a directory of a user's", "--socket", g.path("eves", "sock")},
		{"a socket below a directory of a user's", "--socket", g.path("eves", "run", "sock")},
		{"a config that all can write to", "--config", g.path("writable.toml")},
		{"a config in a directory that all can write to", "--config", g.path("open", "config.toml")},
		{"a config of a user's", "--config", g.path("eves", "config.toml")},
		{"a config through a link of a user's", "--config", g.path("link-config")},
		{"a config that is a pipe", "--config", g.path("pipe.toml")},
	} {
		t.Run(trap.name, func(t *testing.T) {
			if said := g.serve(t, trap.flag, trap.value).refuses(); !strings.Contains(said, filepath.Base(trap.value)) && !strings.Contains(said, filepath.Base(filepath.Dir(trap.value))) {
				t.Errorf("it said %s", said)
			}
		})
	}
	for _, path := range []string{"/etc/jobs", "/etc/store", g.path("eves", "state"), g.path("eves", "run"), g.path("eves-state", "jobs"), g.path("open", "state")} {
		if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("root made %s: %v", path, err)
		}
	}
	t.Run("a socket that somebody listens at already", func(t *testing.T) {
		var squat net.Listener
		mine("squat", func() (err error) { squat, err = net.Listen("unix", g.path("squatted")); return err })
		defer squat.Close()
		if said := g.serve(t, "--socket", g.path("squatted")).refuses(); !strings.Contains(said, "squatted") {
			t.Errorf("it said %s", said)
		}
	})
	t.Run("a path that is not a socket", func(t *testing.T) {
		mine("plant", func() error { return os.Symlink("/etc/shadow", g.path("planted")) })
		g.serve(t, "--socket", g.path("planted")).refuses()
		if info, err := os.Stat("/etc/shadow"); err != nil || info.Mode().Perm()&0o077 != 0 && info.Mode().Perm()&0o007 != 0 {
			t.Errorf("/etc/shadow is %v, %v", info, err)
		}
	})
	t.Run("traps within root's own state", func(t *testing.T) {
		// Only root could have made these; a mistake of root's is told.
		testkit.Must(t, os.MkdirAll(g.path("mistaken"), 0o711))
		testkit.Must(t, os.Symlink(g.path("eves"), g.path("mistaken", "jobs")))
		g.serve(t, "--state-dir", g.path("mistaken")).refuses()
		testkit.Must(t, os.MkdirAll(g.path("mistaken2"), 0o711))
		testkit.Write(t, g.path("treasure"), treasureText, 0o600)
		testkit.Must(t, os.Symlink(g.path("treasure"), g.path("mistaken2", "audit.jsonl")))
		g.serve(t, "--state-dir", g.path("mistaken2")).refuses()
		untouched(t, g.path("treasure"))
	})
}

// answers waits until a daemon answers, whatever it says.
func answers(t *testing.T, s *served, ask func() (int, error)) int {
	t.Helper()
	status := 0
	testkit.Eventually(t, "the daemon answers", func() bool {
		if !s.running() {
			t.Fatalf("the daemon ended; it said %s", s.said.String())
		}
		var err error
		status, err = ask()
		return err == nil
	})
	return status
}

// TestEncryptedPort: what is meant for a port with TLS comes in no other way.
func TestEncryptedPort(t *testing.T) {
	g := newGround(t, "fay")
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	testkit.Must(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), DNSNames: []string{"localhost"}}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	testkit.Must(t, err)
	keyBytes, err := x509.MarshalECPrivateKey(key)
	testkit.Must(t, err)
	testkit.Write(t, g.path("tls.crt"), string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert})), 0o644)
	testkit.Write(t, g.path("tls.key"), string(pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: keyBytes})), 0o600)
	port := freePort(t)
	config := fmt.Sprintf("[http]\nlisten = %q\ntls_cert = %q\ntls_key = %q\n", port, g.path("tls.crt"), g.path("tls.key"))
	testkit.Write(t, g.path("tls.toml"), config, 0o644)
	// Without the certificate no address but the machine's own will do.
	testkit.Write(t, g.path("bare.toml"), "[http]\nlisten = \"0.0.0.0:0\"\n", 0o644)
	g.serve(t, "--config", g.path("bare.toml")).refuses()

	s := g.serve(t, "--config", g.path("tls.toml"))
	status := answers(t, s, func() (int, error) {
		conn, err := net.Dial("tcp", port)
		if err != nil {
			return 0, err
		}
		defer conn.Close()
		r := exchange(t, conn, "GET /v1/status HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer x\r\n\r\n")
		return r.status, nil
	})
	if status != http.StatusBadRequest {
		t.Errorf("plain HTTP: status %d", status)
	}
	// Half a handshake holds nobody up but itself.
	conn, err := net.Dial("tcp", port)
	testkit.Must(t, err)
	defer conn.Close()
	_, err = io.WriteString(conn, "\x16\x03\x01")
	testkit.Must(t, err)
	if out, status := outcome(exec.Command(filepath.Join(programs, "berth"), "list", "--socket", g.path("roots-run", "sock"))); status != 0 {
		t.Errorf("list: %s", out)
	}
}

// TestUserDatabase: where nobody can say who somebody is, nobody is let in and
// nothing runs, and the daemon goes on.
func TestUserDatabase(t *testing.T) {
	g := newGround(t, "gus")
	for name, script := range map[string]string{"fails": "exit 3", "lies": "echo root:x:0:0::/root:/bin/sh", "hangs": "exec sleep 1000"} {
		t.Run("it "+name, func(t *testing.T) {
			t.Parallel()
			testkit.Write(t, g.path(name), "#!/bin/sh\n"+script+"\n", 0o755)
			state, socket := g.path("state-"+name), g.path("run-"+name, "sock")
			inner := fmt.Sprintf(`for tool in getent id; do mount --bind %s "$(readlink -f /usr/bin/$tool)" || exit 77; done; exec %s/berth serve --state-dir %s --socket %s --sim 1`,
				g.path(name), programs, state, socket)
			s := &served{t: t, done: make(chan struct{})}
			s.cmd = exec.Command("/bin/sh", "-c", inner)
			s.cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "BERTH_LEDGER_DIR=" + g.path("ledger-"+name)}
			s.cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS}
			s.cmd.Stdout, s.cmd.Stderr, s.cmd.WaitDelay = &s.said, &s.said, testkit.Patience
			if err := s.cmd.Start(); err != nil {
				t.Skipf("this host lets no one mount privately: %v", err)
			}
			go func() { _ = s.cmd.Wait(); close(s.done) }()
			t.Cleanup(s.stop)
			p := *g.enemy
			p.socket = socket
			p.http = &http.Client{Transport: &http.Transport{
				DialContext: func(context.Context, string, string) (net.Conn, error) { return p.dial() },
			}}
			defer p.http.CloseIdleConnections()
			status := answers(t, s, func() (int, error) {
				r, err := p.ask("GET", "/v1/status", nil)
				return r.status, err
			})
			if status != http.StatusServiceUnavailable {
				t.Errorf("somebody unknown is told %d", status)
			}
			if name == "hangs" {
				return // once is long enough
			}
			if r, err := p.ask("POST", "/v1/jobs", spec{"jobs": []spec{shell("id")}}); err != nil || r.status != http.StatusServiceUnavailable {
				t.Errorf("and may submit: status %d: %s %v", r.status, r.body, err)
			}
		})
	}
}

package daemon

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"berth/internal/api"
	"berth/internal/queue/config"
	"berth/internal/queue/send"
	"berth/internal/tests/testkit"
)

// TestAPasswordIsNotGivenToAnImpostor: a mail server without a certificate that
// the machine trusts gets neither the login nor the letter, and the password is
// nowhere else.
func TestAPasswordIsNotGivenToAnImpostor(t *testing.T) {
	t.Parallel()
	certified := httptest.NewUnstartedServer(http.NotFoundHandler())
	certified.StartTLS()
	t.Cleanup(certified.Close)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	testkit.Must(t, err)
	t.Cleanup(func() { listener.Close() })
	heard := &testkit.Buffer{}
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go impostor(conn, &tls.Config{Certificates: certified.TLS.Certificates}, heard)
		}
	}()
	secret := filepath.Join(t.TempDir(), "password")
	testkit.Must(t, os.WriteFile(secret, []byte("s3cret-passw0rd\n"), 0o600))
	l := newLab(t, with(func(c *config.Config) {
		c.Mail = send.Mail{Server: listener.Addr().String(), TLS: send.StartTLS, User: "berth"}
		c.MailPassword = secret
	}))
	results, err := api.Call(l.ctx, l.Client, api.SendNotify, api.NotifyTest{Target: "mailto:ann@example.org"})
	if err != nil || len(results) != 1 || !strings.Contains(results[0].Error, "certificate") {
		t.Errorf("%+v, %v", results, err)
	}
	testkit.Must(t, os.Chmod(secret, 0o644))
	results, err = api.Call(l.ctx, l.Client, api.SendNotify, api.NotifyTest{Target: "mailto:ann@example.org"})
	if err != nil || len(results) != 1 || !strings.Contains(results[0].Error, "password of the mail server cannot be read") || strings.Contains(results[0].Error, secret) {
		t.Errorf("%+v, %v", results, err)
	}
	l.stop()
	if said := heard.String(); strings.Contains(said, "AUTH") || strings.Contains(said, "MAIL") || !strings.Contains(said, "STARTTLS") {
		t.Errorf("it heard %s", said)
	}
	if log := read(filepath.Join(l.opt.Places.StateDir, "berth.log")); strings.Contains(log, "s3cret") || !strings.Contains(log, "chmod 600") {
		t.Errorf("%s", log)
	}
}

// impostor speaks SMTP and writes down what it is told.
func impostor(conn net.Conn, secure *tls.Config, heard *testkit.Buffer) {
	defer conn.Close()
	fmt.Fprint(conn, "220 here\r\n")
	lines := bufio.NewScanner(conn)
	for lines.Scan() {
		fmt.Fprintln(heard, lines.Text())
		switch {
		case strings.HasPrefix(lines.Text(), "EHLO"):
			fmt.Fprint(conn, "250-here\r\n250-AUTH PLAIN\r\n250 STARTTLS\r\n")
		case lines.Text() == "STARTTLS":
			fmt.Fprint(conn, "220 go\r\n")
			inner := tls.Server(conn, secure)
			conn, lines = inner, bufio.NewScanner(inner)
		default:
			fmt.Fprint(conn, "250 ok\r\n")
		}
	}
}

package send

import (
	"bufio"
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"berth/internal/queue/notify"
)

func message() notify.Message {
	var b notify.Batch
	b.Add(notify.Fact{On: notify.OnEnd, Job: "17", Name: "train <!channel> ``` @all", Outcome: "exit:3", Detail: "zwölf"})
	return notify.Compose("site-8", "box", time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC), b)
}

// soon ends a try that hangs. Others have the time that a busy machine needs.
func soon(t *testing.T, hangs bool) context.Context {
	limit := 30 * time.Second
	if hangs {
		limit = time.Second
	}
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	t.Cleanup(cancel)
	return ctx
}

// heard is a server that keeps what it was sent.
func heard(t *testing.T, status int) (*httptest.Server, func() (*http.Request, []byte)) {
	var mu sync.Mutex
	var request *http.Request
	var body []byte
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		request = r
		body, _ = io.ReadAll(r.Body)
		w.WriteHeader(status)
		fmt.Fprint(w, "no such hook: s3cret\x1b[31m", strings.Repeat("x", 1<<20))
	}))
	t.Cleanup(server.Close)
	return server, func() (*http.Request, []byte) {
		mu.Lock()
		defer mu.Unlock()
		return request, body
	}
}

func TestAWebhookIsSigned(t *testing.T) {
	server, got := heard(t, 204)
	key := []byte("key of ann")
	if err := deliver(t.Context(), Request{Target: "webhook:" + server.URL + "/s3cret", Key: key, Message: message()}); err != nil {
		t.Fatal(err)
	}
	request, body := got()
	var m notify.Message
	if err := json.Unmarshal(body, &m); err != nil || m.ID != "site-8" || len(m.Facts) != 1 || m.Facts[0].Job != "17" || m.Facts[0].Outcome != "exit:3" {
		t.Errorf("%s: %v", body, err)
	}
	mac := hmac.New(sha256.New, key)
	fmt.Fprintf(mac, "%s.%s.%s", request.Header.Get("Webhook-Id"), request.Header.Get("Webhook-Timestamp"), body)
	if want := "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil)); request.Header.Get("Webhook-Signature") != want || request.Header.Get("Webhook-Id") != "site-8" {
		t.Errorf("%v; expected %s", request.Header, want)
	}
}

func TestAChatMessageMentionsNobody(t *testing.T) {
	server, got := heard(t, 200)
	if err := deliver(t.Context(), Request{Target: "slack:" + server.URL + "/x", Message: message()}); err != nil {
		t.Fatal(err)
	}
	_, body := got()
	var said struct{ Text string }
	if err := json.Unmarshal(body, &said); err != nil || strings.ContainsAny(said.Text, "<>") || strings.Count(said.Text, "```") != 2 || !strings.HasSuffix(said.Text, "\n```") {
		t.Errorf("%s: %v", body, err)
	}
	if !strings.Contains(said.Text, "failed with exit code 3") {
		t.Errorf("%s", said.Text)
	}
}

func TestNtfyGetsTopicTitleAndPriority(t *testing.T) {
	server, got := heard(t, 200)
	target := strings.Replace(server.URL, "://", "://:tk_1@", 1) + "/sub/my-topic"
	if err := deliver(t.Context(), Request{Target: "ntfy:" + target, Message: message()}); err != nil {
		t.Fatal(err)
	}
	request, body := got()
	var said struct {
		Topic, Title, Message string
		Priority              int
	}
	if err := json.Unmarshal(body, &said); err != nil || said.Topic != "my-topic" || said.Priority != 4 || request.URL.Path != "/sub/" || !strings.HasPrefix(said.Title, "[box] train") {
		t.Errorf("%s to %s: %v", body, request.URL, err)
	}
	if _, password, ok := request.BasicAuth(); !ok || password != "tk_1" {
		t.Errorf("the token was not sent: %v", request.Header)
	}
}

// TestServersThatFail: each way to fail is an error, soon, without the secret in
// it, and final only if another try cannot help.
func TestServersThatFail(t *testing.T) {
	refusing := listen(t)
	refusing.Close()
	untrusted := httptest.NewUnstartedServer(http.NotFoundHandler())
	untrusted.Config.ErrorLog = log.New(io.Discard, "", 0) // it would complain of the handshake
	untrusted.StartTLS()
	t.Cleanup(untrusted.Close)
	tests := []struct {
		name  string
		url   string
		says  string
		final bool
	}{
		{"refuses", "http://" + refusing.Addr().String(), "refused", false},
		{"hangs before its answer", "http://" + hanging(t, ""), "no answer within", false},
		{"hangs in its header", "http://" + hanging(t, "HTTP/1.1 200 OK\r\nX: "), "no answer within", false},
		{"hangs in the body of an error", "http://" + hanging(t, "HTTP/1.1 500 No\r\nContent-Length: 9\r\n\r\nx"), "answered 500", false},
		{"closes without an answer", "http://" + closingAfter(t, ""), "EOF", false},
		{"closes in its header", "http://" + closingAfter(t, "HTTP/1.1 200 O"), "EOF", false},
		{"is no HTTP server", "http://" + closingAfter(t, "SSH-2.0-x\r\n\r\n"), "malformed", false},
		{"endless header", "http://" + endless(t), "", false},
		{"no certificate that is trusted", untrusted.URL, "certificate", false},
		{"no TLS where TLS is expected", "https://" + closingAfter(t, "HTTP/1.1 400 Bad\r\n\r\n"), "", false},
		{"no such host", "http://no-such-host.invalid", "", false},
		{"500", status(t, 500), "answered 500 no such hook: ", false},
		{"429", status(t, 429), "answered 429", false},
		{"404", status(t, 404), "answered 404", true},
		{"410", status(t, 410), "answered 410", true},
		{"redirects", status(t, 302), "answered 302", true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			target := "webhook:" + tt.url + "/in/s3cret"
			r := result(target, deliver(soon(t, strings.HasPrefix(tt.name, "hangs")), Request{Target: target, Message: message()}))
			if r.Error == "" || !strings.Contains(r.Error, tt.says) || r.Final != tt.final {
				t.Errorf("%+v; expected %q, final %v", r, tt.says, tt.final)
			}
			if strings.Contains(r.Error, "s3cret") || strings.Contains(r.Error, "\x1b") || len(r.Error) > 300 {
				t.Errorf("%q", r.Error)
			}
		})
	}
}

func TestABusyServerSaysWhen(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for value, want := range map[string]int{
		"": 0, "120": 120, "-5": 0, "99999999999": 86400, "99999999999999999999999": 0, "soon": 0,
		"Sun, 01 Mar 2026 12:02:00 GMT": 120, "Sun, 01 Mar 2026 11:00:00 GMT": 0, "Sun, 01 Mar 2099 11:00:00 GMT": 86400,
	} {
		if got := retryAfter(value, now); got != want {
			t.Errorf("%q: %d, expected %d", value, got, want)
		}
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "77")
		w.WriteHeader(http.StatusTooManyRequests)
	}))
	t.Cleanup(server.Close)
	target := "webhook:" + server.URL
	if r := result(target, deliver(t.Context(), Request{Target: target, Message: message()})); r.AgainS != 77 || r.Final || r.Error == "" {
		t.Errorf("%+v", r)
	}
}

func status(t *testing.T, code int) string {
	server, _ := heard(t, code)
	return server.URL
}

func listen(t *testing.T) net.Listener {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

// answering serves each connection with a function and returns the address.
func answering(t *testing.T, serve func(net.Conn)) string {
	l := listen(t)
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				serve(conn)
			}()
		}
	}()
	return l.Addr().String()
}

func hanging(t *testing.T, first string) string {
	return answering(t, func(conn net.Conn) {
		_, _ = conn.Read(make([]byte, 1)) // an answer that comes first is another error
		_, _ = io.WriteString(conn, first)
		_, _ = io.Copy(io.Discard, conn)
	})
}

func closingAfter(t *testing.T, first string) string {
	return answering(t, func(conn net.Conn) {
		_, _ = conn.Read(make([]byte, 1))
		_, _ = io.WriteString(conn, first)
		_ = conn.(*net.TCPConn).CloseWrite()
		_, _ = io.Copy(io.Discard, conn)
	})
}

func endless(t *testing.T) string {
	return answering(t, func(conn net.Conn) {
		_, _ = conn.Read(make([]byte, 1))
		_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\n")
		for {
			if _, err := io.WriteString(conn, "X-A: "+strings.Repeat("x", 4000)+"\r\n"); err != nil {
				return
			}
		}
	})
}

// TestARedirectIsNotFollowed: the address was given to one host.
func TestARedirectIsNotFollowed(t *testing.T) {
	other, got := heard(t, 200)
	server := httptest.NewServer(http.RedirectHandler(other.URL, http.StatusTemporaryRedirect))
	t.Cleanup(server.Close)
	err := deliver(t.Context(), Request{Target: "webhook:" + server.URL + "/s3cret", Message: message()})
	if request, _ := got(); request != nil || !errors.As(err, new(*finalError)) {
		t.Errorf("%v, %v", request, err)
	}
}

// TestAnAnswerCounts: a server that took the message and then goes on without end
// has taken it.
func TestAnAnswerCounts(t *testing.T) {
	addr := hanging(t, "HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\nx")
	if err := deliver(soon(t, false), Request{Target: "webhook:http://" + addr, Message: message()}); err != nil {
		t.Error(err)
	}
}

// postOffice is a mail server that takes one letter, or fails at one command.
type postOffice struct {
	secure *tls.Config
	full   bool              // TLS from the beginning
	offers string            // extensions, one a line
	fails  map[string]string // what it answers to a command; "hang", "close"
	letter chan string
}

func (p *postOffice) open(t *testing.T) string {
	p.letter = make(chan string, 10)
	return answering(t, func(conn net.Conn) {
		if p.full {
			conn = tls.Server(conn, p.secure)
		}
		p.serve(conn)
	})
}

func (p *postOffice) serve(conn net.Conn) {
	in := bufio.NewReader(conn)
	say := func(line string) { fmt.Fprintf(conn, "%s\r\n", line) }
	failed := func(command string) bool {
		switch answer := p.fails[command]; answer {
		case "":
			return false
		case "hang":
			_, _ = io.Copy(io.Discard, in)
			fallthrough
		case "close":
			conn.Close()
		default:
			say(answer)
		}
		return true
	}
	if failed("greeting") {
		return
	}
	say("220 box")
	letter := ""
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			return
		}
		command, _, _ := strings.Cut(strings.TrimSpace(line), " ")
		if failed(command) {
			continue
		}
		switch command {
		case "EHLO":
			fmt.Fprintf(conn, "250-box\r\n")
			for offer := range strings.FieldsSeq(p.offers) {
				fmt.Fprintf(conn, "250-%s\r\n", strings.ReplaceAll(offer, "_", " "))
			}
			say("250 HELP")
		case "STARTTLS":
			say("220 go")
			conn = tls.Server(conn, p.secure)
			in = bufio.NewReader(conn)
		case "AUTH":
			say("235 welcome")
		case "DATA":
			say("354 go on")
			for {
				line, err := in.ReadString('\n')
				if err != nil {
					return
				}
				if line == ".\r\n" {
					break
				}
				letter += line
			}
			if failed("end") {
				continue
			}
			p.letter <- letter
			say("250 taken")
		case "QUIT":
			say("221 bye")
			return
		default:
			letter += line
			say("250 ok")
		}
	}
}

// trust makes a certificate that the senders trust in this test.
func trust(t *testing.T) *tls.Config {
	server := httptest.NewUnstartedServer(http.NotFoundHandler())
	server.StartTLS()
	t.Cleanup(server.Close)
	pool := x509.NewCertPool()
	pool.AddCert(server.Certificate())
	before := roots
	roots = &tls.Config{RootCAs: pool}
	t.Cleanup(func() { roots = before })
	return &tls.Config{Certificates: server.TLS.Certificates}
}

func TestMail(t *testing.T) {
	secure := trust(t)
	for _, tt := range []struct {
		name   string
		office postOffice
		mail   Mail
	}{
		{"TLS after the greeting", postOffice{secure: secure, offers: "STARTTLS AUTH_PLAIN"}, Mail{TLS: StartTLS, User: "u", Password: "p"}},
		{"TLS from the beginning", postOffice{secure: secure, full: true, offers: "AUTH_PLAIN"}, Mail{TLS: FullTLS, User: "u", Password: "p"}},
		{"a relay without TLS", postOffice{}, Mail{TLS: NoTLS}},
		{"it closes at the end", postOffice{fails: map[string]string{"QUIT": "close"}}, Mail{TLS: NoTLS}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.mail.Server, tt.mail.From = tt.office.open(t), "berth@box.example"
			if err := deliver(t.Context(), Request{Target: "mailto:ann@example.org", Mail: tt.mail, Message: message()}); err != nil {
				t.Fatal(err)
			}
			letter := <-tt.office.letter
			for _, want := range []string{
				"MAIL FROM:<berth@box.example>", "RCPT TO:<ann@example.org>\r\n", "To: ann@example.org\r\n", "Subject: [box] train", "Message-ID: <site-8@box>\r\n",
				"Auto-Submitted: auto-generated\r\n", "zw=C3=B6lf",
			} {
				if !strings.Contains(letter, want) {
					t.Errorf("%q is not in:\n%s", want, letter)
				}
			}
		})
	}
}

func TestMailServersThatFail(t *testing.T) {
	secure := trust(t)
	refusing := listen(t)
	refusing.Close()
	fails := func(command, answer string) *postOffice {
		return &postOffice{fails: map[string]string{command: answer}}
	}
	for _, tt := range []struct {
		name   string
		office *postOffice // nil: nobody listens
		mail   Mail
		says   string
		final  bool
	}{
		{"refuses", nil, Mail{TLS: NoTLS}, "refused", false},
		{"hangs at the greeting", fails("greeting", "hang"), Mail{TLS: NoTLS}, "no answer within", false},
		{"hangs in TLS", fails("greeting", "hang"), Mail{TLS: FullTLS}, "no answer within", false},
		{"closes at the greeting", fails("greeting", "close"), Mail{TLS: NoTLS}, "EOF", false},
		{"busy", fails("greeting", "421 busy"), Mail{TLS: NoTLS}, "busy", false},
		{"no such user", fails("RCPT", "550 no such user"), Mail{TLS: NoTLS}, "no such user", true},
		{"mailbox full for now", fails("RCPT", "452 full"), Mail{TLS: NoTLS}, "full", false},
		{"closes in the letter", fails("end", "close"), Mail{TLS: NoTLS}, "EOF", false},
		{"hangs after the letter", fails("end", "hang"), Mail{TLS: NoTLS}, "no answer within", false},
		{"refuses the letter", fails("end", "554 spam"), Mail{TLS: NoTLS}, "spam", true},
		{"offers no TLS", fails("STARTTLS", "454 no TLS"), Mail{TLS: StartTLS}, "start TLS", false},
		{"no password without TLS", &postOffice{offers: "AUTH_PLAIN", fails: map[string]string{"STARTTLS": "502 what?"}}, Mail{TLS: StartTLS, User: "u", Password: "p"}, "start TLS", false},
		{"no password where TLS is switched off", &postOffice{offers: "AUTH_PLAIN"}, Mail{TLS: NoTLS, User: "u", Password: "pass-w0rd"}, "only over TLS", false},
		{"another name in its certificate", &postOffice{secure: secure, offers: "STARTTLS"}, Mail{TLS: StartTLS, Server: "localhost"}, "certificate", false},
		{"wrong password", &postOffice{secure: secure, offers: "STARTTLS AUTH_PLAIN", fails: map[string]string{"AUTH": "535 no"}}, Mail{TLS: StartTLS, User: "u", Password: "pass-w0rd"}, "log in", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			addr := refusing.Addr().String()
			if tt.office != nil {
				addr = tt.office.open(t)
			}
			if tt.mail.Server != "" {
				_, port, _ := net.SplitHostPort(addr)
				addr = tt.mail.Server + ":" + port
			}
			tt.mail.Server, tt.mail.From = addr, "berth@box.example"
			r := result("mailto:ann@example.org", deliver(soon(t, strings.HasPrefix(tt.name, "hangs")), Request{Target: "mailto:ann@example.org", Mail: tt.mail, Message: message()}))
			if r.Error == "" || !strings.Contains(r.Error, tt.says) || r.Final != tt.final || strings.Contains(r.Error, "pass-w0rd") {
				t.Errorf("%+v; expected %q, final %v", r, tt.says, tt.final)
			}
		})
	}
	if r := result("", deliver(t.Context(), Request{Target: "mailto:ann@example.org", Message: message()})); !r.Final || !strings.Contains(r.Error, "not set up") {
		t.Errorf("without any way to send mail: %+v", r)
	}
}

// TestALetterHasOnlyItsOwnHeaders: also if a message was not cleaned before.
func TestALetterHasOnlyItsOwnHeaders(t *testing.T) {
	m := message()
	m.Title, m.ID, m.Host = "x\r\nBcc: eve@example.org", "1>\r\nBcc: e@x", "bo x"
	head, _, _ := strings.Cut(string(letter("a@b.c", "d@e.f", m)), "\r\n\r\n")
	if strings.Contains(head, "\nBcc") || strings.Count(head, "\r\n") != 8 {
		t.Errorf("%s", head)
	}
}

func TestSendmail(t *testing.T) {
	dir := t.TempDir()
	program := filepath.Join(dir, "sendmail")
	script := "#!/bin/sh\necho \"$@\" > " + dir + "/args\ncat > " + dir + "/letter\n[ ! -e " + dir + "/fail ] || { echo queue full; exit 75; }\n"
	if err := os.WriteFile(program, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	r := Request{Target: "mailto:ann@example.org", Mail: Mail{Sendmail: program, From: "berth@box"}, Message: message()}
	if err := deliver(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	args, _ := os.ReadFile(filepath.Join(dir, "args"))
	letter, _ := os.ReadFile(filepath.Join(dir, "letter"))
	if string(args) != "-oi -- ann@example.org\n" || !bytes.Contains(letter, []byte("\nTo: ann@example.org\n")) || bytes.Contains(letter, []byte("\r")) {
		t.Errorf("%s\n%s", args, letter)
	}
	if err := os.WriteFile(filepath.Join(dir, "fail"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := deliver(t.Context(), r); err == nil || !strings.Contains(err.Error(), "queue full") {
		t.Errorf("%v", err)
	}
}

func TestAUsersOwnCommand(t *testing.T) {
	home := t.TempDir()
	command := "{ echo \"$BERTH_NOTIFY_TITLE|$BERTH_NOTIFY_ID|$HOME|$LEAK\"; cat; } > out"
	t.Setenv("LEAK", "leaked")
	err := deliver(t.Context(), Request{Target: "exec:" + command, Environ: []string{"HOME=" + home, "PATH=/usr/bin:/bin"}, Message: message()})
	if err != nil {
		t.Fatal(err)
	}
	got, _ := os.ReadFile(filepath.Join(home, "out"))
	first, rest, _ := strings.Cut(string(got), "\n")
	var m notify.Message
	if first != message().Title+"|site-8|"+home+"|" || json.Unmarshal([]byte(rest), &m) != nil || m.ID != "site-8" {
		t.Errorf("%s", got)
	}
	// A home that is gone is no reason to tell nobody.
	if err := deliver(t.Context(), Request{Target: "exec:test $PWD = /", Environ: []string{"HOME=" + home + "/gone"}, Message: message()}); err != nil {
		t.Error(err)
	}
}

// TestACommandIsNotInTheArguments: everybody can read those.
func TestACommandIsNotInTheArguments(t *testing.T) {
	file := filepath.Join(t.TempDir(), "out")
	command := "token=s3cret; tr '\\0' ' ' < /proc/$$/cmdline > " + file
	if err := deliver(t.Context(), Request{Target: "exec:" + command, Environ: []string{"PATH=/usr/bin:/bin"}, Message: message()}); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(file); err != nil || !strings.HasPrefix(string(got), "/bin/sh ") || strings.Contains(string(got), "s3cret") {
		t.Errorf("%q, %v", got, err)
	}
}

func TestCommandsThatFail(t *testing.T) {
	for command, says := range map[string]string{
		"echo broken >&2; exit 3": "exit status 3: broken",
		"no-such-program-here":    "not found",
		"kill -9 $$":              "killed",
		"yes":                     "no answer within",
		"sleep 60 & sleep 60":     "no answer within",
	} {
		t.Run(command, func(t *testing.T) {
			r := result("exec:"+command, deliver(soon(t, says == "no answer within"), Request{Target: "exec:" + command, Environ: []string{"PATH=/usr/bin:/bin"}, Message: message()}))
			if !strings.Contains(r.Error, says) || r.Final || len(r.Error) > 400 {
				t.Errorf("%+v; expected %q", r, says)
			}
		})
	}
}

// TestACommandLeavesNothingBehind: a process that it started ends with it.
func TestACommandLeavesNothingBehind(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "lock")
	command := "exec 9>" + pipe + "; flock 9; sleep 60 & exit 0"
	if err := deliver(t.Context(), Request{Target: "exec:" + command, Environ: []string{"PATH=/usr/bin:/bin"}, Message: message()}); err != nil {
		t.Fatal(err)
	}
	// The lock is free once the last process that inherited it is gone.
	wait := Request{Target: "exec:exec 9>" + pipe + "; flock 9", Environ: []string{"PATH=/usr/bin:/bin"}, Message: message()}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if err := deliver(ctx, wait); err != nil {
		t.Error(err)
	}
}

func TestTheProcess(t *testing.T) {
	server, _ := heard(t, 404)
	request, err := json.Marshal(Request{Target: "webhook:" + server.URL + "/in/s3cret", Message: message()})
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if code := Main(nil, bytes.NewReader(request), &out); code != 0 {
		t.Errorf("exit status %d", code)
	}
	var r Result
	if err := json.Unmarshal(out.Bytes(), &r); err != nil || !r.Final || strings.Contains(out.String(), "s3cret") {
		t.Errorf("%s: %v", out.Bytes(), err)
	}
	for _, bad := range []string{"", "{", strings.Repeat("x", maxRequest+1)} {
		if code := Main(nil, strings.NewReader(bad), io.Discard); code != 2 {
			t.Errorf("%.10q: exit status %d", bad, code)
		}
	}
	if err := deliver(t.Context(), Request{Target: "fax:1"}); !errors.As(err, new(*finalError)) {
		t.Errorf("%v", err)
	}
}

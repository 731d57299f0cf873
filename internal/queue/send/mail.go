package send

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"mime"
	"mime/quotedprintable"
	"net"
	"net/smtp"
	"net/textproto"
	"os/exec"
	"strings"
	"time"

	"berth/internal/queue/notify"
	"berth/internal/text"
)

// Mail says how mail leaves the machine.
type Mail struct {
	// Server is HOST:PORT; empty: Sendmail is executed.
	Server   string `json:"server,omitempty"`
	TLS      string `json:"tls,omitempty"` // one of the TLS constants
	From     string `json:"from,omitempty"`
	User     string `json:"user,omitempty"`
	Password string `json:"password,omitempty"`
	Sendmail string `json:"sendmail,omitempty"` // the program
}

// How a connection to a mail server is protected.
const (
	StartTLS = "starttls" // required, not tried
	FullTLS  = "tls"
	NoTLS    = "none"
)

func mailTo(ctx context.Context, cfg Mail, to string, m notify.Message) error {
	text := letter(cfg.From, to, m)
	switch {
	case cfg.Server != "":
		return viaSMTP(ctx, cfg, to, text)
	case cfg.Sendmail != "":
		return viaSendmail(ctx, cfg, to, text)
	}
	return final(errors.New("mail is not set up on this machine (notify.smtp in the config)"))
}

// letter is the mail as it is sent. Every value in a header is one line: texts
// were cleaned when the message was composed, and are encoded here.
func letter(from, to string, m notify.Message) []byte {
	var out bytes.Buffer
	for _, header := range [][2]string{
		{"From", from},
		{"To", to},
		{"Subject", mime.QEncoding.Encode("utf-8", text.Words(m.Title))},
		{"Date", m.At.Format(time.RFC1123Z)},
		{"Message-ID", "<" + word(m.ID) + "@" + word(m.Host) + ">"},
		{"Auto-Submitted", "auto-generated"}, // no out-of-office replies
		{"MIME-Version", "1.0"},
		{"Content-Type", "text/plain; charset=utf-8"},
		{"Content-Transfer-Encoding", "quoted-printable"},
	} {
		fmt.Fprintf(&out, "%s: %s\r\n", header[0], header[1])
	}
	out.WriteString("\r\n")
	body := quotedprintable.NewWriter(&out)
	_, _ = body.Write([]byte(strings.ReplaceAll(m.Body, "\n", "\r\n") + "\r\n")) // to memory
	_ = body.Close()
	return out.Bytes()
}

// word keeps what may be part of a Message-ID.
func word(s string) string {
	return strings.Map(func(r rune) rune {
		if r < 0x80 && (r == '-' || r == '.' || r >= '0' && r <= '9' || r >= 'A' && r <= 'Z' || r >= 'a' && r <= 'z') {
			return r
		}
		return '-'
	}, s)
}

func viaSMTP(ctx context.Context, cfg Mail, to string, letter []byte) error {
	host, _, err := net.SplitHostPort(cfg.Server)
	if err != nil {
		return final(fmt.Errorf("mail server: expected HOST:PORT, found %s", cfg.Server))
	}
	secure := roots.Clone()
	if secure == nil {
		secure = &tls.Config{}
	}
	secure.ServerName = host
	line, err := (&net.Dialer{}).DialContext(ctx, "tcp", cfg.Server)
	if err != nil {
		return err
	}
	defer line.Close()
	// A server that hangs ends with the deadline, whatever it hangs in.
	defer context.AfterFunc(ctx, func() { _ = line.SetDeadline(time.Unix(1, 0)) })()
	conn := line
	if cfg.TLS == FullTLS {
		conn = tls.Client(line, secure)
	}
	err = converse(conn, host, cfg, secure, to, letter)
	if ctx.Err() != nil && err != nil {
		return ctx.Err()
	}
	return err
}

// judged is an answer about the letter itself: 5xx lasts. What the server says
// before that is about its setup, which the administrator can mend.
func judged(err error) error {
	if said, ok := errors.AsType[*textproto.Error](err); ok && said.Code/100 == 5 {
		return final(err)
	}
	return err
}

// converse is the talk with the server. Only its word after the whole letter
// counts: a connection that breaks before it has delivered nothing.
func converse(conn net.Conn, host string, cfg Mail, secure *tls.Config, to string, letter []byte) error {
	client, err := smtp.NewClient(conn, host)
	if err != nil {
		return err
	}
	defer func() { _ = client.Close() }() // the line is closed anyway
	if cfg.TLS == StartTLS || cfg.TLS == "" {
		if err := client.StartTLS(secure); err != nil {
			return fmt.Errorf("start TLS: %w", err)
		}
	}
	if cfg.User != "" {
		if _, secured := client.TLSConnectionState(); !secured {
			return errors.New("log in: a password is sent only over TLS")
		}
		if err := client.Auth(smtp.PlainAuth("", cfg.User, cfg.Password, host)); err != nil {
			return fmt.Errorf("log in: %w", err)
		}
	}
	if err := client.Mail(cfg.From); err != nil {
		return judged(err)
	}
	if err := client.Rcpt(to); err != nil {
		return judged(err)
	}
	data, err := client.Data()
	if err != nil {
		return judged(err)
	}
	if _, err := data.Write(letter); err != nil {
		return judged(err)
	}
	if err := data.Close(); err != nil {
		return judged(err)
	}
	_ = client.Quit() // the letter is delivered, whatever it says now
	return nil
}

func viaSendmail(ctx context.Context, cfg Mail, to string, letter []byte) error {
	// sendmail's own line ends are those of the machine.
	cmd := exec.CommandContext(ctx, cfg.Sendmail, "-oi", "--", to)
	cmd.Stdin = bytes.NewReader(bytes.ReplaceAll(letter, []byte("\r\n"), []byte("\n")))
	return bounded(ctx, cmd)
}

package notify

import (
	"fmt"
	"net/mail"
	"net/netip"
	"net/url"
	"strings"
	"unicode/utf8"

	"berth/internal/text"
)

// Scheme is the way a message goes.
type Scheme string

// The schemes of targets.
const (
	Mail    Scheme = "mailto"
	Webhook Scheme = "webhook"
	Slack   Scheme = "slack" // and what takes the same messages: Mattermost, Discord
	Ntfy    Scheme = "ntfy"
	Exec    Scheme = "exec"
)

var schemes = []Scheme{Mail, Webhook, Slack, Ntfy, Exec}

// Bounds on what a user may ask for.
const (
	maxTarget = 2048
	maxMail   = 254 // the longest address that SMTP carries
)

// publicNtfy is the server of a topic that names none.
const publicNtfy = "https://ntfy.sh/"

// Target is where messages go. Its text may contain a secret: a webhook's URL
// alone allows anyone to post. Print Shown to anybody but its owner.
type Target struct {
	Scheme Scheme
	To     string // an address, a URL or a command
}

func (t Target) String() string { return string(t.Scheme) + ":" + t.To }

var topicForm = text.Pattern(`^[-_A-Za-z0-9]{1,64}$`)

// ParseTarget reads SCHEME:REST.
func ParseTarget(s string) (Target, error) {
	scheme, to, found := strings.Cut(s, ":")
	t := Target{Scheme: Scheme(strings.ToLower(scheme)), To: to}
	if !found || !known(t.Scheme) {
		hint := ""
		if near := text.Nearest(scheme, words(schemes)); near != "" && found {
			hint = fmt.Sprintf(" (did you mean %s?)", near)
		}
		return Target{}, fmt.Errorf("expected a target that begins with %s, found %s%s", text.Or(withColon(schemes)), text.Found(schemeOf(s)), hint)
	}
	if len(s) > maxTarget {
		return Target{}, fmt.Errorf("expected a target of at most %d bytes, found %d", maxTarget, len(s))
	}
	if strings.ContainsFunc(to, control) || !utf8.ValidString(to) {
		return Target{}, fmt.Errorf("%s: expected one line of UTF-8 without control characters", t.Scheme)
	}
	var err error
	switch t.Scheme {
	case Mail:
		t.To, err = parseMail(to)
	case Webhook, Slack:
		t.To, err = parseURL(to)
	case Ntfy:
		t.To, err = parseNtfy(to)
	case Exec:
		if t.To = strings.TrimSpace(to); t.To == "" {
			err = fmt.Errorf("expected a shell command, found nothing")
		}
	}
	if err != nil {
		return Target{}, fmt.Errorf("%s: %w", t.Scheme, err)
	}
	return t, nil
}

func known(scheme Scheme) bool {
	for _, s := range schemes {
		if s == scheme {
			return true
		}
	}
	return false
}

func words(schemes []Scheme) (list []string) {
	for _, s := range schemes {
		list = append(list, string(s))
	}
	return list
}

func withColon(schemes []Scheme) (list []string) {
	for _, s := range schemes {
		list = append(list, string(s)+":")
	}
	return list
}

// schemeOf is the part of a mistyped target that an error may repeat: the rest
// may be a secret.
func schemeOf(s string) string {
	head, _, found := strings.Cut(s, ":")
	if !found {
		return text.Clip(s, 20)
	}
	return text.Clip(head, 20) + ":…"
}

func control(r rune) bool     { return r < ' ' || r == 0x7f }
func beyondASCII(r rune) bool { return r > 0x7e } // not every mail server takes it

// parseMail accepts one plain address, because it becomes a line of a protocol
// and an argument of sendmail.
func parseMail(s string) (string, error) {
	address, err := mail.ParseAddress(s)
	if err != nil || address.Name != "" || address.Address != s || len(s) > maxMail || strings.HasPrefix(s, "-") || strings.ContainsAny(s, " \t\"<>,;") || strings.ContainsFunc(s, beyondASCII) {
		return "", fmt.Errorf("expected one address such as ann@example.org, found %s", text.Found(s))
	}
	return s, nil
}

// parseURL does not repeat what it refuses, which may be a secret with a typing
// mistake.
func parseURL(s string) (string, error) {
	u, err := url.Parse(s)
	switch {
	case err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" || u.Opaque != "":
		return "", fmt.Errorf("expected a URL such as https://example.org/hook")
	case u.Hostname() == "" || strings.ContainsAny(u.Hostname(), " %"):
		return "", fmt.Errorf("expected a URL with the name of a host")
	case u.Fragment != "":
		return "", fmt.Errorf("expected a URL without a fragment (#…)")
	}
	return u.String(), nil
}

func parseNtfy(s string) (string, error) {
	if topicForm().MatchString(s) {
		return publicNtfy + s, nil
	}
	to, err := parseURL(s)
	if err != nil {
		return "", fmt.Errorf("expected a topic of letters, digits, - and _, or a URL such as https://ntfy.example.org/topic")
	}
	if _, _, err := SplitNtfy(to); err != nil {
		return "", err
	}
	return to, nil
}

// SplitNtfy is the address of the server and the topic of a URL.
func SplitNtfy(to string) (server, topic string, err error) {
	u, err := url.Parse(to)
	if err != nil {
		return "", "", fmt.Errorf("expected a URL such as https://ntfy.example.org/topic")
	}
	path := strings.TrimSuffix(u.Path, "/")
	at := strings.LastIndexByte(path, '/')
	if at < 0 || !topicForm().MatchString(path[at+1:]) || u.RawQuery != "" {
		return "", "", fmt.Errorf("expected a URL that ends with a topic, such as https://ntfy.example.org/topic")
	}
	topic = path[at+1:]
	u.Path, u.RawPath = path[:at+1], ""
	return u.String(), topic, nil
}

// Discord reports whether a URL takes Discord's own messages instead of Slack's.
func Discord(to string) bool {
	u, err := url.Parse(to)
	if err != nil {
		return false
	}
	host := strings.ToLower(u.Hostname())
	discord := host == "discord.com" || host == "discordapp.com" || strings.HasSuffix(host, ".discord.com")
	return discord && !strings.HasSuffix(strings.TrimSuffix(u.Path, "/"), "/slack")
}

// Shown is the target without its secrets, for everybody who may see that it
// exists: "slack:https://hooks.slack.com/…".
func (t Target) Shown() string {
	switch t.Scheme {
	case Mail:
		return text.Line(t.String())
	case Exec:
		return "exec:…"
	}
	u, err := url.Parse(t.To)
	if err != nil || u.Host == "" {
		return string(t.Scheme) + ":…"
	}
	return text.Line(string(t.Scheme) + ":" + u.Scheme + "://" + u.Host + "/…")
}

// Clear is what could be read by others on the way to the target; empty: nothing.
func (t Target) Clear() string {
	u, err := url.Parse(t.To)
	if err != nil || u.Scheme != "http" || t.Scheme == Mail || t.Scheme == Exec {
		return ""
	}
	if ip, err := netip.ParseAddr(u.Hostname()); u.Hostname() == "localhost" || err == nil && ip.IsLoopback() {
		return ""
	}
	return "over plain HTTP anyone on the network can read the messages and the address they go to"
}

// Hide replaces every part of a text that could give the target away. Errors of
// HTTP clients repeat URLs, and programs repeat their arguments.
func (t Target) Hide(said string) string {
	if t.Scheme == Mail {
		return said
	}
	secrets := []string{t.String(), t.To}
	if u, err := url.Parse(t.To); err == nil && u.Host != "" {
		secrets = append(secrets, u.Redacted(), u.RequestURI(), u.EscapedPath(), u.Path, u.RawQuery)
		if password, has := u.User.Password(); has {
			secrets = append(secrets, password)
		}
		for part := range strings.SplitSeq(u.Path, "/") {
			secrets = append(secrets, part)
		}
	}
	for _, secret := range secrets {
		if len(secret) >= shortestSecret {
			said = strings.ReplaceAll(said, secret, "…")
		}
	}
	return said
}

// shortestSecret keeps Hide from replacing every "/".
const shortestSecret = 4

package send

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/tls"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"berth/internal/queue/notify"
	"berth/internal/text"
)

// The lengths that chat and ntfy servers take.
const (
	maxChat = 1800
	maxNtfy = 3500
)

// webhook posts the message as JSON, signed as the Standard Webhooks
// specification says, so that a receiver can use its libraries.
func webhook(ctx context.Context, url string, key []byte, m notify.Message) error {
	body := encode(m)
	header := http.Header{}
	header.Set("Webhook-Id", m.ID)
	stamp := strconv.FormatInt(time.Now().Unix(), 10)
	header.Set("Webhook-Timestamp", stamp)
	if len(key) > 0 {
		header.Set("Webhook-Signature", "v1,"+sign(key, m.ID, stamp, body))
	}
	return post(ctx, url, header, body)
}

// sign covers the time too, so that a receiver can refuse an old message that
// somebody sends again.
func sign(key []byte, id, stamp string, body []byte) string {
	mac := hmac.New(sha256.New, key)
	fmt.Fprintf(mac, "%s.%s.", id, stamp)
	mac.Write(body)
	return base64.StdEncoding.EncodeToString(mac.Sum(nil))
}

// chat posts to Slack, Mattermost or Discord. A job's name must not address a
// whole channel: it is shown as code, without the marks that end code or begin
// a mention.
func chat(ctx context.Context, url string, m notify.Message) error {
	said := text.Clip("`"+plain(m.Title)+"`\n```\n"+plain(m.Body), maxChat) + "\n```"
	if notify.Discord(url) {
		return post(ctx, url, nil, encode(map[string]any{"content": said, "allowed_mentions": map[string]any{"parse": []string{}}}))
	}
	return post(ctx, url, nil, encode(map[string]any{"text": said}))
}

var plain = strings.NewReplacer("`", "'", "<", "‹", ">", "›").Replace

func ntfy(ctx context.Context, url string, m notify.Message) error {
	server, topic, err := notify.SplitNtfy(url)
	if err != nil {
		return final(err)
	}
	priority, tag := 3, "white_check_mark"
	if m.Bad {
		priority, tag = 4, "warning"
	}
	return post(ctx, server, nil, encode(map[string]any{
		"topic": topic, "title": m.Title, "message": text.Clip(m.Body, maxNtfy), "priority": priority, "tags": []string{tag},
	}))
}

func encode(value any) []byte {
	return text.MustJSON(value)
}

// roots is nil outside of tests: the system's certificates.
var roots *tls.Config

// post sends JSON once. Redirects are not followed: the address is a secret that
// was given to one host.
func post(ctx context.Context, url string, header http.Header, body []byte) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return final(err)
	}
	for name, values := range header {
		request.Header[name] = values
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("User-Agent", "berth")
	client := &http.Client{
		Transport: &http.Transport{
			DisableKeepAlives: true, TLSClientConfig: roots.Clone(), MaxResponseHeaderBytes: 64 << 10,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode/100 == 2 {
		return nil // whatever else it says
	}
	said, _ := io.ReadAll(io.LimitReader(response.Body, maxSaid)) // only for the error
	err = fmt.Errorf("the server answered %d %s", response.StatusCode, text.Said(strings.ToValidUTF8(string(said), "?")))
	if lasting(response.StatusCode) {
		return final(err)
	}
	return &busyError{err, retryAfter(response.Header.Get("Retry-After"), time.Now())}
}

// maxAgain bounds how long a server may ask to be left alone.
const maxAgain = 24 * time.Hour

// retryAfter reads the header of that name: seconds, or a time.
func retryAfter(value string, now time.Time) int {
	pause := time.Duration(0)
	if seconds, err := strconv.Atoi(value); err == nil {
		pause = time.Duration(min(max(seconds, 0), int(maxAgain/time.Second))) * time.Second
	} else if at, err := http.ParseTime(value); err == nil {
		pause = min(max(at.Sub(now), 0), maxAgain)
	}
	return int(pause / time.Second)
}

// lasting reports whether an answer will be the same tomorrow.
func lasting(status int) bool {
	switch status {
	case http.StatusRequestTimeout, http.StatusConflict, http.StatusLocked, http.StatusTooEarly, http.StatusTooManyRequests:
		return false
	}
	return status/100 == 3 || status/100 == 4
}

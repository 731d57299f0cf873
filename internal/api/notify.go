package api

import (
	"context"
	"net/http"
	"net/url"
	"time"

	"berth/internal/text/problem"
)

// Notify is what a user set about being told, and the messages that are not
// delivered.
type Notify struct {
	Rules    []string        `json:"rules" doc:"who is told about jobs without rules of their own: EVENTS:TARGET; without secrets, unless they are asked for"`
	Signed   bool            `json:"signed" doc:"there is a key, and webhooks are signed with it"`
	Key      string          `json:"key,omitempty" doc:"that key; only if secrets are asked for"`
	Messages []NotifyMessage `json:"messages" doc:"messages that gather, wait or were given up, oldest first"`
}

// NotifyMessage is a message that is not delivered.
type NotifyMessage struct {
	ID     string    `json:"id"`
	Target string    `json:"target"`
	Title  string    `json:"title"`
	Stage  string    `json:"state" doc:"gathering, waiting or given_up"`
	Since  time.Time `json:"since" doc:"when the first event happened; once given up, when that was"`
	Next   time.Time `json:"next" doc:"when it is sent; once given up, when it is forgotten"`
	Tries  int       `json:"tries" doc:"how many failed"`
	Error  string    `json:"error,omitempty" doc:"of the last one"`
}

// NotifyRequest changes what a user is told.
type NotifyRequest struct {
	Rules  *[]string `json:"rules,omitempty" doc:"replaces all rules: EVENTS:TARGET; left out: as they are"`
	NewKey bool      `json:"new_key,omitempty" doc:"makes a key for webhooks, in place of an older one; the reply has it"`
}

// NotifyTest asks for a message now.
type NotifyTest struct {
	Target string   `json:"target,omitempty" doc:"where to; left out: the targets of the caller's rules"`
	Jobs   []string `json:"jobs,omitempty" doc:"ids of jobs that have ended, which the message is about; it is then sent as other messages are, and tried again if it fails"`
}

// NotifyResult is what came of a message.
type NotifyResult struct {
	Target string `json:"target" doc:"without its secrets"`
	Error  string `json:"error,omitempty" doc:"why it was not delivered; left out: it was, or it will be"`
}

func notifyOperations() []route {
	return []route{
		{method: get, path: "/v1/notify", handle: (*exchange).getNotify, doc: doc{
			id: "notify", tag: "messages", summary: "Show who is told about the caller's jobs",
			about:  "The caller's rules, and the messages that are not delivered.",
			params: []param{{name: "secrets", in: "query", kind: "boolean", about: "whole targets, and the key of webhooks"}},
			reply:  exampleNotify, kinds: []problem.Kind{problem.Invalid},
		}},
		{method: patch, path: "/v1/notify", handle: (*exchange).patchNotify, body: true, doc: doc{
			id: "set-notify", tag: "messages", summary: "Set who is told about the caller's jobs",
			about:   "Jobs with rules of their own are not affected.",
			request: NotifyRequest{Rules: &exampleNotify.Rules}, reply: exampleNotify, kinds: []problem.Kind{problem.Invalid},
		}},
		{method: post, path: "/v1/notify/send", handle: (*exchange).postNotify, body: true, heavy: true, doc: doc{
			id: "send-notify", tag: "messages", summary: "Send a message",
			about:   "Sends a test message now and says what came of it. With jobs, the message is about them and is stored before the reply.",
			request: NotifyTest{Target: "mailto:ann@example.org"}, reply: []NotifyResult{{Target: "mailto:ann@example.org"}}, kinds: []problem.Kind{problem.Invalid, problem.NotFound, problem.Refused},
		}},
	}
}

func (x *exchange) getNotify() error {
	p, err := x.params()
	if err != nil {
		return err
	}
	secrets := p.bool("secrets")
	if err := p.done(); err != nil {
		return err
	}
	return x.reply(x.backend.Notify(x.r.Context(), x.caller, secrets))
}

func (x *exchange) patchNotify() error {
	var r NotifyRequest
	if err := decode(x.body(x.limits.BodyBytes), &r); err != nil {
		return err
	}
	return x.reply(x.backend.SetNotify(x.r.Context(), x.caller, r))
}

func (x *exchange) postNotify() error {
	var r NotifyTest
	if err := decode(x.body(x.limits.BodyBytes), &r); err != nil {
		return err
	}
	results, err := x.backend.SendNotify(x.r.Context(), x.caller, r)
	return x.reply(list(results), err)
}

// Notify is the caller's rules and undelivered messages; with secrets, whole
// targets and the key.
func (c *Client) Notify(ctx context.Context, secrets bool) (Notify, error) {
	v := url.Values{}
	if secrets {
		v.Set("secrets", "true")
	}
	return call[Notify](ctx, c, http.MethodGet, "/v1/notify", v, nil)
}

// SetNotify changes the caller's rules or key.
func (c *Client) SetNotify(ctx context.Context, r NotifyRequest) (Notify, error) {
	return call[Notify](ctx, c, http.MethodPatch, "/v1/notify", nil, r)
}

// sendTakes is how long the other side may take to answer.
const sendTakes = 2 * time.Minute

// SendNotify sends a message.
func (c *Client) SendNotify(ctx context.Context, r NotifyTest) ([]NotifyResult, error) {
	return call[[]NotifyResult](taking(ctx, sendTakes), c, http.MethodPost, "/v1/notify/send", nil, r)
}

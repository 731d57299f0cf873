package api

import (
	"context"
	"net/http"
	"time"

	"berth/internal/text/problem"
)

// Stray is a supervisor whose job the store does not know: the store was emptied,
// or an older one was restored.
type Stray struct {
	Token     string    `json:"token"`
	Job       string    `json:"job" doc:"the job's id"`
	Attempt   int       `json:"attempt"`
	State     string    `json:"state" doc:"running, ended, or lost: its supervisor is gone"`
	User      string    `json:"user,omitempty"`
	Name      string    `json:"name,omitempty"`
	Command   string    `json:"command,omitempty"`
	GPUs      []int     `json:"gpu_ids" doc:"the GPUs it holds; empty: none, or not known"`
	PID       int       `json:"pid,omitempty" doc:"its main process"`
	StartedAt time.Time `json:"started_at"`
	Log       string    `json:"log,omitempty"`
	Adoptable bool      `json:"adoptable" doc:"false: the berth that started it left no copy of the job"`
}

// AdoptStraysRequest takes strays back into the queue.
type AdoptStraysRequest struct {
	Tokens []string `json:"tokens,omitempty" doc:"the strays; left out: all of the caller's, for an administrator all"`
}

// AdoptedStray is the result for one stray.
type AdoptedStray struct {
	Token   string `json:"token"`
	Job     string `json:"job,omitempty"`
	Problem string `json:"problem,omitempty" doc:"why it was not adopted"`
}

// maxStrays is more supervisors than one machine has.
const maxStrays = 100_000

var exampleStray = Stray{
	Token: "5f0c2a91d3e84b67", Job: "17", Attempt: 1, State: "running", User: "ann", Name: "train", Command: "python train.py",
	GPUs: []int{0}, PID: 4242, StartedAt: exampleTime, Log: "/var/lib/berth/jobs/17/1.log", Adoptable: true,
}

func strayOperations() []route {
	return []route{
		{method: get, path: "/v1/strays", handle: (*exchange).getStrays, doc: doc{
			id: "strays", tag: "jobs", summary: "List supervisors that the store does not know",
			about: "They are left alone, and their GPUs stay allocated. The caller's own; for administrators, every user's.", reply: []Stray{exampleStray},
		}},
		{method: post, path: "/v1/strays/adopt", handle: (*exchange).postStrays, body: true, doc: doc{
			id: "adopt-strays", tag: "jobs", summary: "Take the jobs of such supervisors back into the queue",
			about:   "Each job continues under its supervisor, with the id it had. The reply has a result for each stray.",
			request: AdoptStraysRequest{Tokens: []string{exampleStray.Token}}, reply: []AdoptedStray{{Token: exampleStray.Token, Job: "17"}},
			kinds: []problem.Kind{problem.Invalid, problem.TooMuch, problem.Unable},
		}},
	}
}

func (x *exchange) getStrays() error {
	strays, err := x.backend.Strays(x.r.Context(), x.caller)
	return x.reply(list(strays), err)
}

func (x *exchange) postStrays() error {
	var r AdoptStraysRequest
	if err := decode(x.body(x.limits.BodyBytes), &r); err != nil {
		return err
	}
	if len(r.Tokens) > maxStrays {
		return &problem.Problem{Kind: problem.TooMuch, What: "too many strays", Err: errTooLarge}
	}
	adopted, err := x.backend.AdoptStrays(x.r.Context(), x.caller, r)
	return x.reply(list(adopted), err)
}

// Strays lists the supervisors that the daemon's store does not know.
func (c *Client) Strays(ctx context.Context) ([]Stray, error) {
	return call[[]Stray](ctx, c, http.MethodGet, "/v1/strays", nil, nil)
}

// AdoptStrays takes their jobs back into the queue.
func (c *Client) AdoptStrays(ctx context.Context, r AdoptStraysRequest) ([]AdoptedStray, error) {
	return call[[]AdoptedStray](ctx, c, http.MethodPost, "/v1/strays/adopt", nil, r)
}

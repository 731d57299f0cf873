package api

import (
	"context"
	"net/http"

	"berth/internal/problem"
)

// AdoptRequest brings a process that berth did not start under accounting.
type AdoptRequest struct {
	PID  int    `json:"pid" minimum:"1" doc:"the process, as the daemon's machine counts them"`
	GPUs []int  `json:"gpus,omitempty" doc:"cards that count as its own beside those it uses"`
	VRAM string `json:"vram,omitempty" doc:"what to hold for it on each card: MiB, or a size with a unit; what it uses now"`
	Name string `json:"name,omitempty"`
}

// maxAdoptGPUs is more cards than one machine has.
const maxAdoptGPUs = 1024

func adoptOperations() []route {
	return []route{
		{method: post, path: "/v1/adopt", handle: (*exchange).postAdopt, body: true, doc: doc{
			id: "adopt", tag: "jobs", summary: "Account for a process that berth did not start",
			about: "Makes a job that stands for the process, on the cards that it uses. The process is left alone: cancelling the job ends the accounting only. " +
				"It must be the caller's, or the caller an administrator.",
			request: exampleAdopt, reply: exampleAdopted, kinds: []problem.Kind{problem.Invalid, problem.NotFound, problem.Forbidden, problem.Refused, problem.TooMuch, problem.Unable},
		}},
	}
}

var exampleAdopt = AdoptRequest{PID: 4242, GPUs: []int{0}, VRAM: "18G", Name: "by-hand"}

var exampleAdopted = Detail{View: exampleView, UUIDs: []string{"GPU-a1", "GPU-b2"}, BudgetMiB: 18432}

func (x *exchange) postAdopt() error {
	var r AdoptRequest
	if err := decode(x.body(x.limits.BodyBytes), &r); err != nil {
		return err
	}
	if r.PID < 1 {
		return problem.Newf(problem.Invalid, "ps and berth gpus show processes", "%d is no number of a process", r.PID)
	}
	if len(r.GPUs) > maxAdoptGPUs {
		return &problem.Problem{Kind: problem.TooMuch, What: "too many GPUs are named", Err: errTooLarge}
	}
	return x.reply(x.backend.Adopt(x.r.Context(), x.caller, r))
}

// Adopt brings a process that berth did not start under accounting.
func (c *Client) Adopt(ctx context.Context, r AdoptRequest) (Detail, error) {
	return call[Detail](ctx, c, http.MethodPost, "/v1/adopt", nil, r)
}

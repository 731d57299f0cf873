package api

import (
	"context"
	"net/http"

	"berth/internal/text/problem"
)

// AdoptRequest makes berth account for a process it did not start.
type AdoptRequest struct {
	PID  int    `json:"pid" minimum:"1" doc:"process id on the daemon's machine"`
	GPUs []int  `json:"gpus,omitempty" doc:"GPUs to reserve for it besides those it uses; on a shared daemon only for administrators"`
	VRAM string `json:"vram,omitempty" doc:"memory to reserve on each GPU: MiB, or a size with a unit; default: what it uses now, which only administrators may exceed"`
	Name string `json:"name,omitempty"`
}

// maxAdoptGPUs is more GPUs than one machine has.
const maxAdoptGPUs = 1024

func adoptOperations() []route {
	return []route{
		{method: post, path: "/v1/adopt", handle: (*exchange).postAdopt, body: true, doc: doc{
			id: "adopt", tag: "jobs", summary: "Account for a process that berth did not start",
			about: "Makes a job that represents the process, on the GPUs that it uses. The process is left alone: cancelling the job only ends the accounting. " +
				"The process must belong to the caller, unless the caller is an administrator.",
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
		return problem.Newf(problem.Invalid, "ps and berth gpus -v list processes", "expected a process id, found %d", r.PID)
	}
	if len(r.GPUs) > maxAdoptGPUs {
		return &problem.Problem{Kind: problem.TooMuch, What: "too many GPUs", Err: errTooLarge}
	}
	return x.reply(x.backend.Adopt(x.r.Context(), x.caller, r))
}

// Adopt makes berth account for a process it did not start.
func (c *Client) Adopt(ctx context.Context, r AdoptRequest) (Detail, error) {
	return call[Detail](ctx, c, http.MethodPost, "/v1/adopt", nil, r)
}

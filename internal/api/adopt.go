package api

import "berth/internal/text/problem"

// AdoptRequest makes berth account for a process it did not start.
type AdoptRequest struct {
	PID  int    `json:"pid" minimum:"1" doc:"process id on the daemon's machine"`
	GPUs []int  `json:"gpus,omitempty" doc:"GPUs to reserve for it besides those it uses; on a shared daemon only for administrators"`
	VRAM string `json:"vram,omitempty" doc:"memory to reserve on each GPU: MiB, or a size with a unit; default: what it uses now, which only administrators may exceed"`
	Name string `json:"name,omitempty"`
}

// maxAdoptGPUs is more GPUs than one machine has.
const maxAdoptGPUs = 1024

func (r *AdoptRequest) check(*Limits) error {
	if r.PID < 1 {
		return problem.Newf(problem.Invalid, "ps and berth gpus -v list processes", "expected a process id, found %d", r.PID)
	}
	if len(r.GPUs) > maxAdoptGPUs {
		return &problem.Problem{Kind: problem.TooMuch, What: "too many GPUs", Err: errTooLarge}
	}
	return nil
}

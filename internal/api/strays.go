package api

import (
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

func (r *AdoptStraysRequest) check(*Limits) error {
	if len(r.Tokens) > maxStrays {
		return &problem.Problem{Kind: problem.TooMuch, What: "too many strays", Err: errTooLarge}
	}
	return nil
}

package api

import "time"

// ReplayQuery selects what to replay.
type ReplayQuery struct {
	Policies []string   `query:"policy" eg:"fair" about:"up to 4 policies; may be repeated; default: default and backfill"`
	Since    *time.Time `query:"since" about:"only jobs that ended after this time; default: 30 days ago"`
}

// Replay is the daemon's history under several policies.
type Replay struct {
	Since    time.Time      `json:"since" doc:"the jobs ended since then"`
	Jobs     int            `json:"jobs" doc:"that were replayed"`
	Users    int            `json:"users"`
	GPUs     int            `json:"gpus" doc:"of the machine that they were replayed on"`
	VRAMMiB  int64          `json:"vram_mib" doc:"of each of its GPUs"`
	Policies []ReplayPolicy `json:"policies" doc:"those compared, in the order of values"`
	Figures  []ReplayFigure `json:"figures"`
	Notes    []string       `json:"notes" doc:"what was left out or assumed"`
	Known    []ReplayPolicy `json:"known" doc:"all policies that can be replayed"`
}

// ReplayPolicy is a policy, in words.
type ReplayPolicy struct {
	Name  string `json:"name"`
	About string `json:"about"`
}

// ReplayFigure is one figure under every policy.
type ReplayFigure struct {
	Name   string        `json:"name" doc:"as in berth simulate --json"`
	Title  string        `json:"title"`
	Values []ReplayValue `json:"values" doc:"one for each policy"`
	Bound  string        `json:"bound,omitempty" doc:"what no policy can be below, in words"`
}

// ReplayValue is a figure under one policy.
type ReplayValue struct {
	Value float64 `json:"value"`
	Text  string  `json:"text" doc:"for people"`
	Best  bool    `json:"best" doc:"no other policy is better"`
}

func (r *Replay) fill() {
	r.Policies, r.Figures, r.Notes, r.Known = list(r.Policies), list(r.Figures), list(r.Notes), list(r.Known)
}

package api

import (
	"context"
	"net/http"
	"net/url"
	"time"

	"berth/internal/text/problem"
)

// ReplayQuery selects what to replay.
type ReplayQuery struct {
	Policies []string   // empty: the default and backfill
	Since    *time.Time // only jobs that ended since then; nil: 30 days ago
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

var exampleReplay = Replay{
	Since: exampleTime.AddDate(0, 0, -30), Jobs: 60, Users: 5, GPUs: 8, VRAMMiB: 81920,
	Policies: []ReplayPolicy{{Name: "backfill", About: "by priority, then submission"}, {Name: "fair", About: "by priority, then least usage of the user"}},
	Figures: []ReplayFigure{{Name: "wait_mean_s", Title: "wait, mean", Values: []ReplayValue{
		{Value: 8580, Text: "2h23m"}, {Value: 7320, Text: "2h02m", Best: true},
	}}},
	Notes: []string{"3 jobs left out: never started, or had no GPU"},
	Known: []ReplayPolicy{{Name: "backfill", About: "by priority, then submission"}},
}

func replayOperations() []route {
	return []route{{method: get, path: "/v1/replay", handle: (*exchange).getReplay, doc: doc{
		id: "replay", tag: "daemon", summary: "Replay the history under other policies",
		about: "What berth simulate --history reports: how long the jobs that ended lately would have waited, and how the GPUs would have been used, under each policy. No job runs. " +
			"The daemon makes one replay at a time, of the last 20000 jobs at most; a replay that takes longer than 20 seconds ends with an error, and one whose caller hangs up ends at once.",
		params: []param{
			{name: "policy", in: "query", kind: "list", about: "up to 4 policies; may be repeated; default: default and backfill", example: []string{"fair"}},
			{name: "since", in: "query", kind: "time", about: "only jobs that ended after this time; default: 30 days ago"},
		},
		reply: exampleReplay, kinds: []problem.Kind{problem.Invalid, problem.Refused, problem.TooMuch},
	}}}
}

func (q ReplayQuery) values() url.Values {
	v := url.Values{}
	putList(v, "policy", q.Policies)
	putTime(v, "since", q.Since)
	return v
}

// getReplay may take as long as a stream, and ends with the server like one.
func (x *exchange) getReplay() error {
	p, err := x.params()
	if err != nil {
		return err
	}
	q := ReplayQuery{Policies: p.list("policy"), Since: p.time("since")}
	if err := p.done(); err != nil {
		return err
	}
	ctx, done, err := x.stream()
	if err != nil {
		return err
	}
	defer done()
	replay, err := x.backend.Replay(ctx, x.caller, q)
	replay.Policies, replay.Figures, replay.Notes, replay.Known = list(replay.Policies), list(replay.Figures), list(replay.Notes), list(replay.Known)
	return x.reply(replay, err)
}

// Replay returns the daemon's history under several policies.
func (c *Client) Replay(ctx context.Context, q ReplayQuery) (Replay, error) {
	return call[Replay](ctx, c, http.MethodGet, "/v1/replay", q.values(), nil)
}

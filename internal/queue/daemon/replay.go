package daemon

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"berth/internal/api"
	"berth/internal/job"
	"berth/internal/queue"
	"berth/internal/queue/engine"
	"berth/internal/queue/fair"
	"berth/internal/sched"
	"berth/internal/sched/report"
	"berth/internal/sched/sim"
	"berth/internal/text"
	"berth/internal/text/problem"
)

// replayLimits bound what a replay costs the daemon, which has other things to
// do. berth simulate --history has none of them, in a process of its own.
type replayLimits struct {
	jobs, page, policies int
	time                 time.Duration
}

var usualReplay = replayLimits{jobs: 20_000, page: 2000, policies: 4, time: 20 * time.Second}

const replayDays = 30

// Replay says what other policies would have done with the jobs that ended
// lately. One replay is made at a time, and it ends with its caller.
func (h *history) Replay(ctx context.Context, c api.Caller, q api.ReplayQuery) (api.Replay, error) {
	return h.replay(ctx, c, q, usualReplay)
}

func (h *history) replay(ctx context.Context, c api.Caller, q api.ReplayQuery, limits replayLimits) (api.Replay, error) {
	policies, err := policiesOf(q.Policies, limits.policies)
	if err != nil {
		return api.Replay{}, err
	}
	machine := sim.Machine{GPUs: min(len(h.svc.queue.Devices), sim.MaxGPUs)}
	for _, device := range h.svc.queue.Devices {
		machine.VRAMMiB = max(machine.VRAMMiB, device.TotalMiB)
	}
	if machine.GPUs == 0 || machine.VRAMMiB == 0 {
		return api.Replay{}, problem.Newf(problem.Refused, "choose the machine to replay on: berth simulate --history --gpus 8 --vram 80G", "the daemon has no GPUs")
	}
	leave, err := h.replays.Enter(ctx)
	if err != nil {
		return api.Replay{}, err
	}
	defer leave()
	ctx, rest := h.svc.gate.Begin(ctx)
	defer rest()
	since := time.Now().AddDate(0, 0, -replayDays)
	if q.Since != nil {
		since = *q.Since
	}
	jobs, notes, err := h.endedFor(ctx, c, since, limits)
	if err != nil {
		return api.Replay{}, err
	}
	reply := api.Replay{Since: since, GPUs: machine.GPUs, VRAMMiB: machine.VRAMMiB, Known: policyWords(sim.Policies()), Policies: policyWords(policies), Notes: notes}
	park, err := h.parking(ctx)
	if err != nil {
		return api.Replay{}, err
	}
	w := sim.FromHistory(jobs, machine, park.Restart)
	reply.Notes = append(reply.Notes, report.Before(w)...)
	if len(w.Jobs) == 0 {
		return reply, nil
	}
	for i := range policies {
		policies[i].Rules.MinRun = h.svc.Config().Rules.MinRun
	}
	begun, waited := time.Now(), time.Duration(0)
	replays, done := sim.Compare(w, policies, sim.Choices{Park: park}, 0, sim.Watch{
		Progress: func(string, int, int) bool {
			asked := time.Now()
			err := fair.Spend(ctx, fair.Long)
			waited += time.Since(asked)
			return err == nil && time.Since(begun)-waited < limits.time
		},
	})
	switch {
	case ctx.Err() != nil:
		return api.Replay{}, context.Cause(ctx)
	case !done:
		return api.Replay{}, problem.Newf(problem.TooMuch, "choose fewer policies or a shorter time, or type berth simulate --history, which has no limit",
			"a replay of %s took longer than %s", text.CountGrouped(len(w.Jobs), "job"), text.Span(limits.time))
	}
	r := &report.Report{Work: w, Replays: replays}
	reply.Jobs, reply.Users = replays[0].Jobs, replays[0].Users
	reply.Notes = append(reply.Notes, r.After()...)
	for _, row := range r.Rows() {
		f := api.ReplayFigure{Name: row.Name, Title: row.Title, Bound: row.Bound}
		for _, cell := range row.Cells {
			f.Values = append(f.Values, api.ReplayValue{Value: cell.Value, Text: cell.Text, Best: cell.Best})
		}
		reply.Figures = append(reply.Figures, f)
	}
	return reply, nil
}

// parking is how this daemon parks jobs.
func (h *history) parking(ctx context.Context) (*sim.Parking, error) {
	park := &sim.Parking{Who: sim.ThatAskFor, Pace: &sched.FirstPace, MemoryMiB: sim.HostMemory}
	err := h.svc.Do(ctx, func(t *engine.Turn) {
		rules := h.svc.Config().Rules
		park.Restart = sim.MillisOf(rules.Restart().Seconds())
		p := t.Parking().State()
		if p.Cannot != "" {
			return
		}
		park.Pace = &sched.Pace{Out: p.Out, Back: p.Back}
		if h.svc.Config().Parking == queue.ParkAll {
			park.Who = sim.SingleGPU
		}
		if p.RoomMiB >= 0 {
			park.MemoryMiB = max(1, p.HeldMiB+p.RoomMiB) // 0 is no limit
		}
	})
	return park, err
}

// endedFor are the latest jobs that ended since then, as the caller sees them in
// any list.
func (h *history) endedFor(ctx context.Context, c api.Caller, since time.Time, limits replayLimits) (jobs []job.View, notes []string, err error) {
	q := api.Query{Over: true, Newest: true, Since: &since, Limit: limits.page}
	for {
		var page api.JobPage
		if err := h.jobs.list(ctx, c, q, &page, func(v *job.View, _ int) { jobs = append(jobs, *v) }); err != nil {
			return nil, nil, err
		}
		if page.Next == "" {
			return jobs, nil, nil
		}
		if len(jobs) >= limits.jobs {
			return jobs[:limits.jobs], []string{fmt.Sprintf("only the latest %s of %s", text.CountGrouped(limits.jobs, "job"), text.Grouped(page.Total))}, nil
		}
		q.After = page.Next
	}
}

// policiesOf finds policies by their names.
func policiesOf(names []string, most int) ([]sim.Policy, error) {
	if len(names) == 0 {
		names = []string{sim.Default, "backfill"}
	}
	var policies []sim.Policy
	for _, name := range names {
		p, err := sim.ParsePolicy(strings.ToLower(strings.TrimSpace(name)))
		if err != nil {
			return nil, problem.Newf(problem.Invalid, "", "policy: %v", err)
		}
		if !slices.ContainsFunc(policies, func(known sim.Policy) bool { return known.Name == p.Name }) {
			policies = append(policies, p)
		}
	}
	if len(policies) > most {
		return nil, problem.Newf(problem.Invalid, "berth simulate --history compares any number", "policy: expected at most %d, found %d", most, len(policies))
	}
	return policies, nil
}

func policyWords(policies []sim.Policy) (words []api.ReplayPolicy) {
	for _, p := range policies {
		words = append(words, api.ReplayPolicy{Name: p.Name, About: p.About})
	}
	return words
}

package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"time"

	"berth/internal/job"
	"berth/internal/queue/fair"
	"berth/internal/text"
	"berth/internal/text/problem"
)

// A submission that can bring copies of code says so in its header.
const (
	headerPrefer   = "Prefer"
	preferSnapshot = "berth-snapshot"
)

func (r *SubmitRequest) header() http.Header {
	if !r.CanSnapshot {
		return nil
	}
	return http.Header{headerPrefer: {preferSnapshot}}
}

// ErrWantsSnapshots refuses jobs that say nothing about a snapshot of their code
// where the config asks for one and the caller can make it.
var ErrWantsSnapshots = &problem.Problem{Kind: problem.Refused, What: "jobs run a snapshot of their code here", Hint: "add one, or the key snapshot with the value no"}

// WantsSnapshots reports whether a daemon answered with that.
func WantsSnapshots(err error) bool {
	p, ok := errors.AsType[*problem.Problem](err)
	return ok && p.What == ErrWantsSnapshots.What
}

func (r *SubmitReply) fill() { r.Jobs = list(r.Jobs) }

func (r *ActReply) fill() { r.Jobs = list(r.Jobs) }

func (r *WaitReply) fill() { r.Jobs = list(r.Jobs) }

func (s *Stats) fill() { s.Users, s.Days = list(s.Users), list(s.Days) }

func (r *Reloaded) fill() {
	r.Changed, r.Restart, r.Warnings = list(r.Changed), list(r.Restart), list(r.Warnings)
}

// jobsAtATime is how many jobs of a page are encoded before other users' long work
// may have its turn.
const jobsAtATime = 500

// reply encodes the jobs in parts: there may be many.
func (p *JobPage) reply(x *exchange) error {
	page, jobs := *p, p.Jobs
	page.Jobs = []job.View{}
	rest, err := json.Marshal(page)
	if err != nil {
		return err
	}
	const begin = `{"jobs":[`
	rest, ok := bytes.CutPrefix(rest, []byte(begin))
	if !ok {
		panic("bug: a page does not begin with its jobs")
	}
	body := []byte(begin)
	for at := 0; at < len(jobs); at += jobsAtATime {
		some := jobs[at:min(at+jobsAtATime, len(jobs))]
		if at > 0 {
			body = append(body, ',')
			if err := fair.Spend(x.r.Context(), len(some)); err != nil {
				return err
			}
		}
		for i := range some {
			if i > 0 {
				body = append(body, ',')
			}
			body = appendView(body, &some[i])
		}
		if at == 0 {
			body = slices.Grow(body, len(body)*(len(jobs)/len(some)+1)+len(rest)) // the others are about as long
		}
	}
	body = append(append(body, rest...), '\n')
	x.send(http.StatusOK, "application/json", body)
	return nil
}

func (r *ActRequest) check(*Limits) error {
	if !slices.Contains(Actions(), r.Action) {
		return problem.Newf(problem.Invalid, "", "action: expected %s, found %s", text.Or(Actions()), quoted(r.Action))
	}
	return r.Select.check()
}

// check also sets the longest wait.
func (r *WaitRequest) check(l *Limits) error {
	if err := r.Select.check(); err != nil {
		return err
	}
	if r.TimeoutS < 0 {
		return problem.Newf(problem.Invalid, "", "timeout_s: expected 0 or more, found a negative number")
	}
	if r.For != "" && !slices.Contains([]string{WaitEnd, WaitParked, WaitRunning}, r.For) {
		return problem.Newf(problem.Invalid, "", "for: expected end, parked or running, found %s", quoted(r.For))
	}
	if longest := l.WaitTimeout.Seconds(); r.TimeoutS == 0 || r.TimeoutS > longest {
		r.TimeoutS = longest
	}
	return nil
}

func (r *WaitRequest) takes() time.Duration { return time.Duration(r.TimeoutS * float64(time.Second)) }

func (q *StatsQuery) check(*Limits) error {
	if q.Since != nil && q.Until != nil && q.Until.Before(*q.Since) {
		return problem.Newf(problem.Invalid, "", "until %s is before since %s", q.Until.Format(time.RFC3339), q.Since.Format(time.RFC3339))
	}
	return nil
}

// check refuses an empty selection, which must never mean everything, and bounds
// the rest.
func (s Select) check() error {
	if len(s.Words) == 0 && !s.All && s.Name == "" && s.User == "" && s.Group == "" && s.Batch == "" && len(s.States) == 0 {
		return problem.Newf(problem.Invalid, "give ids, or all, name, user, group, batch or states", "no job is selected")
	}
	if len(s.Words) > 10*maxQueryValues || len(s.States) > maxQueryValues {
		return &problem.Problem{Kind: problem.TooMuch, What: "too many ids", Hint: "use ranges: 1-3,7", Err: errTooLarge}
	}
	return nil
}

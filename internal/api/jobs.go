package api

import (
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"time"

	"berth/internal/job"
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

// pageBegin is how a page begins: its jobs are its first member.
const pageBegin = `{"jobs":[`

// Add writes a job of a page, which keeps only what is sent of it; more are about to
// follow.
func (p *JobPage) Add(v *job.View, more int) {
	if p.written == nil {
		p.written = append(p.written, pageBegin...)
	} else {
		p.written = append(p.written, ',')
	}
	before := len(p.written)
	p.written = appendView(p.written, v)
	if size := len(p.written) - before; cap(p.written)-len(p.written) < size {
		p.written = slices.Grow(p.written, size*(more+more/8+1)) // the others are about as long
	}
}

// MarshalJSON writes the jobs, then the other members.
func (p JobPage) MarshalJSON() ([]byte, error) {
	for i := range p.Jobs {
		p.Add(&p.Jobs[i], len(p.Jobs)-i)
	}
	type members JobPage // without this method
	m := members(p)
	m.Jobs = []job.View{}
	rest, err := json.Marshal(m)
	if p.written == nil || err != nil {
		return rest, err
	}
	return append(p.written, rest[len(pageBegin):]...), nil
}

func (p *JobPage) reply(x *exchange) error {
	body, err := p.MarshalJSON()
	if err == nil {
		x.send(http.StatusOK, "application/json", append(body, '\n'))
	}
	return err
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

package api

import (
	"bytes"
	"encoding/json"
	"net/http"
	"slices"
	"time"

	"berth/internal/job"
	"berth/internal/queue/fair"
	"berth/internal/text"
	"berth/internal/text/problem"
)

func (x *exchange) getStatus() error {
	return x.reply(x.backend.Status(x.r.Context(), x.caller))
}

func (x *exchange) getSnapshots() error {
	return x.reply(x.backend.Snapshots(x.r.Context(), x.caller))
}

func (x *exchange) postJobs() error {
	r, err := decodeSubmit(x.body(x.limits.SubmitBytes), x.limits)
	if err != nil {
		return err
	}
	reply, err := x.backend.Submit(x.r.Context(), x.caller, r)
	reply.Jobs = list(reply.Jobs)
	return x.reply(reply, err)
}

func (x *exchange) getJobs() error {
	p, err := x.params()
	if err != nil {
		return err
	}
	q := readQuery(p)
	if err := p.done(); err != nil {
		return err
	}
	page, err := x.backend.Jobs(x.r.Context(), x.caller, q)
	if err != nil {
		return err
	}
	return x.replyPage(page)
}

func (x *exchange) getBatches() error {
	p, err := x.params()
	if err != nil {
		return err
	}
	q := readBatchQuery(p)
	if err := p.done(); err != nil {
		return err
	}
	batches, err := x.backend.Batches(x.r.Context(), x.caller, q)
	return x.reply(list(batches), err)
}

// jobsAtATime is how many jobs of a page are encoded before other users' long work
// may have its turn.
const jobsAtATime = 500

// replyPage answers as reply does, with a page that may be long.
func (x *exchange) replyPage(page JobPage) error {
	jobs := page.Jobs
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
	body := bytes.NewBufferString(begin)
	for some := range slices.Chunk(jobs, jobsAtATime) {
		if body.Len() > len(begin) {
			body.WriteByte(',')
			if err := fair.Spend(x.r.Context(), len(some)); err != nil {
				return err
			}
		}
		text, err := json.Marshal(some)
		if err != nil {
			return err
		}
		body.Write(text[1 : len(text)-1])
	}
	body.Write(rest)
	body.WriteByte('\n')
	x.send(http.StatusOK, "application/json", body.Bytes())
	return nil
}

func (x *exchange) getJob() error {
	id, err := x.id()
	if err != nil {
		return err
	}
	return x.reply(x.backend.Job(x.r.Context(), x.caller, id))
}

func (x *exchange) getWhy() error {
	id, err := x.id()
	if err != nil {
		return err
	}
	return x.reply(x.backend.Why(x.r.Context(), x.caller, id))
}

func (x *exchange) postAct() error {
	var r ActRequest
	if err := decode(x.body(x.limits.BodyBytes), &r); err != nil {
		return err
	}
	if !slices.Contains(Actions(), r.Action) {
		return problem.Newf(problem.Invalid, "", "action: expected %s, found %s", text.Or(Actions()), quoted(r.Action))
	}
	if err := r.Select.check(); err != nil {
		return err
	}
	reply, err := x.backend.Act(x.r.Context(), x.caller, r)
	reply.Jobs = list(reply.Jobs)
	return x.reply(reply, err)
}

func (x *exchange) patchJob() error {
	id, err := x.id()
	if err != nil {
		return err
	}
	var r EditRequest
	if err := decode(x.body(x.limits.SpecBytes), &r); err != nil {
		return err
	}
	return x.reply(x.backend.Edit(x.r.Context(), x.caller, id, r))
}

func (x *exchange) postWait() error {
	var r WaitRequest
	if err := decode(x.body(x.limits.BodyBytes), &r); err != nil {
		return err
	}
	if err := r.Select.check(); err != nil {
		return err
	}
	if r.TimeoutS < 0 {
		return problem.Newf(problem.Invalid, "", "timeout_s: expected 0 or more, found a negative number")
	}
	if r.For != "" && !slices.Contains([]string{WaitEnd, WaitParked, WaitRunning}, r.For) {
		return problem.Newf(problem.Invalid, "", "for: expected end, parked or running, found %s", quoted(r.For))
	}
	if longest := x.limits.WaitTimeout.Seconds(); r.TimeoutS == 0 || r.TimeoutS > longest {
		r.TimeoutS = longest
	}
	ctx, done, err := x.stream()
	if err != nil {
		return err
	}
	defer done()
	reply, err := x.backend.Wait(ctx, x.caller, r)
	reply.Jobs = list(reply.Jobs)
	return x.reply(reply, err)
}

func (x *exchange) getStats() error {
	p, err := x.params()
	if err != nil {
		return err
	}
	q := readStatsQuery(p)
	if err := p.done(); err != nil {
		return err
	}
	if q.Since != nil && q.Until != nil && q.Until.Before(*q.Since) {
		return problem.Newf(problem.Invalid, "", "until %s is before since %s", q.Until.Format(time.RFC3339), q.Since.Format(time.RFC3339))
	}
	stats, err := x.backend.Stats(x.r.Context(), x.caller, q)
	stats.Users, stats.Days = list(stats.Users), list(stats.Days)
	return x.reply(stats, err)
}

// postBackup streams. If it fails half way, the reply is cut off, and the client
// notices.
func (x *exchange) postBackup() error {
	x.w.Header().Set("Content-Type", "application/octet-stream")
	return x.backend.Backup(x.r.Context(), x.caller, x.w)
}

func (x *exchange) postReload() error {
	var r ReloadRequest
	if err := decode(x.body(x.limits.BodyBytes), &r); err != nil {
		return err
	}
	reply, err := x.backend.Reload(x.r.Context(), x.caller, r)
	reply.Changed, reply.Restart, reply.Warnings = list(reply.Changed), list(reply.Restart), list(reply.Warnings)
	return x.reply(reply, err)
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

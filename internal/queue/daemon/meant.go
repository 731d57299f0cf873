package daemon

import (
	"context"

	"berth/internal/job"
	"berth/internal/text/problem"
)

// notMeant says why named ids match no job: there is no such job, or the rest of
// the selection excludes it.
func (f *finder) notMeant(ctx context.Context, ch *choice, ids []string) []unmeant {
	if len(ids) == 0 {
		return nil
	}
	plain := choice{ids: make(map[string]bool, len(ids))}
	for _, id := range ids {
		plain.ids[id] = true
	}
	plain.IDs = ids
	found, _, err := f.resolve(ctx, &plain, true)
	if err != nil {
		f.svc.queue.Log.Warn("cannot look up named jobs that were not selected", "err", err) // report them as missing
	}
	there := make(map[string]*job.Job, 2*len(found))
	for i := range found {
		there[found[i].ID] = &found[i]
		if array := found[i].Array(); there[array] == nil {
			there[array] = &found[i]
		}
	}
	answers := make([]unmeant, len(ids))
	for i, id := range ids {
		answers[i] = unmeant{id: id, why: "there is no such job"}
		if j := there[id]; j != nil {
			answers[i] = unmeant{id: id, state: j.State, why: "it " + ch.whyNot(j)}
			if j.ID != id {
				answers[i].why = "none of its tasks is selected: " + j.ID + " " + ch.whyNot(j)
			}
		}
	}
	return answers
}

// unmeant is a job that was named and is not selected, and why.
type unmeant struct {
	id    string
	state job.State
	why   string
}

func missingProblem(m unmeant) error {
	if m.state == "" {
		return problem.Newf(problem.NotFound, "berth list --all shows all jobs", "there is no job %.60s", m.id)
	}
	return problem.Newf(problem.Refused, "leave out the other filters", "job %.60s is not selected: %s", m.id, m.why)
}

package daemon

import (
	"context"

	"berth/internal/job"
	"berth/internal/problem"
)

// notMeant says of ids that were named and of which no job was meant what is
// in the way: there is none, or it is not as the rest of the selection says.
func (d *Daemon) notMeant(ctx context.Context, ch *choice, ids []string) []unmeant {
	if len(ids) == 0 {
		return nil
	}
	plain := choice{ids: make(map[string]bool, len(ids))}
	for _, id := range ids {
		plain.ids[id] = true
	}
	plain.IDs = ids
	found, _, err := d.resolve(ctx, &plain, true)
	if err != nil {
		d.log.Warn("look for jobs that were not meant", "err", err) // then they are as good as not there
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
				answers[i].why = "none of its tasks is meant: " + j.ID + " " + ch.whyNot(j)
			}
		}
	}
	return answers
}

// unmeant is a job that was named, and why it is not acted on.
type unmeant struct {
	id    string
	state job.State
	why   string
}

func missingProblem(m unmeant) error {
	if m.state == "" {
		return problem.Newf(problem.NotFound, "berth list --all shows what there is", "no job %.60s", m.id)
	}
	return problem.Newf(problem.Refused, "leave out what narrows it down", "job %.60s is not meant: %s", m.id, m.why)
}

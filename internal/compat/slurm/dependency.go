package slurm

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"berth/internal/api"
	"berth/internal/compat/frontend"
	"berth/internal/job"
)

// dependency is what a waiting job still waits for, as Slurm writes it:
// afterok:12(unfulfilled),after:13+5(unfulfilled), with ? between alternatives.
func (a *asker) dependency(d *api.Detail) string {
	if d.State != job.Queued || len(d.After) == 0 {
		return "(null)"
	}
	var arrays []string // a whole array is asked for at once
	for _, after := range d.After {
		array, _, _ := strings.Cut(after.Job, "_")
		arrays = append(arrays, array)
	}
	slices.Sort(arrays)
	others := map[string]job.View{}
	_, _ = a.client.JobsAll(a.ctx, api.Query{Over: true, Select: api.Select{Words: slices.Compact(arrays)}}, func(v job.View) error {
		others[v.ID] = v // one that is missing counts as unfulfilled
		return nil
	})
	var alternatives []string
	for together := range job.Alternatives(d.After) {
		var words []string
		for i, after := range together {
			v, known := others[after.Job]
			how := a.fulfilled(after, &v)
			if known && how == "" {
				continue
			}
			word := slurmDependency(after)
			array, _, isTask := strings.Cut(after.Job, "_")
			if another := slices.ContainsFunc(together[max(0, i-1):min(i+2, len(together))], func(b job.Dependency) bool {
				return b != after && strings.HasPrefix(b.Job, array+"_")
			}); isTask && another {
				word = slurmDependency(job.Dependency{Job: array + "_*", On: after.On, DelayS: after.DelayS})
			}
			if word += "(" + cmp.Or(how, "unfulfilled") + ")"; !slices.Contains(words, word) {
				words = append(words, word)
			}
		}
		alternatives = append(alternatives, strings.Join(words, ","))
	}
	return cmp.Or(strings.Join(alternatives, "?"), "(null)")
}

func slurmDependency(d job.Dependency) string {
	word := map[job.Condition]string{job.AfterOK: "afterok", job.AfterAny: "afterany", job.AfterFail: "afternotok", job.AfterStart: "after"}[d.On] + ":" + cmp.Or(d.Job, d.Name)
	if d.DelayS > 0 {
		word += fmt.Sprintf("+%d", (d.DelayS+59)/60)
	}
	return word
}

// fulfilled is unfulfilled, failed, or empty if the condition holds.
func (a *asker) fulfilled(d job.Dependency, v *job.View) string {
	began := cmp.Or(v.StartedAt, v.EndedAt)
	switch {
	case d.On == job.AfterStart && began != nil && !began.Add(time.Duration(d.DelayS)*time.Second).After(a.now):
		return ""
	case d.On == job.AfterStart || !v.State.Terminal():
		return "unfulfilled"
	case d.On.Holds(frontend.Value(v.Outcome)):
		return ""
	}
	return "failed"
}

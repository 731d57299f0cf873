package cli

import (
	"cmp"
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"berth/internal/api"
	"berth/internal/cli/render"
	"berth/internal/cli/session"
	"berth/internal/job"
	"berth/internal/text"
)

// drawQueues draws the list of each queue under a heading. Empty ones are left
// out, unless all are. A queue that does not answer does not hide the others.
func (o *listOptions) drawQueues(ctx context.Context, s *session.Session, view render.Screen, q api.Query, most int) error {
	if most > 0 && o.limit < 0 { // a screenful in all
		most = max(most/len(s.Queues)-around, 1)
	}
	var failure error
	drawn := 0
	for _, t := range s.Queues {
		var list listed
		err := s.In(t, func(one *session.Session) (err error) {
			list, err = o.fetch(ctx, one, q, most)
			return err
		})
		if failure = cmp.Or(failure, err); err != nil || len(list.rows) == 0 {
			continue
		}
		if drawn++; drawn > 1 {
			fmt.Fprintln(view.Out)
		}
		heading := t.Title()
		if t.Run != nil {
			heading += filesOf(list.rows)
		}
		fmt.Fprintln(view.Out, view.Fit(text.Line(heading)))
		if err := drawList(view, list, o.shown, len(o.columns) > 0, time.Now()); err != nil {
			return err
		}
	}
	if drawn == 0 && failure == nil {
		fmt.Fprintln(view.Out, render.EmptyQueue)
	}
	return failure
}

// filesOf names the jobs files of a run's jobs.
func filesOf(rows []render.Row) string {
	var files []string
	for i := range rows {
		if b := rows[i].Batch; b != nil && filepath.Base(*b) != "-" && !slices.Contains(files, filepath.Base(*b)) {
			files = append(files, filepath.Base(*b))
		}
	}
	switch {
	case len(files) == 0:
		return ""
	case len(files) > session.MostNamed:
		files = append(files[:session.MostNamed], "…")
	}
	return " (" + strings.Join(files, ", ") + ")"
}

// jobOfQueue is a job in a list of several queues.
type jobOfQueue struct {
	job.View
	Queue *string `json:"queue"` // the log directory of its berth run; null: the daemon's
}

// jobsOfQueues prints the jobs of several queues as one JSON array.
func jobsOfQueues(ctx context.Context, s *session.Session, q api.Query) error {
	jobs := []jobOfQueue{}
	for _, t := range s.Queues {
		err := s.In(t, func(one *session.Session) error {
			views, _, err := fetchJobs(ctx, one, q, q.Limit)
			for _, v := range views {
				found := jobOfQueue{View: v}
				if t.Run != nil {
					found.Queue = &t.Run.LogDir
				}
				jobs = append(jobs, found)
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	return printJSON(s.Out, jobs)
}

package cli

import (
	"path/filepath"
	"strings"

	"berth/internal/api"
	"berth/internal/job"
)

// row is a line of the list: a job, or an array or a jobs file as one of its jobs
// with their sum.
type row struct {
	job.View
	tasks *api.Tasks
	file  string // of a jobs file: its path
}

// foldRows makes a row of every job, or of every array and jobs file that the page
// sums up.
func foldRows(views []job.View, page api.JobPage) []row {
	rows := make([]row, 0, len(views))
	files := map[job.Batch]*api.Tasks{}
	for i := range page.Batches {
		files[job.Batch{User: page.Batches[i].User, File: page.Batches[i].File}] = &page.Batches[i].Tasks
	}
	seen := map[*api.Tasks]bool{}
	arrays := map[string]*api.Tasks{}
	for id, tasks := range page.Arrays {
		arrays[id] = &tasks
	}
	for _, v := range views {
		array, _, _ := strings.Cut(v.ID, "_")
		r := row{View: v, tasks: arrays[array]}
		if r.tasks == nil && v.Batch != nil {
			r.tasks, r.file = files[job.Batch{User: v.User, File: *v.Batch}], *v.Batch
		}
		switch {
		case r.tasks == nil:
			rows = append(rows, row{View: v})
			continue
		case seen[r.tasks]:
			continue
		case r.file != "":
			r.ID, r.Name, r.Command, r.VRAMMiB = "-", filepath.Base(r.file), &r.file, nil
		case v.Name == "job"+v.ID:
			r.ID, r.Name = array, "job"+array
		default:
			r.ID = array
		}
		seen[r.tasks] = true
		r.GPUIDs, r.Slurm, r.PeakVRAMMiB, r.Reason, r.Held = nil, nil, nil, nil, false
		if r.tasks.Reason != "" {
			r.Reason = &r.tasks.Reason
		}
		rows = append(rows, r)
	}
	return rows
}

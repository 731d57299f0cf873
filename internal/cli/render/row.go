package render

import (
	"path/filepath"
	"strings"

	"berth/internal/api"
	"berth/internal/job"
)

// Row is a line of the list: a job, or an array or a jobs file as one of its jobs
// with their sum.
type Row struct {
	job.View
	Tasks *api.Tasks
	file  string // of a jobs file: its path
}

// Fold makes a row of every job, or of every array and jobs file that the page
// sums up.
func Fold(views []job.View, page api.JobPage) []Row {
	rows := make([]Row, 0, len(views))
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
		r := Row{View: v, Tasks: arrays[array]}
		if r.Tasks == nil && v.Batch != nil {
			r.Tasks, r.file = files[job.Batch{User: v.User, File: *v.Batch}], *v.Batch
		}
		switch {
		case r.Tasks == nil:
			rows = append(rows, Row{View: v})
			continue
		case seen[r.Tasks]:
			continue
		case r.file != "":
			r.ID, r.Name, r.Command, r.VRAMMiB = "-", filepath.Base(r.file), &r.file, nil
		case v.Sweep != nil:
			r.ID, r.Name = array, *v.Sweep
		case v.Name == "job"+v.ID:
			r.ID, r.Name = array, "job"+array
		default:
			r.ID = array
		}
		if seen[r.Tasks] = true; r.Tasks.Command != "" {
			r.Command = &r.Tasks.Command
		}
		r.GPUIDs, r.Slurm, r.PeakVRAMMiB, r.Reason, r.Held = nil, nil, nil, nil, false
		if r.Tasks.Reason != "" {
			r.Reason = &r.Tasks.Reason
		}
		rows = append(rows, r)
	}
	return rows
}

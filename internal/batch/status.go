package batch

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"berth/internal/job"
	"berth/internal/reason"
)

// statusName is the board for `berth why`. Its form may change with any version;
// status.txt is for people.
const statusName = "status.json"

// statusEvery is how often it is rewritten while only times change.
const statusEvery = 10 * time.Second

// maxStatus bounds its size.
const maxStatus = 16 << 20

// Status is what a berth run last wrote about its jobs: all running ones, the
// first queued and the last ended ones.
type Status struct {
	At   time.Time   `json:"at"`
	File string      `json:"file"`
	Jobs []StatusJob `json:"jobs"`
}

// StatusJob is one job of a status board.
type StatusJob struct {
	reason.Story        // of a job that does not wait for GPUs only a sentence: where it runs, how it ended
	Name         string `json:"name,omitempty"`
	State        string `json:"state"`
}

// writeStatus writes status.json if jobs or their states changed, or the last one
// is old.
func (b *board) writeStatus(s snapshot) error {
	status := statusOf(s)
	var about strings.Builder
	for _, j := range status.Jobs {
		about.WriteString(j.ID + " " + j.State + "\n")
	}
	if about.String() == b.statusOf && s.at.Sub(b.statusAt) < statusEvery && !s.at.Before(b.statusAt) {
		return nil
	}
	data, err := json.Marshal(status)
	if err != nil {
		return fmt.Errorf("write status board: %w", err)
	}
	if err := replace(filepath.Join(filepath.Dir(b.path), statusName), data); err != nil {
		return err
	}
	b.statusAt, b.statusOf = s.at, about.String()
	return nil
}

func statusOf(s snapshot) Status {
	status := Status{At: s.at, File: s.file, Jobs: []StatusJob{}}
	add := func(j *job.Job, story reason.Story) {
		status.Jobs = append(status.Jobs, StatusJob{Story: story, Name: j.Spec.Name, State: string(j.State)})
	}
	for _, r := range s.running {
		text := fmt.Sprintf("running on %s since %s", placeText(r.Job), r.Job.StartedAt.Local().Format(time.DateTime))
		add(r.Job, reason.Story{ID: r.Job.ID, Text: text})
	}
	for _, w := range s.pending {
		if w.story != nil {
			add(w.job, *w.story)
		} else {
			add(w.job, reason.Story{ID: w.job.ID, Text: w.reason})
		}
	}
	for _, o := range s.ended {
		add(o, reason.Story{ID: o.ID, Text: o.Outcome.Ending(o.Detail)})
	}
	return status
}

func placeText(j *job.Job) string {
	if len(j.Grant.GPUs) == 0 {
		return "no GPU"
	}
	return "GPU " + j.Grant.List()
}

// ReadStatus reads the status board of a log directory.
func ReadStatus(logDir string) (Status, error) {
	path := filepath.Join(logDir, statusName)
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return Status{}, fmt.Errorf("there is no status board in %s", logDir)
	case err != nil:
		return Status{}, fmt.Errorf("read status board: %w", err)
	case !info.Mode().IsRegular() || info.Size() > maxStatus:
		return Status{}, fmt.Errorf("read status board: %s: expected a file of at most %d MiB", path, maxStatus>>20)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return Status{}, fmt.Errorf("read status board: %w", err)
	}
	var status Status
	if err := json.Unmarshal(data, &status); err != nil {
		return Status{}, fmt.Errorf("read status board %s: %w", path, err)
	}
	return status, nil
}

// Find is a job of the board, by its id or by a unique name.
func (s Status) Find(word string) (StatusJob, bool) {
	var named []StatusJob
	for _, j := range s.Jobs {
		if j.ID == word {
			return j, true
		}
		if j.Name == word {
			named = append(named, j)
		}
	}
	if len(named) != 1 {
		return StatusJob{}, false
	}
	return named[0], true
}

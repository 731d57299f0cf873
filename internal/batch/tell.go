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

// toldName is what berth itself reads of the board. People have status.txt; the
// form of this may change with any version.
const toldName = "status.json"

// tellEvery is how often it is written anew while only times change.
const tellEvery = 10 * time.Second

// maxTold bounds what is read of it.
const maxTold = 16 << 20

// Told is what a berth run said last of its jobs: all that run, and the first of
// those that wait and the last of those that are over.
type Told struct {
	At   time.Time `json:"at"`
	File string    `json:"file"`
	Jobs []ToldJob `json:"jobs"`
}

// ToldJob is one of them.
type ToldJob struct {
	reason.Story        // of one that does not wait for room, no more than a sentence: where it runs, how it ended
	Name         string `json:"name,omitempty"`
	State        string `json:"state"`
}

// tell writes what the snapshot says of each job, if that is about other jobs
// than last time or some time ago.
func (b *board) tell(s snapshot) error {
	told := toldOf(s)
	var about strings.Builder
	for _, j := range told.Jobs {
		about.WriteString(j.ID + " " + j.State + "\n")
	}
	if about.String() == b.toldFor && s.at.Sub(b.toldAt) < tellEvery && !s.at.Before(b.toldAt) {
		return nil
	}
	data, err := json.Marshal(told)
	if err != nil {
		return fmt.Errorf("write status board: %w", err)
	}
	if err := replace(filepath.Join(filepath.Dir(b.path), toldName), data); err != nil {
		return err
	}
	b.toldAt, b.toldFor = s.at, about.String()
	return nil
}

func toldOf(s snapshot) Told {
	told := Told{At: s.at, File: s.file, Jobs: []ToldJob{}}
	add := func(j *job.Job, story reason.Story) {
		told.Jobs = append(told.Jobs, ToldJob{Story: story, Name: j.Spec.Name, State: string(j.State)})
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
	for _, o := range s.over {
		text := "ended: " + string(o.Outcome)
		if o.Detail != "" {
			text += ", " + o.Detail
		}
		add(o, reason.Story{ID: o.ID, Text: text})
	}
	return told
}

func placeText(j *job.Job) string {
	if len(j.Grant.GPUs) == 0 {
		return "no GPU"
	}
	return "GPU " + j.Grant.List()
}

// ReadTold reads what the berth run of a log directory said last.
func ReadTold(logDir string) (Told, error) {
	path := filepath.Join(logDir, toldName)
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return Told{}, fmt.Errorf("there is no status board in %s", logDir)
	case err != nil:
		return Told{}, fmt.Errorf("read status board: %w", err)
	case !info.Mode().IsRegular() || info.Size() > maxTold:
		return Told{}, fmt.Errorf("read status board: %s is none", path)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return Told{}, fmt.Errorf("read status board: %w", err)
	}
	var told Told
	if err := json.Unmarshal(data, &told); err != nil {
		return Told{}, fmt.Errorf("read status board %s: %w", path, err)
	}
	return told, nil
}

// Find is a job of the board, by its id or by a name that no other has.
func (t Told) Find(word string) (ToldJob, bool) {
	var named []ToldJob
	for _, j := range t.Jobs {
		if j.ID == word {
			return j, true
		}
		if j.Name == word {
			named = append(named, j)
		}
	}
	if len(named) != 1 {
		return ToldJob{}, false
	}
	return named[0], true
}

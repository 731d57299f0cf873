package gpuscheduler

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"time"

	"berth/internal/job"
	"berth/internal/machine/site"
	"berth/internal/text"
)

// The keys of the state file that this program reads or writes. Other keys are
// kept.
const (
	keyParts   = "gpu_status" // the allocated part of each GPU
	keyPaused  = "paused_gpus"
	keyCards   = "gpus"
	keyJobs    = "jobs"
	keySince   = "since"
	keyUpdated = "updated_at"
	keyLimits  = "thresholds"
)

// document is the state file. Users and tools edit it too, so values are decoded
// only when needed.
type document map[string]json.RawMessage

// errEdited means that the state file was edited since it was read.
var errEdited = errors.New("it is being edited at the same time")

// editTries is how often to read and write again after an edit in between.
// Editors take no lock.
const editTries = 20

// readDoc reads the state file. The stamp identifies the version that was read; it
// is nil if there is no file.
func readDoc(path string) (doc document, stamp os.FileInfo, err error) {
	if stamp, err = os.Stat(path); err != nil { // before reading: a later write counts as an edit
		return nil, nil, err
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, stamp, err
	}
	doc = document{}
	if err := json.Unmarshal(text, &doc); err != nil {
		return nil, stamp, fmt.Errorf("state file %s: %w", path, err)
	}
	if doc == nil {
		return nil, stamp, fmt.Errorf("state file %s: expected a JSON object, found null", path)
	}
	if _, err := doc.paused(); err != nil {
		return nil, stamp, fmt.Errorf("%s: %w", path, err)
	}
	return doc, stamp, nil
}

// stampOf is the current version of a file; nil if the file does not exist.
func stampOf(path string) os.FileInfo {
	info, err := os.Stat(path)
	if err != nil {
		return nil
	}
	return info
}

func sameStamp(a, b os.FileInfo) bool {
	if a == nil || b == nil {
		return a == nil && b == nil
	}
	return os.SameFile(a, b) && a.Size() == b.Size() && a.ModTime().Equal(b.ModTime())
}

// paused are the GPUs that take no new jobs, in order.
func (d document) paused() ([]int, error) {
	raw, there := d[keyPaused]
	if !there {
		return nil, nil
	}
	var values []any
	if err := json.Unmarshal(raw, &values); err != nil {
		return nil, fmt.Errorf("%s: %w", keyPaused, err)
	}
	var list []int
	for _, value := range values {
		text := fmt.Sprint(value) // a shell script may have written a number in quotes
		n, err := strconv.Atoi(text)
		if err != nil || n < 0 {
			return nil, fmt.Errorf("%s: expected a GPU id, found %q", keyPaused, text)
		}
		list = append(list, n)
	}
	slices.Sort(list)
	return slices.Compact(list), nil
}

func (d document) set(key string, value any) {
	d[key] = text.MustJSON(value)
}

// get reads a key. If it is missing or has another type, value is unchanged.
func (d document) get(key string, value any) { _ = json.Unmarshal(d[key], value) }

// write replaces the file atomically, unless it was edited since it was read.
// The stamp is the new version's. The caller holds the lock. The file contains
// commands with their arguments, so a new one has the permissions of the user's
// umask.
func (d document) write(path string, read os.FileInfo) (stamp os.FileInfo, err error) {
	text, err := json.MarshalIndent(d, "", "  ")
	if err != nil {
		return nil, err
	}
	if real, err := filepath.EvalSymlinks(path); err == nil {
		path = real // a link stays one
	}
	next := filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+".next")
	_ = os.Remove(next) // left by a process that was killed here
	file, err := os.OpenFile(next, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if err != nil {
		return nil, err
	}
	if read != nil {
		err = file.Chmod(read.Mode().Perm())
	}
	if err == nil {
		_, err = file.Write(append(text, '\n'))
	}
	stamp, statErr := file.Stat()
	err = errors.Join(err, statErr, file.Sync(), file.Close())
	if err == nil && !sameStamp(stampOf(path), read) {
		err = errEdited
	}
	if err == nil {
		err = os.Rename(next, path)
	}
	if err != nil {
		_ = os.Remove(next) // only this process uses it
		return nil, err
	}
	return stamp, nil
}

// lockState locks the state file against other commands of this program until
// unlock is called.
func lockState(stateFile string) (unlock func(), err error) {
	places, err := placesOf(stateFile)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(places.StateDir, 0o700); err != nil {
		return nil, err
	}
	if err := site.OwnDir(places.StateDir); err != nil {
		return nil, err
	}
	file, err := os.OpenFile(filepath.Join(places.StateDir, "state.lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	for {
		if err = syscall.Flock(int(file.Fd()), syscall.LOCK_EX); err == nil {
			return func() { file.Close() }, nil
		}
		if !errors.Is(err, syscall.EINTR) {
			file.Close()
			return nil, fmt.Errorf("lock %s: %w", file.Name(), err)
		}
	}
}

// shownCard is a GPU in the state file and in status.
type shownCard struct {
	GPU        int      `json:"gpu"`
	Status     string   `json:"state"`
	Allocation float64  `json:"allocation"` // 0 to 1
	Memory     float64  `json:"memory"`     // percent
	Load       *float64 `json:"load"`       // percent; null: not known
	Jobs       []string `json:"jobs"`
	Note       string   `json:"note,omitempty"`
}

// shownJob is a job in the state file and in status.
type shownJob struct {
	ID          string     `json:"id"`
	Key         string     `json:"key"`
	Number      string     `json:"number"` // berth's own
	Name        string     `json:"name"`
	State       string     `json:"state"`
	Outcome     *string    `json:"outcome"`
	Reason      *string    `json:"reason"`
	Priority    int        `json:"priority"` // as in the jobs file: lower first
	GPUs        []int      `json:"gpus"`
	Share       *float64   `json:"share"`
	ExitCode    *int       `json:"exit_code"`
	Command     string     `json:"command"`
	Log         *string    `json:"log"`
	SubmittedAt *time.Time `json:"submitted_at"`
	EndedAt     *time.Time `json:"ended_at"`

	EndedSince bool `json:"ended_since,omitempty"` // running in the last saved state, but not now
}

func (j shownJob) runs() bool { return j.State == string(job.Running) && !j.EndedSince }

// noThresholds are above any use.
var noThresholds = thresholds{Memory: math.MaxFloat64, Load: math.MaxFloat64}

// thresholds are the thresholds in force.
type thresholds struct {
	Memory float64 `json:"memory"`
	Load   float64 `json:"load"`
}

// percent is a ratio in percent, rounded to a tenth.
func percent(part, whole float64) float64 {
	if whole <= 0 {
		return 0
	}
	return math.Round(1000*part/whole) / 10
}

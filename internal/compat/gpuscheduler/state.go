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
	"berth/internal/site"
)

// The keys of the state file that this program reads or writes. Others are
// somebody else's, and stay.
const (
	keyCards   = "gpu_status"
	keyPaused  = "paused_gpus"
	keyJobs    = "jobs"
	keySince   = "since"
	keyUpdated = "updated_at"
	keyLimits  = "thresholds"
)

// document is the state file. People and tools write into it, so only what is
// asked for is understood.
type document map[string]json.RawMessage

// errEdited is that somebody wrote the state file since it was read.
var errEdited = errors.New("somebody else writes it at the same time")

// editTries is how often a file that was edited meanwhile is read and written
// once more. Editors take no lock.
const editTries = 20

// readDoc reads the state file. The stamp says which version of it that was;
// it is nil where there is none.
func readDoc(path string) (doc document, stamp os.FileInfo, err error) {
	if stamp, err = os.Stat(path); err != nil { // before it is read: what is written later counts as an edit
		return nil, nil, err
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, stamp, err
	}
	doc = document{}
	if err := json.Unmarshal(text, &doc); err != nil {
		return nil, stamp, fmt.Errorf("%s is no state file: %w", path, err)
	}
	if doc == nil {
		return nil, stamp, fmt.Errorf("%s is no state file: it holds null", path)
	}
	if _, err := doc.paused(); err != nil {
		return nil, stamp, fmt.Errorf("%s: %w", path, err)
	}
	return doc, stamp, nil
}

// stampOf is the version of a file that is there now; nil: it is not.
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

// paused are the cards that are to take no jobs, in order.
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
		text := fmt.Sprint(value) // a number, or one that a shell script put in quotes
		n, err := strconv.Atoi(text)
		if err != nil || n < 0 {
			return nil, fmt.Errorf("%s: %q is no number of a GPU", keyPaused, text)
		}
		list = append(list, n)
	}
	slices.Sort(list)
	return slices.Compact(list), nil
}

func (d document) set(key string, value any) {
	raw, err := json.Marshal(value)
	if err != nil {
		panic("bug: " + err.Error())
	}
	d[key] = raw
}

// get reads a key, and leaves the value alone where it is missing or says
// something else.
func (d document) get(key string, value any) { _ = json.Unmarshal(d[key], value) }

// write replaces the file as a whole, if it still is the one that was read:
// whoever reads it finds the old or the new, and whoever wrote it meanwhile is
// not overruled. The stamp is the new one's. The caller holds its lock.
// Commands stand in it with all their arguments, so that a new one is for those
// whom the user's mask lets read it.
func (d document) write(path string, read os.FileInfo) (stamp os.FileInfo, err error) {
	text, err := json.MarshalIndent(d, "", "  ")
	if err != nil {
		return nil, err
	}
	if real, err := filepath.EvalSymlinks(path); err == nil {
		path = real // a link stays one
	}
	next := filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+".next")
	_ = os.Remove(next) // of one who was killed here
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
		_ = os.Remove(next) // it was ours alone
		return nil, err
	}
	return stamp, nil
}

// lockState keeps other commands of this program from the state file until the
// returned function is called.
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

// shownCard is a card as the state file and status show it.
type shownCard struct {
	GPU        int      `json:"gpu"`
	Status     string   `json:"state"`
	Allocation float64  `json:"allocation"` // of the card, 0 to 1
	Memory     float64  `json:"memory"`     // percent
	Load       *float64 `json:"load"`       // percent; null: not known
	Jobs       []string `json:"jobs"`
	Note       string   `json:"note,omitempty"`
}

// shownJob is a job as they show it.
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

	EndedSince bool `json:"ended_since,omitempty"` // it ran when a scheduler was last heard of, and does not any more
}

func (j shownJob) runs() bool { return j.State == string(job.Running) && !j.EndedSince }

// thresholds are the thresholds in force, for who looks from outside.
type thresholds struct {
	Memory float64 `json:"memory"`
	Load   float64 `json:"load"`
}

// percent is a share for people, to a tenth.
func percent(part, whole float64) float64 {
	if whole <= 0 {
		return 0
	}
	return math.Round(1000*part/whole) / 10
}

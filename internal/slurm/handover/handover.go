package handover

import (
	"bytes"
	"encoding/gob"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"berth/internal/job"
)

// Order is one job of a batch, as its wrapper needs it.
type Order struct {
	Job     job.Job
	Index   int      // in its batch
	Environ []string // captured at submission; nil: none
	Log     string   // where it prints to
}

// Begun is a start marker.
type Begun struct {
	Taken bool      `json:"taken,omitempty"` // berth took the job back: it must not run
	Slurm string    `json:"slurm,omitempty"` // Slurm's id of the run
	Node  string    `json:"node,omitempty"`
	At    time.Time `json:"at"`
	GPUs  []GPU     `json:"gpus,omitempty"` // what the job got; empty: none, or not known
	Dir   string    `json:"dir,omitempty"`  // of its wrapper, on the node

	// Step is Slurm's number of the run, which srun wants: a task of an array has
	// one of its own. Program is berth on the node.
	Step    string `json:"step,omitempty"`
	Program string `json:"program,omitempty"`
}

// GPU is one GPU that Slurm gave to a job.
type GPU struct {
	Index    int    `json:"index"` // on its node
	UUID     string `json:"uuid,omitempty"`
	Name     string `json:"name,omitempty"`
	TotalMiB int64  `json:"total_mib,omitempty"`
}

// Now is what a running job uses.
type Now struct {
	At      time.Time     `json:"at"`
	NowMiB  map[int]int64 `json:"now_mib,omitempty"`
	PeakMiB map[int]int64 `json:"peak_mib,omitempty"`
	AvgUtil *float64      `json:"avg_util,omitempty"`
}

// Record is how a job ended. It has no second chance: a retry is another batch.
type Record struct {
	Outcome    job.Outcome   `json:"outcome"`
	Detail     string        `json:"detail,omitempty"`
	Stopped    job.Stop      `json:"stopped,omitempty"` // what the wrapper was stopped for: interrupt if Slurm ended it, requeue if it runs it again
	ExitCode   *int          `json:"exit_code,omitempty"`
	Signal     string        `json:"signal,omitempty"`
	StartedAt  time.Time     `json:"started_at"`
	EndedAt    time.Time     `json:"ended_at"`
	PeakMiB    map[int]int64 `json:"peak_mib,omitempty"`
	AvgUtil    *float64      `json:"avg_util,omitempty"`
	LogDropped int64         `json:"log_dropped,omitempty"`
}

// ErrBegun means that the start marker was there already.
var ErrBegun = errors.New("the job has begun, or berth took it back")

func orders(dir string) string { return filepath.Join(dir, "orders") }

// Script is the path of the batch script.
func Script(dir string) string { return filepath.Join(dir, "script") }

// Log is where a job without an output of its own prints to.
func Log(dir string, index int) string { return named(dir, index, "log") }

func named(dir string, index int, kind string) string {
	return filepath.Join(dir, strconv.Itoa(index)+"."+kind)
}

// Create makes the directory of a batch, complete on disk before it returns. Orders
// may contain secrets: only the user can read them.
func Create(dir string, list []Order, script []byte) error {
	if err := os.MkdirAll(filepath.Dir(dir), 0o700); err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	var encoded bytes.Buffer
	if err := gob.NewEncoder(&encoded).Encode(list); err != nil {
		return fmt.Errorf("encode orders: %w", err)
	}
	if err := replace(orders(dir), encoded.Bytes()); err != nil {
		return err
	}
	return replace(Script(dir), script)
}

// ReadOrder reads one job of a batch.
func ReadOrder(dir string, index int) (o Order, err error) {
	list, err := Orders(dir)
	for i := range list {
		if list[i].Index == index {
			return list[i], nil
		}
	}
	if err == nil {
		err = fmt.Errorf("expected a job of this batch, which has %d, found the index %d", len(list), index)
	}
	return Order{}, err
}

// Orders reads the jobs of a batch.
func Orders(dir string) (list []Order, err error) {
	raw, err := os.ReadFile(orders(dir))
	if err == nil {
		err = gob.NewDecoder(bytes.NewReader(raw)).Decode(&list)
	}
	if err != nil {
		return nil, fmt.Errorf("read orders: %w", err)
	}
	for i := range list {
		if i > 0 && list[i].Index == 0 {
			list[i].Index = i // an earlier berth wrote none
		}
	}
	return list, nil
}

// Begin makes the start marker. ErrBegun: somebody else did, so the job must not
// run.
func Begin(dir string, index int, b Begun) error {
	raw, err := json.Marshal(&b)
	if err != nil {
		return err
	}
	// A link appears whole and at once: nobody reads half a marker, and nobody else
	// can make it.
	fresh, err := write(dir, raw)
	if err != nil {
		return err
	}
	defer os.Remove(fresh)
	err = os.Link(fresh, named(dir, index, "begun"))
	if errors.Is(err, fs.ErrExist) && !linked(fresh) {
		return ErrBegun
	}
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return syncDir(dir)
}

// Take makes the start marker for berth, so that the job can never begin. It returns
// false if the job has begun.
func Take(dir string, index int) (bool, error) {
	err := Begin(dir, index, Begun{Taken: true, At: time.Now()})
	if errors.Is(err, ErrBegun) {
		b, err := ReadBegun(dir, index)
		return b != nil && b.Taken, err // an earlier berth may have taken it
	}
	return err == nil, err
}

// linked reports whether a file has a second name. An NFS client that asks again,
// because the first answer was lost, is told that the name is taken: by itself.
func linked(path string) bool {
	info, err := os.Stat(path)
	if err != nil {
		return false
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	return ok && stat.Nlink > 1
}

// Stop tells the wrapper of a job to stop it.
func Stop(dir string, index int) error { return replace(named(dir, index, "stop"), nil) }

// Stopped reports whether a job is to be stopped.
func Stopped(dir string, index int) bool { return exists(named(dir, index, "stop")) }

// Report replaces what a job uses now.
func Report(dir string, index int, n Now) error { return put(named(dir, index, "now"), &n) }

// Forget removes what a job used last, to make room for its record.
func Forget(dir string, index int) error { return os.Remove(named(dir, index, "now")) }

// Finish leaves the record of a job.
func Finish(dir string, index int, r Record) error { return put(named(dir, index, "end"), &r) }

// ReadBegun returns nil if the job has not begun.
func ReadBegun(dir string, index int) (*Begun, error) { return ReadBegunAs[Begun](dir, index) }

// ReadBegunAs is ReadBegun of a marker with more fields.
func ReadBegunAs[T any](dir string, index int) (*T, error) {
	return get[T](named(dir, index, "begun"))
}

// ReadNow returns nil if the job has not reported yet.
func ReadNow(dir string, index int) (*Now, error) { return get[Now](named(dir, index, "now")) }

// ReadRecord returns nil if the job has not ended.
func ReadRecord(dir string, index int) (*Record, error) {
	return get[Record](named(dir, index, "end"))
}

// Has is which files of a job there are.
type Has struct {
	Begun, Now, Ended bool
	NowAt             time.Time // when it last reported
}

// Look lists a batch's directory once, however many jobs it has.
func Look(dir string) (map[int]Has, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	all := map[int]Has{}
	for _, e := range entries {
		number, kind, _ := strings.Cut(e.Name(), ".")
		index, err := strconv.Atoi(number)
		if err != nil {
			continue
		}
		has := all[index]
		switch kind {
		case "begun":
			has.Begun = true
		case "end":
			has.Ended = true
		case "now":
			has.Now = true
			if info, err := e.Info(); err == nil {
				has.NowAt = info.ModTime()
			}
		}
		all[index] = has
	}
	return all, nil
}

func get[T any](path string) (*T, error) {
	raw, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	value := new(T)
	if err == nil {
		err = json.Unmarshal(raw, value)
	}
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	return value, nil
}

func put(path string, value any) error {
	raw, err := json.Marshal(value)
	if err != nil {
		return err
	}
	return replace(path, raw)
}

// replace writes a file that is complete or absent, also after a crash.
func replace(path string, raw []byte) error {
	fresh, err := write(filepath.Dir(path), raw)
	if err != nil {
		return err
	}
	if err := os.Rename(fresh, path); err != nil {
		return errors.Join(err, os.Remove(fresh))
	}
	return syncDir(filepath.Dir(path))
}

// write makes a synced file under a name of its own.
func write(dir string, raw []byte) (path string, err error) {
	f, err := os.CreateTemp(dir, ".new-*")
	if err != nil {
		return "", err
	}
	_, err = f.Write(raw)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return "", errors.Join(err, os.Remove(f.Name()))
	}
	return f.Name(), nil
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	err = d.Sync()
	if errors.Is(err, syscall.EINVAL) || errors.Is(err, syscall.ENOTSUP) {
		err = nil // some network file systems cannot, and need not
	}
	return errors.Join(err, d.Close())
}

// Remove deletes what a batch that is over needs no more. Its start markers stay,
// so that nothing of it can begin late, and so do its logs.
func Remove(dir string) error {
	return errors.Join(remove(orders(dir)), remove(Script(dir)))
}

func remove(path string) error {
	if err := os.Remove(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

package sched

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// SnapshotVersion is the version of the format. It changes when old snapshots would
// mean something else, not when a key is added.
const SnapshotVersion = 1

// snapshotFormat tells a snapshot from any other JSON.
const snapshotFormat = "berth-snapshot"

// Bounds of a snapshot that is read.
const (
	maxSnapshotCards = 4096
	maxSnapshotJobs  = 1_000_000
)

// Snapshot is a State in its written form. It shares nothing mutable with the
// State that it was taken of.
type Snapshot struct {
	Format  string `json:"format"`
	Version int    `json:"version"`
	State
	Queue  []Pending         `json:"queue"` // in its order
	Groups []writtenGroup    `json:"groups,omitempty"`
	Oldest map[string]oldest `json:"oldest,omitempty"` // by user
}

type writtenGroup struct {
	User string `json:"user,omitempty"`
	Name string `json:"name"`
	Group
}

// NewSnapshot copies everything a decision depends on.
func NewSnapshot(s State) Snapshot {
	w := Snapshot{Format: snapshotFormat, Version: SnapshotVersion, State: s.copied(), Queue: []Pending{}, Oldest: map[string]oldest{}}
	if s.Queue != nil {
		w.Queue = s.Queue.First(s.Queue.Len())
		for user, l := range s.Queue.byUser {
			if l.first != "" {
				w.Oldest[user] = oldest{Job: l.first, Since: l.since}
			}
		}
	}
	for name, of := range w.State.Groups {
		w.Groups = append(w.Groups, writtenGroup{User: name.User, Name: name.Name, Group: of})
	}
	w.State.Groups = nil
	slices.SortFunc(w.Groups, func(a, b writtenGroup) int {
		return cmp.Or(strings.Compare(a.User, b.User), strings.Compare(a.Name, b.Name))
	})
	return w
}

// MarshalState writes a snapshot, so that the decision can be repeated elsewhere.
func MarshalState(s State) ([]byte, error) {
	data, err := json.MarshalIndent(NewSnapshot(s), "", " ")
	if err != nil {
		return nil, fmt.Errorf("write a snapshot: %w", err)
	}
	return append(data, '\n'), nil
}

// ErrNoSnapshot says that the input is something else.
var ErrNoSnapshot = errors.New("no snapshot of a berth daemon")

// UnmarshalState reads what MarshalState wrote and refuses anything else: a
// decision trusts its snapshot.
func UnmarshalState(data []byte) (State, error) {
	var head struct {
		Format  string `json:"format"`
		Version int    `json:"version"`
	}
	// A truncated file still counts as a snapshot if it begins like one.
	if json.Unmarshal(data, &head) != nil && !bytes.Contains(data[:min(len(data), 200)], []byte(snapshotFormat)) ||
		json.Valid(data) && head.Format != snapshotFormat {
		return State{}, ErrNoSnapshot
	}
	if head.Version > SnapshotVersion {
		return State{}, fmt.Errorf("a snapshot of version %d: this berth reads version %d", head.Version, SnapshotVersion)
	}
	var w Snapshot
	if err := json.Unmarshal(data, &w); err != nil {
		return State{}, fmt.Errorf("a damaged snapshot: %w", err)
	}
	if err := w.check(); err != nil {
		return State{}, fmt.Errorf("a damaged snapshot: %w", err)
	}
	return w.Restore(), nil
}

// Restore is the snapshot's state, with a queue of its own.
func (w *Snapshot) Restore() State {
	s := w.State
	if len(w.Groups) > 0 {
		s.Groups = map[GroupName]Group{}
	}
	for _, of := range w.Groups {
		s.Groups[GroupName{of.User, of.Name}] = of.Group
	}
	s.Queue = NewQueue()
	s.Queue.SetRules(s.Rules)
	for _, p := range w.Queue {
		s.Queue.Add(p)
	}
	s.Queue.restoreOldest(w.Oldest)
	s.Queue.Tick(s.Now)
	return s
}

// check finds what berth would never have written.
func (w *Snapshot) check() error {
	if len(w.Cards) > maxSnapshotCards || len(w.Queue)+len(w.Allocations) > maxSnapshotJobs {
		return fmt.Errorf("expected at most %[3]d GPUs and %[4]d jobs, found %[1]d and %[2]d", len(w.Cards), len(w.Queue)+len(w.Allocations), maxSnapshotCards, maxSnapshotJobs)
	}
	if _, err := ParsePolicy(string(w.Rules.Policy)); err != nil && w.Rules.Policy != "" {
		return err
	}
	if _, err := ParsePlacement(string(w.Rules.Placement)); err != nil && w.Rules.Placement != "" {
		return err
	}
	cards, jobs := map[int]bool{}, map[string]bool{}
	for _, c := range w.Cards {
		if cards[c.Index] || c.Index < 0 || c.TotalMiB < 0 {
			return fmt.Errorf("GPU %d is listed twice or has impossible values", c.Index)
		}
		cards[c.Index] = true
	}
	for _, h := range w.Allocations {
		if !h.Other && (h.Job == "" || jobs[h.Job]) || len(h.BudgetMiB) > len(h.Cards) {
			return fmt.Errorf("running job %q is listed twice or has impossible values", h.Job)
		}
		if !h.Other {
			jobs[h.Job] = true
		}
	}
	for _, p := range w.Queue {
		if p.Job == "" || jobs[p.Job] {
			return fmt.Errorf("queued job %q is listed twice", p.Job)
		}
		jobs[p.Job] = true
		if err := p.Request.check(); err != nil {
			return fmt.Errorf("queued job %q: %w", p.Job, err)
		}
	}
	return nil
}

// check finds a request that NewRequest would not have made.
func (r *Request) check() error {
	if r.GPUs < 0 || r.VRAMMiB < 0 || r.CPUs < 0 || r.MemMiB < 0 || r.Share < 0 || r.Share > 1 {
		return errors.New("expected amounts of at least 0 and a share of at most 1")
	}
	named := cardList(r.IDs)
	if named == nil || cardList(r.Allow) == nil || r.IDs != "" && len(named) != r.GPUs {
		return fmt.Errorf("expected lists of GPU ids, found %q, any of %q", r.IDs, r.Allow)
	}
	return nil
}

// cardList undoes joinIDs for untrusted text; nil: not a list.
func cardList(list string) []int {
	ids := []int{}
	if list == "" {
		return ids
	}
	for field := range strings.SplitSeq(list, ",") {
		id, err := strconv.Atoi(field)
		if err != nil {
			return nil
		}
		ids = append(ids, id)
	}
	return slices.Clip(ids)
}

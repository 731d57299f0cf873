package sched

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
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

// Snapshot is a State in its written form, and shares nothing mutable with it. The
// types below have the same fields as their originals in the same order, so that
// each converts as a whole: a field that is added there and not here does not
// compile.
type Snapshot struct {
	Format       string               `json:"format"`
	Version      int                  `json:"version"`
	Now          time.Time            `json:"now"`
	Rules        writtenRules         `json:"rules"`
	Host         writtenHost          `json:"host"`
	Cards        []writtenCard        `json:"cards"`
	Held         []writtenHeld        `json:"held"`
	Unreadable   string               `json:"unreadable,omitempty"`
	Queue        []writtenPending     `json:"queue"`            // in its order
	Oldest       map[string]oldest    `json:"oldest,omitempty"` // by user
	MaxStarts    int                  `json:"max_starts,omitempty"`
	Pools        map[string]int       `json:"pools,omitempty"`
	Groups       []writtenGroup       `json:"groups,omitempty"`
	Limits       map[string]userLimit `json:"limits,omitempty"`
	DefaultLimit userLimit            `json:"default_limit"`
	InUse        map[string]userUse   `json:"in_use,omitempty"`
	Usage        map[string]float64   `json:"usage,omitempty"`
	FairQuantum  float64              `json:"fair_quantum,omitempty"`
	HalfLife     time.Duration        `json:"half_life_ns,omitempty"`
	ParkMiB      int64                `json:"park_mib,omitempty"`
	ParkOfMiB    map[string]int64     `json:"park_of_mib,omitempty"`
}

type writtenRules struct {
	MarginMiB        int64         `json:"margin_mib"`
	IdleThresholdMiB int64         `json:"idle_threshold_mib"`
	SpikeBuffer      float64       `json:"spike_buffer"`
	Exclusive        bool          `json:"exclusive,omitempty"`
	JobsPerGPU       int           `json:"jobs_per_gpu,omitempty"`
	MemThreshold     float64       `json:"mem_threshold,omitempty"`
	LoadThreshold    float64       `json:"load_threshold,omitempty"`
	LoadAlways       bool          `json:"load_always,omitempty"`
	Placement        Placement     `json:"placement"`
	Policy           Policy        `json:"policy"`
	Fair             bool          `json:"fair"`
	MaxBypass        time.Duration `json:"max_bypass_ns"`
	MinRun           time.Duration `json:"min_run_ns,omitempty"`
	Slice            bool          `json:"slice"`
}

type writtenHost struct {
	CPUs   int   `json:"cpus,omitempty"`
	MemMiB int64 `json:"mem_mib,omitempty"`
}

type writtenCard struct {
	Index          int         `json:"index"`
	UUID           string      `json:"uuid,omitempty"`
	Name           string      `json:"name,omitempty"`
	TotalMiB       int64       `json:"total_mib"`
	ReservedMiB    int64       `json:"reserved_mib,omitempty"`
	UsedMiB        int64       `json:"used_mib"`
	ForeignMiB     int64       `json:"foreign_mib,omitempty"`
	IdleForeignMiB int64       `json:"idle_foreign_mib,omitempty"`
	UtilPct        float64     `json:"util_pct"`
	Paused         bool        `json:"paused,omitempty"`
	Health         Health      `json:"health"`
	HealthReason   string      `json:"health_reason,omitempty"`
	Stale          bool        `json:"stale,omitempty"`
	NUMA           int         `json:"numa"`
	Links          map[int]int `json:"links,omitempty"`
	Near           map[int]int `json:"near,omitempty"`
	Part           bool        `json:"part,omitempty"`
	ParkedMiB      int64       `json:"parked_mib,omitempty"`
}

type writtenHeld struct {
	Job       string        `json:"job"`
	Cards     []int         `json:"cards"`
	BudgetMiB []int64       `json:"budget_mib,omitempty"`
	Share     float64       `json:"share,omitempty"`
	OverGPUs  float64       `json:"over_gpus,omitempty"`
	Alone     bool          `json:"alone,omitempty"`
	Exclusive bool          `json:"exclusive,omitempty"`
	CPUs      int           `json:"cpus,omitempty"`
	MemMiB    int64         `json:"mem_mib,omitempty"`
	Other     bool          `json:"other,omitempty"`
	User      string        `json:"user,omitempty"`
	Priority  int           `json:"priority,omitempty"`
	Rank      int64         `json:"rank,omitempty"`
	Seq       int64         `json:"seq,omitempty"`
	Pool      string        `json:"pool,omitempty"`
	Submitted time.Time     `json:"submitted,omitzero"`
	Started   time.Time     `json:"started,omitzero"`
	Served    time.Duration `json:"served_ns,omitempty"`
	Waited    time.Duration `json:"waited_ns,omitempty"`
	Run       Estimate      `json:"run,omitzero"`
	Limit     time.Duration `json:"limit_ns,omitempty"`
	Preempt   Preempt       `json:"aside,omitzero"`
	Leaving   bool          `json:"leaving,omitempty"`
	LeavesFor string        `json:"leaves_for,omitempty"`
	LeavesBy  time.Time     `json:"leaves_by,omitzero"`
}

type writtenPending struct {
	Job       string        `json:"job"`
	User      string        `json:"user,omitempty"`
	Priority  int           `json:"priority,omitempty"`
	Rank      int64         `json:"rank,omitempty"`
	Seq       int64         `json:"seq,omitempty"`
	Request   Request       `json:"request"`
	Pool      string        `json:"pool,omitempty"`
	PoolLimit int           `json:"pool_limit,omitempty"`
	Group     string        `json:"group,omitempty"`
	Submitted time.Time     `json:"submitted,omitzero"`
	Since     time.Time     `json:"since,omitzero"`
	Served    time.Duration `json:"served_ns,omitempty"`
	Run       Estimate      `json:"run,omitzero"`
	Limit     time.Duration `json:"limit_ns,omitempty"`
	Preempt   Preempt       `json:"aside,omitzero"`
	Unproven  bool          `json:"unproven,omitempty"`
	Parked    bool          `json:"parked,omitempty"`
}

// oldest is what a queue remembers about a user besides the jobs: the oldest at the
// last Tick, and since when.
type oldest struct {
	Job   string    `json:"job"`
	Since time.Time `json:"since"`
}

type writtenEstimate struct {
	Low  time.Duration `json:"low_ns"`
	Mid  time.Duration `json:"mid_ns"`
	High time.Duration `json:"high_ns"`

	Guess bool `json:"guess,omitempty"`
}

type writtenGroup struct {
	User     string   `json:"user,omitempty"`
	Name     string   `json:"name"`
	Limit    int      `json:"limit,omitempty"`
	PausedBy string   `json:"paused_by,omitempty"`
	Running  []string `json:"running,omitempty"`
}

type writtenPreempt struct {
	Mode   PreemptMode   `json:"mode"`
	Out    time.Duration `json:"out_ns"`
	Back   time.Duration `json:"back_ns"`
	MemMiB int64         `json:"mem_mib,omitempty"`
}

type userLimit struct {
	Jobs   int     `json:"jobs,omitempty"`
	GPUs   float64 `json:"gpus,omitempty"`
	CPUs   int     `json:"cpus,omitempty"`
	MemMiB int64   `json:"mem_mib,omitempty"`
	Flag   string  `json:"flag,omitempty"`
}

type userUse struct {
	Jobs       int     `json:"jobs"`
	GPUs       float64 `json:"gpus"`
	CPUs       int     `json:"cpus,omitempty"`
	MemMiB     int64   `json:"mem_mib,omitempty"`
	Parked     int     `json:"parked,omitempty"`
	Unmeasured float64 `json:"unmeasured,omitempty"`
}

// MarshalJSON writes a span in nanoseconds: exactly.
func (s Estimate) MarshalJSON() ([]byte, error) { return json.Marshal(writtenEstimate(s)) }

// UnmarshalJSON reads one.
func (s *Estimate) UnmarshalJSON(data []byte) error {
	return json.Unmarshal(data, (*writtenEstimate)(s))
}

// MarshalJSON writes whether and how a job can be preempted.
func (a Preempt) MarshalJSON() ([]byte, error) { return json.Marshal(writtenPreempt(a)) }

// UnmarshalJSON reads it.
func (a *Preempt) UnmarshalJSON(data []byte) error { return json.Unmarshal(data, (*writtenPreempt)(a)) }

// NewSnapshot copies everything a decision depends on.
func NewSnapshot(s State) Snapshot {
	w := Snapshot{
		Format: snapshotFormat, Version: SnapshotVersion, Now: s.Now, Rules: writtenRules(s.Rules), Host: writtenHost(s.Host),
		Cards: make([]writtenCard, len(s.Cards)), Held: make([]writtenHeld, len(s.Held)), Queue: []writtenPending{},
		Unreadable: s.Unreadable, MaxStarts: s.MaxStarts, Pools: maps.Clone(s.Pools), Usage: maps.Clone(s.Usage), FairQuantum: s.FairQuantum, HalfLife: s.HalfLife, ParkMiB: s.ParkMiB, ParkOfMiB: maps.Clone(s.ParkOfMiB),
		Limits: map[string]userLimit{}, DefaultLimit: userLimit(s.DefaultLimit), InUse: map[string]userUse{}, Oldest: map[string]oldest{},
	}
	for i, c := range s.Cards {
		w.Cards[i] = writtenCard(c)
		w.Cards[i].Links, w.Cards[i].Near = maps.Clone(c.Links), maps.Clone(c.Near)
	}
	for i, h := range s.Held {
		w.Held[i] = writtenHeld(h)
		w.Held[i].Cards, w.Held[i].BudgetMiB = slices.Clone(h.Cards), slices.Clone(h.BudgetMiB)
	}
	if s.Queue != nil {
		queued := s.Queue.First(s.Queue.Len())
		w.Queue = make([]writtenPending, len(queued))
		for i := range queued {
			w.Queue[i] = writtenPending(queued[i])
		}
		for user, l := range s.Queue.lines {
			if l.first != "" {
				w.Oldest[user] = oldest{Job: l.first, Since: l.since}
			}
		}
	}
	for user, limit := range s.Limits {
		w.Limits[user] = userLimit(limit)
	}
	for user, use := range s.InUse {
		w.InUse[user] = userUse(use)
	}
	for name, of := range s.Groups {
		w.Groups = append(w.Groups, writtenGroup{User: name.User, Name: name.Name, Limit: of.Limit, PausedBy: of.PausedBy, Running: slices.Clone(of.Running)})
	}
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
	return w.State(), nil
}

// State is the snapshot's state, with a queue of its own.
func (w *Snapshot) State() State {
	s := State{
		Now: w.Now, Rules: Rules(w.Rules), Host: Host(w.Host), Unreadable: w.Unreadable, MaxStarts: w.MaxStarts,
		Pools: w.Pools, Limits: map[string]Limit{}, DefaultLimit: Limit(w.DefaultLimit), InUse: map[string]Use{},
		Usage: w.Usage, FairQuantum: w.FairQuantum, HalfLife: w.HalfLife, ParkMiB: w.ParkMiB, ParkOfMiB: w.ParkOfMiB, Queue: NewQueue(),
	}
	for _, c := range w.Cards {
		s.Cards = append(s.Cards, Card(c))
	}
	for _, h := range w.Held {
		s.Held = append(s.Held, Held(h))
	}
	for user, limit := range w.Limits {
		s.Limits[user] = Limit(limit)
	}
	for user, use := range w.InUse {
		s.InUse[user] = Use(use)
	}
	if len(w.Groups) > 0 {
		s.Groups = map[GroupName]JobGroup{}
	}
	for _, of := range w.Groups {
		s.Groups[GroupName{of.User, of.Name}] = JobGroup{Limit: of.Limit, PausedBy: of.PausedBy, Running: of.Running}
	}
	s.Queue.SetRules(s.Rules)
	for _, p := range w.Queue {
		s.Queue.Add(Pending(p))
	}
	for user, o := range w.Oldest {
		if l, waits := s.Queue.lines[user]; waits {
			s.Queue.setOldest(l, o.Job, o.Since)
		}
	}
	s.Queue.Tick(s.Now)
	return s
}

// check finds what berth would never have written.
func (w *Snapshot) check() error {
	if len(w.Cards) > maxSnapshotCards || len(w.Queue)+len(w.Held) > maxSnapshotJobs {
		return fmt.Errorf("expected at most %[3]d GPUs and %[4]d jobs, found %[1]d and %[2]d", len(w.Cards), len(w.Queue)+len(w.Held), maxSnapshotCards, maxSnapshotJobs)
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
	for _, h := range w.Held {
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

package api

import (
	"cmp"
	"time"

	"berth/internal/text/problem"
)

// GPU is a card, or a part of a partitioned card, as last read. Unknown values
// are null, or left out if they are text.
type GPU struct {
	Index       int    `json:"index"`
	DriverIndex int    `json:"driver_index" doc:"the driver's number for it now; differs from index after a GPU before it was lost"`
	UUID        string `json:"uuid"`
	Name        string `json:"name"`
	BusID       string `json:"bus_id,omitempty"`
	Minor       *int   `json:"minor" doc:"of /dev/nvidiaN"`
	Parent      *int   `json:"parent,omitempty" doc:"the GPU that this is a part of (MIG)"`
	Profile     string `json:"profile,omitempty" doc:"of a part: 1g.10gb"`

	TotalMiB    int64    `json:"total_mib"`
	UsedMiB     int64    `json:"used_mib"`
	FreeMiB     int64    `json:"free_mib"`
	ReservedMiB int64    `json:"reserved_mib"`
	ForeignMiB  int64    `json:"foreign_mib"`
	BudgetMiB   int64    `json:"budget_mib" doc:"memory allocated to jobs on it; all of it if one holds the GPU alone"`
	Util        *float64 `json:"util" doc:"percent; null: not known"`

	TemperatureC *float64 `json:"temperature_c"`
	PowerW       *float64 `json:"power_w"`
	PowerLimitW  *float64 `json:"power_limit_w"`
	SMClockMHz   *int     `json:"sm_clock_mhz"`
	MemClockMHz  *int     `json:"mem_clock_mhz"`

	ECCUncorrected *int64 `json:"ecc_uncorrected" doc:"since the driver was loaded"`
	ECCCorrected   *int64 `json:"ecc_corrected" doc:"since the driver was loaded"`
	RowsRemapped   *int64 `json:"rows_remapped"`
	RowsPending    bool   `json:"rows_pending" doc:"memory rows will be remapped at the next reset"`
	RowsFailed     bool   `json:"rows_failed" doc:"a row could not be remapped"`
	RecoveryAction string `json:"recovery_action,omitempty" doc:"what the driver asks for: none, reset, reboot, drain, drain and reset, recover the fabric, bus reset"`

	NUMA  *int           `json:"numa"`
	CPUs  string         `json:"cpus,omitempty" doc:"the CPUs next to it: 0-7,16-23"`
	Links map[string]int `json:"links,omitempty" doc:"number of NVLinks to other GPUs, by their index"`

	Health       string    `json:"health" enum:"ok,suspect,quarantined"`
	HealthReason string    `json:"health_reason,omitempty"`
	HealthSince  time.Time `json:"health_since,omitzero"`
	HealthBy     string    `json:"health_by,omitempty" doc:"the administrator who set it"`
	LastXid      *GPUXid   `json:"last_xid,omitempty"`

	Paused      bool       `json:"paused"`
	PausedBy    string     `json:"paused_by,omitempty"`
	Stale       bool       `json:"stale"`
	StaleReason string     `json:"stale_reason,omitempty" doc:"why there is no newer reading"`
	LetGoUntil  *time.Time `json:"let_go_until,omitempty" doc:"the driver is released until then"`
	ReadAt      time.Time  `json:"read_at,omitzero"`

	Jobs      []GPUJob     `json:"jobs"`
	Parked    []GPUJob     `json:"parked" doc:"parked jobs that can only come back to it; used_mib is what they need on it"`
	Processes []GPUProcess `json:"processes" doc:"as the driver lists them; null: it does not"`
}

// GPUJob is a job on a card.
type GPUJob struct {
	ID        string     `json:"id"`
	Name      string     `json:"name"`
	User      string     `json:"user"`
	UsedMiB   *int64     `json:"used_mib"`
	PeakMiB   *int64     `json:"peak_mib"`
	Util      *float64   `json:"util" doc:"its part of the GPU's time, percent; null: not known"`
	IdleSince *time.Time `json:"idle_since" doc:"since when it has held its GPUs without using them; null: it uses them, or that is not known"`
	Share     float64    `json:"share,omitempty"`
	Other     bool       `json:"other,omitempty" doc:"held by another berth on this machine"`
}

// GPUProcess is a process on a card. The name is the kernel's short one:
// arguments may be private.
type GPUProcess struct {
	PID      int    `json:"pid"`
	User     string `json:"user,omitempty"`
	Command  string `json:"command,omitempty" doc:"the short name"`
	UsedMiB  *int64 `json:"used_mib"`
	Graphics bool   `json:"graphics" doc:"it uses graphics only, no compute"`
	Job      string `json:"job,omitempty" doc:"the job it belongs to; empty: an external process"`
}

// GPUXid is the last error that the driver reported for a card.
type GPUXid struct {
	Code int       `json:"code"`
	At   time.Time `json:"at"`
	Text string    `json:"text,omitempty"`
}

// The health an administrator may set.
const (
	HealthOK          = "ok"
	HealthQuarantined = "quarantined"
)

// GPUIndex names a card.
type GPUIndex struct {
	Index int `path:"index" json:"-" eg:"0" about:"the number of the GPU in berth gpus"`
}

// DrainRequest empties a card.
type DrainRequest struct {
	GPUIndex
	Park bool `json:"park,omitempty" doc:"park the jobs on it; otherwise they run to their end"`
}

// Drained is a card that is being emptied, and what happens to each job on it.
type Drained struct {
	GPU  GPU     `json:"gpu"`
	Jobs []Acted `json:"jobs"`
}

// HealthRequest sets a card's health.
type HealthRequest struct {
	GPUIndex
	Health string `json:"health" enum:"ok,quarantined"`
	Reason string `json:"reason,omitempty" doc:"at most 200 bytes"`
}

// CardQuery selects events of the cards.
type CardQuery struct {
	GPU   *int       `query:"gpu" range:"0..4096" about:"only this GPU, and events about all of them"`
	Since *time.Time `query:"since" about:"only events after this time"`
	Limit int        `query:"limit" range:"1..1000" about:"at most this many; default 50, at most 1000"`
}

// CardEvent is one event of a card, or of all.
type CardEvent struct {
	At   time.Time `json:"at"`
	GPU  *int      `json:"gpu" doc:"null: all of them"`
	By   string    `json:"by,omitempty" doc:"the user who did it"`
	Text string    `json:"text"`
}

// ReleaseRequest releases the driver, or opens it again.
type ReleaseRequest struct {
	ForS  int64 `json:"for_s,omitempty" doc:"seconds; 0: 600; at most a day"`
	End   bool  `json:"end,omitempty" doc:"open it again"`
	Force bool  `json:"force,omitempty" doc:"even while jobs run on the GPUs"`
}

// Released says whether the driver is released.
type Released struct {
	Until *time.Time `json:"until" doc:"null: it is not released"`
	Note  string     `json:"note,omitempty" doc:"why there is nothing to release"`
}

// Bounds on requests about cards.
const (
	maxGPU         = 4096
	maxReason      = 200 // bytes
	usualEvents    = 50
	usualRelease   = 10 * time.Minute
	longestRelease = 24 * time.Hour
)

func (r *HealthRequest) check(*Limits) error {
	if r.Health != HealthOK && r.Health != HealthQuarantined {
		return problem.Newf(problem.Invalid, "", "health: expected %s or %s, found %s", HealthOK, HealthQuarantined, quoted(r.Health))
	}
	if len(r.Reason) > maxReason {
		return problem.Newf(problem.Invalid, "", "reason: expected at most %d bytes, found %d", maxReason, len(r.Reason))
	}
	return nil
}

func (q *CardQuery) check(*Limits) error {
	q.Limit = cmp.Or(q.Limit, usualEvents)
	return nil
}

func (r *ReleaseRequest) check(*Limits) error {
	if r.ForS < 0 || r.ForS > int64(longestRelease/time.Second) || r.End && r.ForS != 0 {
		return problem.Newf(problem.Invalid, "", "for_s: expected 1 to %d seconds, without end", int64(longestRelease/time.Second))
	}
	if r.ForS == 0 && !r.End {
		r.ForS = int64(usualRelease / time.Second)
	}
	return nil
}

func (g *GPU) fill() { g.Jobs = list(g.Jobs) }

func (d *Drained) fill() { d.GPU.Jobs, d.Jobs = list(d.GPU.Jobs), list(d.Jobs) }

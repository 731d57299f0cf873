package sched

// ReasonKind names why a job does not run. The words are a stable contract.
type ReasonKind string

// Why a job waits.
const (
	WaitsForGPUs     ReasonKind = "gpus"       // too few cards have room
	WaitsForCPUs     ReasonKind = "cpus"       // too few cpus of the host are free
	WaitsForMemory   ReasonKind = "memory"     // too little of the host's memory is free
	WaitsForReadings ReasonKind = "unreadable" // the GPUs cannot be read
	WaitsBehind      ReasonKind = "behind"     // under FIFO: for the job in front
	WaitsForTurn     ReasonKind = "turn"       // it fits, and the plan has all the starts it may have
	WaitsForArray    ReasonKind = "array"      // as many tasks of its array run as may at a time
	WaitsForLimit    ReasonKind = "user_limit" // its user runs or holds as much as a user may
	StartsNow        ReasonKind = "starts"     // nothing keeps it
	NotQueued        ReasonKind = "not_queued"
)

// Why a job can never run here.
const (
	TooManyGPUs   ReasonKind = "too_many_gpus"
	NoSuchGPU     ReasonKind = "no_such_gpu"
	RepeatedGPU   ReasonKind = "repeated_gpu"
	TooFewAllowed ReasonKind = "too_few_allowed" // its type or allow list leaves too few
	TooMuchVRAM   ReasonKind = "too_much_vram"
	TooManyCPUs   ReasonKind = "too_many_cpus"
	TooMuchMemory ReasonKind = "too_much_memory"
	OverUserLimit ReasonKind = "over_user_limit" // more GPUs than its user may ever hold
)

// Infeasible reports whether waiting will not help.
func (k ReasonKind) Infeasible() bool {
	switch k {
	case TooManyGPUs, NoSuchGPU, RepeatedGPU, TooFewAllowed, TooMuchVRAM, TooManyCPUs, TooMuchMemory, OverUserLimit:
		return true
	}
	return false
}

// Reason says why a job does not run, in numbers; String makes the sentence
// of it. Fields that do not bear on its kind are empty.
type Reason struct {
	Kind ReasonKind `json:"kind"`

	// What the job asks for.
	Needs     int     `json:"needs,omitempty"`    // GPUs
	Parts     bool    `json:"parts,omitempty"`    // parts of cards were passed over, as it needs several; or the card it names is in parts, which are Cards
	VRAMMiB   int64   `json:"vram_mib,omitempty"` // on each; of a share, what it comes to
	Share     float64 `json:"share,omitempty"`
	Idle      bool    `json:"idle,omitempty"`      // it declared nothing
	Exclusive bool    `json:"exclusive,omitempty"` // it takes no neighbour
	Type      string  `json:"type,omitempty"`
	IDs       []int   `json:"ids,omitempty"` // exactly these; where there is no such card, only those
	Allow     []int   `json:"allow,omitempty"`

	// What there is. Amount, Free and Total count cpus, MiB of host memory,
	// cards, starts, tasks or jobs, as the kind says.
	Cards    []CardFact `json:"cards,omitempty"`
	HoldsMiB int64      `json:"holds_mib,omitempty"` // the most that each of its cards could hold when empty
	Amount   int64      `json:"amount,omitempty"`
	Free     int64      `json:"free,omitempty"`
	Total    int64      `json:"total,omitempty"`

	// A limit of the user's. GPUs are counted as CountedGPUs does; where the
	// limit is on jobs, Amount run and Total may.
	User      string  `json:"user,omitempty"`
	Own       bool    `json:"own,omitempty"` // the limit is this user's own, not everybody's
	HeldGPUs  float64 `json:"held_gpus,omitempty"`
	MoreGPUs  float64 `json:"more_gpus,omitempty"` // what the job would add
	LimitGPUs float64 `json:"limit_gpus,omitempty"`

	Pool    string  `json:"pool,omitempty"`    // the array, where its limit is what keeps the job
	Job     string  `json:"job,omitempty"`     // the job in front, or the one not queued
	Because *Reason `json:"because,omitempty"` // why the job in front waits
	Detail  string  `json:"detail,omitempty"`  // why the GPUs cannot be read
}

// CardFact is how one card stands to the job. An empty Obstacle means that
// the job would fit there.
type CardFact struct {
	GPU      int      `json:"gpu"`
	Name     string   `json:"name,omitempty"`
	Obstacle Obstacle `json:"obstacle,omitempty"`

	// FreeMiB is what such a job could be budgeted there now: the headroom,
	// less the margin where the job needs one beside it.
	FreeMiB    int64    `json:"free_mib,omitempty"`
	FreeShare  float64  `json:"free_share,omitempty"`
	ForeignMiB int64    `json:"foreign_mib,omitempty"`
	Holders    []string `json:"holders,omitempty"` // the berth jobs there
	Percent    float64  `json:"percent,omitempty"` // measured, where a threshold is passed
	Limit      float64  `json:"limit,omitempty"`   // that threshold, in percent
	Detail     string   `json:"detail,omitempty"`  // the health and its reason
}

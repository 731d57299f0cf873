package reason

// Kind names why a job does not run. The words are a stable contract.
type Kind string

// Why a job waits.
const (
	WaitsForGPUs     Kind = "gpus"       // too few cards have room
	WaitsForCPUs     Kind = "cpus"       // too few cpus of the host are free
	WaitsForMemory   Kind = "memory"     // too little of the host's memory is free
	WaitsForReadings Kind = "unreadable" // the GPUs cannot be read
	WaitsBehind      Kind = "behind"     // under FIFO: for the job in front
	WaitsForTurn     Kind = "turn"       // it fits, and the plan has all the starts it may have
	WaitsForArray    Kind = "array"      // as many tasks of its array run as may at a time
	WaitsForLimit    Kind = "user_limit" // its user runs or holds as much as a user may
	StartsNow        Kind = "starts"     // nothing keeps it
	NotQueued        Kind = "not_queued"
)

// Why a job can never run here.
const (
	TooManyGPUs   Kind = "too_many_gpus"
	NoSuchGPU     Kind = "no_such_gpu"
	RepeatedGPU   Kind = "repeated_gpu"
	TooFewAllowed Kind = "too_few_allowed" // its type or allow list leaves too few
	TooMuchVRAM   Kind = "too_much_vram"
	TooManyCPUs   Kind = "too_many_cpus"
	TooMuchMemory Kind = "too_much_memory"
	OverUserLimit Kind = "over_user_limit" // more GPUs than its user may ever hold
)

// Infeasible reports whether waiting will not help.
func (k Kind) Infeasible() bool {
	switch k {
	case TooManyGPUs, NoSuchGPU, RepeatedGPU, TooFewAllowed, TooMuchVRAM, TooManyCPUs, TooMuchMemory, OverUserLimit:
		return true
	}
	return false
}

// Reason says why a job does not run, in numbers; String makes the sentence
// of it. Fields that do not bear on its kind are empty.
type Reason struct {
	Kind Kind `json:"kind"`

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
	Cards    []Card `json:"cards,omitempty"`
	HoldsMiB int64  `json:"holds_mib,omitempty"` // the most that each of its cards could hold when empty
	Amount   int64  `json:"amount,omitempty"`
	Free     int64  `json:"free,omitempty"`
	Total    int64  `json:"total,omitempty"`

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

package reason

// Kind names why a job does not run. The values are a stable contract.
type Kind string

// Why a job waits.
const (
	WaitsForGPUs     Kind = "gpus"       // too few cards have room
	WaitsForCPUs     Kind = "cpus"       // too few CPUs of the host are free
	WaitsForMemory   Kind = "memory"     // too little host memory is free
	WaitsForReadings Kind = "unreadable" // the GPUs cannot be read
	WaitsBehind      Kind = "behind"     // under FIFO: for the job ahead
	WaitsForTurn     Kind = "turn"       // it fits, but this round has all the starts it may have
	WaitsForArray    Kind = "array"      // its array is at its limit of running tasks
	WaitsForGroup    Kind = "group"      // its group is at its limit of running jobs
	WaitsForResume   Kind = "group_paused"
	WaitsForLimit    Kind = "user_limit" // its user is at a limit on jobs, GPUs, CPUs or memory
	WaitsForShare    Kind = "user_share" // its user has their share, and Job of another, who has not, waits
	StartsNow        Kind = "starts"     // it starts next
	NotQueued        Kind = "not_queued"
)

// Why a job can never run here.
const (
	TooManyGPUs   Kind = "too_many_gpus"
	NoSuchGPU     Kind = "no_such_gpu"
	RepeatedGPU   Kind = "repeated_gpu"
	TooFewAllowed Kind = "too_few_allowed" // too few cards match its type or allow list
	TooMuchVRAM   Kind = "too_much_vram"
	TooManyCPUs   Kind = "too_many_cpus"
	TooMuchMemory Kind = "too_much_memory"
	OverUserLimit Kind = "over_user_limit" // more GPUs, CPUs or memory than its user may ever hold
)

// Resource is what a user's limit bounds, by its key in the config.
type Resource string

// The resources of which a user may hold a limited amount.
const (
	NoResource Resource = ""
	GPUs       Resource = "gpus"
	CPUs       Resource = "cpus"
	Memory     Resource = "memory_total"
)

// Infeasible reports whether the job can never run on this machine.
func (k Kind) Infeasible() bool {
	switch k {
	case TooManyGPUs, NoSuchGPU, RepeatedGPU, TooFewAllowed, TooMuchVRAM, TooManyCPUs, TooMuchMemory, OverUserLimit:
		return true
	}
	return false
}

// Reason says why a job does not run, in numbers; String turns them into a
// sentence. Fields that the kind does not use are empty.
type Reason struct {
	Kind Kind `json:"kind"`

	// What the job asks for.
	Needs     int     `json:"needs,omitempty"`    // GPUs
	Parts     bool    `json:"parts,omitempty"`    // MIG parts were left out because it needs several GPUs; or the card it names is partitioned into Cards
	VRAMMiB   int64   `json:"vram_mib,omitempty"` // on each; for a share, the memory it amounts to
	Share     float64 `json:"share,omitempty"`
	Idle      bool    `json:"idle,omitempty"`      // it declared neither memory nor a share
	Exclusive bool    `json:"exclusive,omitempty"` // no other berth job may join it
	Type      string  `json:"type,omitempty"`
	IDs       []int   `json:"ids,omitempty"` // exactly these; for NoSuchGPU, only the missing ones
	Allow     []int   `json:"allow,omitempty"`

	// What the machine has. Amount, Free and Total count CPUs, MiB of host
	// memory, cards, starts, tasks or jobs, depending on the kind.
	Cards    []Card `json:"cards,omitempty"`
	HoldsMiB int64  `json:"holds_mib,omitempty"` // the most that each of its cards can hold when empty
	Amount   int64  `json:"amount,omitempty"`
	Free     int64  `json:"free,omitempty"`
	Total    int64  `json:"total,omitempty"`

	// A user's limit. A share counts as that part of a GPU. Where the limit is on
	// CPUs or memory, the user's jobs have Held of the Total allowed and the job
	// needs Amount. Where it is on jobs, Amount jobs are running of the Total.
	Resource  Resource `json:"resource,omitempty"` // CPUs or Memory; empty: GPUs or jobs
	Held      int64    `json:"held,omitempty"`
	User      string   `json:"user,omitempty"` // for WaitsForResume: who paused the group
	Own       bool     `json:"own,omitempty"`  // the limit is for this user, not for every user
	Flag      string   `json:"flag,omitempty"` // the flag that sets the limit; empty: the config does
	HeldGPUs  float64  `json:"held_gpus,omitempty"`
	MoreGPUs  float64  `json:"more_gpus,omitempty"` // what the job would add
	LimitGPUs float64  `json:"limit_gpus,omitempty"`
	// LimitIsShare means that LimitGPUs is the user's share, which a job may exceed that
	// can give way or has a time limit of at most BorrowS. NeverBorrows: this one cannot.
	LimitIsShare bool    `json:"limit_is_share,omitempty"`
	NeverBorrows bool    `json:"never_borrows,omitempty"`
	BorrowS      float64 `json:"borrow_s,omitempty"`
	// Unmeasured means that shares count as whole GPUs in HeldGPUs and MoreGPUs,
	// until their memory is measured. Parked jobs are part of Amount.
	Unmeasured bool  `json:"unmeasured,omitempty"`
	Parked     int64 `json:"parked,omitempty"`

	Pool    string   `json:"pool,omitempty"`    // the array or the group
	Jobs    []string `json:"jobs,omitempty"`    // for WaitsForGroup: those of the group that run
	Job     string   `json:"job,omitempty"`     // the job ahead, or the one not queued
	Because *Reason  `json:"because,omitempty"` // why the job ahead waits
	Detail  string   `json:"detail,omitempty"`  // why the GPUs cannot be read
}

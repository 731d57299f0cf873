package api

import "time"

// Why is what a job waits for, or what became of it. What lies behind the first
// six is told of a queued job alone.
type Why struct {
	ID       string   `json:"id"`
	State    string   `json:"state"`
	Text     string   `json:"text" doc:"one sentence for people"`
	Position int      `json:"position,omitempty"`
	Queued   int      `json:"queued"`
	Notes    []string `json:"notes,omitempty"`

	Kind     string     `json:"kind,omitempty" doc:"what it waits for, in a word: gpus, cpus, memory, behind, turn, array, user_limit, unreadable, starts, or why it can never run"`
	User     string     `json:"user,omitempty"`
	Priority int        `json:"priority,omitempty"`
	Needs    string     `json:"needs,omitempty" doc:"what it asks for, in words"`
	Since    *time.Time `json:"since,omitempty" doc:"since when it waits"`

	GPUs     []WhyGPU   `json:"gpus,omitempty" doc:"every card, as it stands to the job now"`
	Behind   *WhyBehind `json:"behind,omitempty" doc:"the job that has to go first"`
	Kept     *WhyKept   `json:"kept,omitempty" doc:"the cards that are kept for it"`
	AsideFor string     `json:"aside_for,omitempty" doc:"the job that it was set aside for"`
	GivesWay []string   `json:"gives_way,omitempty" doc:"running jobs that are set aside for it"`

	MaxBypassS  float64    `json:"max_bypass_s,omitempty" doc:"how long the oldest waiting job of a user is passed by others at most"`
	OldestSince *time.Time `json:"oldest_since,omitempty" doc:"since when it has been its user's oldest: from then on the bound counts"`

	Expected *Expected `json:"expected,omitempty" doc:"when it is expected to start; of a running job, to end"`
	NoStart  string    `json:"no_start,omitempty" doc:"why no start is expected: gate, user_limit, array, unreadable, closed, infeasible"`

	ExpectedRun  *RunGuess  `json:"expected_run,omitempty" doc:"how long it is expected to run"`
	ExpectedVRAM *VRAMGuess `json:"expected_vram,omitempty" doc:"what it is expected to use on each of its cards"`
}

// WhyGPU is what stands between a job and a card.
type WhyGPU struct {
	GPU          int      `json:"gpu"`
	Name         string   `json:"name,omitempty"`
	Fits         bool     `json:"fits" doc:"it would fit there now"`
	What         string   `json:"what" doc:"how the card stands to the job, in words"`
	Obstacle     string   `json:"obstacle,omitempty" doc:"the same in a word: excluded, kept, stale, paused, health, memory, load, taken, alone, exclusive, foreign, shares, free"`
	FreeMiB      int64    `json:"free_mib,omitempty" doc:"what such a job could have there now"`
	MissingMiB   int64    `json:"missing_mib,omitempty"`
	MissingShare float64  `json:"missing_share,omitempty"`
	ForeignMiB   int64    `json:"foreign_mib,omitempty"`
	KeptFor      string   `json:"kept_for,omitempty" doc:"the waiting job that the card is kept for"`
	Runs         []WhyRun `json:"runs,omitempty"`
}

// WhyRun is a run on a card.
type WhyRun struct {
	ID        string     `json:"id"`
	User      string     `json:"user,omitempty"`
	Other     bool       `json:"other,omitempty" doc:"another berth's"`
	Since     *time.Time `json:"since,omitempty"`
	BudgetMiB int64      `json:"budget_mib,omitempty"`
	Share     float64    `json:"share,omitempty"`
	Alone     bool       `json:"alone,omitempty" doc:"nothing joins it"`
	LeavesFor string     `json:"leaves_for,omitempty" doc:"it is being set aside, for this job"`
	Low       *time.Time `json:"low,omitempty" doc:"when it is expected to end, at the earliest"`
	Mid       *time.Time `json:"mid,omitempty" doc:"as a rule; left out where nothing says"`
	High      *time.Time `json:"high,omitempty" doc:"at the latest; left out where nothing says"`
	By        string     `json:"by" doc:"what that rests on: limit, history or none"`
}

// WhyBehind is the job that has to go first.
type WhyBehind struct {
	ID       string `json:"id"`
	User     string `json:"user,omitempty"`
	Priority int    `json:"priority"`
	First    string `json:"first" doc:"why it goes first: passed, waited, priority, service, user, shorter or earlier"`
	Because  string `json:"because" doc:"the same in words"`
	Kept     bool   `json:"kept,omitempty" doc:"cards are kept for it that would do"`
}

// WhyKept is a reservation.
type WhyKept struct {
	GPUs []int     `json:"gpus,omitempty"`
	At   time.Time `json:"at" doc:"when it is expected to have them"`
	Hard bool      `json:"hard,omitempty" doc:"nothing starts there that may outlast the wait"`
}

// Expected is a moment that is expected, never promised.
type Expected struct {
	At      time.Time  `json:"at" doc:"when this was said"`
	Low     time.Time  `json:"low"`
	Mid     *time.Time `json:"mid,omitempty" doc:"as a rule; left out where nothing says"`
	High    *time.Time `json:"high,omitempty" doc:"at the latest; left out where nothing says"`
	Running int        `json:"running" doc:"runs under way that were looked at"`
	InFront int        `json:"in_front" doc:"jobs that go first"`
	Limit   int        `json:"by_limit" doc:"of both, those known by their time limit alone"`
	History int        `json:"by_history" doc:"those known from what ran before"`
	Unknown int        `json:"unknown" doc:"those that nothing is known of, or that outlast what was"`
	Beyond  bool       `json:"beyond,omitempty" doc:"more jobs are in front than were looked at: only low says something"`
}

// RunGuess is how long a job is expected to run.
type RunGuess struct {
	LowS   float64 `json:"low_s"`
	MidS   float64 `json:"mid_s"`
	HighS  float64 `json:"high_s"`
	Source string  `json:"source" doc:"command (earlier runs of the same command), user (the user's last jobs) or limit"`
	Runs   int     `json:"runs" doc:"how many runs it rests on"`
}

// VRAMGuess is what a job is expected to use on each of its cards.
type VRAMGuess struct {
	LowMiB  int64  `json:"low_mib"`
	MidMiB  int64  `json:"mid_mib"`
	HighMiB int64  `json:"high_mib"`
	Source  string `json:"source"`
	Runs    int    `json:"runs"`
}

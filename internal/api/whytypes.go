package api

import "berth/internal/reason"

// Why is what a job waits for, or what became of it. Of a job that does not wait
// the story is no more than its sentence.
type Why struct {
	reason.Story
	State string   `json:"state"`
	Notes []string `json:"notes,omitempty"`

	ExpectedRun  *RunGuess  `json:"expected_run,omitempty" doc:"how long it is expected to run"`
	ExpectedVRAM *VRAMGuess `json:"expected_vram,omitempty" doc:"what it is expected to use on each of its cards"`
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

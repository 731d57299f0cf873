package api

import "berth/internal/reason"

// Why is why a job waits, or how it ended. For a job that does not wait the
// story has only its sentence.
type Why struct {
	reason.Story
	State string   `json:"state"`
	Notes []string `json:"notes,omitempty"`

	ExpectedRun  *RunGuess  `json:"expected_run,omitempty" doc:"estimated duration"`
	ExpectedVRAM *VRAMGuess `json:"expected_vram,omitempty" doc:"estimated memory on each of its GPUs"`
}

// RunGuess is a job's estimated duration.
type RunGuess struct {
	LowS   float64 `json:"low_s"`
	MidS   float64 `json:"mid_s"`
	HighS  float64 `json:"high_s"`
	Source string  `json:"source" doc:"command (earlier jobs with the same command), user (the user's last jobs) or limit"`
	Runs   int     `json:"runs" doc:"number of earlier jobs it is based on"`
}

// VRAMGuess is a job's estimated memory on each of its GPUs.
type VRAMGuess struct {
	LowMiB  int64  `json:"low_mib"`
	MidMiB  int64  `json:"mid_mib"`
	HighMiB int64  `json:"high_mib"`
	Source  string `json:"source"`
	Runs    int    `json:"runs"`
}

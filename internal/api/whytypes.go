package api

import "berth/internal/job/reason"

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
	Source string  `json:"source" doc:"command (earlier runs with the same arguments), program (earlier runs with other arguments), user (a guess from the user's last jobs) or limit"`
	Runs   int     `json:"runs" doc:"number of earlier runs it is based on"`
	Longer bool    `json:"longer,omitempty" doc:"only earlier runs that took longer than this one so far count"`
}

// VRAMGuess is a job's estimated memory on each of its GPUs.
type VRAMGuess struct {
	LowMiB  int64  `json:"low_mib"`
	MidMiB  int64  `json:"mid_mib"`
	HighMiB int64  `json:"high_mib"`
	Source  string `json:"source" doc:"command (earlier runs with the same arguments) or program (a guess from runs with other arguments)"`
	Runs    int    `json:"runs" doc:"number of earlier runs it is based on"`
}

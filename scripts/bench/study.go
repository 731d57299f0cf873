package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"time"
)

// result is what the process of a measurement tells of a row.
type result struct {
	row
	Note    string
	Guarded bool
	OK      bool
}

// told is the file of results in the directory of a measurement.
const told = "told.jsonl"

func readResults(path string) ([]result, error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil // it told nothing
	}
	var all []result
	for line := range strings.Lines(string(text)) {
		var r result
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			return all, fmt.Errorf("read results: %w", err)
		}
		all = append(all, r)
	}
	return all, err
}

// row is a guarded result. Its unit is part of what it says.
type row struct {
	What  string  `json:"what"`
	Value float64 `json:"value"`
	More  bool    `json:"more_is_better,omitempty"`
}

// worseThan is 1 if both are equal, and 2 if this is half as good.
func (r row) worseThan(old row) float64 {
	if r.More {
		return old.Value / r.Value
	}
	return r.Value / old.Value
}

// tolerated is how much worse than the committed row a row may be.
const tolerated = 1.2

// study is the committed file.
type study struct {
	Date   string `json:"date"`
	Commit string `json:"commit"`
	CPUs   int    `json:"cpus"`
	Rows   []row  `json:"rows"`
}

func read(path string) map[string]row {
	text, err := os.ReadFile(path)
	if err != nil {
		fail(err.Error() + " (make bench writes it)")
	}
	var s study
	check(json.Unmarshal(text, &s))
	fmt.Printf("against %s of %s, %d CPUs\n", s.Commit, s.Date, s.CPUs)
	was := map[string]row{}
	for _, r := range s.Rows {
		was[r.What] = r
	}
	return was
}

func save(path string, rows []row) {
	commit, err := exec.Command("git", "rev-parse", "--short=8", "HEAD").Output()
	check(err)
	text, err := json.MarshalIndent(study{time.Now().UTC().Format(time.DateOnly), strings.TrimSpace(string(commit)), runtime.NumCPU(), rows}, "", "\t")
	check(err)
	check(os.WriteFile(path, append(text, '\n'), 0o644))
}

package main

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"time"
)

// The results of a check.
const (
	passed  = "ok"
	failed  = "FAIL"
	skipped = "skip"
)

// result is a row of the table.
type result struct {
	Check   string   `json:"check"`
	About   string   `json:"about"`
	Result  string   `json:"result"`
	Why     []string `json:"why,omitempty"`     // what failed, or why it was skipped
	Figures []string `json:"figures,omitempty"` // what was measured
	Seconds float64  `json:"seconds"`
	Log     string   `json:"log,omitempty"` // the end of berth's log, of a failure
}

// row is the result as lines of the table: the reasons first, then the figures.
func (r result) row() string {
	var b strings.Builder
	lines := append(append([]string{}, r.Why...), r.Figures...)
	if len(lines) == 0 {
		lines = []string{r.About}
	}
	for i, line := range lines {
		name, word, took := "", "", ""
		if i == 0 {
			name, word, took = r.Check, r.Result, fmt.Sprintf("%.1fs", r.Seconds)
		}
		fmt.Fprintf(&b, "%-18s %-6s %6s  %s\n", name, word, took, strings.ReplaceAll(line, "\n", " / "))
	}
	return b.String()
}

// tally counts the results.
type tally struct{ passed, failed, skipped int }

func count(results []result) tally {
	var sum tally
	for _, r := range results {
		switch r.Result {
		case passed:
			sum.passed++
		case failed:
			sum.failed++
		default:
			sum.skipped++
		}
	}
	return sum
}

func (t tally) line(left int) string {
	text := fmt.Sprintf("%d ok, %d failed, %d skipped", t.passed, t.failed, t.skipped)
	if left > 0 {
		text += fmt.Sprintf("; %d processes were left behind and killed, which is a failure", left)
	}
	return text
}

// writeJSON writes all results as JSON.
func writeJSON(path string, h *host, results []result) error {
	data, err := json.MarshalIndent(struct {
		At      time.Time `json:"at"`
		Host    *host     `json:"host"`
		Results []result  `json:"results"`
	}{time.Now().UTC(), h, results}, "", "  ")
	if err != nil {
		return fmt.Errorf("write the results: %w", err)
	}
	if err := os.WriteFile(path, append(data, '\n'), 0o644); err != nil {
		return fmt.Errorf("write the results: %w", err)
	}
	return nil
}

//go:build cgo

package main

import (
	"strings"
	"testing"
)

// TestWhetherJobsCanBeParked: most machines that run this have no driver, and
// then it says so.
func TestWhetherJobsCanBeParked(t *testing.T) {
	var out, errs strings.Builder
	switch status := command([]string{"park", "-check"}, strings.NewReader(""), &out, &errs); {
	case status == 0 && errs.Len() == 0:
	case status == exitFailed && strings.HasPrefix(errs.String(), "berth-gpu: ") && strings.Count(errs.String(), "\n") == 1:
	default:
		t.Errorf("status %d: %q", status, errs.String())
	}
	if status := command([]string{"once", "-check"}, strings.NewReader(""), &out, &errs); status != exitUsage {
		t.Errorf("once -check ends with %d", status)
	}
}

package sched

import (
	"testing"

	"berth/internal/tests/testkit"
)

// TestFilesUseOnlyGroupsAbove reads the groups in doc.go.
func TestFilesUseOnlyGroupsAbove(t *testing.T) {
	testkit.FilesInOrder(t, 10)
}

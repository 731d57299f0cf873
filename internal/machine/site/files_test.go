package site

import (
	"testing"

	"berth/internal/tests/testkit"
)

func TestFilesUseOnlyGroupsAbove(t *testing.T) { testkit.FilesInOrder(t, 7) }

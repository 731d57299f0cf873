package access

import (
	"testing"

	"berth/internal/tests/testkit"
)

func TestFilesUseOnlyGroupsAbove(t *testing.T) { testkit.FilesInOrder(t, 2) }

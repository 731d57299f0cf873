package run

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"berth/internal/keep"
)

// Living are the jobs that run under the supervisors of a directory. It is for
// use without a running berth and only reads: a berth that starts in the
// meantime finds everything unchanged.
func Living(keepDir string) (map[string]bool, error) {
	entries, err := os.ReadDir(keepDir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("find supervisors: %w", err)
	}
	living := map[string]bool{}
	for _, entry := range entries {
		record, ok, err := keep.ReadRecords(filepath.Join(keepDir, entry.Name(), recordName))
		if err != nil || !ok || record.State != keep.Started || record.BootID != keep.BootID() {
			continue
		}
		if began, err := keep.StartTicks(record.KeepPID); err == nil && began == record.KeepStart {
			living[record.Job] = true
		}
	}
	return living, nil
}

package run

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"berth/internal/machine/keep"
)

// Living are the supervisors of a directory that hold a job. It is for use
// without a running berth and only reads: a berth that starts in the meantime
// finds everything unchanged.
func Living(keepDir string) ([]Found, error) {
	entries, err := os.ReadDir(keepDir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("find supervisors: %w", err)
	}
	var living []Found
	for _, entry := range entries {
		dir := directory(filepath.Join(keepDir, entry.Name()))
		record, ok, err := dir.record()
		if err != nil || !ok || record.State != keep.Started || record.BootID != keep.BootID() {
			continue
		}
		if began, err := keep.StartTicks(record.KeepPID); err == nil && began == record.KeepStart {
			living = append(living, Found{
				Token: entry.Name(), Job: record.Job, Attempt: record.Attempt, Kind: FoundRunning, Record: record, Copy: dir.copy(),
			})
		}
	}
	return living, nil
}

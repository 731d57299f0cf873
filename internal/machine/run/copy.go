package run

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// copyName is the file in a supervisor's directory with the job as berth knew
// it. It is written before the order is sent and is as old as the record; nothing
// needs it after the machine went down, so it is not synced.
const copyName = "job"

// maxCopy bounds what is read of one: a command and an environment.
const maxCopy = 16 << 20

// leaveCopy replaces the copy of the supervisor's earlier job, or removes it.
func leaveCopy(dir string, text []byte) error {
	path := filepath.Join(dir, copyName)
	if text == nil {
		_ = os.Remove(path) // an old one does not match the record, and is ignored
		return nil
	}
	err := os.WriteFile(path+".new", text, 0o600)
	if err == nil {
		err = os.Rename(path+".new", path)
	}
	if errors.Is(err, os.ErrNotExist) {
		return nil // the supervisor is gone, which is found out soon
	}
	if err != nil {
		_ = os.Remove(path + ".new")
		return fmt.Errorf("leave a copy of the job: %w", err)
	}
	return nil
}

func readCopy(dir string) []byte {
	path := filepath.Join(dir, copyName)
	if info, err := os.Lstat(path); err != nil || !info.Mode().IsRegular() || info.Size() > maxCopy {
		return nil
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil
	}
	return text
}

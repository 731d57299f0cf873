package site

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// MakeDir is os.MkdirAll, and lets the new names survive a power cut: a store that
// is synced is lost with a directory whose name was not.
func MakeDir(path string, mode os.FileMode) error {
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		return nil
	}
	parent := filepath.Dir(path)
	if parent != path {
		if err := MakeDir(parent, mode); err != nil {
			return err
		}
	}
	if err := os.Mkdir(path, mode); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	dir, err := os.Open(parent)
	if errors.Is(err, fs.ErrPermission) {
		return nil // a parent that may be written but not read cannot be synced
	}
	if err != nil {
		return err
	}
	defer dir.Close()
	return dir.Sync()
}

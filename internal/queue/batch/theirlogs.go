package batch

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"berth/internal/job"
)

// theirLogName is the name that gpusched gives the log of a job.
func theirLogName(j *job.Job) string {
	number, _ := strconv.Atoi(j.ID)
	return fmt.Sprintf("job%03d_gpu%s.log", number, strings.ReplaceAll(j.Grant.List(), ",", "-"))
}

// linkLog gives the log of a job that starts gpusched's name too. A file that
// gpusched itself left under that name is kept as NAME.old.
func (l layout) linkLog(j *job.Job) error {
	target, err := filepath.Rel(l.logDir, j.Log)
	if err != nil {
		return err
	}
	path := filepath.Join(l.logDir, theirLogName(j))
	switch info, err := os.Lstat(path); {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return err
	case info.Mode()&fs.ModeSymlink != 0:
		if err := os.Remove(path); err != nil {
			return err
		}
	default:
		if err := os.Link(path, path+".old"); err != nil { // unlike a rename, it replaces nothing
			return err
		}
		if err := os.Remove(path); err != nil {
			return err
		}
	}
	return os.Symlink(target, path)
}

// theirLogs are the names that linkLog made.
func (l layout) theirLogs() ([]string, error) {
	entries, err := os.ReadDir(l.logDir)
	if err != nil {
		return nil, fmt.Errorf("look for logs: %w", err)
	}
	var names []string
	for _, e := range entries {
		if e.Type() == fs.ModeSymlink && theirLog().MatchString(e.Name()) {
			names = append(names, filepath.Join(l.logDir, e.Name()))
		}
	}
	return names, nil
}

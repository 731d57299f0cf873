package gpuscheduler

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"berth/internal/machine/site"
	"berth/internal/text/problem"
)

// placesOf is where the scheduler of a state file keeps its queue: beside it, or
// in the user's local state directory if that is on a network file system.
func placesOf(stateFile string) (site.Places, error) {
	path, err := filepath.Abs(stateFile)
	if err != nil {
		return site.Places{}, fmt.Errorf("state file %s: %w", stateFile, err)
	}
	real, err := filepath.EvalSymlinks(filepath.Dir(path))
	if err != nil {
		return site.Places{}, problem.Newf(problem.Refused, "create the directory, or choose another --state-file", "state file %s: %v", stateFile, err)
	}
	path = filepath.Join(real, filepath.Base(path)) // one file, one scheduler
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		return site.Places{}, problem.Newf(problem.Refused, "choose a file with --state-file", "state file %s is a directory", stateFile)
	}
	dir := path + ".d"
	if remote, err := site.OnNetwork(filepath.Dir(path)); err == nil && remote {
		own, err := site.PrivatePlaces(os.Getenv)
		if err != nil {
			return site.Places{}, fmt.Errorf("%s is on a network file system, and no local directory can be used: %w", path, err)
		}
		sum := sha256.Sum256([]byte(path))
		dir = filepath.Join(own.StateDir, "gpu-scheduler", hex.EncodeToString(sum[:8]))
	}
	return site.Places{StateDir: dir, Socket: filepath.Join(dir, "berth.sock"), Config: filepath.Join(dir, "config.toml")}, nil
}

// outputDir is where job logs go: the usual directory, unless it belongs to
// another user, who could read the logs or redirect them.
func outputDir() (dir string, moved bool, err error) {
	usual := filepath.Join(os.TempDir(), "gpu_scheduler_logs")
	if err = ownDir(usual, 0o022); err == nil {
		return usual, false, nil
	}
	own := fmt.Sprintf("%s_%d", usual, os.Getuid())
	if err = ownDir(own, 0o022); err != nil {
		return "", false, fmt.Errorf("no directory for the logs of jobs: %w", err)
	}
	return own, true, nil
}

// ownDir makes or checks a directory that belongs to this user and gives others
// none of these permissions.
func ownDir(path string, closed os.FileMode) error {
	if err := os.Mkdir(path, 0o700); err != nil && !os.IsExist(err) {
		return err
	}
	info, err := os.Lstat(path)
	if err != nil {
		return err
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok || !info.IsDir() || int(stat.Uid) != os.Getuid() || info.Mode().Perm()&closed != 0 {
		return fmt.Errorf("%s must be a directory that only you can use", path)
	}
	return nil
}

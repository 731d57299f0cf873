package slurm

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// stepsKept is for how long the counter of a job stays after its last step. The
// job may have ended by then; no srun is left to remove it.
const stepsKept = 30 * 24 * time.Hour

// stepsDir is not in TMPDIR, which a script may set between two steps.
func stepsDir() string { return filepath.Join("/tmp", fmt.Sprintf("berth-steps-%d", os.Getuid())) }

// nextStep is the number of a new step of a job: 0, 1, 2 and so on, also for
// steps that start at once.
func nextStep(dir, token string) (int, error) {
	if err := os.Mkdir(dir, 0o700); err != nil && !os.IsExist(err) {
		return 0, err
	}
	var owner unix.Stat_t
	if err := unix.Lstat(dir, &owner); err != nil || int(owner.Uid) != os.Getuid() || owner.Mode&unix.S_IFMT != unix.S_IFDIR {
		return 0, fmt.Errorf("%s is not this user's directory", dir)
	}
	name := sha256.Sum256([]byte(token)) // the token itself is a secret
	file, err := os.OpenFile(filepath.Join(dir, hex.EncodeToString(name[:16])), os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return 0, err
	}
	defer file.Close()
	if err := unix.Flock(int(file.Fd()), unix.LOCK_EX); err != nil {
		return 0, err
	}
	read, err := io.ReadAll(io.LimitReader(file, 20))
	if err != nil {
		return 0, err
	}
	step, _ := strconv.Atoi(strings.TrimSpace(string(read))) // empty: the first
	if step == 0 {
		forgetSteps(dir, time.Now().Add(-stepsKept))
	}
	_, err = file.WriteAt([]byte(strconv.Itoa(step+1)+"\n"), 0)
	return step, err
}

// forgetSteps removes counters that no step used since a time.
func forgetSteps(dir string, since time.Time) {
	files, _ := os.ReadDir(dir)
	for _, file := range files {
		if info, err := file.Info(); err == nil && info.ModTime().Before(since) {
			_ = os.Remove(filepath.Join(dir, file.Name())) // the next srun tries again
		}
	}
}

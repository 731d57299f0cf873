package run

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"berth/internal/keep"
)

// walls are the device filters of one Runner's jobs. Each supervisor has a
// directory with the filter of its job. What the supervisor makes, removes and
// makes again is below it, so no job is ever beside its filter.
type walls struct {
	once sync.Once
	why  error // they cannot be built here
}

// Filters reports whether a job can be kept from opening cards it was not
// given, and why not. It tries that once.
func (r *Runner) Filters() error {
	r.walls.once.Do(func() {
		switch {
		case r.noCgroup:
			r.walls.why = errors.New("cgroups are turned off")
		case r.cgroup == "":
			r.walls.why = errors.New(whyNoCgroup())
		default:
			r.walls.why = probeFilter(r.cgroup)
		}
		if r.walls.why != nil {
			r.log.Info("no device filter: jobs can open cards they were not given", "why", r.walls.why)
		}
	})
	return r.walls.why
}

// probeFilter puts a filter on a cgroup that nobody is in.
func probeFilter(parent string) error {
	dir := filepath.Join(parent, fmt.Sprintf("probe-%d%s", os.Getpid(), keep.FilteredSuffix))
	if err := os.Mkdir(dir, 0o755); err != nil && !os.IsExist(err) {
		return err
	}
	defer unix.Rmdir(dir)
	return putFilter(dir, &keep.Devices{}, capsMajor())
}

func putFilter(dir string, d *keep.Devices, capsMajor int) error {
	program, err := loadFilter(d, capsMajor)
	if err == nil {
		err = attachFilter(dir, program)
		_ = program.Close() // the cgroup holds it from now on
	}
	if errors.Is(err, unix.EPERM) {
		return fmt.Errorf("the kernel lets only root filter devices: %w", err)
	}
	return err
}

// capsMajor is looked up for every filter: the driver may be loaded after
// berth, and again.
func capsMajor() int {
	text, err := os.ReadFile("/proc/devices")
	if err != nil {
		return -1
	}
	return capsMajorIn(string(text))
}

// enclose builds the walls of an order that its supervisor is about to be given.
// A lease is its caller's alone, so nobody is inside, and the mutex need not be
// held meanwhile.
func (r *Runner) enclose(o *keep.Order, token string) error {
	r.mu.Lock()
	s, err := r.leased(token)
	var built string
	if err == nil {
		built = s.walls
	}
	r.mu.Unlock()
	if err != nil {
		return err
	}
	now := r.wall(o, token, built)
	r.mu.Lock()
	s.walls = now
	r.mu.Unlock()
	return nil
}

// wall puts the order's filter between its supervisor and the place where all
// cgroups go. Where that fails the job runs all the same, since its environment
// names its own cards only, and its record says that nothing else holds it to
// them. built says what is on the supervisor's directory already.
func (r *Runner) wall(o *keep.Order, token, built string) (now string) {
	err := r.Filters()
	if err == nil {
		now, err = r.buildWall(o, token, built)
	}
	if err != nil {
		o.Note = "device filter not in force: " + err.Error()
		r.log.Warn("a job can open cards it was not given", "job", o.Job, "error", err)
		return ""
	}
	return now
}

func (r *Runner) buildWall(o *keep.Order, token, built string) (now string, err error) {
	dir := filepath.Join(o.CgroupParent, token+keep.FilteredSuffix)
	err = os.Mkdir(dir, 0o755)
	switch {
	case err == nil:
		built = ""
		enableControllers(dir, false)
	case !os.IsExist(err):
		return "", err
	}
	major := capsMajor()
	if now = filterKey(o.Devices, major); now != built {
		if err := putFilter(dir, o.Devices, major); err != nil {
			return "", err
		}
	}
	o.CgroupParent = dir
	return now, nil
}

// dropWalls removes the directory of a supervisor that is no more. A cgroup
// that still has a process stays, and its filter with it.
func (r *Runner) dropWalls(s *supervisor) {
	if r.cgroup != "" {
		_ = keep.RemoveCgroup(filepath.Join(r.cgroup, s.token+keep.FilteredSuffix))
		_ = keep.RemoveCgroup(filepath.Join(r.cgroup, s.token)) // of jobs without
	}
	// An earlier berth may have had another place.
	if dir := wallsOf(s.identity.Cgroup); dir != "" {
		_ = keep.RemoveCgroup(dir)
	}
}

// wallsOf is the directory with the filter of a job's cgroup, or "".
func wallsOf(cgroup string) string {
	dir := filepath.Dir(cgroup)
	if !strings.HasSuffix(dir, keep.FilteredSuffix) || filepath.Base(dir) != filepath.Base(cgroup)+keep.FilteredSuffix {
		return ""
	}
	return dir
}

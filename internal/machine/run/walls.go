package run

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"berth/internal/machine/keep"
)

// walls are the device filters of one Runner's jobs. Each supervisor has a
// directory with the filter of its job. The supervisor creates and removes
// cgroups below it, so a job is never outside its filter.
type walls struct {
	once sync.Once
	why  error // why filters do not work here
}

// Filters returns nil if a job can be kept from opening GPUs that were not
// allocated to it, or why not. It tries once.
func (r *Runner) Filters() error {
	r.walls.once.Do(func() {
		switch {
		case r.noCgroup:
			r.walls.why = errors.New("cgroups are switched off")
		case r.cgroup == "":
			r.walls.why = errors.New(whyNoCgroup())
		default:
			r.walls.why = probeFilter(r.cgroup)
		}
		if r.walls.why != nil {
			r.log.Info("no device filter: jobs can open GPUs that were not allocated to them", "why", r.walls.why)
		}
	})
	return r.walls.why
}

// probeFilter puts a filter on an empty cgroup.
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
		return fmt.Errorf("only root may filter devices: %w", err)
	}
	return err
}

// capsMajor is looked up for every filter: the driver may be loaded later, and
// reloaded.
func capsMajor() int {
	text, err := os.ReadFile("/proc/devices")
	if err != nil {
		return -1
	}
	return capsMajorIn(string(text))
}

// enclose sets up the filter for an order that its supervisor is about to get.
// A lease belongs to its caller alone, so no process is inside, and the mutex
// need not be held.
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

// wall puts the order's filter on the supervisor's directory. If that fails,
// the job runs all the same, since its environment lists only its own GPUs,
// and its record says that nothing enforces it. built is the filter already in
// place.
func (r *Runner) wall(o *keep.Order, token, built string) (now string) {
	err := r.Filters()
	if err == nil {
		now, err = r.buildWall(o, token, built)
	}
	if err != nil {
		o.Note = "device filter not in force: " + err.Error()
		r.log.Warn("a job can open GPUs that were not allocated to it", "job", o.Job, "error", err)
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

// dropWalls removes the directory of a supervisor that is gone. A cgroup that
// still has a process stays, with its filter.
func (r *Runner) dropWalls(s *supervisor) {
	if r.cgroup != "" {
		_ = keep.RemoveCgroup(filepath.Join(r.cgroup, s.token+keep.FilteredSuffix))
		_ = keep.RemoveCgroup(filepath.Join(r.cgroup, s.token)) // of jobs without a filter
	}
	// An earlier berth may have used another parent.
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

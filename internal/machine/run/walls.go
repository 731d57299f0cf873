package run

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"berth/internal/machine/keep"
)

// Filters returns nil if a job can be kept from opening GPUs that were not
// allocated to it, or why not. It tries once.
func (c *Cgroups) Filters() error {
	c.probe.Do(func() {
		switch {
		case c.off:
			c.why = errors.New("cgroups are switched off")
		case c.Parent == "":
			c.why = errors.New(whyNoCgroup())
		default:
			c.why = probeFilter(c.Parent)
		}
		if c.why != nil {
			c.log.Info("no device filter: jobs can open GPUs that were not allocated to them", "why", c.why)
		}
	})
	return c.why
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

// enclose sets up the filter for an order that its supervisor is about to get, on the
// supervisor's directory. If that fails, the job runs all the same, since its
// environment lists only its own GPUs, and its record says that nothing enforces it.
// built is the filter already in place.
func (c *Cgroups) enclose(o *keep.Order, token, built string) (now string) {
	err := c.Filters()
	if err == nil {
		o.CgroupParent, now, err = buildWall(o.CgroupParent, token, o.Devices, built)
	}
	if err != nil {
		o.Note = "device filter not in force: " + err.Error()
		c.log.Warn("a job can open GPUs that were not allocated to it", "job", o.Job, "error", err)
	}
	return now
}

// ofHelpers is the parent of helpers' cgroups: its filter lets them open no
// GPU, if the host can filter.
func (c *Cgroups) ofHelpers() (dir string) {
	if c.Parent == "" || c.Filters() != nil {
		return c.Parent
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	dir, now, err := buildWall(c.Parent, helperWalls, &keep.Devices{}, c.helpersWall)
	if err != nil {
		c.log.Warn("helper processes can open GPUs", "error", err)
	}
	c.helpersWall = now
	return dir
}

// helperWalls is the first part of the name of the directory with that filter.
const helperWalls = "helpers"

// buildWall makes the directory of that name in parent with a filter for these devices,
// if it is not what is built there already. After an error, dir is parent.
func buildWall(parent, name string, d *keep.Devices, built string) (dir, now string, err error) {
	dir = filepath.Join(parent, name+keep.FilteredSuffix)
	err = os.Mkdir(dir, 0o755)
	switch {
	case err == nil:
		built = ""
		enableControllers(dir, false)
	case !os.IsExist(err):
		return parent, "", err
	}
	major := capsMajor()
	if now = filterKey(d, major); now != built {
		if err := putFilter(dir, d, major); err != nil {
			return parent, "", err
		}
	}
	return dir, now, nil
}

// dropWalls removes the directory of a supervisor that is gone. A cgroup that
// still has a process stays, with its filter.
func (c *Cgroups) dropWalls(of Identity) {
	if c.Parent != "" {
		_ = keep.RemoveCgroup(filepath.Join(c.Parent, of.Token+keep.FilteredSuffix))
		_ = keep.RemoveCgroup(filepath.Join(c.Parent, of.Token)) // of jobs without a filter
	}
	// An earlier berth may have used another parent.
	if dir := wallsOf(of.Cgroup); dir != "" {
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
